/* SPDX-License-Identifier: Apache-2.0 */
#include "core/session/clocks.h"

#include "base/log.h"
#include "config/config.h"
#include "core/sandbox/sandbox.h"
#include "core/session/background.h"
#include "core/session/session_private.h"
#include "core/stamp.h"

#include <stdlib.h>

/* --- the clocks ---------------------------------------------------------------------------- */

/* Each gives the instant it points at, or -1 while it does not run. */

/* A session that pauses when its time is over has nothing left to do once it is paused. */
static bool has_paused_at_timeout(const struct session *session)
{
    return session->state == SESSION_PAUSED && session->policy.on_timeout == TIMEOUT_PAUSE;
}

static int64_t lease_deadline(const struct session *session)
{
    if (!session->clocks.expires.boot_us || has_paused_at_timeout(session))
        return -1;
    return session->clocks.expires.boot_us;
}

static bool pauses_at_timeout(const struct session *session)
{
    return session->policy.on_timeout == TIMEOUT_PAUSE && session->state == SESSION_OPEN &&
           session_backend(session)->ops->capabilities.freeze;
}

/* The idle clock takes the sandbox and not the session. */
static bool idle_releases(const struct session *session)
{
    return session->money.approval ||
           (session->core->parts.config->session.on_idle == IDLE_RELEASE &&
            !pauses_at_timeout(session));
}

static bool has_sandbox_to_release(const struct session *session)
{
    return session->slot.sandbox && sandbox_state(session->slot.sandbox) != SANDBOX_DESTROYING;
}

static int64_t idle_deadline(const struct session *session)
{
    int64_t verdict_us;

    if (!session->policy.idle_timeout_ms || session_is_used(session) ||
        session->state == SESSION_PAUSED)
        return -1;
    if (idle_releases(session) && !has_sandbox_to_release(session))
        return -1; /* all that it could give back is given back */
    verdict_us = background_verdict_us(session);
    if (verdict_us == -1)
        return -1;
    return MAX(verdict_us,
               session->clocks.last_activity.boot_us + session->policy.idle_timeout_ms * 1000);
}

static int64_t lifetime_end(const struct session *session)
{
    return session->clocks.created.boot_us + session->policy.max_lifetime_ms * 1000;
}

static int64_t lifetime_deadline(const struct session *session)
{
    int64_t grace_us = session->core->parts.config->session.grace_ms * 1000;

    if (!session->policy.max_lifetime_ms)
        return -1;
    if (session->holds.active && clocks_lifetime_is_over(session))
        return lifetime_end(session) + grace_us;
    return lifetime_end(session);
}

/* The effect of a clock that has run out. */
enum clock_effect {
    EFFECT_TIMEOUT, /* on_timeout decides: the session ends, or is paused */
    EFFECT_END,
    EFFECT_LOOK, /* for work in the background */
};

static const struct clock_row {
    enum end_kind kind;
    int64_t (*deadline_us)(const struct session *session);
    enum clock_effect effect;
} clocks[] = {
    { END_LEASE, lease_deadline, EFFECT_TIMEOUT },
    { END_IDLE, idle_deadline, EFFECT_TIMEOUT },
    { END_LIFETIME, lifetime_deadline, EFFECT_END },
    { END_NONE, background_look_us, EFFECT_LOOK },
};

/* Whether it is one of those that end a session. */
static bool ends_session(const struct clock_row *row, const struct session *session)
{
    return row->kind != END_NONE && (row->kind != END_IDLE || !idle_releases(session));
}

static const struct clock_row *find_next(const struct session *session, bool only_ends,
                                         int64_t *out_us)
{
    const struct clock_row *next = NULL;

    if (session->state == SESSION_ENDING || session->state == SESSION_ENDED)
        return NULL;
    for (size_t i = 0; i < ARRAY_LENGTH(clocks); i++) {
        int64_t deadline_us;

        if (only_ends && !ends_session(&clocks[i], session))
            continue;
        deadline_us = clocks[i].deadline_us(session);
        if (deadline_us == -1 || (next && deadline_us >= *out_us))
            continue;
        next = &clocks[i];
        *out_us = deadline_us;
    }
    return next;
}

struct clock_deadline clocks_next(const struct session *session)
{
    struct clock_deadline next = { .kind = END_NONE };
    const struct clock_row *row = find_next(session, true, &next.at_us);

    if (row)
        next.kind = row->kind;
    return next;
}

