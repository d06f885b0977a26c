/* SPDX-License-Identifier: Apache-2.0 */
#include "launcher/network/network_rules.h"

#include "launcher/program.h"
#include "launcher/sys.h"
#include "wire/launch.h"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <stdio.h>
#include <string.h>

#define SANDBOX_TABLE "sandglass"
#define SANDBOX_CHAIN "output"

/* An ICMP error at once, so that no program waits for a timeout. */
#define REFUSE "    ip daddr { %s } reject with icmpx type admin-prohibited\n"

enum { ANSWER_SIZE = 4096, NFTABLES_GROUP = 7 };

/* 100.127.0.0/16 are sandboxes, and the host's end of their interfaces. */
static const char never[] = "0.0.0.0/8, 127.0.0.0/8, 169.254.0.0/16, 100.100.100.200, "
                            "100.127.0.0/16, 224.0.0.0/3";
static const char never_private[] = "0.0.0.0/8, 10.0.0.0/8, 100.64.0.0/10, 127.0.0.0/8, "
                                    "169.254.0.0/16, 172.16.0.0/12, 192.0.0.0/24, 192.168.0.0/16, "
                                    "198.18.0.0/15, 224.0.0.0/3";

/* Forbidden destinations are dropped first; all other packets that are forwarded are allowed. */
static const char host_rules[] = "table inet %s\n"
                                 "delete table inet %s\n"
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
                                 "    oifname \"sbx*\" ct state established,related accept\n"
                                 "    oifname \"sbx*\" drop\n"
                                 "  }\n"
                                 "  chain postrouting {\n"
                                 "    type nat hook postrouting priority 100; policy accept;\n"
                                 "    ip saddr 100.127.0.0/16 oifname != \"sbx*\" masquerade\n"
                                 "  }\n"
                                 "}\n";

/* Connections that end are forgotten here at once and by the host after two minutes, so both how
 * many there are and how many there are in a second is limited. */
static const char sandbox_head[] = "table inet " SANDBOX_TABLE " {\n"
                                   "  chain input {\n"
                                   "    type filter hook input priority 0; policy drop;\n"
                                   "    iifname \"lo\" accept\n"
                                   "    ct state established,related accept\n"
                                   "  }\n"
                                   "  chain " SANDBOX_CHAIN " {\n"
                                   "    type filter hook output priority 0; policy drop;\n"
                                   "    oifname \"lo\" accept\n"
                                   "    meta nfproto ipv6 drop\n"
                                   "    ct state established,related accept\n"
                                   "    ct count over 1024 drop\n"
                                   "    limit rate over 128/second burst 1024 packets drop\n";
static const char sandbox_tail[] = "    accept\n"
                                   "  }\n"
                                   "}\n";

/* --- nft ------------------------------------------------------------------------------------ */

/* The program of the host, with a fixed name and a text of ours, in the network namespace that we
 * are in. */
static int run_nft(const struct rules *rules, const char *text)
{
    static const char *const argv[] = { RULES_NFT, "-f", "-", NULL };
    int input[2];
    ssize_t written;
    pid_t child;

    if (pipe2(input, O_CLOEXEC) < 0)
        return -1;
    child = program_spawn(rules->mounts, argv, input[0], 0);
    close(input[0]);
    written = child < 0 ? -1 : write(input[1], text, strlen(text));
    close(input[1]);
    return program_wait(child) == 0 && written >= 0 ? 0 : -1;
}

static void table_name(const struct rules *rules, char name[LAUNCH_NAME_SIZE + 16])
{
    snprintf(name, LAUNCH_NAME_SIZE + 16, "sandglass_%s", rules->instance);
    for (char *at = name; *at; at++) {
        if (*at == '-' || *at == '.')
            *at = '_';
    }
}

/* --- questions to the kernel ---------------------------------------------------------------- */

struct netlink_head {
    uint32_t length;
    uint16_t type, flags;
    uint32_t sequence, port;
};

struct netfilter_head {
    uint8_t family, version;
    uint16_t resource;
};

enum {
    NETLINK_NETFILTER = 12,
    NFT_SUBSYSTEM = 10 << 8,
    GET_CHAIN = NFT_SUBSYSTEM | 4,
    NEW_GENERATION = NFT_SUBSYSTEM | 15,
    GET_GENERATION = NFT_SUBSYSTEM | 16,
    NEW_CHAIN = NFT_SUBSYSTEM | 3,
    REQUEST = 1,
    FAMILY_INET = 1,
    CHAIN_TABLE = 1,
    CHAIN_NAME = 3,
    CHAIN_POLICY = 5,
    CHAIN_USE = 6, /* how many rules it has */
    GENERATION_ID = 1,
    ATTRIBUTE_TYPE = 0x3fff,
};

