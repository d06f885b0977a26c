/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The second of the three steps of a start, prepare, spawn, attach: from the sandbox that is ready
 * to init, and init's answer.
 */

#include "base/alloc.h"
#include "base/log.h"
#include "base/mask.h"
#include "core/core.h"
#include "core/run/execution_private.h"
#include "core/run/python_zygote.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_REPEATS = 2 };

/* A sandbox may be dying when it is handed out. A request that init has not seen has not run, and
 * is repeated unnoticed; a program that init may have begun is never run twice. */
static bool begin_again(struct execution *execution)
{
    struct execution_run *run = execution->run;

    if (run_is_stopped(run) || run->spawn.repeats == MAX_REPEATS)
        return false;
    log_debug("execution starts again: its sandbox ended before it received it",
              kv("execution", execution->facts.id), kv("sandbox", execution->facts.sandbox_id));
    run->spawn.repeats++;
    agent_cancel(&run->spawn.request);
    if (run->phase == PHASE_SPAWNING)
        run_set_phase(run, PHASE_WAITING);
    session_hold_retry(&run->hold, run->spawn.generation);
    return true;
}

/* The sandbox is gone; the bytes that it had written are in the pipes. */
void execution_hold_lost(struct session_hold *hold)
{
    struct execution_run *run = container_of(hold, struct execution_run, hold);
    struct execution *execution = run->execution;
    bool crashed = hold->lost.kind == END_CRASHED;
    scoped(free) char *timeout = NULL;
    char text[END_TEXT_SIZE];

    if (crashed && run->phase == PHASE_SPAWNING && run->spawn.request.is_open &&
        agent_is_untaken(&run->spawn.request) && begin_again(execution))
        return;
    end_reason_text(&hold->lost, text);
    if (run->stop.as == EXECUTION_TIMEOUT)
        timeout = xasprintf("timeout: %s", text);
    execution_begin_end(execution,
                        run_is_stopped(run) ? run->stop.as
                        : crashed           ? EXECUTION_CRASHED
                                            : EXECUTION_CANCELLED,
                        timeout ? timeout : text);
    execution_leave_sandbox(execution);
}

/* It never ran, and that is not the program's fault. The record has one text for the reason and the
 * remedy. */
static void fail_spawn(struct execution *execution, const struct error *err)
{
    scoped(free) char *message = mask_text(execution_mask(execution), err->message);
    scoped(free) char *text = *err->hint ? xasprintf("%s; %s", err->message, err->hint) : NULL;

    execution_set_error(execution, text ? text : err->message);
    execution->facts.start_error = *err;
    snprintf(execution->facts.start_error.message, sizeof(execution->facts.start_error.message),
             "%s", message);
    execution_begin_end(execution, EXECUTION_CRASHED, "not started");
}

/* The message and the exit code that a shell would give. */
static void exit_unspawned(struct execution *execution, int code, const char *what, const char *why)
{
    scoped(free) char *text = xasprintf("%s: %s", what, why);

    execution_set_error(execution, text);
    execution->run->end.exit.code = code;
    execution_begin_end(execution, EXECUTION_EXITED, "not started");
}

/* A name that is looked for in PATH is refused too when only some directory there may not be
 * searched. */
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
    error_hint(err, "the program may have started: look for its effects before you start it again");
}

static const char *why_not_found(const struct program *program)
{
    return program->language ? "not found; use a template that has it" : "not found";
}

static void on_spawn_refused(struct execution *execution, const struct agent_request *request)
{
    const struct program *program = &execution->run->spawn.program;
    int number = request->sys_errno;
    struct error err = request->err;

    if (request->stage == STAGE_EXEC && is_not_found(program->argv[0], number))
        exit_unspawned(execution, 127, program->argv[0], why_not_found(program));
    else if (request->stage == STAGE_EXEC)
        exit_unspawned(execution, 126, program->argv[0], strerror(number));
    else if (request->stage == STAGE_CWD)
        exit_unspawned(execution, 126, *program->cwd ? program->cwd : "the home directory",
                       strerror(number));
    else if (request->stage == STAGE_USER)
        exit_unspawned(execution, 126, *program->user ? program->user : "the user of the image",
                       number == EINVAL ? "the sandbox has no such user" : strerror(number));
    else {
        if (number == EAGAIN || number == ENOMEM || request->stage == STAGE_LIMIT)
            error_named(&err, ERR_LIMIT, "too_many_processes",
                        "the sandbox cannot start more processes: %s", strerror(number));
        else if (number == EINTR)
            set_supervisor_killed(&err);
        else if (number == ENOSPC || number == EDQUOT)
            error_named(&err, ERR_NO_SPACE, "no_space", "the sandbox has no space left");
        fail_spawn(execution, &err);
    }
}

