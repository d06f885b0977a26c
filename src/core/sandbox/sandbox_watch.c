/* SPDX-License-Identifier: Apache-2.0 */
#include "core/sandbox/sandbox_private.h"

#include "base/backoff.h"
#include "base/log.h"
#include "base/str.h"
#include "core/sandbox/capacity.h"
#include "core/sandbox/pool.h"

#include <stdio.h>

/* Death is told by the backend; the lost connection usually comes a moment earlier. */
enum { RECONNECT_FIRST_US = 10 * 1000 };

static const struct backoff reconnect_backoff_us = { .first = 200 * 1000, .most = 2 * 1000 * 1000 };

/* --- reports of init ----------------------------------------------------------------------- */

static void on_exited(struct agent *agent, uint64_t number, const struct agent_exit *end)
{
    struct sandbox *sandbox = agent_user(agent);

    sandbox->core->programs->on_exited(sandbox, number, end);
}

static void on_process(struct agent *agent, uint64_t number, int pid,
                       const struct agent_pipes *pipes, const struct agent_exit *end)
{
    struct sandbox *sandbox = agent_user(agent);

    sandbox->core->programs->on_process(sandbox, number, pid, pipes, end);
}

static void on_taken(struct agent *agent, uint64_t number, uint64_t total)
{
    struct sandbox *sandbox = agent_user(agent);

    sandbox->core->programs->on_taken(sandbox, number, total);
}

static void on_storage(struct agent *agent, uint64_t number, int fd)
{
    const struct sandbox *sandbox = agent_user(agent);

    if (sandbox->order.session)
        sandbox->core->programs->on_storage(sandbox->order.session, number, fd);
    else
        fd_close(fd);
}

static void on_lost(struct agent *agent, const struct error *err)
{
    struct sandbox *sandbox = agent_user(agent);

    if (sandbox->state != SANDBOX_READY)
        return; /* the request that is open has failed as well, or it is asked when it is thawed */
    log_debug("connection to init lost", kv("sandbox", sandbox->id), kv("error", err->message));
    error_keep(&sandbox->last_error, err);
    sandbox_lose_init(sandbox);
}

const struct agent_handler sandbox_agent_handler = {
    .on_exited = on_exited,
    .on_process = on_process,
    .on_taken = on_taken,
    .on_storage = on_storage,
    .on_lost = on_lost,
};

void sandbox_reconnect_soon(struct sandbox *sandbox)
{
    int64_t delay_us = RECONNECT_FIRST_US;

    if (sandbox->connection.attempts > 0)
        delay_us = backoff_delay(&reconnect_backoff_us, sandbox->connection.attempts);
    sandbox->connection.attempts++;
    timer_arm_in(&sandbox->timer, delay_us);
}

void sandbox_lose_init(struct sandbox *sandbox)
{
    if (!sandbox->order.session) {
        sandbox_destroy(sandbox, END_FAILED, "connection lost");
        return;
    }
    capacity_set_idle(sandbox->core->capacity, sandbox, false);
    sandbox_set_state(sandbox, SANDBOX_UNKNOWN);
    sandbox->connection.unknown_since_us = loop_now_us(sandbox->core->loop);
    sandbox_reconnect_soon(sandbox);
}

/* --- death --------------------------------------------------------------------------------- */

static void on_end(struct backend_watch *watch)
{
    struct sandbox *sandbox = container_of(watch, struct sandbox, watch);
    struct error err = { 0 };

    error_named(&err, ERR_GONE, "sandbox_died", "its init has ended");
    if (workflow_is_running(&sandbox->workflow))
        sandbox_abort_step(sandbox, &err);
    else if (sandbox_is_up(sandbox))
        sandbox_on_crash(sandbox);
}

bool sandbox_has_ended(const struct sandbox *sandbox)
{
    return sandbox->watch.state == BACKEND_ENDED;
}

/* The backend tells soon how it ended: until then no hold is granted. */
bool sandbox_notice_death(struct sandbox *sandbox)
{
    if (!backend_watch_is_ending(&sandbox->watch))
        return false;
    if (sandbox->state == SANDBOX_READY)
        sandbox_set_state(sandbox, SANDBOX_UNKNOWN);
    return true;
}

static void on_motion(struct backend_watch *watch)
{
    sandbox_follow_motion(container_of(watch, struct sandbox, watch));
}

void sandbox_watch(struct sandbox *sandbox)
{
    backend_watch_start(sandbox->order.backend, sandbox->id, &sandbox->watch, on_end);
    backend_watch_motion(&sandbox->watch, on_motion);
}

