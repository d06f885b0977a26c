/* SPDX-License-Identifier: Apache-2.0 */
#include "init/start.h"

#include "init/connection.h"
#include "init/init.h"
#include "init/supervisor.h"
#include "init/sys.h"
#include "init/text.h"
#include "init/tree.h"
#include "init/zygote.h"

#include <errno.h>
#include <string.h>
#include <sys/ioctl.h>

#ifndef TIOCGPTPEER
#define TIOCGPTPEER 0x5441
#endif

/* The outer end does not block: it shares that with the daemon's duplicate. */
static int make_pipe(int *out_outer, int *out_inner, bool inner_reads)
{
    int ends[2];
    long result = sys(pipe2, ends, O_CLOEXEC);

    if (result < 0)
        return (int)result;
    *out_outer = ends[inner_reads ? 1 : 0];
    *out_inner = ends[inner_reads ? 0 : 1];
    return (int)sys(fcntl, *out_outer, F_SETFL, (inner_reads ? O_WRONLY : O_RDONLY) | O_NONBLOCK);
}

/* Without /dev/null, a pipe without a writer. */
static int make_empty_input(struct process *process)
{
    int unused = -1;
    int result;

    if (settings.null_fd >= 0)
        return 0;
    result = make_pipe(&unused, &process->inner[0], true);
    sys_close(unused);
    return result;
}

static int make_pipes(struct process *process)
{
    int result = process->flags & START_STDIN ? make_pipe(&process->input, &process->inner[0], true)
                                              : make_empty_input(process);

    if (!result)
        result = make_pipe(&process->output, &process->inner[1], false);
    if (!result)
        result = make_pipe(&process->errors, &process->inner[2], false);
    return result;
}

/* gVisor cannot give the other end by the master alone. */
static long open_terminal_by_name(int master)
{
    static const char prefix[] = "/dev/pts/";
    char digits[TEXT_NUMBER_SIZE];
    char path[sizeof prefix + TEXT_NUMBER_SIZE];
    unsigned number;
    long result = sys(ioctl, master, TIOCGPTN, &number);

    if (result < 0)
        return result;
    (void)text_from_u64(number, digits);
    (void)text_concat(path, sizeof path, prefix, sizeof prefix - 1, digits);
    return sys_open(AT_FDCWD, path, O_RDWR | O_NOCTTY | O_NOFOLLOW, 0, 0);
}

static int make_terminal(struct process *process, const struct protocol_start *start)
{
    struct winsize size = { .ws_row = start->rows, .ws_col = start->columns };
    int unlock = 0;
    long result;

    process->output = sys_open(AT_FDCWD, "/dev/ptmx", O_RDWR | O_NOCTTY | O_NONBLOCK, 0, 0);
    if (process->output < 0)
        return process->output;
    result = sys(ioctl, process->output, TIOCSPTLCK, &unlock);
    if (result >= 0)
        result = sys(ioctl, process->output, TIOCGPTPEER, O_RDWR | O_NOCTTY | O_CLOEXEC);
    if (result == -ENOTTY)
        result = open_terminal_by_name(process->output);
    if (result < 0)
        return (int)result;
    process->inner[0] = (int)result;
    (void)sys(ioctl, process->output, TIOCSWINSZ, &size);
    return 0;
}

static bool is_regular(int fd)
{
    struct stat status;

    return sys(fstat, fd, &status) >= 0 && S_ISREG(status.st_mode);
}

static void refuse(const struct protocol_header *header, enum protocol_stage stage, int error)
{
    struct protocol_failed failed = {
        .header = protocol_header(PROTOCOL_FAILED, sizeof failed, header->process, header->request),
        .stage = stage,
        .error = error,
    };

    connection_answer(&failed, sizeof failed);
}

/* Another name for root is taken for an ordinary user, and gets no capability. */
static bool is_for_root(const char *user)
{
    if (!user[0])
        user = settings.default_user;
    if (!user[0])
        return settings.is_root;
    return !strcmp(user, "root") || !strncmp(user, "root:", 5) || !strcmp(user, "0") ||
           !strncmp(user, "0:", 2);
}

static struct process *prepare(struct job *job, int *fds, unsigned fd_count)
{
    const struct protocol_start *start = job->start;
    struct process *process;
    int result;

    if (process_find(start->header.process)) {
        refuse(&start->header, STAGE_REQUEST, EEXIST);
        return NULL;
    }
    if (fd_count && !is_regular(fds[0])) {
        refuse(&start->header, STAGE_SCRIPT, EINVAL);
        return NULL;
    }
    process = process_allocate(start->header.process);
    if (!process) {
        refuse(&start->header, STAGE_LIMIT, EAGAIN);
        return NULL;
    }