static void spawn(struct execution *execution);

static void on_spawned(struct agent_request *request)
{
    struct execution_run *run = container_of(request, struct execution_run, spawn.request);
    struct execution *execution = run->execution;

    run_set_phase(run, PHASE_WAITING);
    if (request->err.code && run_is_stopped(run)) {
        execution_begin_end(execution, run->stop.as, NULL);
    } else if (request->err.code && request->is_untaken && begin_again(execution)) {
        return;
    } else if (request->err.code && !request->sys_errno) {
        fail_spawn(execution, &request->err);
    } else if (request->err.code && request->stage == STAGE_EXEC && request->sys_errno == ENOENT &&
               run->spawn.program.may_use_sh) {
        program_use_sh(&run->spawn.program);
        spawn(execution);
    } else if (request->err.code) {
        on_spawn_refused(execution, request);
    } else {
        execution->facts.pid = request->result.started.pid;
        execution_begin_running(execution, &request->result.started.pipes,
                                request->result.started.has_ended);
    }
}

static void spawn(struct execution *execution)
{
    struct execution_run *run = execution->run;
    const struct program *program = &run->spawn.program;
    struct agent_start start = {
        .argv = (const char *const *)program->argv,
        .env = (const char *const *)program->env,
        .user = program->user,
        .cwd = program->cwd,
        .script_path = program->script_name ? program->argv[1] : NULL,
        .script = program->script,
        .script_length = program->script_length,
        .wants_stdin = run->input.state != INPUT_NONE,
        .terminal = execution->terminal,
        .may_fork = !execution->terminal &&
                    python_zygote_fits(sandbox_python_zygote(run->hold.sandbox), program),
        .columns = run->terminal.size.columns,
        .rows = run->terminal.size.rows,
    };

    start.number = execution->facts.number;
    execution_save(execution);
    run->terminal.sent = run->terminal.size;
    run_set_phase(run, PHASE_SPAWNING);
    agent_start(run->hold.agent, &start, &run->spawn.request, on_spawned);
    execution_expect_start(execution);
}

/* The session is recorded with the execution. */
static void tell_reset(struct execution *execution)
{
    struct session *session = execution->session;

    execution->facts.files_were_reset = true;
    execution->facts.reset_reason = *session_previous_end(session);
    session_report_reset(session, execution->facts.id);
}

static void start(struct execution *execution)
{
    struct execution_run *run = execution->run;
    struct error err = { 0 };

    if (!core_may_act(execution->core, &err))
        fail_spawn(execution, &err);
    else if (program_place_script(&run->spawn.program, run->hold.agent, &err) < 0)
        fail_spawn(execution, &err);
    else
        spawn(execution);
}

/* --- a key that must be known first ------------------------------------------------------------ */

/* A daemon that is killed before the record is written leaves a program whose key the next daemon
 * does not know, and another node that takes the session over does not know it either: the same
 * request would run the program twice. */
static void on_first_record(struct execution *execution, const struct error *err)
{
    struct execution_run *run = execution->run;

    run->spawn.record = err->code ? FIRST_RECORD_NONE : FIRST_RECORD_WRITTEN;
    if (run->phase != PHASE_WAITING || run_is_ending(run) || !run->hold.granted || !run->hold.agent)
        return; /* it was stopped meanwhile, or waits for its sandbox again */
    if (err->code)
        fail_spawn(execution, err);
    else
        start(execution);
}

static bool needs_first_record(const struct execution *execution)
{
    return execution->facts.key && execution->run->spawn.record != FIRST_RECORD_WRITTEN;
}

static void wait_for_first_record(struct execution *execution)
{
    if (execution->run->spawn.record == FIRST_RECORD_ASKED)
        return;
    execution->run->spawn.record = FIRST_RECORD_ASKED;
    execution_when_written(execution, on_first_record);
}

void execution_hold_ready(struct session_hold *hold)
{
    struct execution_run *run = container_of(hold, struct execution_run, hold);
    struct execution *execution = run->execution;
    struct session *session = execution->session;

    if (hold->err.code) {
        fail_spawn(execution, &hold->err);
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
    if (needs_first_record(execution))
        wait_for_first_record(execution);
    else
        start(execution);
}
