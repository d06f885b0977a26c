/* SPDX-License-Identifier: Apache-2.0 */
#include "launcher/network/network.h"

#include "launcher/sys.h"

#include <arpa/inet.h>
#include <dirent.h>
#include <net/if.h>
#include <net/route.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/stat.h>

#define RULES_FLAG "network-rules"

enum { FIRST_ADDRESS = 0x647f0000 /* 100.127.0.0 */, ADDRESSES_PER_SLOT = 4 };

/* --- rules ---------------------------------------------------------------------------------- */

static void write_sysctl(const struct network *network, const char *path, const char *value)
{
    int fd = openat(network->context->state.proc, path, O_WRONLY | O_CLOEXEC);

    if (fd < 0)
        return;
    (void)!write(fd, value, strlen(value));
    close(fd);
}

static int prepare(struct network *network, struct fail *fail)
{
    int flag;

    /* The flag is written before the rules, so that they are removed even after a crash. */
    flag = openat(network->context->state.root, RULES_FLAG,
                  O_WRONLY | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (flag < 0)
        return fail_sys(fail, "note the network rules");
    close(flag);
    if (rules_set_host(&network->rules, fail) < 0)
        return -1;
    write_sysctl(network, "sys/net/ipv4/ip_forward", "1");
    return 0;
}

static bool has_rules(const struct network *network)
{
    return network->available &&
           faccessat(network->context->state.root, RULES_FLAG, F_OK, AT_SYMLINK_NOFOLLOW) == 0;
}

int network_start(struct network *network, struct fail *fail)
{
    network->watch = network->available ? rules_watch() : -1;
    return has_rules(network) ? prepare(network, fail) : 0;
}

int network_on_change(struct network *network, struct fail *fail)
{
    if (network->watch >= 0)
        rules_drain(network->watch);
    return has_rules(network) && !rules_host_hold(&network->rules) ? prepare(network, fail) : 0;
}

static void count_sandbox(void *user, const char *id)
{
    (void)id;
    ++*(unsigned *)user;
}

void network_close(struct network *network)
{
    unsigned left = 0;

    if (!has_rules(network) || state_each(&network->context->state, count_sandbox, &left) < 0 ||
        left > 0)
        return;
    if (rules_remove_host(&network->rules) == 0)
        (void)unlinkat(network->context->state.root, RULES_FLAG, 0);
}

/* --- the resolver --------------------------------------------------------------------------- */

/* Keeps the name servers that can be reached from a sandbox: none on the host's loopback. */
static void add_servers(struct network *network, const char *path)
{
    FILE *file = fopen(path, "re");
    char line[256];
    char server[64];

    while (file && fgets(line, sizeof(line), file)) {
        size_t used = strlen(network->resolver);
        struct in_addr address;

        if (sscanf(line, "nameserver %63s", server) != 1 ||
            inet_pton(AF_INET, server, &address) != 1 || ntohl(address.s_addr) >> 24 == 127)
            continue;
        if (used + strlen("nameserver \n") + strlen(server) >= sizeof(network->resolver))
            break;
        snprintf(network->resolver + used, sizeof(network->resolver) - used, "nameserver %s\n",
                 server);
    }
    if (file)
        fclose(file);
}

void network_open(struct network *network, const struct context *context, int mounts, int netns)
{
    *network = (struct network){
        .context = context,
        .rules = { .instance = context->setup.instance,
                   .allow_private = context->setup.flags & LAUNCH_SETUP_ALLOW_PRIVATE,
                   .mounts = mounts },
        .netns = netns,
        .watch = -1,
        .available = context->root && access(RULES_NFT, X_OK) == 0,
    };
    add_servers(network, "/etc/resolv.conf");
    if (!*network->resolver)
        add_servers(network, "/run/systemd/resolve/resolv.conf");
}

/* --- the pair of interfaces ------------------------------------------------------------------ */

struct message {
    _Alignas(8) char bytes[512];
    size_t length;
};

struct link_message {
    uint8_t family, pad;
    uint16_t type;
    int32_t index;
    uint32_t flags, change;
};

enum {
    NEW_LINK = 16,
    REQUEST_CREATE_ACK = 0x1 | 0x4 | 0x200 | 0x400,
    LINK_NAME = 3,
    LINK_INFO = 18,
    LINK_NET_NS_FD = 28,
    INFO_KIND = 1,
    INFO_DATA = 2,
    VETH_PEER = 1,
};

static void put(struct message *message, const void *data, size_t length)
{
    memcpy(message->bytes + message->length, data, length);
    message->length += (length + 3) & ~(size_t)3;
}

/* Returns where the attribute begins, for end_attribute(). */
static size_t begin_attribute(struct message *message, uint16_t type)
{
    uint16_t head[2] = { 0, type };
    size_t offset = message->length;

    put(message, head, sizeof(head));
    return offset;
}

static void end_attribute(struct message *message, size_t offset)
{
    uint16_t length = (uint16_t)(message->length - offset);

    memcpy(message->bytes + offset, &length, sizeof(length));
}

static void put_text(struct message *message, uint16_t type, const char *text)
{
    size_t offset = begin_attribute(message, type);
    uint16_t length = (uint16_t)(4 + strlen(text) + 1);

    put(message, text, strlen(text) + 1);
    memcpy(message->bytes + offset, &length, sizeof(length));
}

static int exchange(struct message *message)
{
    struct {
        uint32_t length;
        uint16_t type, flags;
        uint32_t sequence, port;
    } head = { (uint32_t)message->length, NEW_LINK, REQUEST_CREATE_ACK, 1, 0 };
    char answer[1024];
    int error = -EIO;
    int fd = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, 0);

    if (fd < 0)
        return -1;
    memcpy(message->bytes, &head, sizeof(head));
    if (send(fd, message->bytes, message->length, 0) == (ssize_t)message->length &&
        recv(fd, answer, sizeof(answer), 0) >= (ssize_t)(sizeof(head) + sizeof(error)))
        memcpy(&error, answer + sizeof(head), sizeof(error));
    close(fd);
    errno = -error;
    return error ? -1 : 0;
}

