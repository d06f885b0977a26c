/* SPDX-License-Identifier: Apache-2.0 */
#include "core/session/session.h"

#include "base/alloc.h"
#include "base/backoff.h"
#include "base/log.h"
#include "base/str.h"
#include "config/config.h"
#include "core/metrics.h"
#include "core/money/budget.h"
#include "core/sandbox/capacity.h"
#include "core/sandbox/pool.h"
#include "core/sandbox/sandbox.h"
#include "core/session/background.h"
#include "core/session/clocks.h"
#include "core/session/session_observer.h"
#include "core/session/session_private.h"
#include "core/stamp.h"
#include "wire/json.h"

#include <assert.h>
#include <stdio.h>

/* Starts that fail and lives that are shorter than this make the next start wait. */
enum { SHORT_LIFE_US = 10 * 1000 * 1000, FAILURES_MAXIMUM = 16 };

static const struct backoff start_backoff_us = { .first = 500 * 1000, .most = 30 * 1000 * 1000 };

/* How long a hold waits for anything but a start: an answer, a thaw, the end of the last sandbox. */
enum { OVERDUE_US = 10 * 1000 * 1000 };

bool session_is_used(const struct session *session)
{
    return !list_is_empty(&session->holds.granted) || !list_is_empty(&session->holds.waiting);
}

/* --- whether a sandbox is to be made ------------------------------------------------------- */

bool session_demands_sandbox(const struct session *session)
{
    return session->slot.demand == DEMAND_FOR_HOLDS || session->slot.demand == DEMAND_PRELOAD;
}

bool session_demands_preload(const struct session *session)
{
    return session->slot.demand == DEMAND_PRELOAD || session->slot.demand == DEMAND_PRELOAD_NEXT;
}

static void demand_sandbox(struct session *session)
{
    session->slot.demand = session_demands_preload(session) ? DEMAND_PRELOAD : DEMAND_FOR_HOLDS;
}

/* That the next one counts as preloaded is kept. */
static void demand_no_sandbox(struct session *session)
{
    session->slot.demand = session_demands_preload(session) ? DEMAND_PRELOAD_NEXT : DEMAND_NONE;
}

/* --- which holds are granted: the first rule that applies to a waiting hold decides ----------- */

static bool is_over(const struct session *session, const struct session_hold *hold UNUSED)
{
    return session->state == SESSION_ENDING || session->state == SESSION_ENDED;
}

static void refuse_over(const struct session *session, struct session_hold *hold)
{
    session_gone_error(session, &hold->err);
}

static bool is_stopping(const struct session *session, const struct session_hold *hold UNUSED)
{
    return session->core->stopping;
}

static void refuse_stopping(const struct session *session UNUSED, struct session_hold *hold)
{
    error_named(&hold->err, ERR_UNAVAILABLE, "shutting_down", "the daemon is shutting down");
}

static bool is_past_lifetime(const struct session *session, const struct session_hold *hold UNUSED)
{
    return clocks_lifetime_is_over(session);
}

static void refuse_past_lifetime(const struct session *session, struct session_hold *hold)
{
    error_named(&hold->err, ERR_GONE, "session_ending",
                "session %s has reached its lifetime and accepts no new work",
                session->identity.id);
    error_hint(&hold->err, "raise max_lifetime while its work still runs, or open a new session");
}

/* The generation that a hold would get: that of the sandbox there is, or of the next one. */
static uint64_t coming_generation(const struct session *session)
{
    const struct sandbox *sandbox = session->slot.sandbox;

    if (sandbox && sandbox_is_coming_or_up(sandbox))
        return sandbox_generation(sandbox);
    return session->slot.generation + 1;
}

static bool is_pinned_elsewhere(const struct session *session, const struct session_hold *hold)
{
    return hold->generation && hold->generation != coming_generation(session);
}

static void refuse_generation(const struct session *session, struct session_hold *hold)
{
    error_named(&hold->err, ERR_CONFLICT, "generation_moved",
                "generation %llu of session %s is gone; the next use gets generation %llu",
                (unsigned long long)hold->generation, session->identity.id,
                (unsigned long long)coming_generation(session));
    error_hint(&hold->err, "its files were reset: set them up again, then use the new generation");
}

