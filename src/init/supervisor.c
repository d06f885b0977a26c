#include "init/supervisor.h"

#include "init/init.h"
#include "init/payload.h"
#include "init/sys.h"

#include <errno.h>
#include <sys/prctl.h>

enum {
    SUPERVISOR_FLAGS = CLONE_VM | CLONE_FS | CLONE_FILES | CLONE_SIGHAND | SIGCHLD,
    PAYLOAD_FLAGS = CLONE_VM | CLONE_VFORK | CLONE_PARENT_SETTID | SIGCHLD,
};

static alignas(4096) char stacks[PROTOCOL_MAX_PROCESSES][SUPERVISOR_STACK];

static int64_t micros(const struct timeval *time)
{
    return (int64_t)time->tv_sec * 1000000 + time->tv_usec;
}

/* --- when init itself is killed --------------------------------------------------------------- */

/* Kills the children of the caller. Theirs become its own by that, and their turn comes next. */
static void kill_children(void)
{
    int fd = sys_open(settings.proc_fd, "thread-self/children", O_RDONLY, 0, 0);
    char text[256];
    uint32_t pid = 0;
    long length;

    while (fd >= 0 && (length = sys(read, fd, text, sizeof text)) > 0)
        for (long i = 0; i < length; i++) {
            if (text[i] != ' ') {
                pid = pid * 10 + (uint32_t)(text[i] - '0');
                continue;
            }
            (void)sys(kill, pid, SIGKILL);
            pid = 0;
        }
    sys_close(fd);
}

/* As PID 1 init takes everything with it. In direct mode its supervisors do that. */
static void end_if_orphaned(void)
{
    long result = 0;

    if ((int)sys(getppid) == settings.own_pid)
        return;
    while (result != -ECHILD) {
        kill_children();
        result = sys(wait4, -1, NULL, __WALL, NULL);
    }
    sys_exit(1);
}

/* --- waiting ---------------------------------------------------------------------------------- */

static long wait_for_any(int *out_status, int options, struct rusage *usage)
{
    uint64_t signals = 1ull << (SIGCHLD - 1) | 1ull << (SIGTERM - 1);
    long pid;

    if (!settings.direct)
        return sys(wait4, -1, out_status, options | __WALL, usage);
    while (!(pid = sys(wait4, -1, out_status, WNOHANG | __WALL, usage)) && !(options & WNOHANG)) {
        (void)sys(rt_sigtimedwait, &signals, NULL, NULL, SIGNAL_SET_SIZE);
        end_if_orphaned();
    }
    return pid;
}

static void record_end(struct process *process, int status, const struct rusage *usage,
                       int64_t started_us)
{
    process->end = (struct protocol_end){
        .code = WIFEXITED(status) ? WEXITSTATUS(status) : -1,
        .signal = WIFSIGNALED(status) ? WTERMSIG(status) : 0,
        .wall_us = sys_now_us() - started_us,
        .cpu_us = micros(&usage->ru_utime) + micros(&usage->ru_stime),
        .max_rss_bytes = (uint64_t)usage->ru_maxrss * 1024,
    };
}

/* With the user's rights over files: the path leads through directories that are the user's. */
static void remove_script(const struct process *process)
{
    if (!(process->flags & START_SCRIPT))
        return;
    if (settings.is_root) {
        (void)sys(setfsgid, process->gid);
        (void)sys(setfsuid, process->uid);
    }
    (void)sys(unlinkat, AT_FDCWD, process->script_path, 0);
}

static void wait_for_main(struct process *process, int64_t started_us)
{
    struct rusage usage;
    int status;
    long pid;

    do
        pid = wait_for_any(&status, 0, &usage);
    while (pid > 0 && pid != process->main_pid);
    if (pid > 0)
        record_end(process, status, &usage, started_us);

    remove_script(process);
    while ((pid = wait_for_any(&status, WNOHANG, NULL)) > 0)
        ;
    process->left_children = !pid;
}

static __attribute__((noreturn)) void supervisor_run(void *argument)
{
    struct process *process = argument;
    struct job *job = process->job;
    int64_t started_us = sys_now_us();
    long pid;

    (void)sys(prctl, PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0);
    if (settings.direct) {
        (void)sys(prctl, PR_SET_PDEATHSIG, SIGTERM, 0, 0, 0);
        end_if_orphaned();
    }
    pid = sys_clone_call(PAYLOAD_FLAGS, job->room->stack + JOB_STACK, payload_run, job,
                         &process->main_pid);
    if (pid < 0) {
        process->failed_error = (int)-pid;
        process->failed_stage = STAGE_SPAWN;
    }
    if (process->failed_error) {
        int status;

        report_post(process, REPORT_FAILED);
        while (wait_for_any(&status, 0, NULL) > 0)
            ;
        sys_exit(0);
    }

    report_post(process, REPORT_STARTED);
    wait_for_main(process, started_us);
    report_post(process, REPORT_ENDED);
    if (process->left_children) {
        int status;

        while (wait_for_any(&status, 0, NULL) > 0)
            ;
    }
    sys_exit(0);
}

int supervisor_start(struct process *process)
{
    char *stack = stacks[process - processes] + SUPERVISOR_STACK;
    long pid = sys_clone_call(SUPERVISOR_FLAGS, stack, supervisor_run, process, NULL);

    if (pid < 0)
        return (int)pid;
    process->supervisor = (int)pid;
    return 0;
}
