/* SPDX-License-Identifier: Apache-2.0 */
#include "base/log.h"
#include "config/config.h"
#include "core/metrics.h"
#include "core/money/approvals.h"
#include "core/money/budget.h"
#include "core/sandbox/sandbox.h"
#include "core/session/programs.h"
#include "core/session/retention.h"
#include "core/session/session_private.h"
#include "core/session/session_recover.h"
#include "core/stamp.h"
#include "wire/json.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>

/*
 * The end of a session: the table end_steps, at the end of this file, from the decision to the
 * report. A step begins when the one before is done; each report that may complete a step (of the
 * sandbox, of the store) calls session_end_advance().
 *
 * A crash at any instruction is safe: the session is recorded as ending, or it is not ending. A
 * daemon that finds such a record begins with the second step, and each step may begin twice.
 */

enum { END_RETRY_US = 2 * 1000 * 1000, END_PATIENCE_US = 30 * 1000 * 1000 };

/* --- record the decision --------------------------------------------------------------------- */

static void record_end(struct session *session);
static bool relied_on_lost_decision(const struct session *session);

static void on_decision_recorded(struct store_ticket *ticket)
{
    struct session *session = container_of(ticket, struct session, ending.decision);

    session->ending.decision_state = ticket->err->code == ERR_NONE ? END_WRITE_DONE
                                                                   : END_WRITE_FAILED;
    if (relied_on_lost_decision(session))
        record_end(session);
    else
        session_end_advance(session);
}

/* The disk gets to know while the sandbox is being removed: only the report waits for it. A session
 * whose creation was refused leaves no record. */
static void record_decision(struct session *session)
{
    if (session->record.state == RECORD_REFUSED)
        return;
    session_changed(session);
    session->ending.decision_state = END_WRITE_ASKED;
    store_commit(session->core->parts.store, &session->ending.decision, on_decision_recorded);
}

/* --- stop programs --------------------------------------------------------------------------- */

/* Ends the programs, and stops all that could begin: clocks, a teardown in its grace, waiting pause
 * and resume, waiting holds. */
static void stop_programs(struct session *session)
{
    struct error gone = { 0 };

    session_gone_error(session, &gone);
    timer_stop(&session->clocks.timer);
    timer_stop(&session->teardown.grace);
    session_unlink_key(session);
    session_key_release(session);
    session_ops_finish(&session->control.waiters, session, &gone);
    session->core->session_programs->end_all(session, &session->ending.reason);
    session_serve_soon(session);
}

/* --- wait for the sandbox -------------------------------------------------------------------- */

/* Its init is not connected yet, after a restart or a lost connection: session_on_sandbox_known() or
 * session_on_sandbox_gone() goes on. */
static bool has_no_files_to_wait_for(const struct session *session)
{
    return !session_waits_for_files(session);
}

/* --- destroy the sandbox --------------------------------------------------------------------- */

/* Its own table of steps packs the files, records that it goes, and asks the backend until that
 * confirms: sandbox_destroy.c. */
static void destroy_sandbox(struct session *session)
{
    if (session->slot.sandbox)
        sandbox_destroy(session->slot.sandbox, session->ending.reason.kind,
                        session->ending.reason.detail);
}

static bool has_no_sandbox(const struct session *session)
{
    return !session->slot.sandbox;
}

/* --- become ended ---------------------------------------------------------------------------- */

static bool creation_is_answered(const struct session *session)
{
    return session->record.state != RECORD_NEW;
}

static void emit_end(struct session *session)
{
    scoped(buffer_fini) struct buffer data = BUFFER_INIT(512);
    struct json_writer json = JSON_WRITER(&data);
    char reason[END_TEXT_SIZE];

    end_reason_text(&session->ending.reason, reason);
    json_begin_object(&json, NULL);
    json_put_text(&json, "reason", reason);
    json_end_object(&json);
    session_emit(session, "session.ended", buffer_text(&data));
    log_info("session ended", kv("session", session->identity.id), kv("reason", reason),
             kv("generation", session->slot.generation));
}