static bool is_paused_for_good(const struct session *session,
                               const struct session_hold *hold UNUSED)
{
    return session->state == SESSION_PAUSED && !session->policy.auto_resume;
}

static void refuse_paused(const struct session *session, struct session_hold *hold)
{
    error_named(&hold->err, ERR_CONFLICT, "paused", "session %s is paused", session->identity.id);
    error_hint(&hold->err, "resume the session first, or switch auto_resume on");
}

static bool is_crashed_for_good(const struct session *session,
                                const struct session_hold *hold UNUSED)
{
    return session->slot.crashed && !session->policy.auto_restart;
}

static void refuse_crashed(const struct session *session, struct session_hold *hold)
{
    error_named(&hold->err, ERR_CONFLICT, "sandbox_crashed",
                "the sandbox of session %s has crashed and auto_restart is off",
                session->identity.id);
    error_hint(&hold->err, "start a new sandbox for it, tear the old one down, or delete it");
}

/* Its sandbox may live, but this daemon cannot speak to it. */
static bool is_out_of_reach(const struct session *session, const struct session_hold *hold UNUSED)
{
    const struct sandbox *sandbox = session->slot.sandbox;

    return sandbox && sandbox_is_up(sandbox) && sandbox_out_of_reach(sandbox);
}

static void refuse_out_of_reach(const struct session *session, struct session_hold *hold)
{
    hold->err = *sandbox_out_of_reach(session->slot.sandbox);
    error_wrap(&hold->err, "session %s", session->identity.id);
}

static bool is_backing_off(const struct session *session, const struct session_hold *hold UNUSED)
{
    return !session->slot.sandbox && session->slot.retry_at_us > loop_now_us(session->core->loop);
}

static void refuse_backing_off(const struct session *session, struct session_hold *hold)
{
    int64_t left_us = session->slot.retry_at_us - loop_now_us(session->core->loop);

    if (session->slot.start_error)
        hold->err = *session->slot.start_error;
    else
        error_named(&hold->err, ERR_BACKEND, "sandbox_crashing",
                    "the sandbox of session %s has crashed %u times in a row", session->identity.id,
                    session->slot.failures);
    if (hold->err.retryable || str_is_empty(hold->err.hint))
        error_hint(&hold->err, "the next start is possible in %lld s",
                   (long long)(left_us + 999999) / 1000000);
}

/* Destroying is tried again by itself; a hold does not wait for that. */
static bool is_stuck(const struct session *session, const struct session_hold *hold UNUSED)
{
    const struct sandbox *sandbox = session->slot.sandbox;

    return sandbox && sandbox_state(sandbox) == SANDBOX_DESTROYING && sandbox_attempts(sandbox) &&
           sandbox_last_error(sandbox);
}

static void refuse_stuck(const struct session *session, struct session_hold *hold)
{
    const struct sandbox *sandbox = session->slot.sandbox;

    error_named(&hold->err, ERR_UNAVAILABLE, "sandbox_not_removed",
                "the last sandbox of session %s, %s, could not be removed in %u attempts: %.200s",
                session->identity.id, sandbox_id(sandbox), sandbox_attempts(sandbox),
                sandbox_last_error(sandbox)->message);
    error_hint(&hold->err, "the daemon keeps trying to remove it and starts a new one afterwards");
    hold->err.retryable = true;
}

static const struct hold_rule {
    bool (*applies)(const struct session *session, const struct session_hold *hold);
    void (*refuse)(const struct session *session, struct session_hold *hold);
} hold_rules[] = {
    { is_over, refuse_over },
    { is_stopping, refuse_stopping },
    { is_past_lifetime, refuse_past_lifetime },
    { is_pinned_elsewhere, refuse_generation },
    { is_paused_for_good, refuse_paused },
    { is_crashed_for_good, refuse_crashed },
    { is_out_of_reach, refuse_out_of_reach },
    { is_backing_off, refuse_backing_off },
    { is_stuck, refuse_stuck },
};

static bool refuse(struct session *session, struct session_hold *hold)
{
    for (size_t i = 0; i < ARRAY_LENGTH(hold_rules); i++) {
        if (!hold_rules[i].applies(session, hold))
            continue;
        hold_rules[i].refuse(session, hold);
        return true;
    }
    return false;
}

