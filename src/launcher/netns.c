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
