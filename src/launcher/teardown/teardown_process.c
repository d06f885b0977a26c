/* SPDX-License-Identifier: Apache-2.0 */
#include "launcher/teardown/teardown_process.h"

#include "launcher/sys.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>

/* Low priority: requests for sandboxes come first. */
enum {
    TEARDOWN_NICE = 5,
    MOMENT_MS = 1,
    LULL_MS = 20,
    QUEUE_MAX = 8192,
    QUEUE_MANY = 1024,
    TRIES_MAX = 100,
    LAST_WAIT_MS = 2,
    LAST_WAITS = 1500,
};

enum { JOB_FDS = 2 };

/* --- the child ------------------------------------------------------------------------------ */

struct teardown_queue {
    struct cgroups *cgroups;
    int mounts; /* owned: the last that came; or -1 */
    unsigned count;
    struct queued_job {
        struct teardown_job what;
        unsigned tries;
    } items[QUEUE_MAX];
};

/* The last one. The kernel may hold on to a cgroup for a moment after its last member has died: such
 * a one is tried again after all others. */
static bool remove_one(struct teardown_queue *queue)
{
    struct queued_job *last = &queue->items[--queue->count];
    struct queued_job busy = *last;

    sys_close(busy.what.netns);
    busy.what.netns = -1;
    if (!*busy.what.cgroup_name || cgroups_remove(queue->cgroups, busy.what.cgroup_name) == 0 ||
        ++busy.tries == TRIES_MAX)
        return true;
    *last = queue->items[0];
    queue->items[0] = busy;
    queue->count++;
    return false;
}

static void keep(struct teardown_queue *queue, const struct teardown_job *what)
{
    if (what->netns < 0 && !*what->cgroup_name)
        return;
    while (queue->count == QUEUE_MAX)
        (void)remove_one(queue);
    queue->items[queue->count++] = (struct queued_job){ .what = *what };
}

/* The process that closes the last descriptor does the unmounting, and that must not be the
 * launcher, which closes its own right after sending: hold these until the next message, or for a
 * moment. */
static void hold_mounts(struct teardown_queue *queue, int mounts)
{
    sys_close(queue->mounts);
    queue->mounts = mounts;
}

/* Takes one message and its descriptors. False when the launcher is gone. */
static bool receive(int socket, struct teardown_queue *queue)
{
    char control[CMSG_SPACE(sizeof(int) * JOB_FDS)] = { 0 };
    struct teardown_job what;
    struct iovec part = { .iov_base = &what, .iov_len = sizeof(what) };
    struct msghdr message = {
        .msg_iov = &part, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof(control)
    };
    int fds[JOB_FDS] = { -1, -1 };
    const int *next = fds;
    struct cmsghdr *header;

    if (recvmsg(socket, &message, MSG_CMSG_CLOEXEC) != sizeof(what))
        return false;
    header = CMSG_FIRSTHDR(&message);
    if (header && header->cmsg_type == SCM_RIGHTS)
        memcpy(fds, CMSG_DATA(header), header->cmsg_len - CMSG_LEN(0));
    if (what.mounts >= 0)
        hold_mounts(queue, *next++);
    if (what.netns >= 0)
        what.netns = *next;
    keep(queue, &what);
    return true;
}

static int patience_ms(const struct teardown_queue *queue, bool quiet)
{
    if (queue->mounts >= 0)
        return MOMENT_MS;
    if (queue->count == 0)
        return -1;
    return quiet || queue->count > QUEUE_MANY ? 0 : LULL_MS;
}

/* The launcher is gone or waits for us. On a busy machine the dead take their time to leave. */
static void remove_rest(struct teardown_queue *queue)
{
    for (int waits = 0; queue->count > 0 && waits < LAST_WAITS; waits++) {
        unsigned left = queue->count;

        for (unsigned i = 0; i < left; i++) {
            queue->items[queue->count - 1].tries = 0;
            (void)remove_one(queue);
        }
        if (queue->count > 0)
            (void)poll(NULL, 0, LAST_WAIT_MS);
    }
}