/* --- granting ------------------------------------------------------------------------------ */

/* Whether it may be evicted follows from the rest. */
void session_update_idle(struct session *session)
{
    struct sandbox *sandbox = session->slot.sandbox;

    if (sandbox)
        capacity_set_idle(session->core->capacity, sandbox,
                          sandbox_is_usable(sandbox) && session->state == SESSION_OPEN &&
                              !session_is_used(session) && !background_works(session));
}

static void count_hold(struct session *session, struct session_hold *hold)
{
    list_remove(&hold->node);
    list_append(&session->holds.granted, &hold->node);
    hold->granted = true;
    session->holds.active++;
    session->clocks.last_activity = stamp_now(session->core);
    background_reset(session);
    session_update_idle(session);
    if (session->holds.active == 1)
        session_changed(session);
    clocks_arm(session);
}

static void grant(struct session *session, struct session_hold *hold)
{
    count_hold(session, hold);
    hold->sandbox = session->slot.sandbox;
    hold->agent = sandbox_agent(session->slot.sandbox);
    hold->generation = sandbox_generation(session->slot.sandbox);
    hold->on_ready(hold);
}

/* The last hold is over: the idle clock starts again. */
static void mark_idle(struct session *session)
{
    if (session_is_used(session) || is_over(session, NULL))
        return;
    session->clocks.last_activity = stamp_now(session->core);
    background_reset(session);
    session_changed(session);
    clocks_arm(session);
    session_update_idle(session);
}

void session_note_activity(struct session *session)
{
    session->clocks.last_activity = stamp_now(session->core);
    clocks_arm(session);
    session_changed(session);
}

/* Of those that may be evicted it is the warmest now. */
void session_touch(struct session *session)
{
    session_teardown_cancel(session);
    session->clocks.last_activity = stamp_now(session->core);
    background_reset(session);
    session_changed(session);
    clocks_arm(session);
    if (session->slot.sandbox)
        capacity_set_idle(session->core->capacity, session->slot.sandbox, false);
    session_update_idle(session);
}

static void fail(struct session_hold *hold)
{
    bool waited = hold->waited;
    struct session *session = hold->session;

    list_remove(&hold->node);
    hold->on_ready(hold);
    if (waited)
        mark_idle(session);
}

static void fail_all(struct session *session, struct list *holds, const struct error *err)
{
    struct session_hold *hold;

    if (list_is_empty(holds))
        return;
    while ((hold = list_first(holds, struct session_hold, node))) {
        hold->err = *err;
        fail(hold);
    }
    clocks_arm(session);
}

/* Callbacks may begin and end other holds, so the list is taken away before they are called. */
static void take_waiting(struct session *session, struct list *taken)
{
    struct session_hold *hold;

    while ((hold = list_first(&session->holds.waiting, struct session_hold, node))) {
        list_remove(&hold->node);
        list_append(taken, &hold->node);
    }
}

/* A sandbox that has died, and whose death is not reported yet, is not granted. */
static bool can_grant(const struct session *session)
{
    return session->state == SESSION_OPEN && session->slot.sandbox &&
           sandbox_is_usable(session->slot.sandbox) && !sandbox_notice_death(session->slot.sandbox);
}

/* A sandbox without its workspace is not granted either: the next one has it. Programs that run in
 * it are left alone. */
static void check_files(struct session *session)
{
    struct sandbox *sandbox = session->slot.sandbox;

    if (list_is_empty(&session->holds.waiting) || session->holds.active || !sandbox ||
        !sandbox_is_usable(sandbox))
        return;
    if (!backend_is_whole(sandbox_backend(sandbox), sandbox_id(sandbox)))
        sandbox_crash(sandbox, "workspace removed");
}

/* Holds that have to wait longer keep their order. */
static void serve(struct session *session)
{
    struct list taken = LIST_INIT(taken);
    struct session_hold *hold;

    check_files(session);
    take_waiting(session, &taken);
    while ((hold = list_first(&taken, struct session_hold, node))) {
        if (refuse(session, hold)) {
            fail(hold);
        } else if (can_grant(session)) {
            grant(session, hold);
        } else {
            hold->waited = true;
            list_remove(&hold->node);
            list_append(&session->holds.waiting, &hold->node);
        }
    }
}

