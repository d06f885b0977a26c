/* SPDX-License-Identifier: Apache-2.0 */
#include "base/alloc.h"
#include "base/mask.h"
#include "base/str.h"
#include "core/core.h"
#include "core/output/spool_shares.h"
#include "core/run/execution_private.h"
#include "core/run/language.h"
#include "core/run/python_zygote.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

const struct execution_facts *execution_facts(const struct execution *execution)
{
    return &execution->facts;
}

bool execution_has_ended(const struct execution *execution)
{
    return execution_state_is_final(execution->facts.state) &&
           (!execution->run || execution->run->end.record != RECORD_WRITING);
}

struct session *execution_session(const struct execution *execution)
{
    return execution->session;
}

struct spool *execution_stdout(const struct execution *execution)
{
    return execution->output.out;
}

struct spool *execution_stderr(const struct execution *execution)
{
    return execution->output.err;
}

struct stream_order *execution_stream_order(const struct execution *execution)
{
    return execution->output.order;
}

size_t executions_count(const struct session *session)
{
    const struct execution *execution;
    size_t count = 0;

    list_for_each (execution, session_executions(session), node)
        count += !execution_state_is_final(execution->facts.state);
    return count;
}

struct execution *executions_next(const struct session *session, const struct execution *execution)
{
    struct list *all = session_executions(session);
    struct list *next = execution ? execution->node.next : all->next;

    return next == all ? NULL : container_of(next, struct execution, node);
}

static bool is_busy(const struct execution *execution)
{
    return !execution_state_is_final(execution->facts.state) &&
           execution->facts.kind != EXECUTION_DRIVER;
}

size_t executions_count_busy(const struct session *session)
{
    const struct execution *execution;
    size_t count = 0;

    list_for_each (execution, session_executions(session), node)
        count += is_busy(execution);
    return count;
}

const struct execution *executions_first_busy(const struct session *session)
{
    const struct execution *execution;

    list_for_each (execution, session_executions(session), node) {
        if (is_busy(execution))
            return execution;
    }
    return NULL;
}

/* --- the run ---------------------------------------------------------------------------------- */

#define BIT(phase) (1U << (phase))

static const unsigned next_phases[RUN_PHASES] = {
    [PHASE_WAITING] = BIT(PHASE_SPAWNING) | BIT(PHASE_ATTACHED),
    [PHASE_SPAWNING] = BIT(PHASE_WAITING) | BIT(PHASE_ATTACHED),
    [PHASE_ATTACHED] = BIT(PHASE_LISTED),
    [PHASE_LISTED] = BIT(PHASE_LISTED) | BIT(PHASE_ATTACHED),
};

void run_set_phase(struct execution_run *run, enum run_phase phase)
{
    assert(next_phases[run->phase] & BIT(phase));
    run->phase = phase;
}

bool run_is_attached(const struct execution_run *run)
{
    return run->phase >= PHASE_ATTACHED;
}

bool run_is_ending(const struct execution_run *run)
{
    return execution_state_is_final(run->end.state);
}

bool run_is_stopped(const struct execution_run *run)
{
    return run->stop.as != EXECUTION_RUNNING;
}

bool run_holds_sandbox(const struct execution_run *run)
{
    return list_is_linked(&run->hold.node);
}

struct execution_run *execution_run_new(struct execution *execution)
{
    struct execution_run *run = xnew(struct execution_run);

    run->execution = execution;
    run->stop.as = run->end.state = EXECUTION_RUNNING;
    run->end.exit.code = -1;
    run->input.fd = -1;
    run->input.data = BUFFER_INIT(STDIN_MAXIMUM);
    run->input.kept = BUFFER_INIT(INPUT_WINDOW);
    timer_init(&run->stop.clock, execution->core->loop, execution_on_clock);
    return run;
}

void execution_leave_sandbox(struct execution *execution)
{
    struct execution_run *run = execution->run;

    if (!run)
        return;
    if (run->phase == PHASE_SPAWNING)
        run_set_phase(run, PHASE_WAITING);
    agent_cancel(&run->spawn.request);
    agent_cancel(&run->signals.request);
    agent_cancel(&run->terminal.request);
    run->signals.count = 0;
    if (run_holds_sandbox(run) && run->language == language_python() && run->hold.sandbox)
        python_zygote_prepare_soon(run->hold.sandbox);
    session_hold_end(&run->hold);
    execution_stdin_detach(run);
    program_fini(&run->spawn.program);
    execution_end_outputs(execution);
}

