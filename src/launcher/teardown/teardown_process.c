#include "launcher/teardown/teardown_process.h"

#include "launcher/launcher.h"
#include "launcher/sys.h"
#include "launcher/teardown/destroy.h"

#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>

/* Whoever waits for a sandbox comes first. */
enum {
    CLOSER_NICE = 5,
    MOMENT_MS = 1,
    LULL_MS = 20,
    PILE_MAX = 8192,
    PILE_MANY = 1024,
    TRIES_MAX = 100,
    LAST_WAIT_MS = 2,
    LAST_WAITS = 1500,
};

enum { FAREWELL_FDS = 2 };

static void close_fd(int fd)
{
    if (fd >= 0)
        close(fd);
}

/* --- the child ------------------------------------------------------------------------------ */

struct pile {
    struct cgroups *cgroups;
    int mounts; /* owned: the last that came; or -1 */
    unsigned count;
    struct doomed {
        struct farewell what;
        unsigned tries;
    } items[PILE_MAX];
};

/* The last one. The kernel may hold on to a group for a moment after its last member has died: such
 * a one is tried again after all others. */
static bool remove_one(struct pile *pile)
{
    struct doomed *last = &pile->items[--pile->count];
    struct doomed busy = *last;

    close_fd(busy.what.netns);
    busy.what.netns = -1;
    if (!*busy.what.group || cgroups_remove(pile->cgroups, busy.what.group) == 0 ||
        ++busy.tries == TRIES_MAX)
        return true;
    *last = pile->items[0];
    pile->items[0] = busy;
    pile->count++;
    return false;
}

static void keep(struct pile *pile, const struct farewell *what)
{
    if (what->netns < 0 && !*what->group)
        return;
    while (pile->count == PILE_MAX)
        (void)remove_one(pile);
    pile->items[pile->count++] = (struct doomed){ .what = *what };
}

/* Whoever closes them last takes them apart, and that is not to be the launcher, which closes its
 * own right after it has sent them: they wait for the next message, or for a moment. */
static void hold_mounts(struct pile *pile, int mounts)
{
    close_fd(pile->mounts);
    pile->mounts = mounts;
}

/* One message: what it brings along is kept. False when the launcher is gone. */
static bool receive(int socket, struct pile *pile)
{
    char control[CMSG_SPACE(sizeof(int) * FAREWELL_FDS)] = { 0 };
    struct farewell what;
    struct iovec part = { .iov_base = &what, .iov_len = sizeof(what) };
    struct msghdr message = {
        .msg_iov = &part, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof(control)
    };
    int fds[FAREWELL_FDS] = { -1, -1 };
    const int *next = fds;
    struct cmsghdr *header;

    if (recvmsg(socket, &message, MSG_CMSG_CLOEXEC) != sizeof(what))
        return false;
    header = CMSG_FIRSTHDR(&message);
    if (header && header->cmsg_type == SCM_RIGHTS)
        memcpy(fds, CMSG_DATA(header), header->cmsg_len - CMSG_LEN(0));
    if (what.mounts >= 0)
        hold_mounts(pile, *next++);
    if (what.netns >= 0)
        what.netns = *next;
    keep(pile, &what);
    return true;
}

static int patience_ms(const struct pile *pile, bool quiet)
{
    if (pile->mounts >= 0)
        return MOMENT_MS;
    if (pile->count == 0)
        return -1;
    return quiet || pile->count > PILE_MANY ? 0 : LULL_MS;
}

/* The launcher is gone or waits for us. On a busy machine the dead take their time to leave. */
static void remove_rest(struct pile *pile)
{
    for (int waits = 0; pile->count > 0 && waits < LAST_WAITS; waits++) {
        unsigned left = pile->count;

        for (unsigned i = 0; i < left; i++) {
            pile->items[pile->count - 1].tries = 0;
            (void)remove_one(pile);
        }
        if (pile->count > 0)
            (void)poll(NULL, 0, LAST_WAIT_MS);
    }
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
    close_fd(launcher->spares.builder);
    close_fd(launcher->spares.builder_pidfd);
    /* What the launcher holds is not to live on in one that was started later. */
    spares_close_fds(launcher);
    destroys_close_fds(launcher);
    leases_forget(&launcher->slots.leases);
    pile.cgroups = &launcher->cgroups;
    pile.mounts = -1;
    for (;;) {
        if (poll(&watch, 1, patience_ms(&pile, quiet)) != 0) {
            quiet = false;
            if (!receive(socket, &pile))
                break;
        } else if (pile.mounts >= 0) {
            hold_mounts(&pile, -1);
        } else {
            quiet = remove_one(&pile);
        }
    }
    hold_mounts(&pile, -1);
    remove_rest(&pile);
    _exit(0);
}

/* --- the launcher's end --------------------------------------------------------------------- */

void closer_start(struct launcher *launcher)
{
    int pair[2];

    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    launcher->closer = (struct closer){ .socket = -1, .started_s = now.tv_sec };
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

/* What it had not removed yet are groups without a sandbox. */
static void lose(struct launcher *launcher)
{
    char names[CGROUP_NAME_SIZE];

    close(launcher->closer.socket);
    launcher->closer.socket = -1;
    snprintf(names, sizeof(names), CGROUP_SPARE_PREFIX "%d-x", launcher->pid);
    cgroups_sweep(&launcher->cgroups, names);
}

void closer_turn(struct launcher *launcher)
{
    struct timespec now;

    if (launcher->closer.socket >= 0 || !launcher->ready || !launcher->host.native)
        return;
    clock_gettime(CLOCK_MONOTONIC, &now);
    if (now.tv_sec == launcher->closer.started_s)
        return;
    closer_start(launcher);
}

static bool hand_over(const struct closer *closer, const struct farewell *farewell)
{
    char control[CMSG_SPACE(sizeof(int) * FAREWELL_FDS)] = { 0 };
    struct iovec part = { .iov_base = (void *)(uintptr_t)farewell, .iov_len = sizeof(*farewell) };
    struct msghdr message = { .msg_iov = &part, .msg_iovlen = 1, .msg_control = control };
    struct cmsghdr *header = (struct cmsghdr *)control;
    const int fds[FAREWELL_FDS] = { farewell->mounts, farewell->netns };
    size_t count = 0;

    for (size_t i = 0; i < FAREWELL_FDS; i++) {
        if (fds[i] >= 0)
            memcpy(CMSG_DATA(header) + sizeof(int) * count++, &fds[i], sizeof(int));
    }
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(sizeof(int) * count);
    message.msg_controllen = count ? CMSG_SPACE(sizeof(int) * count) : 0;
    return closer->socket >= 0 &&
           sendmsg(closer->socket, &message, MSG_NOSIGNAL | MSG_DONTWAIT) == sizeof(*farewell);
}

void closer_take(struct launcher *launcher, const struct farewell *farewell)
{
    bool taken;

    if (farewell->mounts < 0 && farewell->netns < 0 && !*farewell->group)
        return;
    taken = hand_over(&launcher->closer, farewell);
    if (!taken && launcher->closer.socket >= 0 && errno != EAGAIN)
        lose(launcher);
    close_fd(farewell->mounts);
    close_fd(farewell->netns);
    if (!taken && *farewell->group)
        (void)cgroups_remove(&launcher->cgroups, farewell->group);
}