/* Holds that wait get the present sandbox when it is made, thawed or reconnected. */
static bool has_sandbox_to_wait_for(const struct session *session)
{
    const struct sandbox *sandbox = session->slot.sandbox;

    return sandbox && sandbox_is_coming_or_up(sandbox);
}

/* --- waiting for a sandbox that is there --------------------------------------------------------
 */

/* A start has a bound of its own, as has packing its files. */
static bool has_own_bound(const struct session *session)
{
    const struct sandbox *sandbox = session->slot.sandbox;

    return !sandbox || sandbox_state(sandbox) == SANDBOX_CREATING || sandbox_moves_files(sandbox);
}

static void describe_delay(const struct session *session, struct error *err)
{
    const struct sandbox *sandbox = session->slot.sandbox;
    const char *why = sandbox_last_error(sandbox) ? sandbox_last_error(sandbox)->message : NULL;

    if (sandbox_state(sandbox) == SANDBOX_UNKNOWN)
        error_named(err, ERR_TIMEOUT, "sandbox_unknown",
                    "sandbox %s of session %s does not answer%s%.200s", sandbox_id(sandbox),
                    session->identity.id, why ? ": " : "", why ? why : "");
    else if (sandbox_state(sandbox) == SANDBOX_FROZEN_BY_OTHERS)
        error_named(err, ERR_TIMEOUT, "sandbox_frozen",
                    "sandbox %s of session %s is frozen by others, outside of Sandglass",
                    sandbox_id(sandbox), session->identity.id);
    else if (sandbox_is_up(sandbox))
        error_named(err, ERR_TIMEOUT, "not_resumed", "session %s is not resumed yet",
                    session->identity.id);
    else
        error_named(err, ERR_TIMEOUT, "sandbox_not_removed",
                    "the last sandbox of session %s, %s, is not removed yet", session->identity.id,
                    sandbox_id(sandbox));
    error_hint(err, "%s",
               sandbox_state(sandbox) == SANDBOX_FROZEN_BY_OTHERS
                   ? "thaw it where it was frozen, or pause and resume the session"
                   : "try again; tearing its sandbox down makes room for a new one");
    err->retryable = true;
}

static void watch_waiting(struct session *session)
{
    const struct session_hold *oldest =
        list_first(&session->holds.waiting, struct session_hold, node);
    int64_t now_us = loop_now_us(session->core->loop);

    if (!oldest || has_own_bound(session))
        timer_stop(&session->holds.overdue);
    else if (!timer_is_armed(&session->holds.overdue))
        timer_arm_in(&session->holds.overdue,
                     MAX(oldest->waits_since_us + OVERDUE_US - now_us, (int64_t)OVERDUE_US / 10));
}

void session_on_overdue(struct timer *timer)
{
    struct session *session = container_of(timer, struct session, holds.overdue);
    int64_t begun_us = loop_now_us(session->core->loop) - OVERDUE_US;
    struct list taken = LIST_INIT(taken);
    struct session_hold *hold;
    struct session_hold *following;
    struct error err = { 0 };

    if (!has_own_bound(session)) {
        describe_delay(session, &err);
        list_for_each_safe (hold, following, &session->holds.waiting, node) {
            if (hold->waits_since_us > begun_us)
                continue;
            list_remove(&hold->node);
            list_append(&taken, &hold->node);
        }
    }
    fail_all(session, &taken, &err);
    watch_waiting(session);
}

static void on_serve(struct deferred *deferred)
{
    struct session *session = container_of(deferred, struct session, holds.serve);

    serve(session);
    if (is_over(session, NULL))
        return;
    if (!list_is_empty(&session->holds.waiting)) {
        if (session->state == SESSION_PAUSED)
            session_resume(session, NULL, NULL);
        if (!has_sandbox_to_wait_for(session))
            demand_sandbox(session);
    }
    if (session_demands_sandbox(session))
        session_want_sandbox(session);
    watch_waiting(session);
    session_update_idle(session);
    clocks_arm(session);
}