void sandbox_crash(struct sandbox *sandbox, const char *cause)
{
    sandbox_emit(sandbox, "sandbox.crashed", cause);
    log_warn("sandbox crashed", kv("sandbox", sandbox->id), kv("cause", cause),
             kv("session", sandbox->order.session ? sandbox->order.session_id : ""));
    sandbox_destroy(sandbox, END_CRASHED, cause);
}

/* OOM kills that hit executions before are accounted for already. */
static uint32_t known_oom_kills(const struct sandbox *sandbox)
{
    const struct session *session = sandbox->order.session;

    return session ? sandbox->core->observer->known_oom_kills(session, sandbox->id) : 0;
}

static void name_cause(struct sandbox *sandbox, const struct sandbox_usage *usage)
{
    const struct backend_end *end = &sandbox->watch.end;
    char cause[BACKEND_END_DETAIL];

    if (end->oom || (usage && usage->oom_kills > known_oom_kills(sandbox)))
        snprintf(cause, sizeof(cause), "oom");
    else if (*end->detail)
        snprintf(cause, sizeof(cause), "%s", end->detail);
    else if (end->is_known && end->signal)
        snprintf(cause, sizeof(cause), "signal %d", end->signal);
    else if (end->is_known)
        snprintf(cause, sizeof(cause), "exit %d", end->code);
    else
        snprintf(cause, sizeof(cause), "unknown");
    sandbox_crash(sandbox, cause);
}

static void on_inspected(struct backend_op *op)
{
    struct sandbox *sandbox = sandbox_end_op(op);

    if (sandbox->state != SANDBOX_DESTROYING)
        name_cause(sandbox, op->err.code == ERR_NONE ? &op->result.usage : NULL);
}

void sandbox_find_cause(struct sandbox *sandbox)
{
    struct backend *backend = sandbox->order.backend;

    if (sandbox_asks_backend(sandbox))
        return;
    if (!backend->ops->capabilities.usage) {
        name_cause(sandbox, NULL);
        return;
    }
    backend_inspect(backend, sandbox->id, sandbox_begin_op(sandbox, on_inspected));
}

void sandbox_on_crash(struct sandbox *sandbox)
{
    timer_stop(&sandbox->timer);
    sandbox_set_state(sandbox, SANDBOX_CRASHED);
    sandbox_note_left(sandbox);
    sandbox_save(sandbox);
    if (sandbox->order.session)
        capacity_set_idle(sandbox->core->capacity, sandbox, false);
    else
        pool_on_leaving(sandbox->core->pool, sandbox);
    sandbox_find_cause(sandbox);
}

/* --- frozen by others ---------------------------------------------------------------------- */

bool sandbox_is_frozen_by_others(const struct sandbox *sandbox)
{
    return sandbox->watch.state == BACKEND_WATCHED &&
           sandbox->watch.motion == BACKEND_FROZEN_BY_OTHERS;
}

/* Until the sandbox is thawed, init gets no requests, and the pool does not hand the sandbox
 * out. */
static void on_frozen_by_others(struct sandbox *sandbox)
{
    log_warn("sandbox was frozen by others", kv("sandbox", sandbox->id),
             kv("session", sandbox->order.session ? sandbox->order.session_id : ""));
    sandbox_set_state(sandbox, SANDBOX_FROZEN_BY_OTHERS);
    sandbox_emit(sandbox, "sandbox.frozen", "by others");
    if (sandbox->order.session) {
        capacity_set_idle(sandbox->core->capacity, sandbox, false);
        return;
    }
    pool_on_leaving(sandbox->core->pool, sandbox);
    pool_kick(sandbox->core->pool);
}

static void on_thawed_by_others(struct sandbox *sandbox)
{
    log_info("sandbox was thawed by others", kv("sandbox", sandbox->id),
             kv("session", sandbox->order.session ? sandbox->order.session_id : ""));
    sandbox_set_state(sandbox, SANDBOX_READY);
    sandbox_emit(sandbox, "sandbox.thawed", NULL);
    if (!sandbox_has_init(sandbox))
        sandbox_lose_init(sandbox);
    else if (!sandbox->order.session)
        pool_on_ready(sandbox->core->pool, sandbox);
    if (sandbox->order.session)
        sandbox->core->observer->on_known(sandbox->order.session);
}

