#include "base/alloc.h"
#include "base/log.h"
#include "base/mask.h"
#include "base/str.h"
#include "config/config.h"
#include "core/events.h"
#include "core/metrics.h"
#include "core/run/execution_private.h"
#include "core/run/language.h"
#include "core/run/python_zygote.h"
#include "core/stamp.h"
#include "wire/json.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

enum {
    /* On a busy machine an answer takes seconds, and others may work in the same sandbox. */
    SILENCE_US = 10 * 1000 * 1000,  /* init has said nothing at all */
    PATIENCE_US = 20 * 1000 * 1000, /* it speaks, but not of this */
    STANDSTILL_US = 1000 * 1000,    /* we were late ourselves: what was said is not read yet */
    MAX_REPEATS = 2
};

static const struct config *config_of(const struct execution *execution)
{
    return execution->core->parts.config;
}

static void on_clock(struct timer *timer);

struct execution_run *execution_run_new(struct execution *execution)
{
    struct execution_run *run = xnew(struct execution_run);

    run->execution = execution;
    run->program = PROGRAM_INIT;
    run->wanted = EXECUTION_RUNNING;
    run->end.code = -1;
    run->stdin_fd = -1;
    run->stdin_data = BUFFER_INIT(STDIN_MAXIMUM);
    timer_init(&run->clock, execution->core->loop, on_clock);
    return run;
}

void execution_leave_sandbox(struct execution *execution)
{
    struct execution_run *run = execution->run;

    if (!run)
        return;
    if (run->starting)
        agent_cancel(&run->start);
    if (run->signalling)
        agent_cancel(&run->signal);
    run->starting = run->signalling = false;
    run->signal_count = 0;
    if (run->in_use && run->language == language_python() && run->hold.sandbox)
        warm_prepare_soon(run->hold.sandbox);
    if (run->in_use)
        session_hold_end(&run->hold);
    run->in_use = false;
    execution_stdin_detach(run);
    program_fini(&run->program);
}

void execution_run_free(struct execution_run *run)
{
    if (!run)
        return;
    timer_stop(&run->clock);
    execution_stdin_detach(run);
    program_fini(&run->program);
    buffer_fini(&run->stdin_data);
    free(run);
}

/* --- signals ---------------------------------------------------------------------------------- */

static void on_signalled(struct agent_request *request)
{
    struct execution_run *run = container_of(request, struct execution_run, signal);

    run->signalling = false;
    if (run->is_tree_left && !run->signal_count)
        execution_begin_end(run->execution, run->wanted, NULL);
    else
        execution_send_signals(run->execution);
}

/* One at a time, in order; before it has started, and while the connection is being made again,
 * they wait. */
void execution_send_signals(struct execution *execution)
{
    struct execution_run *run = execution->run;
    struct execution_signal first;

    if (!run || run->signalling || !run->signal_count || !run->in_use || !run->hold.agent ||
        agent_is_lost(run->hold.agent) || !run->attached)
        return;
    first = run->signals[0];
    run->signal_count--;
    memmove(run->signals, run->signals + 1, run->signal_count * sizeof(run->signals[0]));
    run->signalling = true;
    agent_signal(run->hold.agent, execution->facts.number, first.number, first.scope, &run->signal,
                 on_signalled);
}

/* When too many wait, the newest replaces the last. */
void execution_queue_signal(struct execution *execution, int number, enum protocol_scope scope)
{
    struct execution_run *run = execution->run;

    if (run->signal_count == SIGNAL_QUEUE)
        run->signal_count--;
    run->signals[run->signal_count++] = (struct execution_signal){ number, scope };
    execution_send_signals(execution);
}

/* --- stopping --------------------------------------------------------------------------------- */

static void terminate(struct execution *execution)
{
    struct execution_run *run = execution->run;

    run->stop = STOP_TERM;
    execution_queue_signal(execution, SIGTERM, SCOPE_TREE);
    timer_arm_in(&run->clock, config_of(execution)->exec.grace_ms * 1000);
}

