/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The end of an execution, from the exit of its program to the record:
 *
 *     exited → (the rest of its tree is killed | was it the OOM killer?) → output is completed
 *            → the state is final and recorded → init forgets the process
 */

#include "base/alloc.h"
#include "base/log.h"
#include "base/str.h"
#include "core/core.h"
#include "core/metrics.h"
#include "core/output/spool_shares.h"
#include "core/run/execution_private.h"
#include "core/run/no_network.h"
#include "core/stamp.h"
#include "wire/json.h"

#include <assert.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

enum {
    COMMIT_RETRY_US = 1000 * 1000,
    TIMEOUT_EXIT_CODE = 124 /* of a program that takes TERM for a reason to end well */
};

/* --- the end of the output, and the record ---------------------------------------------------- */

static void tell_end(struct execution *execution)
{
    scoped(buffer_fini) struct buffer text = BUFFER_INIT(4096);
    struct json_writer json = JSON_WRITER(&text);

    metrics_add(execution->core->metrics, METRIC_EXECUTIONS_ENDED, execution->facts.state, 1);
    metrics_add(execution->core->metrics, METRIC_OUTPUT_BYTES, 0,
                execution_output_bytes(execution));
    log_debug("execution ended", kv("execution", execution->facts.id),
              kv("session", execution->facts.session_id),
              kv("state", execution_state_name(execution->facts.state)),
              kv("exit_code", execution->facts.exit_code), kv("signal", execution->facts.signal));
    if (!execution->session)
        return;
    json_begin_object(&json, NULL);
    json_put_text(&json, "execution_id", execution->facts.id);
    json_put_text(&json, "state", execution_state_name(execution->facts.state));
    if (execution->facts.exit_code >= 0)
        json_put_int(&json, "exit_code", execution->facts.exit_code);
    if (execution->facts.signal)
        json_put_int(&json, "signal", execution->facts.signal);
    if (execution->facts.reason)
        json_put_text(&json, "reason", execution->facts.reason);
    json_end_object(&json);
    session_emit(execution->session, "execution.ended", buffer_text(&text));
}

static void set_final(struct execution *execution)
{
    struct execution_run *run = execution->run;

    execution->facts.state = run->end.state;
    share_give(&execution->share);
    share_give(&execution->terminal_share);
    execution->facts.exit_code = run->end.exit.code;
    if (execution->facts.state == EXECUTION_TIMEOUT && execution->facts.exit_code == 0)
        execution->facts.exit_code = TIMEOUT_EXIT_CODE;
    execution->facts.signal = run->end.exit.signal;
    execution->facts.cpu_us = run->end.exit.cpu_us;
    execution->facts.max_rss_bytes = run->end.exit.max_rss_bytes;
    execution->facts.ended = stamp_now(execution->core);
    execution_note_lost_output(execution);
    no_network_note(execution);
    execution_save(execution);
    tell_end(execution);
    execution_leave_sandbox(execution);
}

static void on_retry(struct timer *timer)
{
    struct execution_run *run = container_of(timer, struct execution_run, stop.clock);

    execution_save(run->execution);
    execution_continue_end(run->execution);
}

static void on_committed(struct store_ticket *ticket)
{
    struct execution_run *run = container_of(ticket, struct execution_run, end.ticket);

    run->end.record = ticket->err->code ? RECORD_STALE : RECORD_WRITTEN;
    execution_changed(run->execution);
    if (ticket->err->code) {
        timer_init(&run->stop.clock, run->execution->core->loop, on_retry);
        timer_arm_in(&run->stop.clock, COMMIT_RETRY_US);
        return;
    }
    execution_continue_end(run->execution);
}

/* The store has lost records. The end of one that is being written is repeated by its ticket. */
void executions_repair(struct core *core)
{
    size_t position = 0;
    struct map_slot *slot;

    while ((slot = map_next(&core->executions_by_id, &position))) {
        struct execution *execution = slot->value;
        struct execution_run *run = execution->run;

        if (!run || run->end.record == RECORD_WRITING)
            continue;
        if (execution_state_is_final(execution->facts.state))
            timer_stop(&run->stop.clock);
        execution_save(execution);
        execution_continue_end(execution);
    }
}

void executions_save_incomplete(struct core *core)
{
    size_t position = 0;
    struct map_slot *slot;

    while ((slot = map_next(&core->executions_by_id, &position))) {
        struct execution *execution = slot->value;

        if (execution->run && (spool_error(execution->output.out) ||
                               (execution->output.err && spool_error(execution->output.err))))
            execution_save(execution);
    }
}

/* Watchers are called when it is done. */
static void commit_end(struct execution *execution)
{
    struct execution_run *run = execution->run;
    bool is_awaited = !list_is_empty(&execution->watchers);

    if (run->end.record == RECORD_WRITING || timer_is_armed(&run->stop.clock))
        return;
    run->end.record = RECORD_WRITING;
    store_commit_as(execution->core->parts.store, &run->end.ticket,
                    is_awaited ? STORE_WRITTEN : STORE_WRITTEN_LAZILY, on_committed);
}