struct question {
    struct netlink_head head;
    struct netfilter_head netfilter;
    char attributes[LAUNCH_NAME_SIZE + 64];
};

static void add_text(struct question *question, uint16_t type, const char *text)
{
    size_t used = question->head.length - offsetof(struct question, attributes);
    uint16_t head[2] = { (uint16_t)(sizeof(head) + strlen(text) + 1), type };

    memcpy(question->attributes + used, head, sizeof(head));
    memcpy(question->attributes + used + sizeof(head), text, strlen(text) + 1);
    question->head.length += (head[0] + 3u) & ~3u;
}

/* The 32 bits of that attribute in the answer; false when there is none, or another answer. */
static bool find_number(const char *answer, size_t length, uint16_t wanted, uint32_t *out_number)
{
    size_t at = sizeof(struct netlink_head) + sizeof(struct netfilter_head);
    uint16_t head[2];

    for (; at + sizeof(head) <= length; at += (head[0] + 3u) & ~3u) {
        memcpy(head, answer + at, sizeof(head));
        if (head[0] < sizeof(head) || at + head[0] > length)
            return false;
        if ((head[1] & ATTRIBUTE_TYPE) == wanted && head[0] == sizeof(head) + sizeof(*out_number)) {
            memcpy(out_number, answer + at + sizeof(head), sizeof(*out_number));
            *out_number = ntohl(*out_number);
            return true;
        }
    }
    return false;
}

static bool ask(const struct question *question, uint16_t answer_type, uint16_t attribute,
                uint32_t *out_number)
{
    _Alignas(8) char answer[ANSWER_SIZE];
    struct netlink_head head;
    int fd = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_NETFILTER);
    ssize_t length = -1;

    if (fd < 0)
        return false;
    if (send(fd, question, question->head.length, 0) == (ssize_t)question->head.length)
        length = recv(fd, answer, sizeof(answer), 0);
    close(fd);
    if (length < (ssize_t)sizeof(head))
        return false;
    memcpy(&head, answer, sizeof(head));
    return head.type == answer_type && find_number(answer, (size_t)length, attribute, out_number);
}

static struct question question_of(uint16_t type, uint8_t family)
{
    return (struct question){ .head = { .length = offsetof(struct question, attributes),
                                        .type = type,
                                        .flags = REQUEST,
                                        .sequence = 1 },
                              .netfilter.family = family };
}

/* The generation of the rules, which changes with each change of them; 0 when unknown. */
static uint32_t read_generation(void)
{
    struct question question = question_of(GET_GENERATION, 0);
    uint32_t number = 0;

    return ask(&question, NEW_GENERATION, GENERATION_ID, &number) ? number : 0;
}

/* Whether the sandbox's chain exists with the policy drop: without its rules it passes nothing. */
bool rules_hold_here(void)
{
    struct question question = question_of(GET_CHAIN, FAMILY_INET);
    uint32_t policy = 1;

    add_text(&question, CHAIN_TABLE, SANDBOX_TABLE);
    add_text(&question, CHAIN_NAME, SANDBOX_CHAIN);
    return ask(&question, NEW_CHAIN, CHAIN_POLICY, &policy) && policy == 0;
}

int rules_watch(void)
{
    struct {
        uint16_t family, pad;
        uint32_t port, groups;
    } address = { .family = AF_NETLINK, .groups = 1u << (NFTABLES_GROUP - 1) };
    int fd = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC | SOCK_NONBLOCK, NETLINK_NETFILTER);

    if (fd >= 0 && bind(fd, (struct sockaddr *)&address, sizeof(address)) < 0) {
        close(fd);
        return -1;
    }
    return fd;
}

void rules_drain(int watch)
{
    char ignored[ANSWER_SIZE];

    /* ENOBUFS reports once that messages were lost. */
    while (recv(watch, ignored, sizeof(ignored), 0) >= 0 || errno == ENOBUFS)
        ;
}

/* --- the host's table ----------------------------------------------------------------------- */

/* Whether the chains of the host's table exist and have rules. Without this check two daemons would
 * set their tables after each other's changes forever. */
bool rules_host_hold(const struct rules *rules)
{
    static const char *const chains[] = { "input", "forward", "postrouting" };
    char name[LAUNCH_NAME_SIZE + 16];

    table_name(rules, name);
    for (size_t i = 0; i < sizeof(chains) / sizeof(chains[0]); i++) {
        struct question question = question_of(GET_CHAIN, FAMILY_INET);
        uint32_t count = 0;

        add_text(&question, CHAIN_TABLE, name);
        add_text(&question, CHAIN_NAME, chains[i]);
        if (!ask(&question, NEW_CHAIN, CHAIN_USE, &count) || count == 0)
            return false;
    }
    return true;
}

