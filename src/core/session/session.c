#include "core/session/session.h"
#include "core/session/programs.h"

#include "agent/file_snapshot.h"
#include "base/alloc.h"
#include "base/log.h"
#include "base/str.h"
#include "config/config.h"
#include "core/events.h"
#include "core/metrics.h"
#include "core/money/approvals.h"
#include "core/money/budget.h"
#include "core/sandbox/sandbox.h"
#include "core/session/retention.h"
#include "core/session/secrets.h"
#include "core/session/session_private.h"
#include "core/stamp.h"
#include "wire/json.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { END_RETRY_US = 2 * 1000 * 1000, END_PATIENCE_US = 30 * 1000 * 1000 };

/* --- memory -------------------------------------------------------------------------------- */

static void on_end_retry(struct timer *timer);
static void on_patience_over(struct timer *timer);

struct session *session_new(struct core *core)
{
    struct session *session = xnew(struct session);

    session->core = core;
    list_init(&session->node);
    list_init(&session->holds);
    list_init(&session->waiting);
    list_init(&session->weak);
    list_init(&session->contexts);
    list_init(&session->executions);
    list_init(&session->end_waiters);
    list_init(&session->open_waiters);
    list_init(&session->control_waiters);
    timer_init(&session->retry, core->loop, on_end_retry);
    timer_init(&session->teardown, core->loop, session_on_teardown_due);
    timer_init(&session->patience, core->loop, on_patience_over);
    timer_init(&session->overdue, core->loop, session_on_overdue);
    timer_init(&session->control, core->loop, session_on_control_overdue);
    session->clock.loop = core->loop;
    return session;
}

void session_link(struct session *session)
{
    struct core *core = session->core;

    if (!session->share.shares)
        share_hold(&session->share, core->shares, session->owner, SHARE_SESSIONS);
    if (!session->number)
        session->number = core->last_session_number + 1;
    core->last_session_number = MAX(core->last_session_number, session->number);
    list_append(&core->sessions, &session->node);
    map_put(&core->sessions_by_id, session->id, session);
    if (session->key && session->state != SESSION_ENDING) {
        session->map_key = xasprintf("%s\n%s", session->owner, session->key);
        map_put(&core->sessions_by_key, session->map_key, session);
    }
}

static void unlink_key(struct session *session)
{
    if (!session->map_key)
        return;
    map_remove(&session->core->sessions_by_key, session->map_key);
    free(steal_ptr(&session->map_key));
}

static void unlink_all(struct session *session)
{
    unlink_key(session);
    share_give(&session->share);
    map_remove(&session->core->sessions_by_id, session->id);
    list_remove(&session->node);
}

void session_free(struct session *session)
{
    struct loop *loop = session->core->loop;

    unlink_all(session);
    timer_stop(&session->clock);
    timer_stop(&session->teardown);
    timer_stop(&session->retry);
    timer_stop(&session->patience);
    timer_stop(&session->overdue);
    timer_stop(&session->control);
    loop_undefer(loop, &session->serve);
    loop_undefer(loop, &session->save);
    loop_undefer(loop, &session->release);
    free(session->owner);
    free(session->key);
    free(session->on_behalf_of);
    free(session->labels_json);
    free(session->env_json);
    secrets_free(session->secrets);
    free(session->template_name);
    free(session->flavor);
    free(session->base_flavor);
    free(session->start_error);
    file_snapshot_free(session->files_before);
    free(session);
}

static void release_session(struct deferred *deferred)
{
    session_free(container_of(deferred, struct session, release));
}

struct session *session_find(struct core *core, const char *owner, bool any_owner,
                             const char *reference)
{
    struct session *session = NULL;

    if (str_starts_with(reference, "key:")) {
        scoped(free) char *map_key = xasprintf("%s\n%s", owner ? owner : "", reference + 4);

        session = map_get(&core->sessions_by_key, map_key);
    } else {
        session = map_get(&core->sessions_by_id, reference);
    }
    return session && (any_owner || str_equal(session->owner, owner ? owner : "")) ? session : NULL;
}

bool session_is_recorded(const struct session *session)
{
    return session->durable;
}

struct mask *session_mask(const struct session *session)
{
    return session->secrets ? session->secrets->mask : NULL;
}

/* --- the record ---------------------------------------------------------------------------- */

void session_set_state(struct session *session, enum session_state state)
{
    assert(session_may_become(session->state, state));
    session->state = state;
}

/* The key of an ending session is free for the next one; its own is also in `spec`. The texts are
 * borrowed. */