void session_serve_soon(struct session *session)
{
    loop_defer(session->core->loop, &session->holds.serve, on_serve);
}

void session_fail_waiting(struct session *session, const struct error *err)
{
    struct list taken = LIST_INIT(taken);

    take_waiting(session, &taken);
    fail_all(session, &taken, err);
}

void session_hold_begin(struct session_hold *hold, struct session *session, uint64_t generation,
                        session_hold_fn *on_ready, session_hold_fn *on_lost)
{
    session_teardown_cancel(session);
    *hold = (struct session_hold){
        .on_ready = on_ready,
        .on_lost = on_lost,
        .session = session,
        .generation = generation,
        .waits_since_us = loop_now_us(session->core->loop),
    };
    if (!session_is_used(session) &&
        !(session->slot.sandbox && sandbox_is_usable(session->slot.sandbox)))
        session_changed(session); /* it waits: a daemon that dies meanwhile leaves it held */
    list_append(&session->holds.waiting, &hold->node);
    session_update_idle(session);
    clocks_arm(session);
    session_serve_soon(session);
}

static void end_granted(struct session *session, struct session_hold *hold)
{
    hold->granted = false;
    hold->agent = NULL;
    hold->sandbox = NULL;
    if (!hold->is_weak)
        session->holds.active--;
}

void session_hold_weaken(struct session_hold *hold)
{
    struct session *session = hold->session;

    if (!hold->granted || hold->is_weak)
        return;
    hold->is_weak = true;
    session->holds.active--;
    list_remove(&hold->node);
    list_append(&session->holds.weak, &hold->node);
    mark_idle(session);
}

/* A restored hold is no activity: the idle clock goes on where it was. */
void session_hold_restore(struct session_hold *hold, struct session *session,
                          enum hold_strength strength, session_hold_fn *on_lost)
{
    struct stamp last_activity = session->clocks.last_activity;

    *hold = (struct session_hold){ .on_lost = on_lost,
                                   .session = session,
                                   .generation = session->slot.generation };
    count_hold(session, hold);
    if (strength == HOLD_WEAK)
        session_hold_weaken(hold);
    session->clocks.last_activity = last_activity;
}

void session_hold_retry(struct session_hold *hold, uint64_t generation)
{
    struct session *session = hold->session;

    if (hold->granted) {
        list_remove(&hold->node);
        end_granted(session, hold);
    }
    hold->generation = generation;
    hold->waits_since_us = loop_now_us(session->core->loop);
    list_append(&session->holds.waiting, &hold->node);
    session_update_idle(session);
    clocks_arm(session);
    session_serve_soon(session);
}

/* No hold waits any more for a sandbox that has not even got a slot. */
static void give_up_waiting(struct session *session)
{
    struct sandbox *sandbox = session->slot.sandbox;

    if (list_is_empty(&session->holds.waiting) && session->slot.demand == DEMAND_FOR_HOLDS &&
        session->grants.state == GRANTS_ASKED) {
        demand_no_sandbox(session);
        session_stop_asking(session);
    }
    if (!list_is_empty(&session->holds.waiting) || !sandbox ||
        sandbox_state(sandbox) != SANDBOX_CREATING)
        return;
    if (sandbox_waits_for_slot(sandbox) && !sandbox_is_preloaded(sandbox))
        sandbox_destroy(sandbox, END_TEARDOWN, "no request waits for it");
}

void session_hold_end(struct session_hold *hold)
{
    struct session *session = hold->session;

    if (!list_is_linked(&hold->node))
        return;
    list_remove(&hold->node);
    if (hold->granted) {
        end_granted(session, hold);
        session->slot.failures = 0;
        session->run.files_used_us = clock_wall_us(loop_clock(session->core->loop));
    } else {
        give_up_waiting(session);
    }
    mark_idle(session);
}

/* --- making the sandbox -------------------------------------------------------------------- */

/* A flavor over the budget is not made again: the session returns to the one that it began with.
 * False: another node was faster, and has to be asked once more. */