bool clocks_lifetime_is_over(const struct session *session)
{
    return session->policy.max_lifetime_ms &&
           loop_now_us(session->core->loop) >= lifetime_end(session);
}

/* --- what happens when one has run out ----------------------------------------------------- */

static void run_out(struct session *session, const struct clock_row *row)
{
    if (row->effect == EFFECT_LOOK) {
        background_look(session);
        clocks_arm(session);
    } else if (row->kind == END_IDLE && background_judge(session)) {
        clocks_arm(session);
    } else if (row->kind == END_IDLE && idle_releases(session)) {
        session_teardown(session, END_IDLE);
        clocks_arm(session);
    } else if (row->effect == EFFECT_TIMEOUT && pauses_at_timeout(session)) {
        session_pause(session, NULL, NULL);
    } else {
        session_end(session, row->kind, NULL, NULL, NULL);
    }
}

static void on_deadline(struct timer *timer)
{
    struct session *session = container_of(timer, struct session, clocks.timer);
    int64_t deadline_us;
    const struct clock_row *row = find_next(session, false, &deadline_us);

    if (!row)
        return;
    if (deadline_us > loop_now_us(session->core->loop)) {
        clocks_arm(session);
        return;
    }
    log_debug("clock ran out", kv("session", session->identity.id),
              kv("clock", end_kind_name(row->kind)));
    run_out(session, row);
}

void clocks_arm(struct session *session)
{
    int64_t deadline_us;

    if (!find_next(session, false, &deadline_us)) {
        timer_stop(&session->clocks.timer);
        return;
    }
    session->clocks.timer.on_expire = on_deadline;
    if (!timer_is_armed(&session->clocks.timer) || session->clocks.timer.deadline_us != deadline_us)
        timer_arm_at(&session->clocks.timer, deadline_us);
}

/* --- stamps -------------------------------------------------------------------------------- */

static bool is_set(const struct stamp *stamp)
{
    return stamp->wall_us || stamp->boot_us;
}

/* Further away than any clock can run. */
static const int64_t HORIZON_US = (int64_t)1000 * 366 * 24 * 3600 * 1000000;

/* A stamp in the future was made by a clock that was wrong: now is the best estimate. */
static void complete(struct stamp *stamp, const struct stamp *fallback, const struct stamp *now)
{
    if (!is_set(stamp))
        *stamp = *fallback;
    if (stamp->boot_us > now->boot_us)
        stamp->boot_us = now->boot_us;
    stamp->boot_us = MAX(stamp->boot_us, -HORIZON_US);
}

void clocks_complete_stamps(struct session *session, bool was_held)
{
    struct stamp now = stamp_now(session->core);

    complete(&session->clocks.created, &now, &now);
    if (is_set(&session->clocks.started))
        complete(&session->clocks.started, &session->clocks.created, &now);
    complete(&session->clocks.last_activity,
             is_set(&session->clocks.started) ? &session->clocks.started : &session->clocks.created,
             &now);
    session->clocks.expires.boot_us =
        MAX(MIN(session->clocks.expires.boot_us, HORIZON_US), -HORIZON_US);
    if (was_held && session->state != SESSION_ENDING)
        session->clocks.last_activity = now;
}

/* --- for showing --------------------------------------------------------------------------- */

static int64_t remaining_ms(const struct session *session, int64_t deadline_us)
{
    int64_t left_us = deadline_us - loop_now_us(session->core->loop);

    return left_us > 0 ? (left_us + 999) / 1000 : 0;
}

int64_t session_lease_remaining_ms(const struct session *session)
{
    int64_t deadline_us = lease_deadline(session);

    return deadline_us == -1 ? -1 : remaining_ms(session, deadline_us);
}

int64_t session_idle_remaining_ms(const struct session *session)
{
    int64_t deadline_us = idle_deadline(session);

    if (!session->policy.idle_timeout_ms)
        return -1;
    if (deadline_us == -1)
        return session->policy.idle_timeout_ms;
    /* After a restart the verdict may wait for longer than the clock runs. */
    return MIN(remaining_ms(session, deadline_us), session->policy.idle_timeout_ms);
}

int64_t session_lifetime_remaining_ms(const struct session *session)
{
    return session->policy.max_lifetime_ms ? remaining_ms(session, lifetime_end(session)) : -1;
}

enum end_kind session_next_end(const struct session *session, int64_t *out_remaining_ms)
{
    struct clock_deadline next = clocks_next(session);

    *out_remaining_ms = next.kind == END_NONE ? -1 : remaining_ms(session, next.at_us);
    return next.kind;
}