static void expect_answer(struct execution *execution, enum stop_stage stage)
{
    struct execution_run *run = execution->run;

    run->stop = stage;
    run->asked_us = loop_now_us(execution->core->loop);
    timer_arm_in(&run->clock, SILENCE_US);
}

/* Whether it is too early to call it silent; then the clock runs on. */
static bool wait_longer(struct execution *execution)
{
    struct execution_run *run = execution->run;
    int64_t now_us = loop_now_us(execution->core->loop);
    int64_t heard_us = run->in_use && run->hold.agent ? agent_heard_us(run->hold.agent) : 0;
    int64_t until_us;

    if (now_us - run->clock.deadline_us > STANDSTILL_US)
        run->asked_us = now_us;
    until_us = MIN(MAX(heard_us, run->asked_us) + SILENCE_US, run->asked_us + PATIENCE_US);
    if (now_us >= until_us)
        return false;
    timer_arm_at(&run->clock, until_us);
    return true;
}

void execution_stop(struct execution *execution, enum execution_state as)
{
    struct execution_run *run = execution->run;

    if (!run || run->ending || run->wanted != EXECUTION_RUNNING)
        return;
    run->wanted = as;
    if (run->attached)
        terminate(execution);
    else if (run->starting || execution->facts.state == EXECUTION_RUNNING)
        expect_answer(execution, STOP_START);
    else
        execution_begin_end(execution, as, NULL);
}

/* The sandbox lives but init does not answer, or cannot kill: nothing in it can be relied on. One
 * that is frozen is silent by right. */
static void abandon(struct execution *execution)
{
    const struct execution_run *run = execution->run;
    struct session *session = execution->session;
    struct sandbox *sandbox = session ? session_sandbox(session) : NULL;
    bool is_silent = sandbox && sandbox_state(sandbox) == SANDBOX_READY &&
                     session_state(session) == SESSION_OPEN &&
                     str_equal(sandbox_id(sandbox), execution->facts.sandbox_id);

    log_warn(is_silent ? "sandbox does not answer, it is destroyed"
                       : "execution does not confirm its end, continuing without it",
             kv("execution", execution->facts.id), kv("session", execution->facts.session_id));
    execution_begin_end(execution, run->wanted,
                        run->wanted == EXECUTION_TIMEOUT ? "timeout: the sandbox did not answer"
                                                         : "the sandbox did not answer");
    if (is_silent)
        sandbox_destroy(sandbox, END_CRASHED, "unresponsive");
}

static void on_clock(struct timer *timer)
{
    struct execution_run *run = container_of(timer, struct execution_run, clock);
    struct execution *execution = run->execution;

    switch (run->stop) {
    case STOP_NONE:
        execution_stop(execution, EXECUTION_TIMEOUT);
        break;
    case STOP_TERM:
        expect_answer(execution, STOP_KILL);
        execution_queue_signal(execution, SIGKILL, SCOPE_TREE);
        break;
    case STOP_START:
    case STOP_KILL:
        if (!wait_longer(execution))
            abandon(execution);
        break;
    }
}

void execution_arm_timeout(struct execution *execution)
{
    struct execution_run *run = execution->run;
    int64_t deadline_us = execution->facts.created.boot_us + execution->facts.timeout_ms * 1000;

    if (run->wanted != EXECUTION_RUNNING)
        terminate(execution);
    else if (execution->facts.timeout_ms > 0)
        timer_arm_at(&run->clock, deadline_us);
}

void execution_cancel(struct execution *execution)
{
    execution_stop(execution, EXECUTION_CANCELLED);
}

void execution_abandon(struct execution *execution)
{
    if (!execution->core->stopping && !execution_state_is_final(execution->facts.state))
        execution_cancel(execution);
}

/* --- the end of the process ------------------------------------------------------------------- */

/* Whether the OOM killer has been there since the last execution that it took. */
static bool saw_oom_kill(struct execution *execution, uint32_t kills)
{
    struct session *session = execution->session;
    const char *sandbox_id = execution->facts.sandbox_id;

    if (!session || kills <= session_known_oom_kills(session, sandbox_id))
        return false;
    session_note_oom_kills(session, sandbox_id, kills);
    return true;
}

