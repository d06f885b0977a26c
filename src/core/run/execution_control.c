/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Control of a program that runs: signals, the size of its terminal, stopping it.
 *
 *     none → record → term → kill     it was stopped: recorded, TERM to its tree, KILL after exec.grace
 *     none → spawn → record → …       it was stopped before init has answered
 *     … → sweep                       it has ended; the rest of its tree is killed
 *
 * The stop is in the record before the program can see a signal: a daemon that is killed meanwhile
 * leaves one that goes on stopping, and the end is a timeout or a cancellation, however the program
 * took the signal.
 */

#include "base/log.h"
#include "base/str.h"
#include "config/config.h"
#include "core/core.h"
#include "core/run/execution_private.h"

#include <assert.h>
#include <signal.h>
#include <string.h>

enum {
    /* On a busy machine an answer takes seconds, and others may work in the same sandbox. */
    SILENCE_US = 10 * 1000 * 1000,  /* init has said nothing at all */
    PATIENCE_US = 20 * 1000 * 1000, /* it speaks, but not of this */
    STANDSTILL_US = 1000 * 1000,    /* the daemon itself was late: messages are not read yet */
    RECORD_US = 1000 * 1000,        /* for the store: a stop does not depend on it */
};

/* --- signals ---------------------------------------------------------------------------------- */

static void on_signalled(struct agent_request *request)
{
    struct execution_run *run = container_of(request, struct execution_run, signals.request);

    if (run->stop.stage == STOP_SWEEP && !run->signals.count) {
        execution_begin_end(run->execution, run->stop.as, NULL);
        return;
    }
    execution_send_signals(run->execution);
    execution_changed(run->execution); /* input may go on */
}

/* Signals are sent one at a time, in order; they wait before the program has started, and while the
 * connection is being made again. Input waits for them: what was written after a signal is read after
 * it. */
void execution_send_signals(struct execution *execution)
{
    struct execution_run *run = execution->run;
    struct run_signal first;

    if (!run || run->signals.request.is_open || !run->signals.count || !run_holds_sandbox(run) ||
        !run->hold.agent || agent_is_lost(run->hold.agent) || !run_is_attached(run))
        return;
    first = run->signals.queue[0];
    run->signals.count--;
    memmove(run->signals.queue, run->signals.queue + 1,
            run->signals.count * sizeof(run->signals.queue[0]));
    agent_signal(run->hold.agent, execution->facts.number, first.number, first.scope,
                 &run->signals.request, on_signalled);
}

/* When too many wait, the newest replaces the last. */
void execution_queue_signal(struct execution *execution, int number, enum protocol_scope scope)
{
    struct execution_run *run = execution->run;

    if (run->signals.count == SIGNAL_QUEUE)
        run->signals.count--;
    run->signals.queue[run->signals.count++] = (struct run_signal){ number, scope };
    execution_send_signals(execution);
}

/* --- stopping --------------------------------------------------------------------------------- */

#define BIT(stage) (1U << (stage))

static const unsigned next_stages[STOP_STAGES] = {
    [STOP_NONE] = BIT(STOP_SPAWN) | BIT(STOP_RECORD),
    [STOP_SPAWN] = BIT(STOP_RECORD) | BIT(STOP_SWEEP),
    [STOP_RECORD] = BIT(STOP_TERM) | BIT(STOP_SWEEP),
    [STOP_TERM] = BIT(STOP_KILL) | BIT(STOP_SWEEP),
    [STOP_KILL] = BIT(STOP_SWEEP),
};

static void set_stage(struct execution_run *run, enum stop_stage stage)
{
    assert(next_stages[run->stop.stage] & BIT(stage));
    run->stop.stage = stage;
}

static void terminate(struct execution *execution)
{
    struct execution_run *run = execution->run;

    set_stage(run, STOP_TERM);
    execution_queue_signal(execution, SIGTERM, SCOPE_TREE);
    timer_arm_in(&run->stop.clock, execution->core->parts.config->exec.grace_ms * 1000);
}

static void on_stop_recorded(struct execution *execution, const struct error *err UNUSED)
{
    if (execution->run->stop.stage == STOP_RECORD && !run_is_ending(execution->run))
        terminate(execution);
}

/* The name of the end is in the record: see execution_save(). */
static void terminate_when_recorded(struct execution *execution)
{
    set_stage(execution->run, STOP_RECORD);
    timer_arm_in(&execution->run->stop.clock, RECORD_US);
    execution_when_written(execution, on_stop_recorded);
}

static void expect_answer(struct execution *execution, enum stop_stage stage)
{
    struct execution_run *run = execution->run;

    set_stage(run, stage);
    run->stop.asked_us = loop_now_us(execution->core->loop);
    timer_arm_in(&run->stop.clock, SILENCE_US);
}

