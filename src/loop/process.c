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

enum { PIDFD_EXIT_KNOWN = 1 << 3, REAP_TIMEOUT_MS = 20 };

/* How a process ended that is somebody else's child: the kernel tells once its parent has reaped
 * it, which is a moment after its death. */
static struct process_exit ask_kernel(int pidfd)
{
    struct pidfd_exit info = { .mask = PIDFD_EXIT_KNOWN };
    struct pollfd reaped = { .fd = pidfd };
    bool known = ioctl(pidfd, PIDFD_GET_EXIT, &info) == 0 && info.mask & PIDFD_EXIT_KNOWN;

    if (!known && errno != ENOTTY && poll(&reaped, 1, REAP_TIMEOUT_MS) > 0) {
        info.mask = PIDFD_EXIT_KNOWN;
        known = ioctl(pidfd, PIDFD_GET_EXIT, &info) == 0 && info.mask & PIDFD_EXIT_KNOWN;
    }
    if (!known)
        return (struct process_exit){ .known = false, .code = -1 };
    if (WIFSIGNALED(info.exit_code))
        return (
            struct process_exit){ .known = true, .code = -1, .signal = WTERMSIG(info.exit_code) };
    return (struct process_exit){ .known = true, .code = WEXITSTATUS(info.exit_code) };
}

static struct process_exit reap(int pidfd)
{
    siginfo_t info = { 0 };

    while (waitid(P_PIDFD, (id_t)pidfd, &info, WEXITED | WNOHANG) < 0)
        if (errno != EINTR)
            return ask_kernel(pidfd);
    if (info.si_pid == 0)
        return (struct process_exit){ .known = false, .code = -1 };
    if (info.si_code == CLD_EXITED)
        return (struct process_exit){ .known = true, .code = info.si_status };
    return (struct process_exit){ .known = true, .code = -1, .signal = info.si_status };
}

static void on_pidfd_ready(struct io_watch *watch, unsigned events UNUSED)
{
    struct process *process = container_of(watch, struct process, watch);
    process_exit_fn *on_exit = process->on_exit;

    process->exit = reap(process->pidfd);
    process_unwatch(process);
    on_exit(process);
}

void process_watch(struct process *process, struct loop *loop, int pidfd, process_exit_fn *on_exit)
{
    *process = (struct process){ .pidfd = pidfd, .on_exit = on_exit };
    io_watch_start(&process->watch, loop, pidfd, IO_READ, on_pidfd_ready);
}

/* A zeroed process was never watched: its descriptor 0 is not ours to close. */
void process_unwatch(struct process *process)
{
    if (!process->on_exit)
        return;
    io_watch_stop(&process->watch);
    fd_close(process->pidfd);
    process->pidfd = -1;
    process->on_exit = NULL;
}

int process_signal(struct process *process, int signal_number, struct error *err)
{
    if (!process->on_exit)
        return error_set(err, ERR_GONE, "the process has ended");
    if (syscall(SYS_pidfd_send_signal, process->pidfd, signal_number, NULL, 0) < 0)
        return error_sys(err, "send signal %d", signal_number);
    return 0;
}
