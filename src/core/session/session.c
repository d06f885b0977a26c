/* SPDX-License-Identifier: Apache-2.0 */
#include "core/session/session.h"

#include "agent/file_snapshot.h"
#include "base/alloc.h"
#include "base/str.h"
#include "core/events.h"
#include "core/secrets.h"
#include "core/session/open_question.h"
#include "core/session/session_private.h"
#include "core/session/source_question.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

/* --- memory -------------------------------------------------------------------------------- */

struct session *session_new(struct core *core)
{
    struct session *session = xnew(struct session);

    session->core = core;
    list_init(&session->node);
    list_init(&session->holds.granted);
    list_init(&session->holds.waiting);
    list_init(&session->holds.weak);
    list_init(&session->run.contexts);
    list_init(&session->run.executions);
    list_init(&session->ending.waiters);
    list_init(&session->record.waiters);
    list_init(&session->control.waiters);
    timer_init(&session->ending.retry, core->loop, session_on_end_retry);
    timer_init(&session->teardown.grace, core->loop, session_on_teardown_due);
    timer_init(&session->ending.patience, core->loop, session_on_end_patience);
    timer_init(&session->holds.overdue, core->loop, session_on_overdue);
    timer_init(&session->control.overdue, core->loop, session_on_control_overdue);
    session->clocks.timer.loop = core->loop;
    return session;
}

void session_link(struct session *session)
{
    struct core *core = session->core;

    if (!session->share.shares)
        share_hold(&session->share, core->shares, session->identity.owner, SHARE_SESSIONS);
    if (!session->identity.number)
        session->identity.number = core->last_session_number + 1;
    core->last_session_number = MAX(core->last_session_number, session->identity.number);
    list_append(&core->sessions, &session->node);
    map_put(&core->sessions_by_id, session->identity.id, session);
    if (session->identity.key && session->state != SESSION_ENDING) {
        session->identity.map_key =
            xasprintf("%s\n%s", session->identity.owner, session->identity.key);
        map_put(&core->sessions_by_key, session->identity.map_key, session);
    }
}

void session_unlink_key(struct session *session)
{
    if (!session->identity.map_key)
        return;
    map_remove(&session->core->sessions_by_key, session->identity.map_key);
    free(steal_ptr(&session->identity.map_key));
}

void session_unlink(struct session *session)
{
    session_unlink_key(session);
    share_give(&session->share);
    map_remove(&session->core->sessions_by_id, session->identity.id);
    list_remove(&session->node);
}

void session_free(struct session *session)
{
    struct loop *loop = session->core->loop;

    session_unlink(session);
    timer_stop(&session->clocks.timer);
    timer_stop(&session->teardown.grace);
    timer_stop(&session->ending.retry);
    timer_stop(&session->ending.patience);
    timer_stop(&session->holds.overdue);
    timer_stop(&session->control.overdue);
    loop_undefer(loop, &session->holds.serve);
    loop_undefer(loop, &session->record.save);
    loop_undefer(loop, &session->ending.release);
    grant_wish_end(&session->grants.wish);
    free(session->identity.owner);
    free(session->identity.key);
    free(session->identity.on_behalf_of);
    free(session->identity.labels_json);
    free(session->record.refusal);
    session_key_fini(session);
    free(session->setup.env_json);
    free(session->setup.mounts_json);
    free(session->setup.face_json);
    secrets_free(session->setup.secrets);
    free(session->setup.template_name);
    free(session->setup.backend);
    free(session->flavor.name);
    free(session->flavor.base_name);
    free(session->slot.start_error);
    file_snapshot_free(session->run.files_before);
    free(session);
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
    return session && (any_owner || str_equal(session->identity.owner, owner ? owner : ""))
               ? session
               : NULL;
}

bool session_is_recorded(const struct session *session)
{
    return session->record.state == RECORD_DURABLE;
}

struct mask *session_mask(const struct session *session)
{
    return session->setup.secrets ? session->setup.secrets->mask : NULL;
}

/* --- the record ---------------------------------------------------------------------------- */

void session_set_state(struct session *session, enum session_state state)
{
    assert(session_may_become(session->state, state));
    session->state = state;
}

/* The key of an ending session is free for the next one; its own is also in `spec`. The texts are
 * borrowed. */
void session_fill_record(const struct session *session, const char *spec,
                         char reason[END_TEXT_SIZE], struct session_record *out_record)
{
    end_reason_text(&session->ending.reason, reason);
    *out_record = (struct session_record){
        .owner = session->identity.owner,
        .key = session->state == SESSION_ENDING ? NULL : session->identity.key,
        .on_behalf_of = session->identity.on_behalf_of,
        .spec_json = spec,
        .labels_json = session->identity.labels_json,
        .state = session_state_name(session->state),
        .end_reason = reason,
        .generation = session->slot.generation,
        .idle_timeout_ms = session->policy.idle_timeout_ms,
        .max_lifetime_ms = session->policy.max_lifetime_ms,
        .created = session->clocks.created,
        .started = session->clocks.started,
        .last_activity = session->clocks.last_activity,
        .expires = session->clocks.expires,
        .ended = session->clocks.ended,
        .retain_until_wall_us = session->clocks.retain_until_wall_us,
        .node = session->core->parts.store->node,
    };
    memcpy(out_record->id, session->identity.id, sizeof(out_record->id));
}

static void on_save(struct deferred *deferred)
{
    struct session *session = container_of(deferred, struct session, record.save);
    scoped(free) char *spec = NULL;
    char reason[END_TEXT_SIZE];
    struct session_record record;

    if (session->record.state == RECORD_REFUSED)
        return;
    spec = session_spec_text(session);
    session_fill_record(session, spec, reason, &record);
    store_put_session(session->core->parts.store, &record);
}

void session_changed(struct session *session)
{
    loop_defer_late(session->core->loop, &session->record.save, on_save);
}

void session_emit(struct session *session, const char *type, const char *data_json)
{
    if (session->record.state == RECORD_REFUSED)
        return;
    events_emit(session->core->events, session->identity.id, session->identity.owner,
                ++session->record.event_sequence, type, data_json);
    session_changed(session);
}

/* --- operations ---------------------------------------------------------------------------- */

void session_op_join(struct session_op *op, struct session *session, struct list *waiters,
                     session_done_fn *done)
{
    op->done = done;
    op->core = session->core;
    op->deferred = (struct deferred){ 0 };
    memcpy(op->id, session->identity.id, sizeof(op->id));
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
    source_question_drop(op->question);
    open_question_drop(op->asked);
    if (op->core)
        loop_undefer(op->core->loop, &op->deferred);
    list_remove(&op->node);
}

int session_gone_error(const struct session *session, struct error *err)
{
    char reason[END_TEXT_SIZE];

    end_reason_text(&session->ending.reason, reason);
    return error_named(err, ERR_GONE, "session_ended", "session %s has ended: %s",
                       session->identity.id, reason);
}