static _Noreturn void run(const struct teardown_process *process, int socket)
{
    static struct teardown_queue queue;
    struct pollfd watch = { .fd = socket, .events = POLLIN };
    bool quiet = false;

    (void)prctl(PR_SET_NAME, "sandglass-tdown");
    (void)setpriority(PRIO_PROCESS, 0, TEARDOWN_NICE);
    process->on_child(process->user);
    queue.cgroups = process->cgroups;
    queue.mounts = -1;
    for (;;) {
        if (poll(&watch, 1, patience_ms(&queue, quiet)) != 0) {
            quiet = false;
            if (!receive(socket, &queue))
                break;
        } else if (queue.mounts >= 0) {
            hold_mounts(&queue, -1);
        } else {
            quiet = remove_one(&queue);
        }
    }
    hold_mounts(&queue, -1);
    remove_rest(&queue);
    _exit(0);
}

/* --- the launcher's end --------------------------------------------------------------------- */

void teardown_process_start(struct teardown_process *process)
{
    struct timespec now;
    int pair[2];

    clock_gettime(CLOCK_MONOTONIC, &now);
    process->started_s = now.tv_sec;
    process->socket = -1;
    if (!process->is_wanted || socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0)
        return;
    process->pid = fork();
    if (process->pid == 0) {
        close(pair[0]);
        run(process, pair[1]);
    }
    close(pair[1]);
    if (process->pid < 0)
        close(pair[0]);
    else
        process->socket = pair[0];
}

void teardown_process_stop(struct teardown_process *process)
{
    if (process->socket < 0)
        return;
    close(process->socket);
    process->socket = -1;
    (void)waitpid(process->pid, NULL, 0);
}

/* The queue of the dead process had cgroups without a sandbox: remove them by their names. */
static void lose(struct teardown_process *process)
{
    char names[CGROUP_NAME_SIZE];

    close(process->socket);
    process->socket = -1;
    snprintf(names, sizeof(names), CGROUP_SPARE_PREFIX "%d-x", process->launcher);
    cgroups_sweep(process->cgroups, names);
}

void teardown_process_turn(struct teardown_process *process)
{
    struct timespec now;

    if (!process->is_wanted || process->socket >= 0)
        return;
    clock_gettime(CLOCK_MONOTONIC, &now);
    if (now.tv_sec != process->started_s)
        teardown_process_start(process);
}

static bool hand_over(const struct teardown_process *process, const struct teardown_job *job)
{
    char control[CMSG_SPACE(sizeof(int) * JOB_FDS)] = { 0 };
    struct iovec part = { .iov_base = (void *)(uintptr_t)job, .iov_len = sizeof(*job) };
    struct msghdr message = { .msg_iov = &part, .msg_iovlen = 1, .msg_control = control };
    struct cmsghdr *header = (struct cmsghdr *)control;
    const int fds[JOB_FDS] = { job->mounts, job->netns };
    size_t count = 0;

    for (size_t i = 0; i < JOB_FDS; i++) {
        if (fds[i] >= 0)
            memcpy(CMSG_DATA(header) + sizeof(int) * count++, &fds[i], sizeof(int));
    }
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(sizeof(int) * count);
    message.msg_controllen = count ? CMSG_SPACE(sizeof(int) * count) : 0;
    return process->socket >= 0 &&
           sendmsg(process->socket, &message, MSG_NOSIGNAL | MSG_DONTWAIT) == sizeof(*job);
}

void teardown_process_take(struct teardown_process *process, const struct teardown_job *job)
{
    bool taken;

    if (job->mounts < 0 && job->netns < 0 && !*job->cgroup_name)
        return;
    taken = hand_over(process, job);
    if (!taken && process->socket >= 0 && errno != EAGAIN)
        lose(process);
    sys_close(job->mounts);
    sys_close(job->netns);
    if (!taken && *job->cgroup_name)
        (void)cgroups_remove(process->cgroups, job->cgroup_name);
}