static void become_ended(struct session *session)
{
    struct core *core = session->core;

    session_set_state(session, SESSION_ENDED);
    session->clocks.ended = stamp_now(core);
    session->clocks.retain_until_wall_us = session->clocks.ended.wall_us +
                                           core->parts.config->session.retention_ms * 1000;
    approvals_cancel(session, "its session has ended");
    budget_close(session);
    if (session->record.state == RECORD_REFUSED)
        return;
    metrics_add(core->metrics, METRIC_SESSIONS_ENDED, session->ending.reason.kind, 1);
    emit_end(session);
}

/* --- record the end -------------------------------------------------------------------------- */

static void on_end_recorded(struct store_ticket *ticket)
{
    struct session *session = container_of(ticket, struct session, ending.record);

    if (ticket->err->code != ERR_NONE && session->record.state != RECORD_REFUSED) {
        log_error("the end of a session could not be recorded; trying again",
                  kv("session", session->identity.id), kv("error", ticket->err->message));
        session->ending.record_state = END_WRITE_FAILED;
        session_ops_finish(&session->ending.waiters, session, ticket->err);
        timer_arm_in(&session->ending.retry, END_RETRY_US);
        return;
    }
    session->ending.record_state = END_WRITE_DONE;
    if (relied_on_lost_decision(session))
        record_end(session);
    else
        session_end_advance(session);
}

/* When the decision is durable, or will be, the rest only has to outlive this process: a machine
 * that fails now finds the session ending, and ends it. */
static enum store_grade grade_of_end(const struct session *session)
{
    switch (session->ending.decision_state) {
    case END_WRITE_ASKED:
    case END_WRITE_DONE:
        return STORE_WRITTEN;
    case END_WRITE_NONE:
    case END_WRITE_FAILED:
        break;
    }
    return STORE_SYNCED;
}

static void record_end(struct session *session)
{
    struct session_ending *ending = &session->ending;

    if (session->record.state == RECORD_REFUSED)
        store_forget_session(session->core->parts.store, session->identity.id);
    session_key_release(session); /* when that has failed before */
    session_changed(session);
    ending->record_state = END_WRITE_ASKED;
    ending->record_grade = grade_of_end(session);
    store_commit_as(session->core->parts.store, &ending->record, ending->record_grade,
                    on_end_recorded);
}

void session_on_end_retry(struct timer *timer)
{
    record_end(container_of(timer, struct session, ending.retry));
}

static bool end_is_recorded(const struct session *session)
{
    return session->ending.record_state == END_WRITE_DONE;
}

/* The record of the end survives the process only, and the decision is not recorded after all, or
 * what was to happen with it. */
static bool relied_on_lost_decision(const struct session *session)
{
    if (end_is_recorded(session) && session->identity.claim.state == KEY_HELD)
        return true; /* its key was to be released with it */
    return end_is_recorded(session) && session->ending.record_grade == STORE_WRITTEN &&
           session->ending.decision_state == END_WRITE_FAILED &&
           session->record.state != RECORD_REFUSED;
}

/* --- confirm the record ---------------------------------------------------------------------- */

static bool end_is_confirmed(const struct session *session)
{
    return end_is_recorded(session) && session->ending.decision_state != END_WRITE_ASKED;
}

/* --- report ---------------------------------------------------------------------------------- */

static void release_session(struct deferred *deferred)
{
    session_free(container_of(deferred, struct session, ending.release));
}

static void report(struct session *session)
{
    struct core *core = session->core;
    scoped(free) char *spec = session_spec_text(session);
    char reason[END_TEXT_SIZE];
    struct session_record record;
    struct session_op *op;

    session_unlink(session);
    retention_note(core->retention, session->clocks.retain_until_wall_us);
    session_fill_record(session, spec, reason, &record);
    list_for_each (op, &session->ending.waiters, node)
        op->record = &record;
    session_ops_finish(&session->ending.waiters, NULL, NULL);
    loop_defer(core->loop, &session->ending.release, release_session);
}