void execution_run_free(struct execution_run *run)
{
    if (!run)
        return;
    timer_stop(&run->stop.clock);
    execution_stdin_detach(run);
    program_fini(&run->spawn.program);
    buffer_fini(&run->input.data);
    buffer_fini(&run->input.kept);
    free(run);
}

/* --- life ------------------------------------------------------------------------------------- */

static void on_alone(struct timer *timer);

struct execution *execution_new(struct session *session, const char *id)
{
    struct execution *execution = xnew(struct execution);

    execution->core = session_core(session);
    execution->session = session;
    execution->facts.exit_code = -1;
    execution->references = 1;
    timer_init(&execution->alone, session_core(session)->loop, on_alone);
    list_init(&execution->watchers);
    snprintf(execution->facts.id, sizeof(execution->facts.id), "%s", id);
    snprintf(execution->facts.session_id, sizeof(execution->facts.session_id), "%s",
             session_id(session));
    execution->run = execution_run_new(execution);
    list_append(session_executions(session), &execution->node);
    map_put(&execution->core->executions_by_id, execution->facts.id, execution);
    return execution;
}

static void free_execution(struct execution *execution)
{
    share_give(&execution->share);
    share_give(&execution->terminal_share);
    timer_stop(&execution->alone);
    loop_undefer(execution->core->loop, &execution->notify);
    loop_undefer(execution->core->loop, &execution->release);
    list_remove(&execution->node);
    map_remove(&execution->core->executions_by_id, execution->facts.id);
    execution_run_free(execution->run);
    execution_close_outputs(execution);
    free(execution->facts.key);
    free(execution->facts.request_json);
    free(execution->facts.error);
    free(execution->facts.reason);
    mask_free(execution->mask);
    free(execution);
}

static void on_release(struct deferred *deferred)
{
    struct execution *execution = container_of(deferred, struct execution, release);

    if (execution->references == 0)
        free_execution(execution);
}

void execution_ref(struct execution *execution)
{
    execution->references++;
}

void execution_unref(struct execution *execution)
{
    assert(execution->references > 0);
    if (--execution->references == 0)
        loop_defer(execution->core->loop, &execution->release, on_release);
}

void executions_drop_all(struct core *core)
{
    size_t position = 0;
    struct map_slot *slot;

    strays_drop(core, NULL);
    while ((slot = map_next(&core->executions_by_id, &position))) {
        struct execution *execution = slot->value;
        struct execution_watcher *watcher, *following;

        list_for_each_safe (watcher, following, &execution->watchers, node)
            list_remove(&watcher->node);
        free_execution(execution);
        position = 0;
    }
}

/* --- watchers --------------------------------------------------------------------------------- */

void execution_watch(struct execution *execution, struct execution_watcher *watcher,
                     execution_watch_fn *on_change)
{
    watcher->on_change = on_change;
    watcher->execution = execution;
    list_append(&execution->watchers, &watcher->node);
}

/* A connection that breaks is not a client that has left: it may come back. */
static void on_alone(struct timer *timer)
{
    struct execution *execution = container_of(timer, struct execution, alone);

    if (list_is_empty(&execution->watchers))
        execution_abandon(execution);
}

void execution_expect_client(struct execution *execution, int64_t patience_us)
{
    if (!execution->needs_client || execution_state_is_final(execution->facts.state))
        return;
    timer_arm_in(&execution->alone, patience_us);
}

void execution_unwatch(struct execution_watcher *watcher)
{
    if (!list_is_linked(&watcher->node))
        return;
    list_remove(&watcher->node);
    if (list_is_empty(&watcher->execution->watchers))
        execution_expect_client(watcher->execution, CLIENT_PATIENCE_US);
}

/* Each watcher is called once, and any of them may leave meanwhile. */
static void on_notify(struct deferred *deferred)
{
    struct execution *execution = container_of(deferred, struct execution, notify);
    struct list waiting = LIST_INIT(waiting);
    struct execution_watcher *watcher, *following;

    execution_ref(execution);
    list_for_each_safe (watcher, following, &execution->watchers, node) {
        list_remove(&watcher->node);
        list_append(&waiting, &watcher->node);
    }
    while ((watcher = list_first(&waiting, struct execution_watcher, node))) {
        list_remove(&watcher->node);
        list_append(&execution->watchers, &watcher->node);
        watcher->on_change(watcher);
    }
    execution_unref(execution);
}

