#include "launcher/closer.h"

#include "launcher/launcher.h"
#include "launcher/sys.h"

#include <poll.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>

/* Whoever waits for a sandbox comes first. */
enum { CLOSER_NICE = 5, LULL_MS = 20, GROUPS_MAX = 8192, GROUPS_MANY = 1024, TRIES_MAX = 100 };

/* --- the child ------------------------------------------------------------------------------ */

struct pile {
    struct cgroups *cgroups;
    unsigned count;
    struct doomed {
        char name[CGROUP_NAME_SIZE];
        unsigned tries;
    } items[GROUPS_MAX];
};

/* The last one. The kernel may hold on to a group for a moment after its last member has died: such
 * a one is tried again after all others. */
static bool remove_one(struct pile *pile)
{
    struct doomed *last = &pile->items[--pile->count];
    struct doomed busy = *last;

    if (cgroups_remove(pile->cgroups, last->name) == 0 || ++busy.tries == TRIES_MAX)
        return true;
    *last = pile->items[0];
    pile->items[0] = busy;
    pile->count++;
    return false;
}

static void keep(struct pile *pile, const char *group)
{
    if (!*group)
        return;
    if (pile->count == GROUPS_MAX)
        (void)cgroups_remove(pile->cgroups, pile->items[--pile->count].name);
    pile->items[pile->count].tries = 0;
    memcpy(pile->items[pile->count++].name, group, CGROUP_NAME_SIZE);
}

/* One message: what it brings along is closed, or kept. False when the launcher is gone. */
static bool receive(int socket, struct pile *pile)
{
    char control[CMSG_SPACE(sizeof(int))] = { 0 };
    char group[CGROUP_NAME_SIZE];
    struct iovec part = { .iov_base = group, .iov_len = sizeof(group) };
    struct msghdr message = {
        .msg_iov = &part, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof(control)
    };
    struct cmsghdr *header;
    int fd;

    if (recvmsg(socket, &message, MSG_CMSG_CLOEXEC) != sizeof(group))
        return false;
    header = CMSG_FIRSTHDR(&message);
    if (header && header->cmsg_type == SCM_RIGHTS) {
        memcpy(&fd, CMSG_DATA(header), sizeof(fd));
        close(fd);
    }
    keep(pile, group);
    return true;
}

static _Noreturn void run(struct launcher *launcher, int socket)
{
    static struct pile pile;
    struct pollfd watch = { .fd = socket, .events = POLLIN };
    bool quiet = false;

    (void)prctl(PR_SET_NAME, "sandglass-closer");
    (void)setpriority(PRIO_PROCESS, 0, CLOSER_NICE);
    close(launcher->socket);
    close(launcher->epoll);
    if (launcher->kits.maker >= 0)
        close(launcher->kits.maker);
    leases_forget(&launcher->slots.leases);
    pile.cgroups = &launcher->cgroups;
    for (;;) {
        int wait_ms = pile.count == 0 ? -1 : quiet || pile.count > GROUPS_MANY ? 0 : LULL_MS;

        quiet = poll(&watch, 1, wait_ms) == 0;
        if (quiet)
            quiet = remove_one(&pile);
        else if (!receive(socket, &pile))
            break;
    }
    while (pile.count > 0) {
        if (!remove_one(&pile))
            (void)poll(NULL, 0, 1);
    }
    _exit(0);
}

/* --- the launcher's end --------------------------------------------------------------------- */

void closer_start(struct launcher *launcher)
{
    int pair[2];

    launcher->closer = (struct closer){ .socket = -1 };
    if (!launcher->host.native || socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0)
        return;
    launcher->closer.pid = fork();
    if (launcher->closer.pid == 0) {
        close(pair[0]);
        run(launcher, pair[1]);
    }
    close(pair[1]);
    if (launcher->closer.pid < 0)
        close(pair[0]);
    else
        launcher->closer.socket = pair[0];
}

void closer_stop(struct launcher *launcher)
{
    if (launcher->closer.socket < 0)
        return;
    close(launcher->closer.socket);
    launcher->closer.socket = -1;
    (void)waitpid(launcher->closer.pid, NULL, 0);
}

static bool hand_over(const struct closer *closer, int fd, const char group[CGROUP_NAME_SIZE])
{
    char control[CMSG_SPACE(sizeof(int))] = { 0 };
    struct iovec part = { .iov_base = (void *)(uintptr_t)group, .iov_len = CGROUP_NAME_SIZE };
    struct msghdr message = { .msg_iov = &part, .msg_iovlen = 1 };
    struct cmsghdr *header = (struct cmsghdr *)control;

    if (fd >= 0) {
        message.msg_control = control;
        message.msg_controllen = sizeof(control);
        header->cmsg_level = SOL_SOCKET;
        header->cmsg_type = SCM_RIGHTS;
        header->cmsg_len = CMSG_LEN(sizeof(int));
        memcpy(CMSG_DATA(header), &fd, sizeof(fd));
    }
    return closer->socket >= 0 &&
           sendmsg(closer->socket, &message, MSG_NOSIGNAL | MSG_DONTWAIT) == CGROUP_NAME_SIZE;
}

void closer_take(struct launcher *launcher, int fd, const char *group)
{
    char name[CGROUP_NAME_SIZE] = { 0 };
    bool taken;

    if (fd < 0 && !*group)
        return;
    strncpy(name, group, sizeof(name) - 1);
    taken = hand_over(&launcher->closer, fd, name);
    if (fd >= 0)
        close(fd);
    if (!taken && *name)
        (void)cgroups_remove(&launcher->cgroups, name);
}