static bool pay_or_revert(struct session *session)
{
    scoped(free) char *flavor = NULL;
    struct error err = { 0 };

    if (budget_reserve(session, &err) == 0)
        return true;
    if (err.code == ERR_UNAVAILABLE)
        return false;
    flavor = xstrdup(session->flavor.name);
    log_info("budget exhausted; the session has its first flavor again",
             kv("session", session->identity.id), kv("why", err.message));
    session_revert_choice(session);
    budget_ask_to_continue(session, flavor, err.message);
    return true;
}

void session_want_sandbox(struct session *session)
{
    struct core *core = session->core;
    struct sandbox_order order;

    demand_sandbox(session);
    if (session->slot.sandbox || core->recovery)
        return;
    if (!is_over(session, NULL) && !core->stopping && !is_backing_off(session, NULL) &&
        !session_may_start(session))
        return;
    demand_no_sandbox(session);
    if (is_over(session, NULL) || core->stopping || is_backing_off(session, NULL))
        return;
    if (!pay_or_revert(session)) {
        demand_sandbox(session);
        session_serve_soon(session);
        return;
    }
    /* After a death it is a new one: what killed the last may have hit all of the pool. */
    order = session_order(session);
    session->slot.demand = DEMAND_NONE;
    session->slot.sandbox = session->slot.failures ? NULL : pool_take(core->pool, &order);
    if (session->slot.sandbox)
        sandbox_claim(session->slot.sandbox, &order);
    else
        session->slot.sandbox = sandbox_start(core, &order);
    budget_bind(session, sandbox_id(session->slot.sandbox));
}

void session_preload(struct session *session)
{
    const struct sandbox *sandbox = session->slot.sandbox;

    session->slot.demand = session_demands_sandbox(session) ? DEMAND_PRELOAD : DEMAND_PRELOAD_NEXT;
    if (session->state == SESSION_OPEN && !sandbox && !clocks_lifetime_is_over(session))
        session_want_sandbox(session);
    else if (sandbox && sandbox_state(sandbox) == SANDBOX_DESTROYING)
        demand_sandbox(session);
}

bool session_expects_sandbox(const struct session *session)
{
    return session_demands_sandbox(session) ||
           (session->slot.sandbox && sandbox_is_coming_or_up(session->slot.sandbox));
}

void session_forgive_crash(struct session *session)
{
    session->slot.crashed = false;
}

/* The start after the first failure does not wait. */
static void count_failure(struct session *session)
{
    struct session_slot *slot = &session->slot;

    slot->failures = MIN(slot->failures + 1, (unsigned)FAILURES_MAXIMUM);
    slot->retry_at_us = loop_now_us(session->core->loop) +
                        backoff_delay(&start_backoff_us, slot->failures - 1);
}

/* --- reports of the sandbox ---------------------------------------------------------------- */

static bool has_its_files(const struct session *session)
{
    return session->slot.sandbox && sandbox_has_restored_files(session->slot.sandbox);
}

/* A sandbox that never became ready does not count: no program has seen it. */
void session_note_previous_end(struct session *session, const struct end_reason *end)
{
    session->slot.previous_end = *end;
    session_changed(session);
}

static void emit_reset(struct session *session)
{
    scoped(buffer_fini) struct buffer data = BUFFER_INIT(512);
    struct json_writer json = JSON_WRITER(&data);
    char reason[END_TEXT_SIZE];

    json_begin_object(&json, NULL);
    json_put_int(&json, "generation", (int64_t)session->slot.generation);
    json_put_text(&json, "files", has_its_files(session) ? "restored" : "lost");
    if (has_its_files(session))
        json_put_int(&json, "from_generation", (int64_t)session->slot.archive.generation);
    json_put_text(&json, "reason", end_reason_text_or_null(&session->slot.previous_end, reason));
    json_end_object(&json);
    session_emit(session, "sandbox.reset", buffer_text(&data));
    metrics_add(session->core->metrics, METRIC_SANDBOX_RESTARTS, 0, 1);
}

/* The reset and the fact that it is still to be reported are written together: a daemon that is
 * killed leaves both or neither. */
void session_set_generation(struct session *session, uint64_t generation)
{
    session->slot.generation = generation;
    if (generation > 1) {
        session->reset.state = has_its_files(session) ? RESET_NONE : RESET_PENDING;
        emit_reset(session);
    }
    session_changed(session);
}

