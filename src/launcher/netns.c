#include "launcher/mounts.h"
#include "launcher/native.h"
#include "launcher/sys.h"

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

/* Every port may be bound: nobody but the sandbox lives here. */
static void open_low_ports(const struct state *state)
{
    int proc = mount_procfs(state->proc);
    int fd = openat(proc, "sys/net/ipv4/ip_unprivileged_port_start", O_WRONLY | O_CLOEXEC);

    if (fd >= 0)
        (void)!write(fd, "0", 1);
    close(fd);
    close(proc);
}

int netns_make(struct launcher *launcher, struct fail *fail)
{
    int fd = -1;

    if (unshare(CLONE_NEWNET) < 0)
        return fail_sys(fail, "make a network namespace");
    if (raise_loopback() < 0)
        fail_sys(fail, "raise loopback");
    else
        fd = openat(launcher->state.proc, "self/ns/net", O_RDONLY | O_CLOEXEC);
    open_low_ports(&launcher->state);
    /* Without our own network we could not go on. */
    if (setns(launcher->host.network, CLONE_NEWNET) < 0)
        _exit(1);
    return fd;
}

/* --- used again ------------------------------------------------------------------------------ */

enum { TRACES_SIZE = 16384 };

/* What this network namespace tells about its past: counts of all that was sent or could not be,
 * sockets that live on in each other's queues, flow labels. Text, because the kernel tells it in no
 * other way. The length; 0 when it cannot be read. */
static size_t read_traces(const struct state *state, char text[TRACES_SIZE])
{
    static const char *const names[] = { "snmp", "snmp6", "unix", "ip6_flowlabel" };
    int dir = openat(state->proc, "thread-self/net", O_PATH | O_DIRECTORY | O_CLOEXEC);
    size_t length = 0;

    for (size_t i = 0; dir >= 0 && i < sizeof(names) / sizeof(names[0]); i++) {
        int fd = openat(dir, names[i], O_RDONLY | O_CLOEXEC);
        ssize_t got = 0;

        /* Without IPv6 there is nothing to tell about it. */
        if (fd < 0 && errno == ENOENT)
            continue;
        while (fd >= 0 && (got = read(fd, text + length, TRACES_SIZE - length)) > 0)
            length += (size_t)got;
        if (fd >= 0)
            close(fd);
        if (fd < 0 || got < 0 || length == TRACES_SIZE) {
            length = 0;
            break;
        }
    }
    if (dir >= 0)
        close(dir);
    return length;
}

static size_t read_traces_of(struct launcher *launcher, int netns, char text[TRACES_SIZE])
{
    size_t length;

    if (setns(netns, CLONE_NEWNET) < 0)
        return 0;
    length = read_traces(&launcher->state, text);
    if (setns(launcher->host.network, CLONE_NEWNET) < 0)
        _exit(1);
    return length;
}

bool netns_is_unused(struct launcher *launcher, int netns)
{
    static char fresh[TRACES_SIZE]; /* of one that nobody has ever used */
    static size_t fresh_length;
    char text[TRACES_SIZE];
    struct fail ignored;

    if (fresh_length == 0) {
        int unused = netns_make(launcher, &ignored);

        if (unused < 0)
            return false;
        fresh_length = read_traces_of(launcher, unused, fresh);
        close(unused);
    }
    return fresh_length > 0 && read_traces_of(launcher, netns, text) == fresh_length &&
           memcmp(text, fresh, fresh_length) == 0;
}
