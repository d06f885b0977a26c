/* SPDX-License-Identifier: Apache-2.0 */
#include "core/session/session.h"

#include "base/alloc.h"
#include "base/str.h"
#include "core/ceiling.h"
#include "core/money/budget.h"
#include "core/sandbox/capacity.h"
#include "core/sandbox/sandbox.h"
#include "core/secrets.h"
#include "core/session/clocks.h"
#include "core/session/session_private.h"
#include "core/session/session_recover.h"
#include "core/stamp.h"
#include "core/vault.h"

#include <stdlib.h>
#include <string.h>

enum {
    TEARDOWN_RECOVERY_US = 100 * 1000, /* first the daemon has to know what there is */
    CONTROL_OVERDUE_US = 10 * 1000 * 1000,
};

static int check_alive(const struct session *session, struct error *err)
{
    if (session->state == SESSION_ENDING || session->state == SESSION_ENDED)
        return session_gone_error(session, err);
    return 0;
}

/* --- lease and policy ---------------------------------------------------------------------- */

/* 0 removes the lease. */
static void set_lease(struct session *session, int64_t timeout_ms)
{
    session->clocks.expires = (struct stamp){ 0 };
    if (timeout_ms) {
        session->clocks.expires = stamp_now(session->core);
        session->clocks.expires.boot_us += timeout_ms * 1000;
        session->clocks.expires.wall_us += timeout_ms * 1000;
    }
}

/* -1: not asked for. */
static int check_ceiling(const struct session *session, int64_t timeout_ms, int64_t idle_timeout_ms,
                         int64_t max_lifetime_ms, struct error *err)
{
    const struct core *core = session->core;

    return ceiling_check(core->ceiling,
                         &(struct ceiling_ask){
                             .owner = session->identity.owner,
                             .flavor = config_flavor_find(core->parts.config, session->flavor.name),
                             .network = -1,
                             .timeout_ms = timeout_ms,
                             .idle_timeout_ms = idle_timeout_ms,
                             .max_lifetime_ms = max_lifetime_ms },
                         err);
}

int session_keepalive(struct session *session, int64_t timeout_ms, bool exact, struct error *err)
{
    int64_t until_us = loop_now_us(session->core->loop) + timeout_ms * 1000;

    if (check_alive(session, err) < 0 ||
        ((timeout_ms || exact) && check_ceiling(session, timeout_ms, -1, -1, err) < 0))
        return -1;
    session_touch(session);
    if (!exact && (timeout_ms == 0 || session->clocks.expires.boot_us >= until_us))
        return 0;
    set_lease(session, timeout_ms);
    session_changed(session);
    clocks_arm(session);
    return 0;
}

static int patch_secrets(struct session *session, const char *json, struct error *err)
{
    struct vault *vault = session->core->vault;

    if (vault_open(vault, err) < 0)
        return -1;
    if (!session->setup.secrets)
        session->setup.secrets = secrets_new(NULL);
    secrets_replace(session->setup.secrets, json);
    secrets_seal(session->setup.secrets, vault, session->identity.owner);
    session->setup.secrets_lost = false;
    return 0;
}

int session_learn_secrets(struct session *session, const char *json, struct error *err)
{
    struct vault *vault = session->core->vault;

    if (vault_open(vault, err) < 0)
        return -1;
    if (!session->setup.secrets)
        session->setup.secrets = secrets_new(NULL);
    secrets_learn(session->setup.secrets, json);
    secrets_seal(session->setup.secrets, vault, session->identity.owner);
    session_changed(session);
    return 0;
}

static void patch_policy(struct session *session, const struct session_patch *patch)
{
    if (patch->labels_json) {
        free(session->identity.labels_json);
        session->identity.labels_json = xstrdup(patch->labels_json);
    }
    if (patch->auto_restart >= 0)
        session->policy.auto_restart = patch->auto_restart;
    if (patch->auto_resume >= 0)
        session->policy.auto_resume = patch->auto_resume;
    if (patch->keep_files >= 0)
        session->policy.keep_files = patch->keep_files;
    if (patch->on_timeout >= 0)
        session->policy.on_timeout = (enum timeout_action)patch->on_timeout;
}

int session_patch(struct session *session, const struct session_patch *patch, struct error *err)
{
    if (check_alive(session, err) < 0 ||
        check_ceiling(session, patch->timeout_ms, patch->idle_timeout_ms, patch->max_lifetime_ms,
                      err) < 0 ||
        (patch->secrets_json && patch_secrets(session, patch->secrets_json, err) < 0))
        return -1;
    patch_policy(session, patch);
    if (patch->timeout_ms >= 0) {
        session->policy.timeout_ms = patch->timeout_ms;
        set_lease(session, patch->timeout_ms);
    }
    if (patch->idle_timeout_ms >= 0)
        session->policy.idle_timeout_ms = patch->idle_timeout_ms;
    if (patch->max_lifetime_ms >= 0)
        session->policy.max_lifetime_ms = patch->max_lifetime_ms;
    session_changed(session);
    clocks_arm(session);
    return 0;
}