void execution_sweep(struct execution *execution)
{
    expect_answer(execution, STOP_SWEEP);
    execution_queue_signal(execution, SIGKILL, SCOPE_TREE);
}

/* Whether it is too early to call it silent; then the clock runs on. */
static bool wait_longer(struct execution *execution)
{
    struct execution_run *run = execution->run;
    int64_t now_us = loop_now_us(execution->core->loop);
    int64_t heard_us = run_holds_sandbox(run) && run->hold.agent ? agent_heard_us(run->hold.agent)
                                                                 : 0;
    int64_t until_us;

    if (now_us - run->stop.clock.deadline_us > STANDSTILL_US)
        run->stop.asked_us = now_us;
    until_us =
        MIN(MAX(heard_us, run->stop.asked_us) + SILENCE_US, run->stop.asked_us + PATIENCE_US);
    if (now_us >= until_us)
        return false;
    timer_arm_at(&run->stop.clock, until_us);
    return true;
}

static bool is_frozen_by_others(const struct execution *execution)
{
    const struct sandbox *sandbox = execution->session ? session_sandbox(execution->session) : NULL;

    return sandbox && sandbox_state(sandbox) == SANDBOX_FROZEN_BY_OTHERS;
}

/* Of an execution that waits for a sandbox; NULL: it needs no other than its state. */
static const char *reason_in_queue(const struct execution *execution, enum execution_state as)
{
    return as == EXECUTION_TIMEOUT && is_frozen_by_others(execution)
               ? "timeout: the sandbox is frozen by others"
               : NULL;
}

static const char *reason_of_silence(const struct execution *execution)
{
    bool is_timeout = execution->run->stop.as == EXECUTION_TIMEOUT;

    if (is_frozen_by_others(execution))
        return is_timeout ? "timeout: the sandbox is frozen by others"
                          : "the sandbox is frozen by others";
    return is_timeout ? "timeout: the sandbox did not answer" : "the sandbox did not answer";
}

void execution_stop(struct execution *execution, enum execution_state as)
{
    struct execution_run *run = execution->run;

    if (!run || run_is_ending(run) || run_is_stopped(run))
        return;
    run->stop.as = as;
    if (!run_is_attached(run) && run->phase != PHASE_SPAWNING &&
        execution->facts.state != EXECUTION_RUNNING) {
        execution_begin_end(execution, as, reason_in_queue(execution, as));
        return;
    }
    execution_save(execution);
    if (run_is_attached(run))
        terminate_when_recorded(execution);
    else
        expect_answer(execution, STOP_SPAWN);
}

void execution_restore_stop(struct execution *execution, const char *recorded)
{
    static const enum execution_state ends[] = { EXECUTION_TIMEOUT, EXECUTION_CANCELLED,
                                                 EXECUTION_OUTPUT_LIMIT };

    for (size_t i = 0; recorded && i < ARRAY_LENGTH(ends); i++) {
        if (!str_equal(recorded, execution_state_name(ends[i])))
            continue;
        execution->run->stop.as = ends[i];
        expect_answer(execution, STOP_SPAWN);
    }
}

/* The sandbox lives but init does not answer, or cannot kill: nothing in it can be relied on. A
 * frozen sandbox is silent by right. */
static void abandon(struct execution *execution)
{
    struct session *session = execution->session;
    struct sandbox *sandbox = session ? session_sandbox(session) : NULL;
    bool is_silent = sandbox && sandbox_state(sandbox) == SANDBOX_READY &&
                     session_state(session) == SESSION_OPEN &&
                     str_equal(sandbox_id(sandbox), execution->facts.sandbox_id);

    log_warn(is_silent ? "sandbox does not answer; destroying it"
                       : "execution does not confirm its end, continuing without it",
             kv("execution", execution->facts.id), kv("session", execution->facts.session_id));
    execution_begin_end(execution, execution->run->stop.as, reason_of_silence(execution));
    if (is_silent)
        sandbox_destroy(sandbox, END_CRASHED, "unresponsive");
}

/* --- a start that init does not answer -------------------------------------------------------- */

/* The timeout is the limit where there is one. */
void execution_expect_start(struct execution *execution)
{
    struct execution_run *run = execution->run;
    int64_t silence_us = execution->core->parts.config->sandbox.silence_timeout_ms * 1000;

    if (execution->facts.timeout_ms > 0 || run_is_stopped(run) || silence_us <= 0)
        return;
    run->stop.asked_us = loop_now_us(execution->core->loop);
    timer_arm_in(&run->stop.clock, silence_us);
}