void session_on_sandbox_ready(struct session *session)
{
    error_keep(&session->slot.start_error, NULL);
    session->slot.crashed = false;
    demand_no_sandbox(session);
    if (!session->clocks.started.wall_us)
        session->clocks.started = stamp_now(session->core);
    session_set_generation(session, sandbox_generation(session->slot.sandbox));
    session_update_idle(session);
    sandbox_converge(session->slot.sandbox);
    session_serve_soon(session);
}

/* An end or a teardown of an earlier daemon that waited for the files goes on. */
void session_on_sandbox_known(struct session *session)
{
    if (session->state == SESSION_ENDING) {
        session_end_resume(session);
        return;
    }
    session_teardown_resume(session);
    budget_resume(session);
    if (session->slot.sandbox)
        sandbox_converge(session->slot.sandbox);
    session_control_settle(session);
    session_serve_soon(session);
}

/* Once: a second one in a row has another reason than chance. */
bool session_forgives_death(struct session *session)
{
    if (session->slot.failures)
        return false;
    count_failure(session);
    return true;
}

/* The lack of a slot is reported, and not counted as a failure of the sandbox. */
void session_on_sandbox_failed(struct session *session, const struct error *err)
{
    demand_no_sandbox(session);
    if (err->code != ERR_LIMIT && !str_equal(err->name, "cap_unconfirmed")) {
        error_keep(&session->slot.start_error, err);
        count_failure(session);
        metrics_add(session->core->metrics, METRIC_SANDBOX_CREATE_FAILURES, 0, 1);
        log_warn("sandbox could not be created", kv("session", session->identity.id),
                 kv("error", err->message));
    }
    session_fail_waiting(session, err);
}

static void set_agent(struct session *session, struct list *holds)
{
    struct session_hold *hold;

    list_for_each (hold, holds, node) {
        hold->sandbox = session->slot.sandbox;
        hold->agent = sandbox_agent(session->slot.sandbox);
        hold->generation = sandbox_generation(session->slot.sandbox);
    }
}

void session_on_sandbox_agent(struct session *session)
{
    set_agent(session, &session->holds.granted);
    set_agent(session, &session->holds.weak);
}

static bool lived_shortly(const struct sandbox *sandbox)
{
    return sandbox_age_us(sandbox) < SHORT_LIFE_US;
}

static void lose_holds(struct session *session, struct list *holds, const struct end_reason *reason)
{
    struct session_hold *hold;

    while ((hold = list_first(holds, struct session_hold, node))) {
        list_remove(&hold->node);
        hold->lost = *reason;
        end_granted(session, hold);
        if (hold->on_lost)
            hold->on_lost(hold);
    }
}

/* A caller that tears a chosen sandbox down revokes the choice; an approval for one sandbox is used
 * up by any end but that of a start which failed. */
static bool ends_choice(const struct session *session, enum end_kind kind)
{
    if (session->state == SESSION_ENDING || kind == END_REPLACED || kind == END_FAILED)
        return false;
    return session->flavor.choice == CHOICE_ONCE || kind == END_TEARDOWN || kind == END_BUDGET;
}

void session_on_sandbox_leaving(struct session *session, const struct end_reason *reason)
{
    bool was_used = session->holds.active > 0;

    if (reason->kind == END_CRASHED) {
        session->slot.crashed = true;
        if (session->slot.sandbox && lived_shortly(session->slot.sandbox))
            count_failure(session);
    }
    lose_holds(session, &session->holds.granted, reason);
    lose_holds(session, &session->holds.weak, reason);
    if (ends_choice(session, reason->kind))
        session_revert_choice(session);
    if (was_used)
        mark_idle(session);
    session_serve_soon(session);
}

void session_lose_restored_holds(struct session *session, const struct end_reason *reason)
{
    if (session->holds.active || !list_is_empty(&session->holds.weak))
        session_on_sandbox_leaving(session, reason);
}

void session_adopt_sandbox(struct session *session, struct sandbox *sandbox)
{
    assert(!session->slot.sandbox);
    session->slot.sandbox = sandbox;
}

void session_on_sandbox_stuck(struct session *session, const struct error *err)
{
    session_fail_waiting(session, err);
}
