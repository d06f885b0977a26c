#include "loop/process.h"

#include "base/scoped.h"

#include <errno.h>
#include <signal.h>
#include <sys/syscall.h>
#include <sys/wait.h>

/* A process that is not our child cannot be waited for: that it is gone is all there is to know. */
static struct process_exit reap(int pidfd)
{
    siginfo_t info = { 0 };

    while (waitid(P_PIDFD, (id_t)pidfd, &info, WEXITED | WNOHANG) < 0)
        if (errno != EINTR)
            return (struct process_exit){ .known = false, .code = -1 };
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