/* --- pause and resume ---------------------------------------------------------------------- */

/* The session has the wanted state and the sandbox follows; operations wait until it has. */
static bool has_converged(const struct session *session)
{
    const struct sandbox *sandbox = session->slot.sandbox;

    if (!sandbox || !sandbox_is_coming_or_up(sandbox))
        return true;
    if (session->state == SESSION_PAUSED)
        return sandbox_state(sandbox) == SANDBOX_FROZEN;
    /* While the backend is asked about an unknown one, it may turn out to be frozen. */
    return sandbox_state(sandbox) == SANDBOX_READY || sandbox_state(sandbox) == SANDBOX_CREATING ||
           sandbox_state(sandbox) == SANDBOX_FROZEN_BY_OTHERS ||
           (sandbox_state(sandbox) == SANDBOX_UNKNOWN && !sandbox_asks_backend(sandbox));
}

static void finish_control(struct session *session)
{
    struct session_op *op;
    struct error overtaken = { 0 };

    error_named(&overtaken, ERR_CONFLICT, "overtaken", "session %s has been %s in the meantime",
                session->identity.id, session->state == SESSION_PAUSED ? "paused" : "resumed");
    timer_stop(&session->control.overdue);
    while ((op = list_first(&session->control.waiters, struct session_op, node)))
        session_op_finish(op, session, op->wanted == session->state ? NULL : &overtaken);
}

static void settle(struct session *session)
{
    if (!has_converged(session))
        return;
    session_emit(session, session->state == SESSION_PAUSED ? "session.paused" : "session.resumed",
                 NULL);
    finish_control(session);
    session_serve_soon(session);
}

void session_on_control_overdue(struct timer *timer)
{
    struct session *session = container_of(timer, struct session, control.overdue);
    const struct sandbox *sandbox = session->slot.sandbox;
    struct error err = { 0 };

    error_named(&err, ERR_TIMEOUT, "not_in_time", "session %s cannot be %s yet: its sandbox is %s",
                session->identity.id, session_state_name(session->state),
                sandbox_state_name(sandbox ? sandbox_state(sandbox) : SANDBOX_NONE));
    error_hint(&err, "the daemon continues by itself: check the session, or repeat the request");
    err.retryable = true;
    session_ops_finish(&session->control.waiters, session, &err);
}

void session_control_settle(struct session *session)
{
    if (!list_is_empty(&session->control.waiters))
        settle(session);
}

static void switch_state(struct session *session, enum session_state state)
{
    session_set_state(session, state);
    session_changed(session);
    clocks_arm(session);
    session_serve_soon(session);
    if (session->slot.sandbox)
        sandbox_converge(session->slot.sandbox);
    settle(session);
}

static void wait_for_control(struct session *session, enum session_state wanted,
                             struct session_op *op, session_done_fn *done, const struct error *err)
{
    if (!op)
        return;
    *op = (struct session_op){ .wanted = wanted };
    session_op_join(op, session, &session->control.waiters, done);
    op->session = session;
    op->err = *err;
    if (err->code == ERR_NONE && !has_converged(session)) {
        if (!timer_is_armed(&session->control.overdue))
            timer_arm_in(&session->control.overdue, CONTROL_OVERDUE_US);
        return;
    }
    list_remove(&op->node);
    session_op_defer(op, session->core, done);
}

void session_pause(struct session *session, struct session_op *op, session_done_fn *done)
{
    struct error err = { 0 };

    if (check_alive(session, &err) == 0 && !session_backend(session)->ops->capabilities.freeze)
        error_named(&err, ERR_CONFLICT, "pause_unsupported", "the backend \"%s\" cannot pause",
                    session_backend(session)->ops->name);
    if (err.code == ERR_NONE && session->state == SESSION_OPEN)
        switch_state(session, SESSION_PAUSED);
    wait_for_control(session, SESSION_PAUSED, op, done, &err);
}

/* A lease that has run out meanwhile begins anew, as does the idle clock. */
void session_resume(struct session *session, struct session_op *op, session_done_fn *done)
{
    struct error err = { 0 };

    if (check_alive(session, &err) == 0 && session->state == SESSION_PAUSED) {
        session->clocks.last_activity = stamp_now(session->core);
        if (session->clocks.expires.boot_us &&
            session->clocks.expires.boot_us <= session->clocks.last_activity.boot_us)
            set_lease(session, session->policy.timeout_ms);
        switch_state(session, SESSION_OPEN);
    }
    wait_for_control(session, SESSION_OPEN, op, done, &err);
}