static void on_silence(struct execution *execution)
{
    struct execution_run *run = execution->run;
    int64_t silence_us = execution->core->parts.config->sandbox.silence_timeout_ms * 1000;
    int64_t now_us = loop_now_us(execution->core->loop);
    bool may_speak = run->hold.sandbox && sandbox_state(run->hold.sandbox) == SANDBOX_READY &&
                     session_state(execution->session) == SESSION_OPEN;
    int64_t until_us;

    if (run->phase != PHASE_SPAWNING)
        return;
    if (!may_speak || now_us - run->stop.clock.deadline_us > STANDSTILL_US)
        run->stop.asked_us = now_us;
    until_us = MAX(run->stop.asked_us, agent_heard_us(run->hold.agent)) + silence_us;
    if (now_us < until_us) {
        timer_arm_at(&run->stop.clock, until_us);
        return;
    }
    run->stop.as = EXECUTION_CRASHED;
    abandon(execution);
}

void execution_on_clock(struct timer *timer)
{
    struct execution_run *run = container_of(timer, struct execution_run, stop.clock);
    struct execution *execution = run->execution;

    switch (run->stop.stage) {
    case STOP_NONE:
        if (execution->facts.timeout_ms > 0)
            execution_stop(execution, EXECUTION_TIMEOUT);
        else
            on_silence(execution);
        break;
    case STOP_RECORD:
        terminate(execution);
        break;
    case STOP_TERM:
        expect_answer(execution, STOP_KILL);
        execution_queue_signal(execution, SIGKILL, SCOPE_TREE);
        break;
    case STOP_SPAWN:
    case STOP_KILL:
    case STOP_SWEEP:
        if (!wait_longer(execution))
            abandon(execution);
        break;
    case STOP_STAGES:
        break;
    }
}

void execution_arm_timeout(struct execution *execution)
{
    struct execution_run *run = execution->run;
    int64_t deadline_us = execution->facts.created.boot_us + execution->facts.timeout_ms * 1000;

    if (run_is_stopped(run))
        terminate_when_recorded(execution);
    else if (execution->facts.timeout_ms > 0)
        timer_arm_at(&run->stop.clock, deadline_us);
    else
        timer_stop(&run->stop.clock);
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

/* --- requests of clients ---------------------------------------------------------------------- */

static bool is_queued(const struct execution *execution)
{
    return execution->facts.state == EXECUTION_QUEUED && execution->run &&
           !run_is_ending(execution->run);
}

static int check_runs(const struct execution *execution, struct error *err)
{
    if (execution->facts.state == EXECUTION_RUNNING && execution->run &&
        !run_is_ending(execution->run))
        return 0;
    return error_named(err, ERR_CONFLICT, "execution_not_running", "execution %s is %s",
                       execution->facts.id, execution_state_name(execution->facts.state));
}

int execution_signal(struct execution *execution, int signal_number, bool tree, struct error *err)
{
    if (signal_number < 1 || signal_number >= NSIG)
        return error_named(err, ERR_INVALID, "invalid_field", "signal %d does not exist",
                           signal_number);
    if (!is_queued(execution) && check_runs(execution, err) < 0)
        return -1;
    execution_queue_signal(execution, signal_number, tree ? SCOPE_TREE : SCOPE_PROCESS);
    return 0;
}

/* --- the size of the terminal ----------------------------------------------------------------- */

static bool is_same_size(const struct terminal_size *a, const struct terminal_size *b)
{
    return a->columns == b->columns && a->rows == b->rows;
}

/* A size that did not arrive is sent again when init has listed the process. */
static void on_resized(struct agent_request *request)
{
    struct execution_run *run = container_of(request, struct execution_run, terminal.request);

    if (request->err.code)
        run->terminal.sent = (struct terminal_size){ 0 };
    else
        execution_send_size(run->execution);
    execution_changed(run->execution);
}

/* One at a time, the last one wins. Input waits for the answer, so that the program finds the new
 * size when it reads what follows. */
void execution_send_size(struct execution *execution)
{
    struct execution_run *run = execution->run;
    struct run_terminal *terminal = run ? &run->terminal : NULL;

    if (!run || terminal->request.is_open || is_same_size(&terminal->size, &terminal->sent) ||
        !run_holds_sandbox(run) || !run->hold.agent || agent_is_lost(run->hold.agent) ||
        !run_is_attached(run))
        return;
    terminal->sent = terminal->size;
    agent_resize(run->hold.agent, execution->facts.number, terminal->size.columns,
                 terminal->size.rows, &terminal->request, on_resized);
}

int execution_resize(struct execution *execution, unsigned columns, unsigned rows,
                     struct error *err)
{
    if (!execution->terminal)
        return error_named(err, ERR_CONFLICT, "no_terminal", "execution %s has no terminal",
                           execution->facts.id);
    if (!is_queued(execution) && check_runs(execution, err) < 0)
        return -1;
    execution->run->terminal.size = (struct terminal_size){ columns, rows };
    execution_send_size(execution);
    return 0;
}
