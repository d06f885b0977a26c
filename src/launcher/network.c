#include "launcher/network.h"

#include "launcher/launcher.h"
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

#define NFT "/usr/sbin/nft"
#define RULES_FLAG "network-rules"

enum { FIRST_ADDRESS = 0x647f0000 /* 100.127.0.0 */, ADDRESSES_PER_SLOT = 4 };

/* What a sandbox may reach is everything that is routed on; what it may not is dropped first. */
static const char rules[] =
    "table inet %s {\n"
    "  chain input {\n"
    "    type filter hook input priority -10; policy accept;\n"
    "    iifname \"sbx*\" drop\n"
    "  }\n"
    "  chain forward {\n"
    "    type filter hook forward priority -10; policy accept;\n"
    "    iifname \"sbx*\" oifname \"sbx*\" drop\n"
    "    iifname \"sbx*\" meta nfproto ipv6 drop\n"
    "    iifname \"sbx*\" ip saddr != 100.127.0.0/16 drop\n"
    "    iifname \"sbx*\" ip daddr { 0.0.0.0/8, 127.0.0.0/8, 169.254.0.0/16, 224.0.0.0/3 } drop\n"
    "    oifname \"sbx*\" ct state established,related accept\n"
    "    oifname \"sbx*\" drop\n"
    "  }\n"
    "  chain postrouting {\n"
    "    type nat hook postrouting priority 100; policy accept;\n"
    "    ip saddr 100.127.0.0/16 oifname != \"sbx*\" masquerade\n"
    "  }\n"
    "}\n";

/* --- nft ------------------------------------------------------------------------------------ */

static void table_name(const struct launcher *launcher, char name[LAUNCH_NAME_SIZE + 16])
{
    snprintf(name, LAUNCH_NAME_SIZE + 16, "sandglass_%s", launcher->setup.instance);
    for (char *at = name; *at; at++) {
        if (*at == '-' || *at == '.')
            *at = '_';
    }
}

/* The program of the host, with a fixed name and a text of ours. */
static int run_nft(struct launcher *launcher, const char *text)
{
    static const char *const argv[] = { NFT, "-f", "-", NULL };
    int input[2];
    ssize_t written;
    pid_t child;

    if (pipe2(input, O_CLOEXEC) < 0)
        return -1;
    child = host_spawn(launcher, argv, input[0], 0);
    close(input[0]);
    written = child < 0 ? -1 : write(input[1], text, strlen(text));
    close(input[1]);
    return host_wait(child) == 0 && written >= 0 ? 0 : -1;
}

static void write_sysctl(struct launcher *launcher, const char *path, const char *value)
{
    int fd = openat(launcher->state.proc, path, O_WRONLY | O_CLOEXEC);

    if (fd < 0)
        return;
    (void)!write(fd, value, strlen(value));
    close(fd);
}

static int prepare(struct launcher *launcher, struct fail *fail)
{
    char text[sizeof(rules) + 4 * LAUNCH_NAME_SIZE];
    char name[LAUNCH_NAME_SIZE + 16];
    int used;
    int flag;

    if (launcher->network.prepared)
        return 0;
    table_name(launcher, name);
    used = snprintf(text, sizeof(text), "table inet %s\ndelete table inet %s\n", name, name);
    snprintf(text + used, sizeof(text) - (size_t)used, rules, name);
    /* Known before it is there, so that it is taken away whatever happens. */
    flag =
        openat(launcher->state.root, RULES_FLAG, O_WRONLY | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (flag < 0)
        return fail_sys(fail, "note the network rules");
    close(flag);
    if (run_nft(launcher, text) < 0)
        return fail_sys(fail, "set network rules with nft");
    write_sysctl(launcher, "sys/net/ipv4/ip_forward", "1");
    launcher->network.prepared = true;
    return 0;
}

static void count_sandbox(void *user, const char *id)
{
    (void)id;
    ++*(unsigned *)user;
}

void network_close(struct launcher *launcher)
{
    char name[LAUNCH_NAME_SIZE + 16];
    char text[4 * LAUNCH_NAME_SIZE];
    unsigned left = 0;

    if (faccessat(launcher->state.root, RULES_FLAG, F_OK, AT_SYMLINK_NOFOLLOW) < 0 ||
        !launcher->network.available || state_each(&launcher->state, count_sandbox, &left) < 0 ||
        left > 0)
        return;
    table_name(launcher, name);
    snprintf(text, sizeof(text), "table inet %s\ndelete table inet %s\n", name, name);
    if (run_nft(launcher, text) == 0)
        (void)unlinkat(launcher->state.root, RULES_FLAG, 0);
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
        snprintf(network->resolver + used, sizeof(network->resolver) - used, "nameserver %s\n",
                 server);
    }
    if (file)
        fclose(file);
}

void network_open(struct launcher *launcher)
{
    launcher->network.available = launcher->root && access(NFT, X_OK) == 0;
    add_servers(&launcher->network, "/etc/resolv.conf");
    if (!*launcher->network.resolver)
        add_servers(&launcher->network, "/run/systemd/resolve/resolv.conf");
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
    size_t place = message->length;

    put(message, head, sizeof(head));
    return place;
}

static void end_attribute(struct message *message, size_t place)
{
    uint16_t length = (uint16_t)(message->length - place);

    memcpy(message->bytes + place, &length, sizeof(length));
}

static void put_text(struct message *message, uint16_t type, const char *text)
{
    size_t place = begin_attribute(message, type);
    uint16_t length = (uint16_t)(4 + strlen(text) + 1);

    put(message, text, strlen(text) + 1);
    memcpy(message->bytes + place, &length, sizeof(length));
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
    size_t place;

    put(&message, &link, sizeof(link));
    put_text(&message, LINK_NAME, name);
    info = begin_attribute(&message, LINK_INFO);
    put_text(&message, INFO_KIND, "veth");
    data = begin_attribute(&message, INFO_DATA);
    peer = begin_attribute(&message, VETH_PEER);
    put(&message, &link, sizeof(link));
    put_text(&message, LINK_NAME, "eth0");
    place = begin_attribute(&message, LINK_NET_NS_FD);
    put(&message, &netns, sizeof(netns));
    end_attribute(&message, place);
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

int network_attach(struct launcher *launcher, uint32_t slot, int netns, struct fail *fail)
{
    uint32_t first = FIRST_ADDRESS + slot * ADDRESSES_PER_SLOT;
    char name[IFNAMSIZ];
    char path[64];
    int result;

    if (prepare(launcher, fail) < 0)
        return -1;
    snprintf(name, sizeof(name), "sbx%u", slot);
    if (make_pair(name, netns) < 0)
        return fail_sys(fail, "make a pair of interfaces");
    snprintf(path, sizeof(path), "sys/net/ipv6/conf/%s/disable_ipv6", name);
    write_sysctl(launcher, path, "1");
    if (configure(name, first + 1, 0) < 0)
        return fail_sys(fail, "configure the host's interface");
    if (setns(netns, CLONE_NEWNET) < 0)
        return fail_sys(fail, "enter the network namespace");
    write_sysctl(launcher, "sys/net/ipv6/conf/eth0/disable_ipv6", "1");
    result = configure("eth0", first + 2, first + 1);
    if (result < 0)
        fail_sys(fail, "configure the sandbox's interface");
    if (setns(launcher->host.network, CLONE_NEWNET) < 0)
        _exit(1);
    return result;
}