static int make_pair(const char *name, int netns)
{
    struct link_message link = { 0 };
    struct message message = { .length = 16 };
    size_t info;
    size_t data;
    size_t peer;
    size_t offset;

    put(&message, &link, sizeof(link));
    put_text(&message, LINK_NAME, name);
    info = begin_attribute(&message, LINK_INFO);
    put_text(&message, INFO_KIND, "veth");
    data = begin_attribute(&message, INFO_DATA);
    peer = begin_attribute(&message, VETH_PEER);
    put(&message, &link, sizeof(link));
    put_text(&message, LINK_NAME, "eth0");
    offset = begin_attribute(&message, LINK_NET_NS_FD);
    put(&message, &netns, sizeof(netns));
    end_attribute(&message, offset);
    end_attribute(&message, peer);
    end_attribute(&message, data);
    end_attribute(&message, info);
    return exchange(&message);
}

static void set_address(struct sockaddr *target, uint32_t address)
{
    struct sockaddr_in name = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(address) };

    memcpy(target, &name, sizeof(name));
}

/* In the network namespace that we are in. */
static int configure(const char *name, uint32_t address, uint32_t gateway)
{
    struct ifreq request = { 0 };
    struct rtentry route = { .rt_flags = RTF_UP | RTF_GATEWAY };
    int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    int result = -1;

    if (fd < 0)
        return -1;
    strncpy(request.ifr_name, name, sizeof(request.ifr_name) - 1);
    set_address(&request.ifr_addr, address);
    if (ioctl(fd, SIOCSIFADDR, &request) < 0)
        goto out;
    set_address(&request.ifr_netmask, 0xfffffffc);
    if (ioctl(fd, SIOCSIFNETMASK, &request) < 0)
        goto out;
    request.ifr_flags = IFF_UP;
    if (ioctl(fd, SIOCSIFFLAGS, &request) < 0)
        goto out;
    set_address(&route.rt_dst, 0);
    set_address(&route.rt_genmask, 0);
    set_address(&route.rt_gateway, gateway);
    result = gateway ? ioctl(fd, SIOCADDRT, &route) : 0;
out:
    close(fd);
    return result;
}

/* In the sandbox's namespace. The rules come before the interface has an address. */
static int equip(struct network *network, uint32_t first, const char *addresses, struct fail *fail)
{
    if (rules_set_sandbox(&network->rules, network->resolver, addresses, fail) < 0)
        return -1;
    write_sysctl(network, "sys/net/ipv6/conf/eth0/disable_ipv6", "1");
    if (configure("eth0", first + 2, first + 1) < 0)
        return fail_sys(fail, "configure the sandbox's interface");
    return 0;
}

bool network_holds(const struct network *network, int netns)
{
    bool holds;

    if (netns < 0 || setns(netns, CLONE_NEWNET) < 0)
        return false;
    holds = rules_hold_here();
    if (setns(network->netns, CLONE_NEWNET) < 0)
        _exit(1);
    return holds;
}

int network_attach(struct network *network, uint32_t slot, int netns, struct fail *fail)
{
    uint32_t first = FIRST_ADDRESS + slot * ADDRESSES_PER_SLOT;
    char addresses[RULES_ADDRESSES_SIZE];
    char name[IFNAMSIZ];
    char path[64];
    int result;

    if (prepare(network, fail) < 0)
        return -1;
    if (rules_host_addresses(addresses) < 0)
        return fail_sys(fail, "list the host's addresses");
    snprintf(name, sizeof(name), "sbx%u", slot);
    if (make_pair(name, netns) < 0)
        return fail_sys(fail, "make a pair of interfaces");
    snprintf(path, sizeof(path), "sys/net/ipv6/conf/%s/disable_ipv6", name);
    write_sysctl(network, path, "1");
    if (configure(name, first + 1, 0) < 0)
        return fail_sys(fail, "configure the host's interface");
    if (setns(netns, CLONE_NEWNET) < 0)
        return fail_sys(fail, "enter the network namespace");
    result = equip(network, first, addresses, fail);
    if (setns(network->netns, CLONE_NEWNET) < 0)
        _exit(1);
    return result;
}
