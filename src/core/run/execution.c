#include "core/run/execution.h"

#include "base/alloc.h"
#include "base/log.h"
#include "base/mask.h"
#include "base/str.h"
#include "config/config.h"
#include "core/events.h"
#include "core/metrics.h"
#include "core/output/spool_shares.h"
#include "core/run/execution_private.h"
#include "core/stamp.h"
#include "wire/json.h"

#include <assert.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

enum {
    COMMIT_RETRY_US = 1000 * 1000,
    LOSS_TRIES = 5, /* then whoever waits for the program is told, and perhaps nobody else */
    TIMEOUT_EXIT_CODE = 124 /* of a program that takes TERM for a reason to end well */
};

static const char *const state_names[EXECUTION_STATES] = {
    [EXECUTION_QUEUED] = "queued",
    [EXECUTION_RUNNING] = "running",
    [EXECUTION_EXITED] = "exited",
    [EXECUTION_TIMEOUT] = "timeout",
    [EXECUTION_CANCELLED] = "cancelled",
    [EXECUTION_CRASHED] = "crashed",
    [EXECUTION_OUTPUT_LIMIT] = "output_limit",
};

const char *execution_state_name(enum execution_state state)
{
    return state_names[state];
}

enum execution_state execution_state_parse(const char *name)
{
    for (int state = 0; state < EXECUTION_STATES; state++) {
        if (str_equal(state_names[state], name))
            return (enum execution_state)state;
    }
    return EXECUTION_CRASHED;
}

bool execution_state_is_final(enum execution_state state)
{
    return state >= EXECUTION_EXITED;
}

const struct execution_facts *execution_facts(const struct execution *execution)
{
    return &execution->facts;
}

struct session *execution_session(const struct execution *execution)
{
    return execution->session;
}

struct spool *execution_stdout(const struct execution *execution)
{
    return execution->out;
}

struct spool *execution_stderr(const struct execution *execution)
{
    return execution->err;
}

struct stream_order *execution_stream_order(const struct execution *execution)
{
    return execution->order;
}

