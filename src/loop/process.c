/* SPDX-License-Identifier: Apache-2.0 */
#include "loop/process.h"

#include "base/scoped.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>

/* The kernel's struct pidfd_info as of Linux 6.15; headers that have it are rare yet. */
struct pidfd_exit {
    uint64_t mask;
    uint64_t cgroup;
    uint32_t ids[11];
    int32_t exit_code; /* as wait() has it; only with PIDFD_EXIT_KNOWN */
};

#define PIDFD_GET_EXIT _IOWR(0xFF, 11, struct pidfd_exit)

enum { PIDFD_EXIT_KNOWN = 1 << 3, LOOK_US = 2 * 1000, LOOKS = 100 };

static const struct process_exit unknown_exit = { .known = false, .code = -1 };

/* How a process ended that is not our child. The kernel has its exit once its parent has reaped it;
 * *out_later is true until then. */
static struct process_exit ask_kernel(int pidfd, bool *out_later)
{
    struct pidfd_exit info = { .mask = PIDFD_EXIT_KNOWN };
    bool answered = ioctl(pidfd, PIDFD_GET_EXIT, &info) == 0;

    *out_later = answered ? !(info.mask & PIDFD_EXIT_KNOWN) : errno == ESRCH;
    if (!answered || *out_later)
        return unknown_exit;
    if (WIFSIGNALED(info.exit_code))
        return (
            struct process_exit){ .known = true, .code = -1, .signal = WTERMSIG(info.exit_code) };
    return (struct process_exit){ .known = true, .code = WEXITSTATUS(info.exit_code) };
}

static struct process_exit reap(int pidfd, bool *out_later)
{
    siginfo_t info = { 0 };

    while (waitid(P_PIDFD, (id_t)pidfd, &info, WEXITED | WNOHANG) < 0)
        if (errno != EINTR)
            return ask_kernel(pidfd, out_later);
    if (info.si_pid == 0)
        return unknown_exit;
    if (info.si_code == CLD_EXITED)
        return (struct process_exit){ .known = true, .code = info.si_status };
    return (struct process_exit){ .known = true, .code = -1, .signal = info.si_status };
}

static void look(struct process *process)
{
    process_exit_fn *on_exit = process->on_exit;
    bool later = false;

    process->exit = reap(process->pidfd, &later);
    if (later && process->looks++ < LOOKS) {
        timer_arm_in(&process->again, LOOK_US);
        return;
    }
    process_unwatch(process);
    process->state = PROCESS_EXITED;
    on_exit(process);
}

static void on_look_again(struct timer *timer)
{
    look(container_of(timer, struct process, again));
}

static void on_pidfd_ready(struct io_watch *watch, unsigned events UNUSED)
{
    io_watch_stop(watch);
    look(container_of(watch, struct process, watch));
}

void process_watch(struct process *process, struct loop *loop, int pidfd, process_exit_fn *on_exit)
{
    *process = (struct process){ .state = PROCESS_WATCHED, .pidfd = pidfd, .on_exit = on_exit };
    timer_init(&process->again, loop, on_look_again);
    io_watch_start(&process->watch, loop, pidfd, IO_READ, on_pidfd_ready);
}

/* A zeroed process was never watched: its descriptor 0 is not ours to close. */
void process_unwatch(struct process *process)
{
    if (!process_is_watched(process))
        return;
    fd_close(process_release(process));
}

int process_release(struct process *process)
{
    if (!process_is_watched(process))
        return -1;
    io_watch_stop(&process->watch);
    timer_stop(&process->again);
    process->state = PROCESS_UNWATCHED;
    return steal_fd(&process->pidfd);
}

bool process_is_watched(const struct process *process)
{
    return process->state == PROCESS_WATCHED;
}

bool process_has_exited(const struct process *process)
{
    return process->state == PROCESS_EXITED;
}

bool process_is_dead(const struct process *process)
{
    struct pollfd watch = { .fd = process->pidfd, .events = POLLIN };

    return process_is_watched(process) && poll(&watch, 1, 0) == 1;
}

int process_signal(struct process *process, int signal_number, struct error *err)
{
    if (!process_is_watched(process))
        return error_set(err, ERR_GONE, "the process has ended");
    if (syscall(SYS_pidfd_send_signal, process->pidfd, signal_number, NULL, 0) < 0)
        return error_sys(err, "send signal %d", signal_number);
    return 0;
}