static void fill_record(const struct session *session, const char *spec, char reason[END_TEXT_SIZE],
                        struct session_record *out_record)
{
    end_reason_text(&session->end, reason);
    *out_record = (struct session_record){
        .owner = session->owner,
        .key = session->state == SESSION_ENDING ? NULL : session->key,
        .on_behalf_of = session->on_behalf_of,
        .spec_json = spec,
        .labels_json = session->labels_json,
        .state = session_state_name(session->state),
        .end_reason = reason,
        .generation = session->generation,
        .idle_timeout_ms = session->idle_timeout_ms,
        .max_lifetime_ms = session->max_lifetime_ms,
        .created = session->created,
        .started = session->started,
        .last_activity = session->last_activity,
        .expires = session->expires,
        .ended = session->ended,
        .retain_until_wall_us = session->retain_until_wall_us,
    };
    memcpy(out_record->id, session->id, sizeof(out_record->id));
}

static void on_save(struct deferred *deferred)
{
    struct session *session = container_of(deferred, struct session, save);
    scoped(free) char *spec = NULL;
    char reason[END_TEXT_SIZE];
    struct session_record record;

    if (session->unborn)
        return;
    spec = session_spec_text(session);
    fill_record(session, spec, reason, &record);
    store_put_session(session->core->parts.store, &record);
}

void session_changed(struct session *session)
{
    loop_defer_late(session->core->loop, &session->save, on_save);
}

void session_emit(struct session *session, const char *type, const char *data_json)
{
    if (session->unborn)
        return;
    events_emit(session->core->events, session->id, session->owner, ++session->event_sequence, type,
                data_json);
    session_changed(session);
}

/* --- operations ---------------------------------------------------------------------------- */

void session_op_join(struct session_op *op, struct session *session, struct list *waiters,
                     session_done_fn *done)
{
    op->done = done;
    op->core = session->core;
    op->deferred = (struct deferred){ 0 };
    memcpy(op->id, session->id, sizeof(op->id));
    list_append(waiters, &op->node);
}

void session_op_finish(struct session_op *op, struct session *session, const struct error *err)
{
    list_remove(&op->node);
    op->session = session;
    op->err = err ? *err : (struct error){ 0 };
    op->done(op);
}

void session_ops_finish(struct list *ops, struct session *session, const struct error *err)
{
    struct session_op *op;

    while ((op = list_first(ops, struct session_op, node)))
        session_op_finish(op, session, err);
}

static void on_op_done(struct deferred *deferred)
{
    struct session_op *op = container_of(deferred, struct session_op, deferred);

    op->done(op);
}

void session_op_defer(struct session_op *op, struct core *core, session_done_fn *done)
{
    op->done = done;
    op->core = core;
    list_init(&op->node);
    op->deferred = (struct deferred){ 0 };
    loop_defer(core->loop, &op->deferred, on_op_done);
}

void session_op_cancel(struct session_op *op)
{
    if (op->core)
        loop_undefer(op->core->loop, &op->deferred);
    list_remove(&op->node);
}

int session_gone_error(const struct session *session, struct error *err)
{
    char reason[END_TEXT_SIZE];

    end_reason_text(&session->end, reason);
    return error_named(err, ERR_GONE, "session_ended", "session %s has ended: %s", session->id,
                       reason);
}

/* --- the end ------------------------------------------------------------------------------- */

static void record_end(struct session *session);

static void finish_end(struct session *session)
{
    struct core *core = session->core;
    scoped(free) char *spec = session_spec_text(session);
    char reason[END_TEXT_SIZE];
    struct session_record record;
    struct session_op *op;

    unlink_all(session);
    retention_note(core->retention, session->retain_until_wall_us);
    fill_record(session, spec, reason, &record);
    list_for_each (op, &session->end_waiters, node)
        op->record = &record;
    session_ops_finish(&session->end_waiters, NULL, NULL);
    loop_defer(core->loop, &session->release, release_session);
}

static void on_end_recorded(struct store_ticket *ticket)
{
    struct session *session = container_of(ticket, struct session, ticket);

    if (ticket->err->code != ERR_NONE && !session->unborn) {
        log_error("the end of a session could not be recorded; trying again",
                  kv("session", session->id), kv("error", ticket->err->message));
        session_ops_finish(&session->end_waiters, session, ticket->err);
        timer_arm_in(&session->retry, END_RETRY_US);
        return;
    }
    session->end_written = true;
    if (!session->ending_running)
        finish_end(session);
}

/* When it is durable that the session is ending, the rest only has to outlive this process: a
 * machine that fails now finds it ending, and ends it. */