/* Names of programs, folders and users come from the request, which may have secrets in them. */
static void set_error(struct execution *execution, const char *text)
{
    free(execution->facts.error);
    execution->facts.error = mask_text(execution_mask(execution), text);
}

static void end_out_of_memory(struct execution *execution)
{
    uint64_t limit = session_limits(execution->session)->memory_bytes;
    scoped(free) char *text = NULL;
    char size[STR_UNIT_SIZE];

    if (limit % (1 << 20) == 0)
        snprintf(size, sizeof(size), "%llu MB", (unsigned long long)(limit >> 20));
    else
        str_format_size(limit, size);
    text = xasprintf("killed: out of memory (limit %s); see --memory", size);
    set_error(execution, text);
    execution_begin_end(execution, EXECUTION_CRASHED, "oom");
}

static void on_inspected(struct backend_op *op)
{
    struct execution_run *run = container_of(op, struct execution_run, inspect);
    struct execution *execution = run->execution;

    run->inspecting = false;
    if (!op->err.code && saw_oom_kill(execution, op->result.usage.oom_kills))
        end_out_of_memory(execution);
    else
        execution_begin_end(execution, EXECUTION_EXITED, NULL);
    execution_continue_end(execution);
}

static bool may_be_oom(const struct execution *execution)
{
    const struct execution_run *run = execution->run;

    return (run->end.signal == SIGKILL || run->end.code == 128 + SIGKILL) && run->in_use &&
           run->hold.sandbox && execution->core->parts.backend->ops->capabilities.usage;
}

/* We hear of a start later than it happens, for a short program not before its end. */
static void correct_start(struct execution *execution, int64_t wall_us)
{
    int64_t now_us = loop_now_us(execution->core->loop);
    int64_t late_us = execution->facts.started.boot_us -
                      MAX(now_us - wall_us, execution->facts.created.boot_us);

    if (late_us <= 0)
        return;
    execution->facts.started.boot_us -= late_us;
    execution->facts.started.wall_us -= late_us;
}

void execution_on_exit(struct execution *execution, const struct agent_exit *end)
{
    struct execution_run *run = execution->run;

    if (!run || run->ending || run->inspecting || run->is_tree_left)
        return;
    run->end = *end;
    correct_start(execution, end->wall_us);
    timer_stop(&run->clock);
    if (run->wanted != EXECUTION_RUNNING && end->survivors && run->in_use) {
        run->is_tree_left = true;
        expect_answer(execution, STOP_KILL);
        execution_queue_signal(execution, SIGKILL, SCOPE_TREE);
    } else if (run->wanted != EXECUTION_RUNNING) {
        execution_begin_end(execution, run->wanted, NULL);
    } else if (end->code < 0 && !end->signal) {
        execution_begin_end(execution, EXECUTION_CRASHED,
                            "lost: its sandbox does not know its end");
    } else if (may_be_oom(execution)) {
        run->inspecting = true;
        run->inspect = (struct backend_op){ .done = on_inspected };
        backend_inspect(execution->core->parts.backend, sandbox_id(run->hold.sandbox),
                        &run->inspect);
    } else {
        execution_begin_end(execution, EXECUTION_EXITED, NULL);
    }
}

/* A sandbox may be dying when it is handed out. What init has not seen has not run, and nobody is
 * to notice; what it may have begun is never run twice. */
static bool begin_again(struct execution *execution)
{
    struct execution_run *run = execution->run;

    if (run->wanted != EXECUTION_RUNNING || run->repeats == MAX_REPEATS)
        return false;
    log_debug("execution begins again: its sandbox ended before it saw it",
              kv("execution", execution->facts.id), kv("sandbox", execution->facts.sandbox_id));
    run->repeats++;
    run->in_use = true;
    agent_cancel(&run->start);
    run->starting = false;
    session_hold_retry(&run->hold, run->generation);
    return true;
}