void execution_changed(struct execution *execution)
{
    if (!list_is_empty(&execution->watchers))
        loop_defer(execution->core->loop, &execution->notify, on_notify);
}

/* --- finding ---------------------------------------------------------------------------------- */

struct mask *execution_mask(const struct execution *execution)
{
    return execution->session ? session_mask(execution->session) : execution->mask;
}

struct execution *execution_find(struct core *core, const char *session_id, const char *id)
{
    struct execution *execution = map_get(&core->executions_by_id, id);

    return execution && str_equal(execution->facts.session_id, session_id) ? execution : NULL;
}

struct execution *execution_find_running(const struct core *core, const char *id)
{
    struct execution *execution = map_get(&core->executions_by_id, id);
    bool is_running = execution && execution->session &&
                      execution->facts.state == EXECUTION_RUNNING;

    return is_running ? execution : NULL;
}

struct execution *execution_find_key(const struct session *session, const char *key)
{
    struct execution *execution;

    list_for_each (execution, session_executions(session), node) {
        if (execution->facts.key && str_equal(execution->facts.key, key))
            return execution;
    }
    return NULL;
}

struct execution *executions_find_number(const struct session *session, uint64_t number)
{
    struct execution *execution;

    list_for_each (execution, session_executions(session), node) {
        if (execution->facts.number == number)
            return execution;
    }
    return NULL;
}

/* --- record ----------------------------------------------------------------------------------- */

/* Names of programs, directories and users come from the request, which may have secrets in them.
 */
void execution_set_error(struct execution *execution, const char *text)
{
    free(execution->facts.error);
    execution->facts.error = mask_text(execution_mask(execution), text);
}

/* The wait may outlive the execution, which is found again by its id. */
struct written_wait {
    struct store_ticket ticket;
    struct core *core; /* borrowed */
    char id[ID_SIZE];
    execution_written_fn *then;
};

static void on_written(struct store_ticket *ticket)
{
    struct written_wait *wait = container_of(ticket, struct written_wait, ticket);
    struct execution *execution = map_get(&wait->core->executions_by_id, wait->id);

    if (execution && execution->run && !wait->core->stopping)
        wait->then(execution, ticket->err);
    free(wait);
}

void execution_when_written(struct execution *execution, execution_written_fn *then)
{
    struct written_wait *wait = xnew(struct written_wait);

    wait->core = execution->core;
    wait->then = then;
    memcpy(wait->id, execution->facts.id, sizeof(wait->id));
    store_commit_as(wait->core->parts.store, &wait->ticket, STORE_WRITTEN, on_written);
}

/* Of an execution that is being stopped it is the name of its end, for the next daemon. */
static const char *recorded_reason(const struct execution *execution)
{
    const struct execution_run *run = execution->run;

    return run && run_is_stopped(run) && !run_is_ending(run) ? execution_state_name(run->stop.as)
                                                             : execution->facts.reason;
}

void execution_save(struct execution *execution)
{
    struct execution_record record = {
        .key = execution->facts.key,
        .request_json = execution->facts.request_json,
        .state = execution_state_name(execution->facts.state),
        .reason = recorded_reason(execution),
        .error = execution->facts.error,
        .generation = execution->facts.generation,
        .number = execution->facts.number,
        .timeout_ms = execution->facts.timeout_ms,
        .exit_code = execution->facts.exit_code,
        .signal = execution->facts.signal,
        .background = execution->facts.kind != EXECUTION_FOREGROUND,
        .stdout_bytes = spool_length(execution->output.out),
        .stderr_bytes = execution->output.err ? spool_length(execution->output.err) : 0,
        .cpu_us = execution->facts.cpu_us,
        .max_rss_bytes = execution->facts.max_rss_bytes,
        .created = execution->facts.created,
        .started = execution->facts.started,
        .ended = execution->facts.ended,
    };

    memcpy(record.id, execution->facts.id, sizeof(record.id));
    memcpy(record.session_id, execution->facts.session_id, sizeof(record.session_id));
    memcpy(record.sandbox_id, execution->facts.sandbox_id, sizeof(record.sandbox_id));
    store_put_execution(execution->core->parts.store, &record);
    if (execution->run)
        execution->run->end.recorded_bytes = execution_output_bytes(execution);
}