/* The sandbox is as the session wants it, or could not be made so: then the session gives in. */
void session_on_frozen(struct session *session, const struct error *err)
{
    bool frozen = sandbox_state(session->slot.sandbox) == SANDBOX_FROZEN;
    struct error failure = *err;

    if (failure.code == ERR_NONE) {
        settle(session);
        return;
    }
    if (frozen != (session->state == SESSION_PAUSED))
        session_set_state(session, frozen ? SESSION_PAUSED : SESSION_OPEN);
    session_changed(session);
    clocks_arm(session);
    session_ops_finish(&session->control.waiters, session, &failure);
    session_fail_waiting(session, &failure);
}

/* --- teardown and replacement -------------------------------------------------------------- */

void session_teardown(struct session *session, enum end_kind why)
{
    timer_stop(&session->teardown.grace);
    session->slot.crashed = false;
    session->slot.failures = 0;
    session->slot.retry_at_us = 0;
    session->slot.demand = DEMAND_NONE;
    error_keep(&session->slot.start_error, NULL);
    session_changed(session);
    budget_release(session);
    if (session->slot.sandbox && sandbox_state(session->slot.sandbox) != SANDBOX_DESTROYING) {
        memcpy(session->slot.leaving_id, sandbox_id(session->slot.sandbox),
               sizeof(session->slot.leaving_id));
        session_changed(session);
        sandbox_destroy(session->slot.sandbox, why, NULL);
    } else if (why == END_TEARDOWN)
        session_revert_choice(session); /* what was chosen has not been begun */
}

/* The record of the sandbox did not say yet that it goes: its files were being packed, say. */
void session_teardown_resume(struct session *session)
{
    enum sandbox_demand demand = session->slot.demand;
    bool is_replaced = session_demands_sandbox(session);

    if (!session->slot.sandbox ||
        !str_equal(sandbox_id(session->slot.sandbox), session->slot.leaving_id))
        return;
    sandbox_destroy(session->slot.sandbox, is_replaced ? END_REPLACED : END_TEARDOWN, NULL);
    session->slot.demand = demand;
}

bool session_waits_for_files(const struct session *session)
{
    const struct sandbox *sandbox = session->slot.sandbox;

    return session_keeps_files(session) && sandbox && sandbox_state(sandbox) == SANDBOX_UNKNOWN &&
           !sandbox_out_of_reach(sandbox);
}

void session_on_teardown_due(struct timer *timer)
{
    struct session *session = container_of(timer, struct session, teardown.grace);

    if (session->core->recovery || session_waits_for_files(session))
        timer_arm_in(timer, TEARDOWN_RECOVERY_US);
    else
        session_teardown(session, END_TEARDOWN);
}

void session_teardown_soon(struct session *session, int64_t grace_ms)
{
    if (check_alive(session, NULL) < 0 || timer_is_armed(&session->teardown.grace))
        return;
    timer_arm_in(&session->teardown.grace, grace_ms * 1000);
    session_changed(session);
}

void session_teardown_cancel(struct session *session)
{
    if (!timer_is_armed(&session->teardown.grace))
        return;
    timer_stop(&session->teardown.grace);
    session_changed(session);
}

uint64_t session_new_teardown_number(struct session *session)
{
    session->teardown.spent = 0;
    session_changed(session);
    return ++session->teardown.number;
}

/* A URL that is found in a log later is worth nothing. */
bool session_spend_teardown(struct session *session, uint64_t number)
{
    uint64_t spent = session->slot.generation + 1;

    if (number != session->teardown.number ||
        (session->teardown.spent && session->teardown.spent != spent))
        return false;
    if (!session->teardown.spent) {
        session->teardown.spent = spent;
        session_changed(session);
    }
    return true;
}

/* At once: a daemon that is killed must not find the approval of one sandbox for a second one. */
void session_revert_choice(struct session *session)
{
    if (session->flavor.choice == CHOICE_AUTOMATIC)
        return;
    session->flavor.choice = CHOICE_AUTOMATIC;
    free(session->flavor.name);
    session->flavor.name = xstrdup(session->flavor.base_name);
    session->flavor.limits = session->flavor.base_limits;
    session_changed(session);
}

void session_replace(struct session *session, enum session_choice choice, const char *flavor,
                     const struct sandbox_limits *limits)
{
    char *chosen = xstrdup(flavor); /* it may be the session's own */
    struct error err = { 0 };

    free(session->flavor.name);
    session->flavor.name = chosen;
    session->flavor.limits = *limits;
    session->flavor.choice = choice;
    session_teardown(session, END_REPLACED);
    (void)budget_reserve(session, &err); /* refused: then the start is, and says why */
    session_preload(session);
    session_changed(session);
}