    process->flags = start->flags;
    process->is_for_root = is_for_root(job->texts.user);
    process->start_request = start->header.request;
    process->connection = connection.generation;
    if (fd_count) {
        process->script = fds[0];
        fds[0] = -1;
        memcpy(process->script_path, job->texts.script_path, strlen(job->texts.script_path) + 1);
    }
    result = start->flags & START_TTY ? make_terminal(process, start) : make_pipes(process);
    if (result >= 0 && start->flags & START_ZYGOTE)
        result = zygote_prepare(process);
    if (result >= 0 && start->flags & START_FORK)
        zygote_choose(process, job);
    if (result < 0) {
        refuse(&start->header, STAGE_SPAWN, -result);
        process_release(process);
        return NULL;
    }
    return process;
}

int start_begin(struct job *job, size_t length, int *fds, unsigned fd_count)
{
    struct process *process;
    int result;

    job->start =
        protocol_start_decode(job->memory->message, length, job->memory->strings, &job->texts);
    if (!job->start || fd_count != !!(job->start->flags & START_SCRIPT))
        return -1;
    process = prepare(job, fds, fd_count);
    if (!process)
        return 0;

    job->kind = JOB_START;
    job->length = length;
    job->process = process;
    process->job = job;
    result = supervisor_start(process);
    if (result < 0) {
        refuse(&job->start->header, STAGE_SPAWN, -result);
        job_release(job);
        process_release(process);
    }
    return 0;
}

static void end_start(struct process *process)
{
    process_close_inner(process);
    job_release(process->job);
    process->job = NULL;
}

static void take_failure(struct process *process)
{
    end_start(process);
    process_close_pipes(process);
    process->state = PROCESS_LINGERING;
    process->pending = PENDING_FAILED;
}

static void take_end(struct process *process)
{
    if (process->state == PROCESS_LINGERING)
        return;
    if (process->left_children)
        process->end.survivors = tree_count(process_root(process));
    process->state = PROCESS_ENDED;
}

static void end_supervision(struct process *process)
{
    process->supervisor = process->root = 0;
    tree_end_kill(process);
    process_settle(process);
}

static void take_reports(struct process *process)
{
    unsigned reports = atomic_exchange(&process->reports, 0);

    if (process->condemns)
        zygote_condemn(process);
    if (reports & REPORT_FAILED)
        take_failure(process);
    if (reports & REPORT_STARTED) {
        end_start(process);
        process->state = PROCESS_RUNNING;
    }
    if (reports & REPORT_ENDED)
        take_end(process);
    if (reports & REPORT_TELL_STARTED && process->state != PROCESS_LINGERING)
        process->pending |= PENDING_STARTED;
    if (reports & REPORT_TELL_ENDED && process->state != PROCESS_LINGERING)
        process->pending |= PENDING_EXITED;
    if (reports & REPORT_LEFT) {
        supervisor_release(process);
        end_supervision(process);
    }
}

void start_take_all_reports(void)
{
    struct process *process;

    while ((process = report_next()))
        take_reports(process);
}

/* The supervisor was killed, so its children are init's now, and the pid cannot be reused before
 * init has reaped it. Init will not reap a process that the supervisor had reaped, or a child of a
 * zygote. */
static void adopt(struct process *process)
{
    bool is_ours = sys(kill, process->main_pid, SIGKILL) != -ESRCH && !process->root;

    if (process->state == PROCESS_STARTING && is_ours)
        return; /* it still works in the memory of its job */
    if (process->state == PROCESS_STARTING)
        end_start(process);
    process->end = (struct protocol_end){ .code = -1, .signal = SIGKILL };
    process->left_children = false;
    take_end(process);
}

void start_lose_supervisor(struct process *process)
{
    take_reports(process);
    if (!process->supervisor)
        return;
    process->supervisor = 0;
    if (process->state == PROCESS_STARTING && !process->main_pid) {
        process->failed_stage = STAGE_SPAWN;
        process->failed_error = EINTR;
        take_failure(process);
    } else if (process->state == PROCESS_STARTING || process->state == PROCESS_RUNNING) {
        adopt(process);
    }
    /* The supervisor may have died before it sent its noted reports: send them, perhaps twice. */
    if (process->state == PROCESS_ENDED)
        process->pending |= PENDING_STARTED | PENDING_EXITED;
    end_supervision(process);
}

void start_lose_main(struct process *process)
{
    process->failed_stage = STAGE_SPAWN;
    process->failed_error = EINTR;
    take_failure(process);
}

void start_forget(struct process *process)
{
    process_close_pipes(process);
    process->pending &= PENDING_KILLED;
    process->state = PROCESS_LINGERING;
    process_settle(process);
}