/* The sandbox is gone; what it had written is in the pipes. */
void execution_use_lost(struct session_hold *hold)
{
    struct execution_run *run = container_of(hold, struct execution_run, hold);
    struct execution *execution = run->execution;
    bool crashed = hold->lost.kind == END_CRASHED;
    char text[END_TEXT_SIZE];

    run->in_use = false;
    if (crashed && run->starting && run->start.is_open && agent_is_untaken(&run->start) &&
        begin_again(execution))
        return;
    end_reason_text(&hold->lost, text);
    execution_begin_end(execution,
                        run->wanted != EXECUTION_RUNNING ? run->wanted
                        : crashed                        ? EXECUTION_CRASHED
                                                         : EXECUTION_CANCELLED,
                        text);
    execution_leave_sandbox(execution);
}

/* --- starting --------------------------------------------------------------------------------- */

static void attach_output(struct spool *output, int fd, bool is_terminal, bool has_ended)
{
    if (has_ended)
        spool_take(output, fd, is_terminal);
    else
        spool_attach(output, fd);
}

void execution_attach(struct execution *execution, const struct agent_pipes *pipes, bool has_ended)
{
    struct execution_run *run = execution->run;

    run->attached = true;
    execution_stdin_attach(run, pipes);
    if (pipes->output >= 0)
        attach_output(execution->out, pipes->output, pipes->terminal, has_ended);
    if (pipes->errors >= 0 && execution->err)
        attach_output(execution->err, pipes->errors, false, has_ended);
    else
        fd_close(pipes->errors);
}

void execution_note_start(struct execution *execution)
{
    char text[128];

    execution->facts.started = stamp_now(execution->core);
    metrics_add(execution->core->metrics, METRIC_EXECUTIONS_STARTED, 0, 1);
    session_count_execution(execution->session);
    snprintf(text, sizeof(text), "{\"execution_id\":\"%s\",\"generation\":%llu}",
             execution->facts.id, (unsigned long long)execution->facts.generation);
    session_emit(execution->session, "execution.started", text);
}

/* It never ran, and that is not the program's fault. */
static void fail_start(struct execution *execution, const struct error *err)
{
    set_error(execution, err->message);
    execution->facts.start_error = *err;
    snprintf(execution->facts.start_error.message, sizeof(execution->facts.start_error.message),
             "%s", execution->facts.error);
    execution_begin_end(execution, EXECUTION_CRASHED, "not started");
}

/* What a shell would say and exit with. */
static void exit_unstarted(struct execution *execution, int code, const char *what, const char *why)
{
    scoped(free) char *text = xasprintf("%s: %s", what, why);

    set_error(execution, text);
    execution->run->end.code = code;
    execution_begin_end(execution, EXECUTION_EXITED, "not started");
}

/* A name that is looked for in PATH is refused too when only some folder there may not be searched.
 */
static bool is_not_found(const char *name, int number)
{
    return number == ENOENT || number == ENOTDIR || (number == EACCES && !strchr(name, '/'));
}

/* Init knows only that the start was not reported: the program may have begun before it was killed
 * with its supervisor. */
static void set_supervisor_killed(struct error *err)
{
    error_named(err, ERR_BACKEND, "supervisor_killed",
                "the supervisor of the program was killed while it started the program");
    err->retryable = false;
    error_hint(err, "the program may have begun: look for its effects before starting it again");
}

static void on_start_refused(struct execution *execution, const struct agent_request *request)
{
    const struct program *program = &execution->run->program;
    int number = request->sys_errno;
    struct error err = request->err;

    if (request->stage == STAGE_EXEC && is_not_found(program->argv[0], number))
        exit_unstarted(execution, 127, program->argv[0], "not found");
    else if (request->stage == STAGE_EXEC)
        exit_unstarted(execution, 126, program->argv[0], strerror(number));
    else if (request->stage == STAGE_CWD)
        exit_unstarted(execution, 126, *program->cwd ? program->cwd : "the home directory",
                       strerror(number));
    else if (request->stage == STAGE_USER)
        exit_unstarted(execution, 126, program->user,
                       number == EINVAL ? "the sandbox has no such user" : strerror(number));
    else {
        if (number == EAGAIN || number == ENOMEM || request->stage == STAGE_LIMIT)
            error_named(&err, ERR_LIMIT, "too_many_processes",
                        "the sandbox can start no more processes: %s", strerror(number));
        else if (number == EINTR)
            set_supervisor_killed(&err);
        else if (number == ENOSPC || number == EDQUOT)
            error_named(&err, ERR_NO_SPACE, "no_space", "the sandbox has no space left");
        fail_start(execution, &err);
    }
}