/* The init of an unknown one is not asked: the backend, which is asked next, says that it is frozen. */
void sandbox_follow_motion(struct sandbox *sandbox)
{
    if (!sandbox_is_frozen_by_others(sandbox) && sandbox->state == SANDBOX_FROZEN_BY_OTHERS)
        on_thawed_by_others(sandbox);
    else if (sandbox_is_frozen_by_others(sandbox) && sandbox->state == SANDBOX_READY)
        on_frozen_by_others(sandbox);
    else if (sandbox_is_frozen_by_others(sandbox))
        sandbox_stop_asking(sandbox);
}

/* --- frozen or not ------------------------------------------------------------------------- */

/* Its init answers again, or is asked to. */
static void on_thawed(struct sandbox *sandbox)
{
    if (sandbox_has_init(sandbox)) {
        sandbox_set_state(sandbox, SANDBOX_READY);
        return;
    }
    sandbox_set_state(sandbox, SANDBOX_UNKNOWN);
    sandbox_adopt(sandbox);
}

/* A store that fails keeps no session from being paused. */
static void on_freeze_recorded(struct store_ticket *ticket)
{
    struct sandbox *sandbox = container_of(ticket, struct sandbox, record.ticket);

    if (ticket->err->code != ERR_NONE)
        log_error("freezing could not be recorded; continuing without it",
                  kv("sandbox", sandbox->id), kv("error", ticket->err->message));
    workflow_step_done(&sandbox->workflow, NULL);
}

/* Before it is frozen: the next daemon has to know its own freeze from that of others. The record of one
 * that is thawed says so when it is. */
static void record_freeze(struct workflow *workflow)
{
    struct sandbox *sandbox = sandbox_of(workflow);

    if (sandbox->state != SANDBOX_FREEZING) {
        workflow_step_done(workflow, NULL);
        return;
    }
    sandbox_save(sandbox);
    store_commit_as(sandbox->core->parts.store, &sandbox->record.ticket, STORE_WRITTEN,
                    on_freeze_recorded);
}

static void on_frozen_or_thawed(struct backend_op *op)
{
    struct sandbox *sandbox = sandbox_end_op(op);

    workflow_step_done(&sandbox->workflow, op->err.code == ERR_NONE ? NULL : &op->err);
}

static void freeze_or_thaw(struct workflow *workflow)
{
    struct sandbox *sandbox = sandbox_of(workflow);

    backend_freeze(sandbox->order.backend, sandbox->id, sandbox->state == SANDBOX_FREEZING,
                   sandbox_begin_op(sandbox, on_frozen_or_thawed));
}

static const struct workflow_step freeze_steps[] = {
    { "record that it is frozen", record_freeze },
    { "freeze or thaw it", freeze_or_thaw },
    { 0 },
};

static void on_freeze_end(struct workflow *workflow)
{
    struct sandbox *sandbox = sandbox_of(workflow);
    bool failed = workflow->err;
    struct error err = failed ? *workflow->err : (struct error){ 0 };

    if (sandbox->state == SANDBOX_DESTROYING) {
        sandbox_begin_destroy(sandbox);
        return;
    }
    if (sandbox_has_ended(sandbox)) {
        sandbox_on_crash(sandbox);
        return;
    }
    error_keep(&sandbox->last_error, failed ? &err : NULL);
    if ((sandbox->state == SANDBOX_FREEZING) != failed)
        sandbox_set_state(sandbox, SANDBOX_FROZEN);
    else
        on_thawed(sandbox);
    sandbox_follow_motion(sandbox);
    sandbox_save(sandbox);
    sandbox->core->observer->on_frozen(sandbox->order.session, &err);
    sandbox_converge(sandbox);
}

void sandbox_converge(struct sandbox *sandbox)
{
    bool is_ours_to_freeze = sandbox->state == SANDBOX_READY || sandbox->state == SANDBOX_UNKNOWN ||
                             sandbox->state == SANDBOX_FROZEN_BY_OTHERS;
    enum sandbox_wish wish;
    bool freeze;

    if (!sandbox->order.session)
        return;
    wish = sandbox_wish(sandbox);
    if (wish == WISH_FREEZE)
        sandbox_stop_asking(sandbox);
    if (sandbox_asks_backend(sandbox) || workflow_is_running(&sandbox->workflow))
        return;
    if (wish == WISH_FREEZE && is_ours_to_freeze)
        freeze = true;
    else if (wish == WISH_RUN && sandbox->state == SANDBOX_FROZEN)
        freeze = false;
    else
        return;
    timer_stop(&sandbox->timer);
    sandbox_set_state(sandbox, freeze ? SANDBOX_FREEZING : SANDBOX_THAWING);
    workflow_start(&sandbox->workflow, sandbox->core->loop, freeze_steps, on_freeze_end);
}