int rules_format_host(const struct rules *rules, char *text, size_t size)
{
    char name[LAUNCH_NAME_SIZE + 16];
    int length;

    table_name(rules, name);
    length = snprintf(text, size, host_rules, name, name, name);
    return length >= 0 && (size_t)length < size ? 0 : -1;
}

int rules_set_host(struct rules *rules, struct fail *fail)
{
    char text[RULES_TEXT_SIZE];
    uint32_t before = read_generation();

    if (before && before == rules->generation)
        return 0;
    if (rules_format_host(rules, text, sizeof(text)) < 0)
        return fail_set(fail, "write network rules", E2BIG);
    if (run_nft(rules, text) < 0)
        return fail_sys(fail, "set network rules with nft");
    /* Another program's change in between may have removed our rules: the next call sets them
     * again. */
    rules->generation = read_generation() == before + 1 ? before + 1 : 0;
    return 0;
}

int rules_remove_host(struct rules *rules)
{
    char name[LAUNCH_NAME_SIZE + 16];
    char text[4 * LAUNCH_NAME_SIZE];

    table_name(rules, name);
    snprintf(text, sizeof(text), "table inet %s\ndelete table inet %s\n", name, name);
    rules->generation = 0;
    return run_nft(rules, text);
}

/* --- a sandbox's table ---------------------------------------------------------------------- */

int rules_host_addresses(char text[RULES_ADDRESSES_SIZE])
{
    struct ifaddrs *all = NULL;
    char address[INET_ADDRSTRLEN];
    size_t used = 0;

    if (getifaddrs(&all) < 0)
        return -1;
    text[0] = '\0';
    for (const struct ifaddrs *one = all; one && used < RULES_ADDRESSES_SIZE; one = one->ifa_next) {
        const struct sockaddr_in *name = (const struct sockaddr_in *)one->ifa_addr;

        /* Interfaces of sandboxes are many, and in a range that is dropped as a whole. */
        if (!name || name->sin_family != AF_INET || strncmp(one->ifa_name, "sbx", 3) == 0 ||
            !inet_ntop(AF_INET, &name->sin_addr, address, sizeof(address)))
            continue;
        used += (size_t)snprintf(text + used, RULES_ADDRESSES_SIZE - used, "%s, ", address);
    }
    freeifaddrs(all);
    return used < RULES_ADDRESSES_SIZE ? 0 : -1;
}

struct text {
    char *bytes; /* borrowed */
    size_t size;
    size_t used; /* `size` when it did not fit */
};

static void append(struct text *text, const char *format, const char *what)
{
    size_t left = text->size - text->used;
    int length = snprintf(text->bytes + text->used, left, format, what);

    text->used += length >= 0 && (size_t)length < left ? (size_t)length : left;
}

/* Name servers are often at a private address; of those the sandbox reaches only that service, and
 * the host's own not at all. */
static void append_servers(struct text *text, const char *resolver, const char *addresses)
{
    char server[INET_ADDRSTRLEN + 2];

    for (const char *line = resolver; sscanf(line, "nameserver %15s", server) == 1;
         line = strchr(line, '\n') + 1) {
        char entry[sizeof(server) + 2];

        snprintf(entry, sizeof(entry), "%s, ", server);
        if (!strstr(addresses, entry))
            append(text, "    ip daddr %s meta l4proto { tcp, udp } th dport 53 accept\n", server);
    }
}

int rules_format_sandbox(const struct rules *rules, const char *resolver, const char *addresses,
                         char *bytes, size_t size)
{
    struct text text = { .bytes = bytes, .size = size };

    append(&text, "%s", sandbox_head);
    append_servers(&text, resolver, addresses);
    append(&text, REFUSE, rules->allow_private ? never : never_private);
    if (*addresses)
        append(&text, REFUSE, addresses);
    append(&text, "%s", sandbox_tail);
    return text.used < text.size ? 0 : -1;
}

int rules_set_sandbox(const struct rules *rules, const char *resolver, const char *addresses,
                      struct fail *fail)
{
    static char text[RULES_TEXT_SIZE];

    if (rules_format_sandbox(rules, resolver, addresses, text, sizeof(text)) < 0)
        return fail_set(fail, "write network rules", E2BIG);
    if (run_nft(rules, text) < 0 || !rules_hold_here())
        return fail_sys(fail, "set network rules of the sandbox");
    return 0;
}
