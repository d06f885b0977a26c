/* SPDX-License-Identifier: Apache-2.0 */
#include "init/supervisor.h"

#include "init/connection.h"
#include "init/credentials.h"
#include "init/init.h"
#include "init/payload.h"
#include "init/sys.h"
#include "init/zygote.h"

#include <errno.h>
#include <stdatomic.h>
#include <sys/prctl.h>

/* With init's handlers, its SIGCHLD would wake init's poll up, too. */
enum {
    SUPERVISOR_FLAGS = CLONE_VM | CLONE_FS | CLONE_FILES | SIGCHLD,
    PAYLOAD_FLAGS = CLONE_VM | CLONE_VFORK | CLONE_PARENT_SETTID | SIGCHLD,
};

enum { MOMENT_US = 2000, FUTEX_WAIT_ = 128, FUTEX_WAKE_ = 129 };

static const struct timespec patience = { .tv_sec = 5 }; /* of a parked supervisor */

enum worker_state { WORKER_FREE, WORKER_BUSY, WORKER_PARKED, WORKER_LEAVING };

/* One supervisor. */
struct worker {
    atomic_int state; /* enum worker_state; the supervisor sleeps on it while it is parked */
    int pid;
    bool is_for_root; /* else it has no capability left to hand on */
    struct process *process;
};

/* More than processes, since workers that are leaving count. */
enum { MAX_WORKERS = PROTOCOL_MAX_PROCESSES + 32 };

static TABLE_OF_STATES struct worker workers[MAX_WORKERS];
static alignas(4096) char first_stack[SUPERVISOR_STACK];
static TABLE_SELDOM_USED alignas(4096) char stacks[MAX_WORKERS - 1][SUPERVISOR_STACK];
static unsigned workers_used; /* how many entries have ever been in use */

/* Parked and not ordered to leave: one for root, one for all others. */
static struct worker *spares[2];

static int64_t micros(const struct timeval *time)
{
    return (int64_t)time->tv_sec * 1000000 + time->tv_usec;
}

/* --- when init itself is killed --------------------------------------------------------------- */

/* Kills the children of the caller. Grandchildren become its children by that and are killed
 * next. */
static void kill_children(void)
{
    int fd = sys_open_proc(settings.proc_fd, "thread-self/children", O_RDONLY);
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

/* When PID 1 dies, the kernel kills all processes of its namespace. In direct mode the supervisors
 * do that. */
void supervisor_end_if_orphaned(void)
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
        supervisor_end_if_orphaned();
    }
    return pid;
}

void supervisor_record_end(struct process *process, int status, int64_t cpu_us,
                           uint64_t max_rss_bytes, int64_t started_us)
{
    process->end = (struct protocol_end){
        .code = WIFEXITED(status) ? WEXITSTATUS(status) : -1,
        .signal = WIFSIGNALED(status) ? WTERMSIG(status) : 0,
        .wall_us = sys_now_us() - started_us,
        .cpu_us = cpu_us,
        .max_rss_bytes = max_rss_bytes,
    };
}

/* With the user's rights over files: the path leads through directories that are the user's. */
void supervisor_remove_script(const struct process *process)
{
    if (!(process->flags & START_SCRIPT))
        return;
    if (settings.is_root && credentials_reach_files_as(process->uid, process->gid) < 0)
        return;
    (void)sys(unlinkat, AT_FDCWD, process->script_path, 0);
    if (settings.is_root)
        (void)credentials_reach_files_as(0, 0);
}

/* False when the main process has not ended yet; with `blocks` waits for its end. */
static bool wait_for_main(struct process *process, bool blocks)
{
    struct rusage usage;
    int status;
    long pid;

    do
        pid = wait_for_any(&status, blocks ? 0 : WNOHANG, &usage);
    while (pid > 0 && pid != process->main_pid);
    if (!pid)
        return false;
    if (pid > 0)
        supervisor_record_end(process, status, micros(&usage.ru_utime) + micros(&usage.ru_stime),
                              (uint64_t)usage.ru_maxrss * 1024, process->started_us);

    supervisor_remove_script(process);
    while ((pid = wait_for_any(&status, WNOHANG, NULL)) > 0)
        ;
    process->left_children = !pid;
    return true;
}

/* The start of a program without stdin is reported together with its end if that comes within a
 * moment. False when it has not come. */
static bool wait_a_moment(struct process *process)
{
    uint64_t signals = 1ull << (SIGCHLD - 1);
    int64_t until_us = process->started_us + MOMENT_US;

    while (!(process->flags & (START_TTY | START_STDIN))) {
        int64_t left_us = until_us - sys_now_us();
        struct timespec left = { .tv_nsec = left_us * 1000 };

        if (left_us <= 0)
            break;
        (void)sys(rt_sigtimedwait, &signals, NULL, &left, SIGNAL_SET_SIZE);
        if (wait_for_main(process, false))
            return true;
    }
    return wait_for_main(process, false);
}

/* --- reports ------------------------------------------------------------------------------- */

static unsigned to_be_told(unsigned reports)
{
    return (reports & REPORT_STARTED ? REPORT_TELL_STARTED : 0) |
           (reports & REPORT_ENDED ? REPORT_TELL_ENDED : 0);
}

/* Only init can count survivors and kill a zygote. */
static bool is_for_init(const struct process *process, unsigned reports)
{
    return process->socket < 0 || process->condemns ||
           (reports & REPORT_ENDED && process->left_children);
}

/* A report that the supervisor sends to the daemon itself need not wake init, but init has to know
 * it before the daemon's next request: it is noted first. After a report that could not be sent
 * init sends all further ones, so that the order stays. */