static void forget_process(struct execution *execution)
{
    struct sandbox *sandbox = execution->session ? session_sandbox(execution->session) : NULL;

    if (execution->facts.number && sandbox && sandbox_agent(sandbox) &&
        str_equal(sandbox_id(sandbox), execution->facts.sandbox_id))
        agent_forget(sandbox_agent(sandbox), execution->facts.number);
}

/*
 * The output is completed, then the end is recorded, then watchers are called; when the pipes are
 * closed as well, init may forget the process and the session lets go of it.
 */
void execution_continue_end(struct execution *execution)
{
    struct execution_run *run = execution->run;

    if (!run || !run_is_ending(run))
        return;
    if (!execution_state_is_final(execution->facts.state)) {
        if (!execution_outputs_are(execution, spool_is_finished))
            return;
        set_final(execution);
        commit_end(execution);
    }
    if (!execution_outputs_are(execution, spool_is_closed) || run->end.inspect.done ||
        run->end.record == RECORD_WRITING)
        return;
    if (execution_output_bytes(execution) != run->end.recorded_bytes) {
        execution_save(execution);
        run->end.record = RECORD_STALE;
    }
    if (run->end.record != RECORD_WRITTEN) {
        commit_end(execution);
        return;
    }
    forget_process(execution);
    execution_end_share(execution);
    execution_run_free(steal_ptr(&execution->run));
    execution_unref(execution);
}

void execution_begin_end(struct execution *execution, enum execution_state state,
                         const char *reason)
{
    struct execution_run *run = execution->run;

    assert(execution_state_is_final(state));
    if (!run || run_is_ending(run))
        return;
    run->end.state = state;
    if (!reason && state == EXECUTION_TIMEOUT)
        reason = "timeout";
    if (reason) {
        free(execution->facts.reason);
        execution->facts.reason = xstrdup(reason);
    }
    timer_stop(&run->stop.clock);
    execution_finish_outputs(execution);
    execution_continue_end(execution);
}

void executions_end_all(struct session *session, const struct end_reason *reason)
{
    enum execution_state state = reason->kind == END_CRASHED ? EXECUTION_CRASHED
                                                             : EXECUTION_CANCELLED;
    struct execution *execution, *following;
    char text[END_TEXT_SIZE];

    end_reason_text(reason, text);
    list_for_each_safe (execution, following, session_executions(session), node) {
        execution_begin_end(execution, state, text);
        execution_leave_sandbox(execution);
        list_remove(&execution->node);
        execution->session = NULL;
    }
    strays_drop(session_core(session), session_id(session));
    spool_shares_on_session_gone(session_core(session)->spool_shares, session_id(session));
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
    execution_set_error(execution, text);
    execution_begin_end(execution, EXECUTION_CRASHED, "oom");
}

static void on_inspected(struct backend_op *op)
{
    struct execution_run *run = container_of(op, struct execution_run, end.inspect);
    struct execution *execution = run->execution;

    run->end.inspect.done = NULL;
    if (!op->err.code && saw_oom_kill(execution, op->result.usage.oom_kills))
        end_out_of_memory(execution);
    else
        execution_begin_end(execution, EXECUTION_EXITED, NULL);
    execution_continue_end(execution);
}

static bool may_be_oom(const struct execution *execution)
{
    const struct execution_run *run = execution->run;

    return (run->end.exit.signal == SIGKILL || run->end.exit.code == 128 + SIGKILL) &&
           run_holds_sandbox(run) && run->hold.sandbox &&
           sandbox_backend(run->hold.sandbox)->ops->capabilities.usage;
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

    if (!run || run_is_ending(run) || run->end.inspect.done || run->stop.stage == STOP_SWEEP)
        return;
    run->end.exit = *end;
    correct_start(execution, end->wall_us);
    timer_stop(&run->stop.clock);
    if (run_is_stopped(run) && end->survivors && run_holds_sandbox(run)) {
        execution_sweep(execution);
    } else if (run_is_stopped(run)) {
        execution_begin_end(execution, run->stop.as, NULL);
    } else if (end->code < 0 && !end->signal) {
        execution_begin_end(execution, EXECUTION_CRASHED,
                            "lost: its sandbox does not know its end");
    } else if (may_be_oom(execution)) {
        run->end.inspect = (struct backend_op){ .done = on_inspected };
        backend_inspect(sandbox_backend(run->hold.sandbox), sandbox_id(run->hold.sandbox),
                        &run->end.inspect);
    } else {
        execution_begin_end(execution, EXECUTION_EXITED, NULL);
    }
}

void executions_on_exited(struct session *session, uint64_t number, const struct agent_exit *end)
{
    struct execution *execution = executions_find_number(session, number);

    /* A process that an earlier daemon started may end before init has listed it and handed over
     * its pipes: the list reports the end as well, and the bytes in the pipes come first. */
    if (execution && execution->run && run_is_attached(execution->run))
        execution_on_exit(execution, end);
}
