/* SPDX-License-Identifier: Apache-2.0 */
#include "launcher/network/netns.h"

#include "launcher/sys.h"
#include "launcher/walls/mounts.h"

#include <net/if.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

static int raise_loopback(void)
{
    struct ifreq request = { .ifr_name = "lo", .ifr_flags = IFF_UP };
    int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    int result;

    if (fd < 0)
        return -1;
    result = ioctl(fd, SIOCSIFFLAGS, &request);
    close(fd);
    return result;
}

/* Every port may be bound: only the sandbox lives here. Under memory pressure a socket has one
 * buffer and no more: the kernel gives each socket its first buffer regardless of the limit. */
static void tune(int shared_proc)
{
    static const struct {
        const char *path;
        const char *value;
    } settings[] = {
        { "sys/net/ipv4/ip_unprivileged_port_start", "0" },
        { "sys/net/ipv4/tcp_rmem", "1 131072 6291456" },
        { "sys/net/ipv4/tcp_wmem", "1 16384 4194304" },
    };
    int proc = mount_procfs(shared_proc);

    for (size_t i = 0; i < sizeof(settings) / sizeof(settings[0]); i++) {
        int fd = openat(proc, settings[i].path, O_WRONLY | O_CLOEXEC);

        if (fd < 0)
            continue;
        (void)!write(fd, settings[i].value, strlen(settings[i].value));
        close(fd);
    }
    close(proc);
}

int netns_make(const struct netns_home *home, struct fail *fail)
{
    int fd = -1;

    if (unshare(CLONE_NEWNET) < 0)
        return fail_sys(fail, "make a network namespace");
    if (raise_loopback() < 0)
        fail_sys(fail, "raise loopback");
    else
        fd = openat(home->proc, "self/ns/net", O_RDONLY | O_CLOEXEC);
    tune(home->proc);
    /* Without our own network we could not go on. */
    if (setns(home->netns, CLONE_NEWNET) < 0)
        _exit(1);
    return fd;
}

/* --- used again ------------------------------------------------------------------------------ */

enum { TRACES_SIZE = 16384 };

/* Files that reveal the past of a network namespace: the number of sockets, some of which may live
 * on in each other's queues; counters of sent packets and errors; flow labels. The kernel has them
 * as text only. */
static const char *const names[NETNS_TRACES] = { "sockstat", "snmp", "snmp6", "ip6_flowlabel" };
enum { SOCKETS };

void netns_traces_init(struct netns_traces *traces)
{
    traces->is_open = false;
    memset(traces->files, -1, sizeof(traces->files));
}

void netns_traces_close(struct netns_traces *traces)
{
    for (size_t i = 0; i < NETNS_TRACES; i++) {
        if (traces->files[i] >= 0)
            close(traces->files[i]);
    }
    netns_traces_init(traces);
}

/* Of the namespace that we are in. */
static int open_traces(int proc, struct netns_traces *traces)
{
    int dir = openat(proc, "thread-self/net", O_PATH | O_DIRECTORY | O_CLOEXEC);
    int result = dir < 0 ? -1 : 0;

    for (size_t i = 0; result == 0 && i < NETNS_TRACES; i++) {
        traces->files[i] = openat(dir, names[i], O_RDONLY | O_CLOEXEC);
        /* Without IPv6 its files are missing. */
        if (traces->files[i] < 0 && errno != ENOENT)
            result = -1;
    }
    if (dir >= 0)
        close(dir);
    return result;
}

static int open_traces_of(const struct netns_home *home, int netns, struct netns_traces *traces)
{
    if (traces->is_open)
        return 0;
    if (setns(netns, CLONE_NEWNET) < 0)
        return -1;
    traces->is_open = open_traces(home->proc, traces) == 0;
    if (setns(home->netns, CLONE_NEWNET) < 0)
        _exit(1);
    if (!traces->is_open)
        netns_traces_close(traces);
    return traces->is_open ? 0 : -1;
}

/* One read returns a whole file, or more than an unused namespace has. Returns the length; 0 when a
 * file cannot be read. */
static size_t read_traces(const struct netns_traces *traces, char text[TRACES_SIZE])
{
    size_t length = 0;

    for (size_t i = 0; i < NETNS_TRACES; i++) {
        ssize_t got;

        if (traces->files[i] < 0)
            continue;
        got = pread(traces->files[i], text + length, TRACES_SIZE - length, 0);
        if (got <= 0)
            return 0;
        /* The lines after the first are of the whole host. */
        if (i == SOCKETS)
            got = (char *)memchr(text, '\n', (size_t)got) - text;
        length += (size_t)got;
    }
    return length;
}

static size_t read_fresh(const struct netns_home *home, char text[TRACES_SIZE])
{
    struct netns_traces traces;
    struct fail ignored;
    size_t length = 0;
    int unused = netns_make(home, &ignored);

    if (unused < 0)
        return 0;
    netns_traces_init(&traces);
    if (open_traces_of(home, unused, &traces) == 0)
        length = read_traces(&traces, text);
    netns_traces_close(&traces);
    close(unused);
    return length;
}

bool netns_is_unused(const struct netns_home *home, int netns, struct netns_traces *traces)
{
    static char fresh[TRACES_SIZE]; /* of a namespace that was never used */
    static size_t fresh_length;
    char text[TRACES_SIZE];

    if (fresh_length == 0)
        fresh_length = read_fresh(home, fresh);
    return fresh_length > 0 && open_traces_of(home, netns, traces) == 0 &&
           read_traces(traces, text) == fresh_length && memcmp(text, fresh, fresh_length) == 0;
}