void supervisor_tell(struct process *process, unsigned reports)
{

    unsigned untold = to_be_told(reports);

    if (reports & REPORT_STARTED)
        process_close_inner(process);
    if (is_for_init(process, reports)) {
        sys_drop(&process->socket);
        report_post(process, reports | untold);
        return;
    }
    report_note(process, reports);
    if (!connection_tell(process->socket, process, reports)) {
        report_hint();
        return;
    }
    sys_drop(&process->socket);
    report_post(process, untold);
}

/* --- the supervisor --------------------------------------------------------------------------- */

static void reap_all(void)
{
    int status;

    while (wait_for_any(&status, 0, NULL) > 0)
        ;
}

static void start(struct process *process)
{
    struct job *job = process->job;
    long pid;

    process->started_us = sys_now_us();
    pid = sys_clone_call(PAYLOAD_FLAGS, job->memory->stack + JOB_STACK, payload_run, job,
                         &process->main_pid);
    if (pid < 0) {
        process->failed_error = (int)-pid;
        process->failed_stage = STAGE_SPAWN;
    }
}

/* Starts the process and sees it through, until nothing is left of it. */
static void serve(struct worker *worker)
{
    struct process *process = worker->process;
    unsigned reports = REPORT_STARTED;

    if (process->zygote_number && zygote_serve(process))
        return;
    start(process);
    if (process->failed_error) {
        reap_all();
        report_post(process, REPORT_FAILED);
        return;
    }

    if (!wait_a_moment(process)) {
        supervisor_tell(process, REPORT_STARTED);
        reports = 0;
        (void)wait_for_main(process, true);
    }
    supervisor_tell(process, reports | REPORT_ENDED);
    if (process->left_children)
        reap_all();
}

/* Waits for the next process; false when it is time to go. */
static bool park(struct worker *worker)
{
    int parked = WORKER_PARKED;

    while (atomic_load(&worker->state) == WORKER_PARKED)
        if (sys(futex, &worker->state, FUTEX_WAIT_, WORKER_PARKED, &patience) == -ETIMEDOUT)
            (void)atomic_compare_exchange_strong(&worker->state, &parked, WORKER_LEAVING);
    return atomic_load(&worker->state) == WORKER_BUSY;
}

static __attribute__((noreturn)) void supervisor_run(void *argument)
{
    struct worker *worker = argument;
    bool goes_on = true;

    (void)sys(prctl, PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0);
    if (!worker->is_for_root)
        credentials_drop_bounding();
    if (settings.direct) {
        (void)sys(prctl, PR_SET_PDEATHSIG, SIGTERM, 0, 0, 0);
        supervisor_end_if_orphaned();
    }
    while (goes_on) {
        struct process *process = worker->process;

        serve(worker);
        sys_drop(&process->socket);
        atomic_store(&worker->state, WORKER_PARKED);
        report_note(process, REPORT_LEFT);
        report_hint();
        goes_on = park(worker);
    }
    sys_exit(0);
}

/* --- init's side ------------------------------------------------------------------------------ */

/* When the state of a parked one has changed. */
static void wake(struct worker *worker)
{
    (void)sys(futex, &worker->state, FUTEX_WAKE_, 1);
}

static bool take_spare(struct process *process)
{
    struct worker *worker = spares[process->is_for_root];
    int parked = WORKER_PARKED;

    spares[process->is_for_root] = NULL;
    if (!worker)
        return false;
    worker->process = process;
    if (!atomic_compare_exchange_strong(&worker->state, &parked, WORKER_BUSY))
        return false;
    process->supervisor = worker->pid;
    wake(worker);
    return true;
}

static struct worker *find_free(void)
{
    for (unsigned i = 0; i < MAX_WORKERS; i++)
        if (atomic_load(&workers[i].state) == WORKER_FREE) {
            if (i >= workers_used)
                workers_used = i + 1;
            return &workers[i];
        }
    return NULL;
}

static char *stack_top(const struct worker *worker)
{
    return (worker == workers ? first_stack : stacks[worker - workers - 1]) + SUPERVISOR_STACK;
}

int supervisor_start(struct process *process)
{
    struct worker *worker;
    long pid;

    process->socket = (int)sys(fcntl, connection.fd, F_DUPFD_CLOEXEC, 0);
    if (take_spare(process))
        return 0;
    worker = find_free();
    if (!worker)
        return -EAGAIN;
    worker->process = process;
    worker->is_for_root = process->is_for_root;
    atomic_store(&worker->state, WORKER_BUSY);
    pid = sys_clone_call(SUPERVISOR_FLAGS, stack_top(worker), supervisor_run, worker, NULL);
    if (pid < 0) {
        atomic_store(&worker->state, WORKER_FREE);
        return (int)pid;
    }
    process->supervisor = worker->pid = (int)pid;
    return 0;
}

static struct worker *find_worker(int pid)
{
    for (unsigned i = 0; i < workers_used; i++)
        if (workers[i].pid == pid && atomic_load(&workers[i].state) != WORKER_FREE)
            return &workers[i];
    return NULL;
}

void supervisor_release(struct process *process)
{
    struct worker *worker = find_worker(process->supervisor);
    int parked = WORKER_PARKED;

    if (!worker)
        return;
    if (!spares[worker->is_for_root]) {
        spares[worker->is_for_root] = worker;
        return;
    }
    if (atomic_compare_exchange_strong(&worker->state, &parked, WORKER_LEAVING))
        wake(worker);
}

bool supervisor_is(int pid)
{
    return find_worker(pid) != NULL;
}

void supervisor_reaped(int pid)
{
    struct worker *worker = find_worker(pid);

    if (!worker)
        return;
    if (spares[worker->is_for_root] == worker)
        spares[worker->is_for_root] = NULL;
    atomic_store(&worker->state, WORKER_FREE);
}