static void start_process(struct execution *execution);

/* The record of one that has ended already is written with its end. */
static void begin_running(struct execution *execution, const struct agent_pipes *pipes,
                          bool has_ended)
{
    struct execution_run *run = execution->run;

    run->language = run->program.language;
    execution_attach(execution, pipes, has_ended);
    program_fini(&run->program);
    execution->facts.state = EXECUTION_RUNNING;
    execution_note_start(execution);
    if (!has_ended)
        execution_save(execution);
    execution_arm_timeout(execution);
    if (run->is_resized)
        (void)execution_resize(execution, run->columns, run->rows, NULL);
    execution_send_signals(execution);
    execution_changed(execution);
    if (execution->facts.kind != EXECUTION_DRIVER)
        return;
    if (run->language == language_python())
        warm_prepare_soon(run->hold.sandbox);
    session_hold_weaken(&run->hold);
}

static void on_started(struct agent_request *request)
{
    struct execution_run *run = container_of(request, struct execution_run, start);
    struct execution *execution = run->execution;

    run->starting = false;
    if (request->err.code && run->wanted != EXECUTION_RUNNING) {
        execution_begin_end(execution, run->wanted, NULL);
    } else if (request->err.code && request->is_untaken && begin_again(execution)) {
        return;
    } else if (request->err.code && !request->sys_errno) {
        fail_start(execution, &request->err);
    } else if (request->err.code && request->stage == STAGE_EXEC && request->sys_errno == ENOENT &&
               run->program.may_use_sh) {
        program_use_sh(&run->program);
        start_process(execution);
    } else if (request->err.code) {
        on_start_refused(execution, request);
    } else {
        begin_running(execution, &request->result.started.pipes, request->result.started.has_ended);
    }
}

static void start_process(struct execution *execution)
{
    struct execution_run *run = execution->run;
    const struct program *program = &run->program;
    struct agent_start start = {
        .argv = (const char *const *)program->argv,
        .env = (const char *const *)program->env,
        .user = program->user,
        .cwd = program->cwd,
        .script_path = program->script_name ? program->argv[1] : NULL,
        .script_fd = program->script_fd,
        .wants_stdin = run->wants_stdin,
        .terminal = execution->terminal,
        .may_fork = !execution->terminal && warm_fits(sandbox_warm(run->hold.sandbox), program),
        .columns = run->columns,
        .rows = run->rows,
    };

    start.number = execution->facts.number;
    execution_save(execution);
    run->starting = true;
    agent_start(run->hold.agent, &start, &run->start, on_started);
}

/* The session is recorded with the execution. */
static void tell_reset(struct execution *execution)
{
    struct session *session = execution->session;

    execution->facts.files_were_reset = true;
    execution->facts.reset_reason = *session_previous_end(session);
    session_report_reset(session, execution->facts.id);
}

void execution_hold_ready(struct session_hold *hold)
{
    struct execution_run *run = container_of(hold, struct execution_run, hold);
    struct execution *execution = run->execution;
    struct session *session = execution->session;

    if (hold->err.code) {
        run->in_use = false;
        fail_start(execution, &hold->err);
        return;
    }
    memcpy(execution->facts.sandbox_id, sandbox_id(hold->sandbox),
           sizeof(execution->facts.sandbox_id));
    execution->facts.generation = session_generation(session);
    if (session_reset_is_pending(session))
        tell_reset(execution);
    if (!hold->agent) {
        execution_begin_end(execution, EXECUTION_CRASHED, "the sandbox cannot be reached");
        return;
    }
    program_place_script(&run->program, hold->sandbox);
    start_process(execution);
}