static void record_end(struct session *session)
{
    bool decided = session->ending_running || session->ending_durable;

    if (session->unborn)
        store_forget_session(session->core->parts.store, session->id);
    session_changed(session);
    store_commit_as(session->core->parts.store, &session->ticket,
                    decided ? STORE_WRITTEN : STORE_SYNCED, on_end_recorded);
}

static void on_ending_recorded(struct store_ticket *ticket)
{
    struct session *session = container_of(ticket, struct session, ending);

    session->ending_running = false;
    session->ending_durable = ticket->err->code == ERR_NONE;
    if (!session->end_written)
        return;
    session->end_written = false;
    if (session->ending_durable)
        finish_end(session);
    else
        record_end(session);
}

/* The disk gets to know while the sandbox is being removed. */
static void record_ending(struct session *session)
{
    session_changed(session);
    session->ending_running = true;
    store_commit(session->core->parts.store, &session->ending, on_ending_recorded);
}

static void on_end_retry(struct timer *timer)
{
    record_end(container_of(timer, struct session, retry));
}

static void on_patience_over(struct timer *timer)
{
    struct session *session = container_of(timer, struct session, patience);
    const struct sandbox *sandbox = session->sandbox;
    struct error err = { 0 };

    if (sandbox && sandbox_last_error(sandbox))
        error_named(&err, ERR_TIMEOUT, "session_ending",
                    "session %s is ending; its sandbox could not be removed in %u attempts: %.200s",
                    session->id, sandbox_attempts(sandbox), sandbox_last_error(sandbox)->message);
    else
        error_named(&err, ERR_TIMEOUT, "session_ending",
                    "session %s is ending; its sandbox is not removed yet", session->id);
    error_hint(&err, "the daemon continues by itself: check the session, or repeat the request");
    err.retryable = true;
    session_ops_finish(&session->end_waiters, session, &err);
}

static void emit_end(struct session *session)
{
    scoped(buffer_fini) struct buffer data = BUFFER_INIT(512);
    struct json_writer json = JSON_WRITER(&data);
    char reason[END_TEXT_SIZE];

    end_reason_text(&session->end, reason);
    json_begin_object(&json, NULL);
    json_put_text(&json, "reason", reason);
    json_end_object(&json);
    session_emit(session, "session.ended", buffer_text(&data));
    log_info("session ended", kv("session", session->id), kv("reason", reason),
             kv("generation", session->generation));
}

/* Once nothing of it exists any more but its record. */
void session_finish_end(struct session *session)
{
    struct core *core = session->core;

    if (session->state != SESSION_ENDING || session->sandbox)
        return;
    if (!session->durable && !session->unborn)
        return; /* the store has not answered about its creation yet */
    session_set_state(session, SESSION_ENDED);
    session->ended = stamp_now(core);
    session->retain_until_wall_us = session->ended.wall_us +
                                    core->parts.config->session.retention_ms * 1000;
    approvals_cancel(session, "its session has ended");
    budget_close(session);
    if (!session->unborn) {
        metrics_add(core->metrics, METRIC_SESSIONS_ENDED, session->end.kind, 1);
        emit_end(session);
    }
    record_end(session);
}

void session_on_sandbox_gone(struct session *session)
{
    if (session->state == SESSION_ENDING)
        session_finish_end(session);
    else
        session_control_settle(session);
    session_serve_soon(session);
}

void session_end_resume(struct session *session)
{
    struct error gone = { 0 };

    session_gone_error(session, &gone);
    timer_stop(&session->clock);
    timer_stop(&session->teardown);
    unlink_key(session);
    session_ops_finish(&session->control_waiters, session, &gone);
    session->core->session_programs->end_all(session, &session->end);
    session_serve_soon(session);
    if (session->sandbox)
        sandbox_destroy(session->sandbox, session->end.kind, session->end.detail);
    session_finish_end(session);
}

void session_end(struct session *session, enum end_kind kind, const char *detail,
                 struct session_op *op, session_done_fn *done)
{
    if (op) {
        session_op_join(op, session, &session->end_waiters, done);
        if (!timer_is_armed(&session->patience))
            timer_arm_in(&session->patience, END_PATIENCE_US);
    }
    if (session->state == SESSION_ENDING || session->state == SESSION_ENDED)
        return;
    session_set_state(session, SESSION_ENDING);
    session->end.kind = kind;
    snprintf(session->end.detail, sizeof(session->end.detail), "%s", detail ? detail : "");
    if (!session->unborn)
        record_ending(session);
    session_end_resume(session);
}