size_t executions_count(const struct session *session)
{
    const struct execution *execution;
    size_t count = 0;

    list_for_each (execution, session_executions(session), node)
        count += !execution_state_is_final(execution->facts.state);
    return count;
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

/* --- output ----------------------------------------------------------------------------------- */

/* A program may succeed and its output be lost: the record says so. */
static void note_lost_output(struct execution *execution)
{
    const struct spool *outputs[] = { execution->out, execution->err };

    for (size_t i = 0; i < ARRAY_LENGTH(outputs) && !execution->facts.error; i++) {
        const struct error *err = outputs[i] ? spool_error(outputs[i]) : NULL;

        if (err)
            execution->facts.error = xasprintf("output is incomplete: %s", err->message);
    }
}

/* While the program goes on: a later daemon finds only the bytes that were kept, and has to know
 * that there were others. */
struct execution_loss {
    struct execution *execution; /* borrowed */
    struct store_ticket ticket;
    struct timer retry;
    unsigned tries;
};

static void on_loss_recorded(struct store_ticket *ticket)
{
    struct execution_loss *loss = container_of(ticket, struct execution_loss, ticket);
    struct execution *execution = loss->execution;

    if (ticket->err->code && ++loss->tries < LOSS_TRIES) {
        timer_arm_in(&loss->retry, COMMIT_RETRY_US);
        return;
    }
    free(steal_ptr(&execution->loss));
    spool_accept_loss(execution->out);
    if (execution->err)
        spool_accept_loss(execution->err);
}

static void record_loss(struct timer *timer)
{
    struct execution_loss *loss = container_of(timer, struct execution_loss, retry);

    execution_save(loss->execution);
    store_commit_as(loss->execution->core->parts.store, &loss->ticket, STORE_WRITTEN,
                    on_loss_recorded);
}

static void on_loss(void *context)
{
    struct execution *execution = context;

    note_lost_output(execution);
    if (execution->loss)
        return; /* of the other stream: the record has it, or will */
    execution->loss = xnew(struct execution_loss);
    execution->loss->execution = execution;
    timer_init(&execution->loss->retry, execution->core->loop, record_loss);
    record_loss(&execution->loss->retry);
}

static void drop_loss(struct execution *execution)
{
    if (execution->loss)
        timer_stop(&execution->loss->retry);
    free(execution->loss);
}

static void on_output(void *context)
{
    struct execution *execution = context;

    if (execution->output_full == SPOOL_STOP &&
        (spool_is_over(execution->out) || (execution->err && spool_is_over(execution->err))))
        execution_stop(execution, EXECUTION_OUTPUT_LIMIT);
    execution_changed(execution);
    execution_continue_end(execution);
}

/* More is kept of its output, or less. */
static bool on_kept(void *context, int64_t bytes)
{
    struct execution *execution = context;
    const struct session *session = execution->session;
    bool is_ended = !execution->run;

    if (is_ended && !execution->spool_share)
        return false;
    if (!execution->spool_share)
        execution->spool_share = spool_shares_begin(
            execution->core->spool_shares, execution->facts.id, execution->facts.session_id,
            session && session_owner(session) ? session_owner(session) : "");
    return spool_share_add(execution->spool_share, bytes);
}

static struct spool *open_output(struct core *core, const char *id, bool is_stderr,
                                 uint64_t recorded_bytes, struct execution *watcher)
{
    const struct config *config = core->parts.config;
    struct spool_options options = {
        .loop = core->loop,
        .directory = core->parts.state_dir,
        .cap_bytes = config->exec.output_spool_bytes,
        .stall_timeout_us = config->exec.stall_timeout_ms * 1000,
        .full = watcher ? watcher->output_full : SPOOL_DROP,
        .recorded_bytes = recorded_bytes,
        .is_new = watcher && !watcher->facts.number, /* that of a recorded one is known */
        .flows = watcher ? core->flows : NULL,
        .flow = watcher ? watcher->facts.session_id : NULL,
        .on_change = watcher ? on_output : NULL,
        .on_kept = watcher ? on_kept : NULL,
        .on_loss = watcher ? on_loss : NULL,
        .context = watcher,
    };

    snprintf(options.name, sizeof(options.name), "output/%s.%s", id, is_stderr ? "err" : "out");
    return spool_new(&options);
}

struct spool *execution_open_output(struct core *core, const struct execution_record *record,
                                    bool is_stderr)
{
    uint64_t bytes = is_stderr ? record->stderr_bytes : record->stdout_bytes;
    struct spool *output = open_output(core, record->id, is_stderr, bytes, NULL);

    spool_finish(output);
    return output;
}

void execution_remove_output(struct core *core, const char *id)
{
    char name[SPOOL_NAME_SIZE];

    static const char *const endings[] = { "out", "err", "order" };

    for (size_t i = 0; i < ARRAY_LENGTH(endings); i++) {
        snprintf(name, sizeof(name), "output/%s.%s", id, endings[i]);
        (void)unlinkat(core->parts.state_dir, name, 0);
    }
}

struct stream_order *execution_open_stream_order(struct core *core, const char *id,
                                                 const struct spool *out, const struct spool *err)
{
    uint64_t lengths[STREAM_COUNT] = { spool_length(out), spool_length(err) };
    char name[SPOOL_NAME_SIZE];

    snprintf(name, sizeof(name), "output/%s.order", id);
    return stream_order_new(core->parts.state_dir, name, lengths);
}

void execution_open_outputs(struct execution *execution, const struct execution_record *record)
{
    execution->out = open_output(execution->core, execution->facts.id, false,
                                 record ? record->stdout_bytes : 0, execution);
    if (execution->terminal)
        return;
    execution->err = open_output(execution->core, execution->facts.id, true,
                                 record ? record->stderr_bytes : 0, execution);
    execution->order = execution_open_stream_order(execution->core, execution->facts.id,
                                                   execution->out, execution->err);
    spool_set_stream_order(execution->out, execution->order, 0);
    spool_set_stream_order(execution->err, execution->order, 1);
}

static uint64_t output_bytes(const struct execution *execution)
{
    return spool_length(execution->out) + (execution->err ? spool_length(execution->err) : 0);
}

static bool outputs_are(const struct execution *execution, bool (*what)(const struct spool *))
{
    return what(execution->out) && (!execution->err || what(execution->err));
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
    drop_loss(execution);
    spool_share_end(execution->spool_share);
    share_give(&execution->share);
    share_give(&execution->terminal_share);
    timer_stop(&execution->alone);
    loop_undefer(execution->core->loop, &execution->notify);
    loop_undefer(execution->core->loop, &execution->release);
    list_remove(&execution->node);
    map_remove(&execution->core->executions_by_id, execution->facts.id);
    execution_run_free(execution->run);
    spool_free(execution->out);
    spool_free(execution->err);
    stream_order_free(execution->order);
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

/* Each is told once, and any of them may leave meanwhile. */
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

struct mask *execution_mask(const struct execution *execution)
{
    return execution->session ? session_mask(execution->session) : execution->mask;
}

struct execution *execution_find(struct core *core, const char *session_id, const char *id)
{
    struct execution *execution = map_get(&core->executions_by_id, id);

    return execution && str_equal(execution->facts.session_id, session_id) ? execution : NULL;
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

/* --- record ----------------------------------------------------------------------------------- */

void execution_save(struct execution *execution)
{
    struct execution_record record = {
        .key = execution->facts.key,
        .request_json = execution->facts.request_json,
        .state = execution_state_name(execution->facts.state),
        .reason = execution->facts.reason,
        .error = execution->facts.error,
        .generation = execution->facts.generation,
        .number = execution->facts.number,
        .timeout_ms = execution->facts.timeout_ms,
        .exit_code = execution->facts.exit_code,
        .signal = execution->facts.signal,
        .background = execution->facts.kind != EXECUTION_FOREGROUND,
        .stdout_bytes = spool_length(execution->out),
        .stderr_bytes = execution->err ? spool_length(execution->err) : 0,
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
        execution->run->recorded_bytes = output_bytes(execution);
}

/* --- the end ---------------------------------------------------------------------------------- */

static void tell_end(struct execution *execution)
{
    scoped(buffer_fini) struct buffer text = BUFFER_INIT(4096);
    struct json_writer json = JSON_WRITER(&text);

    metrics_add(execution->core->metrics, METRIC_EXECUTIONS_ENDED, execution->facts.state, 1);
    metrics_add(execution->core->metrics, METRIC_OUTPUT_BYTES, 0, output_bytes(execution));
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

    execution->facts.state = run->end_state;
    share_give(&execution->share);
    share_give(&execution->terminal_share);
    execution->facts.exit_code = run->end.code;
    if (execution->facts.state == EXECUTION_TIMEOUT && execution->facts.exit_code == 0)
        execution->facts.exit_code = TIMEOUT_EXIT_CODE;
    execution->facts.signal = run->end.signal;
    execution->facts.cpu_us = run->end.cpu_us;
    execution->facts.max_rss_bytes = run->end.max_rss_bytes;
    execution->facts.ended = stamp_now(execution->core);
    note_lost_output(execution);
    execution_save(execution);
    tell_end(execution);
    execution_leave_sandbox(execution);
    execution_changed(execution);
}

static void on_retry(struct timer *timer)
{
    struct execution_run *run = container_of(timer, struct execution_run, clock);

    execution_save(run->execution);
    execution_continue_end(run->execution);
}

static void on_committed(struct store_ticket *ticket)
{
    struct execution_run *run = container_of(ticket, struct execution_run, ticket);

    run->recording = false;
    if (ticket->err->code) {
        timer_init(&run->clock, run->execution->core->loop, on_retry);
        timer_arm_in(&run->clock, COMMIT_RETRY_US);
        return;
    }
    run->recorded = true;
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

        if (!run || run->recording)
            continue;
        if (execution_state_is_final(execution->facts.state))
            timer_stop(&run->clock);
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

        if (execution->run &&
            (spool_error(execution->out) || (execution->err && spool_error(execution->err))))
            execution_save(execution);
    }
}

static void commit_end(struct execution *execution)
{
    struct execution_run *run = execution->run;

    if (run->recording || timer_is_armed(&run->clock))
        return;
    run->recording = true;
    store_commit_as(execution->core->parts.store, &run->ticket, STORE_WRITTEN_LAZILY, on_committed);
}

static void forget_process(struct execution *execution)
{
    struct sandbox *sandbox = execution->session ? session_sandbox(execution->session) : NULL;

    if (execution->facts.number && sandbox && sandbox_agent(sandbox) &&
        str_equal(sandbox_id(sandbox), execution->facts.sandbox_id))
        agent_forget(sandbox_agent(sandbox), execution->facts.number);
}

/*
 * Complete output, then the end in the record and told to everybody; then, when the pipes are
 * closed and the record is durable, init may forget the process and the session lets go of it.
 */
void execution_continue_end(struct execution *execution)
{
    struct execution_run *run = execution->run;

    if (!run || !run->ending)
        return;
    if (!execution_state_is_final(execution->facts.state)) {
        if (!outputs_are(execution, spool_is_finished))
            return;
        set_final(execution);
        commit_end(execution);
    }
    if (!outputs_are(execution, spool_is_closed) || run->inspecting || run->recording)
        return;
    if (output_bytes(execution) != run->recorded_bytes) {
        execution_save(execution);
        run->recorded = false;
    }
    if (!run->recorded) {
        commit_end(execution);
        return;
    }
    forget_process(execution);
    spool_share_end(steal_ptr(&execution->spool_share));
    execution_run_free(steal_ptr(&execution->run));
    execution_unref(execution);
}

void execution_begin_end(struct execution *execution, enum execution_state state,
                         const char *reason)
{
    struct execution_run *run = execution->run;

    if (!run || run->ending)
        return;
    run->ending = true;
    run->end_state = state;
    if (!reason && state == EXECUTION_TIMEOUT)
        reason = "timeout";
    if (reason) {
        free(execution->facts.reason);
        execution->facts.reason = xstrdup(reason);
    }
    timer_stop(&run->clock);
    spool_finish(execution->out);
    if (execution->err)
        spool_finish(execution->err);
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
    spool_shares_on_session_gone(session_core(session)->spool_shares, session_id(session));
}