/* Waiters do not wait for ever; the end goes on without them. */
void session_on_end_patience(struct timer *timer)
{
    struct session *session = container_of(timer, struct session, ending.patience);
    const struct sandbox *sandbox = session->slot.sandbox;
    struct error err = { 0 };

    if (sandbox && sandbox_last_error(sandbox))
        error_named(&err, ERR_TIMEOUT, "session_ending",
                    "session %s is ending; its sandbox could not be removed in %u attempts: %.200s",
                    session->identity.id, sandbox_attempts(sandbox),
                    sandbox_last_error(sandbox)->message);
    else
        error_named(&err, ERR_TIMEOUT, "session_ending",
                    "session %s is ending; its sandbox is not removed yet", session->identity.id);
    error_hint(&err, "the daemon continues by itself: check the session, or repeat the request");
    err.retryable = true;
    session_ops_finish(&session->ending.waiters, session, &err);
}

/* --- the table ------------------------------------------------------------------------------- */

static const struct {
    const char *name;
    void (*begin)(struct session *session);         /* NULL: the step only waits */
    bool (*is_done)(const struct session *session); /* NULL: as soon as it has begun */
} end_steps[STEP_OVER] = {
    [STEP_DECIDE] = { "record the decision", record_decision, NULL },
    [STEP_STOP] = { "stop programs", stop_programs, NULL },
    [STEP_KNOWN] = { "wait for a sandbox that has to pack files", NULL, has_no_files_to_wait_for },
    [STEP_DESTROY] = { "pack files, destroy the sandbox", destroy_sandbox, has_no_sandbox },
    [STEP_CREATION] = { "wait for the record of the creation", NULL, creation_is_answered },
    [STEP_ENDED] = { "close accounts, become ended", become_ended, NULL },
    [STEP_RECORD] = { "record the end", record_end, end_is_recorded },
    [STEP_CONFIRM] = { "wait for the record of the decision", NULL, end_is_confirmed },
    [STEP_REPORT] = { "report", report, NULL },
};

static void begin(struct session *session, enum end_step step)
{
    log_debug("session ends", kv("session", session->identity.id),
              kv("step", end_steps[step].name));
    session->ending.step = step;
    if (end_steps[step].begin)
        end_steps[step].begin(session);
}

static bool step_is_done(const struct session *session)
{
    enum end_step step = session->ending.step;

    return !end_steps[step].is_done || end_steps[step].is_done(session);
}

/* A step that begins may report its own end before it returns: then the inner call has gone on. */
void session_end_advance(struct session *session)
{
    if (session->ending.step == STEP_NONE)
        return;
    while (session->ending.step < STEP_OVER && step_is_done(session)) {
        if (session->ending.step == STEP_REPORT)
            session->ending.step = STEP_OVER;
        else
            begin(session, session->ending.step + 1);
    }
}

void session_end_resume(struct session *session)
{
    assert(session->state == SESSION_ENDING && session->ending.step <= STEP_DESTROY);
    begin(session, STEP_STOP);
    session_end_advance(session);
}

void session_on_sandbox_gone(struct session *session)
{
    if (session->state != SESSION_ENDING)
        session_control_settle(session);
    else if (session->ending.step == STEP_NONE)
        session_end_resume(session);
    else
        session_end_advance(session);
    session_serve_soon(session);
}

void session_end(struct session *session, enum end_kind kind, const char *detail,
                 struct session_op *op, session_done_fn *done)
{
    if (op) {
        session_op_join(op, session, &session->ending.waiters, done);
        if (!timer_is_armed(&session->ending.patience))
            timer_arm_in(&session->ending.patience, END_PATIENCE_US);
    }
    if (!session_is_alive(session))
        return;
    session_set_state(session, SESSION_ENDING);
    session->ending.reason.kind = kind;
    snprintf(session->ending.reason.detail, sizeof(session->ending.reason.detail), "%s",
             detail ? detail : "");
    begin(session, STEP_DECIDE);
    session_end_advance(session);
}
