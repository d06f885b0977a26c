/* SPDX-License-Identifier: Apache-2.0 */
#include "core/sandbox/sandbox_private.h"

#include "base/alloc.h"
#include "base/log.h"
#include "base/str.h"
#include "config/config.h"
#include "core/sandbox/pool.h"
#include "core/sandbox/workspace_archive.h"

#include <assert.h>
#include <string.h>

/* The name of this error, also when the agent reports it. */
#define CONNECTION_LOST "sandbox_connection_lost"

void sandbox_start_timeout(struct sandbox *sandbox)
{
    timer_arm_in(&sandbox->timer, sandbox->core->parts.config->sandbox.start_timeout_ms * 1000);
}

static const struct error *failure_or_null(const struct error *err)
{
    return err->code == ERR_NONE ? NULL : err;
}

/* --- the steps ----------------------------------------------------------------------------- */

static void reserve_slot(struct workflow *workflow)
{
    struct sandbox *sandbox = sandbox_of(workflow);
    struct error err = { 0 };
    int result = capacity_reserve(sandbox->core->capacity, sandbox, sandbox->order.owner, &err);

    if (result <= 0)
        workflow_step_done(workflow, failure_or_null(&err));
}

void sandbox_on_slot(struct sandbox *sandbox, const struct error *err)
{
    workflow_step_done(&sandbox->workflow, err);
}

/* A part of the step has ended; the step is done with its last part. */
static void part_done(struct sandbox *sandbox, const struct error *err)
{
    if (err && !sandbox->parts.err)
        error_keep(&sandbox->parts.err, err);
    assert(sandbox->parts.pending > 0);
    if (--sandbox->parts.pending == 0)
        workflow_step_done(&sandbox->workflow, sandbox->parts.err);
}

static void begin_parts(struct sandbox *sandbox, unsigned parts)
{
    sandbox->parts.pending = parts;
    error_keep(&sandbox->parts.err, NULL);
}

static void on_recorded(struct store_ticket *ticket)
{
    struct sandbox *sandbox = container_of(ticket, struct sandbox, record.ticket);

    part_done(sandbox, failure_or_null(ticket->err));
}

static void on_intent_recorded(struct store_ticket *ticket)
{
    struct sandbox *sandbox = container_of(ticket, struct sandbox, record.ticket);

    if (ticket->err->code != ERR_NONE) {
        sandbox_set_recorded(sandbox, RECORD_NONE);
        store_forget_sandbox(sandbox->core->parts.store, sandbox->id);
    }
    on_recorded(ticket);
}

static void record_intent(struct workflow *workflow)
{
    struct sandbox *sandbox = sandbox_of(workflow);

    sandbox_start_timeout(sandbox);
    begin_parts(sandbox, 1);
    sandbox_set_recorded(sandbox, RECORD_INTENT);
    sandbox_emit(sandbox, "sandbox.creating", NULL);
    sandbox_save(sandbox);
    store_commit_as(sandbox->core->parts.store, &sandbox->record.ticket, STORE_WRITTEN,
                    on_intent_recorded);
}

/* Before anything runs in it: the next daemon has to find every program that was reported. */
static void record_made(struct sandbox *sandbox)
{
    sandbox_set_recorded(sandbox, RECORD_MADE);
    if (sandbox->order.session)
        sandbox->core->observer->on_made(sandbox->order.session, sandbox->id);
    sandbox_save(sandbox);
    store_commit_as(sandbox->core->parts.store, &sandbox->record.ticket, STORE_WRITTEN,
                    on_recorded);
}

/* Whether Sandglass has frozen this sandbox. The kernel does not tell the freeze of an earlier
 * daemon from one by others: the record does. */
static bool is_ours(const struct sandbox *sandbox)
{
    return !sandbox_is_frozen_by_others(sandbox) ||
           sandbox->connection.freezer == FREEZER_SESSION || sandbox_wish(sandbox) == WISH_FREEZE;
}

static void on_adopt_answer(struct backend_op *op)
{
    struct sandbox *sandbox = sandbox_end_op(op);

    if (op->err.code == ERR_NONE && sandbox->state == SANDBOX_UNKNOWN) {
        sandbox_watch(sandbox);
        if (op->result.made.frozen)
            sandbox_set_state(sandbox,
                              is_ours(sandbox) ? SANDBOX_FROZEN : SANDBOX_FROZEN_BY_OTHERS);
    }
    workflow_step_done(&sandbox->workflow, failure_or_null(&op->err));
}

static void ask_backend(struct workflow *workflow)
{
    struct sandbox *sandbox = sandbox_of(workflow);

    backend_adopt(sandbox->order.backend, &sandbox->made,
                  sandbox_begin_op(sandbox, on_adopt_answer));
}

static void on_listed(struct agent_request *request)
{
    struct sandbox *sandbox = container_of(request, struct sandbox_request, base)->sandbox;

    sandbox_end_request(sandbox);
    part_done(sandbox, failure_or_null(&request->err));
}

static void ask_init(struct sandbox *sandbox, int fd)
{
    loop_undefer(sandbox->core->loop, &sandbox->connection.drop);
    agent_retire(sandbox->connection.agent);
    sandbox->connection.agent = agent_new(sandbox->core->loop, fd, &sandbox_agent_handler, sandbox);
    agent_assume_scratch(sandbox->connection.agent,
                         backend_first_scratch(sandbox->order.backend, sandbox->id));
    if (sandbox->order.session)
        sandbox->core->observer->on_agent(sandbox->order.session);
    if (!sandbox->connection.request)
        sandbox->connection.request = xnew(struct sandbox_request);
    sandbox->connection.request->sandbox = sandbox;
    agent_list(sandbox->connection.agent, &sandbox->connection.request->base, on_listed);
}

/* A sandbox that is being created and whose init is gone fails with an error of the backend, so
 * that the start can be tried again. */
static void fail_to_connect(struct sandbox *sandbox, const struct error *cause)
{
    struct error err = *cause;

    if (sandbox->state == SANDBOX_CREATING && err.code == ERR_GONE)
        error_named(&err, ERR_BACKEND, CONNECTION_LOST, "%s", cause->message);
    else if (err.code != ERR_GONE)
        err.code = ERR_BACKEND; /* in place of the system's own code */
    part_done(sandbox, &err);
}

static void on_connected(struct backend_op *op)
{
    struct sandbox *sandbox = sandbox_end_op(op);

    if (op->err.code != ERR_NONE)
        fail_to_connect(sandbox, &op->err);
    else
        ask_init(sandbox, op->result.fd);
}

static bool is_connecting(const struct sandbox *sandbox)
{
    return sandbox_asks_backend(sandbox) && sandbox->op->base.done == on_connected;
}

static void connect_part(struct sandbox *sandbox)
{
    struct backend_op *op = sandbox_begin_op(sandbox, on_connected);

    if (backend_connect(sandbox->order.backend, sandbox->id, op))
        on_connected(op);
}

bool sandbox_stop_connecting(struct sandbox *sandbox)
{
    if (!is_connecting(sandbox))
        return false;
    backend_cancel(sandbox->order.backend, &sandbox->op->base);
    (void)sandbox_end_op(&sandbox->op->base);
    return true;
}

/* A frozen init cannot answer, nor one that is to be frozen: it is connected to when it is thawed.
 */
static void connect_to_init(struct workflow *workflow)
{
    struct sandbox *sandbox = sandbox_of(workflow);

    begin_parts(sandbox, 1);
    if (sandbox->state == SANDBOX_UNKNOWN && sandbox_wish(sandbox) != WISH_FREEZE)
        connect_part(sandbox);
    else
        part_done(sandbox, NULL);
}

/* Side by side: nothing runs in it before both have ended. A sandbox that gets its files back is
 * recorded when it has them: until then the next daemon takes it for half made. */
static void record_and_connect(struct workflow *workflow)
{
    struct sandbox *sandbox = sandbox_of(workflow);

    begin_parts(sandbox, workspace_archive_can_restore(sandbox) ? 1 : 2);
    if (!workspace_archive_can_restore(sandbox))
        record_made(sandbox);
    connect_part(sandbox);
}

static void on_restored(struct sandbox *sandbox)
{
    workflow_step_done(&sandbox->workflow, NULL);
}

static void restore_files(struct workflow *workflow)
{
    struct sandbox *sandbox = sandbox_of(workflow);

    if (workspace_archive_can_restore(sandbox))
        workspace_archive_restore(sandbox, on_restored);
    else
        workflow_step_done(workflow, NULL);
}

static void record_restored(struct workflow *workflow)
{
    struct sandbox *sandbox = sandbox_of(workflow);

    if (sandbox->record.state == RECORD_MADE) {
        workflow_step_done(workflow, NULL);
        return;
    }
    begin_parts(sandbox, 1);
    record_made(sandbox);
}

static void on_limits_set(struct backend_op *op)
{
    struct sandbox *sandbox = sandbox_end_op(op);

    workflow_step_done(&sandbox->workflow, failure_or_null(&op->err));
}

static bool limits_equal(const struct sandbox_limits *a, const struct sandbox_limits *b)
{
    return a->memory_bytes == b->memory_bytes && a->disk_bytes == b->disk_bytes &&
           a->cpu_millis == b->cpu_millis && a->pids == b->pids;
}

static void set_limits(struct workflow *workflow)
{
    struct sandbox *sandbox = sandbox_of(workflow);
    const struct sandbox_limits *wanted = &sandbox->order.limits;

    sandbox_start_timeout(sandbox);
    if (limits_equal(&sandbox->limits, wanted)) {
        workflow_step_done(workflow, NULL);
        return;
    }
    sandbox->limits = *wanted;
    sandbox_forget_report(sandbox);
    backend_update(sandbox->order.backend, sandbox->id, wanted,
                   sandbox_begin_op(sandbox, on_limits_set));
}

/* With its limits set nothing is left to do: the record can say that it is the session's, and
 * ready. */
static void record_claim(struct workflow *workflow)
{
    begin_parts(sandbox_of(workflow), 1);
    sandbox_emit(sandbox_of(workflow), "sandbox.creating", NULL);
    record_made(sandbox_of(workflow));
}

/* A start that fails is undone by sandbox_destroy(), whichever step it reached. */
static const struct workflow_step create_steps[] = {
    { "wait for its turn", sandbox_take_turn },
    { "reserve a slot", reserve_slot },
    { "wait to be built", sandbox_wait_to_build },
    { "record the intent", record_intent },
    { "build the sandbox", sandbox_build },
    { "record it and connect to its init", record_and_connect },
    { "restore its files", restore_files },
    { "record that it has them", record_restored },
    { 0 },
};

static const struct workflow_step claim_steps[] = {
    { "set its limits", set_limits },
    { "restore its files", restore_files },
    { "record the claim", record_claim },
    { 0 },
};

static const struct workflow_step adopt_steps[] = {
    { "ask the backend", ask_backend },
    { "connect to its init", connect_to_init },
    { 0 },
};

/* Only waiting (for a turn, a slot, the next attempt, a connection, init) can be cut short; what the
 * store and the backend have begun comes to its own end. */
void sandbox_abort_step(struct sandbox *sandbox, const struct error *err)
{
    if (sandbox_abort_build(sandbox, err))
        return;
    if (sandbox->slot.state == SLOT_WAITING) {
        capacity_release(sandbox->core->capacity, sandbox);
        workflow_step_done(&sandbox->workflow, err);
    } else if (sandbox_stop_connecting(sandbox)) {
        part_done(sandbox, err);
    } else if (sandbox_asks_init(sandbox)) {
        agent_cancel(&sandbox->connection.request->base);
        sandbox_end_request(sandbox);
        part_done(sandbox, err);
    } else if (sandbox->archive_work && workflow_is_running(&sandbox->workflow)) {
        workspace_archive_cancel(sandbox);
        workflow_step_done(&sandbox->workflow, err);
    }
}

/* --- their ends ---------------------------------------------------------------------------- */

/* In the transaction of the next save: the event is written exactly once, by whichever daemon. */
static void announce(struct sandbox *sandbox)
{
    if (sandbox->record.state != RECORD_MADE)
        return;
    sandbox_set_recorded(sandbox, RECORD_WHOLE);
    sandbox_emit(sandbox, "sandbox.ready", NULL);
}

static void become_ready(struct sandbox *sandbox)
{
    error_keep(&sandbox->last_error, NULL); /* of attempts before */
    sandbox_set_state(sandbox, SANDBOX_READY);
    sandbox->ready_at_us = loop_now_us(sandbox->core->loop);
    announce(sandbox);
    sandbox_save(sandbox);
    if (sandbox->order.session)
        sandbox->core->observer->on_ready(sandbox->order.session);
    else
        pool_on_ready(sandbox->core->pool, sandbox);
    if (sandbox->connection.agent && agent_is_lost(sandbox->connection.agent))
        sandbox_lose_init(sandbox); /* lost before there was an observer of it */
    sandbox_follow_motion(sandbox);
}

void sandbox_fail(struct sandbox *sandbox, const struct error *err)
{
    struct error failure = *err;

    error_keep(&sandbox->last_error, &failure);
    if (sandbox->order.session)
        sandbox->core->observer->on_failed(sandbox->order.session, &failure);
    else
        pool_on_failed(sandbox->core->pool, sandbox, &failure);
    sandbox_destroy(sandbox, END_FAILED, error_code_name(failure.code));
}

static void fail_at_once(struct sandbox *sandbox)
{
    struct error err;

    error_named(&err, ERR_BACKEND, "sandbox_died", "its init ended at once");
    sandbox_fail(sandbox, &err);
}

/* A failing connection shows the death before the backend tells it. */
static bool shows_death(const struct error *err)
{
    return str_equal(err->name, CONNECTION_LOST);
}

/* An init that was killed, in the pool or since, says nothing about the next sandbox. */
static bool has_died(const struct sandbox *sandbox, const struct error *err)
{
    return sandbox->order.session && (sandbox_has_ended(sandbox) || (err && shows_death(err)));
}

static bool forgives_death(const struct sandbox *sandbox)
{
    return sandbox->core->observer->forgives_death(sandbox->order.session);
}

/* Of creating and of claiming. */
static void on_start_end(struct workflow *workflow)
{
    struct sandbox *sandbox = sandbox_of(workflow);

    timer_stop(&sandbox->timer);
    sandbox_pass_turn(sandbox);
    builds_pass(sandbox->core->builds, &sandbox->build.turn);
    if (sandbox->state == SANDBOX_DESTROYING)
        sandbox_begin_destroy(sandbox);
    else if (has_died(sandbox, workflow->err) && forgives_death(sandbox))
        sandbox_destroy(sandbox, END_FAILED, "it died at its start");
    else if (workflow->err)
        sandbox_fail(sandbox, workflow->err);
    else if (sandbox_has_ended(sandbox))
        fail_at_once(sandbox);
    else
        become_ready(sandbox);
}

struct sandbox *sandbox_start(struct core *core, const struct sandbox_order *order)
{
    struct sandbox *sandbox = sandbox_new(core, order);

    id_make(sandbox->id, ID_SANDBOX);
    map_put(&core->sandboxes_by_id, sandbox->id, sandbox);
    sandbox_set_state(sandbox, SANDBOX_CREATING);
    workflow_start(&sandbox->workflow, core->loop, create_steps, on_start_end);
    return sandbox;
}

void sandbox_claim(struct sandbox *sandbox, const struct sandbox_order *order)
{
    assert(sandbox->state == SANDBOX_READY && !sandbox->order.session && order->session);
    sandbox_set_order(sandbox, order);
    sandbox_set_state(sandbox, SANDBOX_CREATING);
    workflow_start(&sandbox->workflow, sandbox->core->loop, claim_steps, on_start_end);
}

/* --- adoption ------------------------------------------------------------------------------- */

/* The backend tells a death later than a refused connection shows it: a first process waits for all
 * others to die. */
enum { DYING_US = 1000 * 1000, SILENCE_OF_ENDING_US = 10 * 1000 * 1000 };

static void expect_answer(struct sandbox *sandbox)
{
    int64_t patience_us = sandbox->core->parts.config->sandbox.silence_timeout_ms * 1000;

    if (sandbox_wish(sandbox) == WISH_END)
        patience_us = SILENCE_OF_ENDING_US;
    if (timer_is_armed(&sandbox->connection.silence) || backend_absence(sandbox->order.backend))
        return;
    if (!sandbox->connection.unknown_since_us)
        sandbox->connection.unknown_since_us = loop_now_us(sandbox->core->loop);
    if (patience_us)
        timer_arm_in(&sandbox->connection.silence, patience_us);
}

/* A backend that does not answer is not a silent sandbox; one that cannot be connected to is. */
void sandbox_on_silence(struct timer *timer)
{
    struct sandbox *sandbox = container_of(timer, struct sandbox, connection.silence);

    if (sandbox_asks_backend(sandbox) && !is_connecting(sandbox)) {
        expect_answer(sandbox);
        return;
    }
    log_warn("sandbox does not answer; removing it", kv("sandbox", sandbox->id),
             kv("session", sandbox->order.session_id));
    sandbox_emit(sandbox, "sandbox.crashed", "silent");
    sandbox_destroy(sandbox, END_CRASHED, "silent");
}

static void on_answered(struct sandbox *sandbox)
{
    sandbox->connection.attempts = 0;
    error_keep(&sandbox->last_error, NULL);
    error_keep(&sandbox->connection.foreign, NULL);
    sandbox_set_state(sandbox, SANDBOX_READY);
    announce(sandbox);
    sandbox->core->programs->on_listed(sandbox->order.session);
}

/* It is known now, unless its session was paused meanwhile: then its init was not asked. */
static void on_adopted(struct sandbox *sandbox)
{
    if (sandbox->state == SANDBOX_UNKNOWN && sandbox_has_init(sandbox))
        on_answered(sandbox);
    else if (sandbox->state == SANDBOX_UNKNOWN && sandbox_wish(sandbox) != WISH_FREEZE)
        sandbox_reconnect_soon(sandbox);
    sandbox_follow_motion(sandbox);
    sandbox_save(sandbox);
    sandbox->core->observer->on_known(sandbox->order.session);
}

/* It lives and is left alone: the release that made it may come back. Holds are refused, clocks run,
 * and it can be destroyed. */
static void on_foreign(struct sandbox *sandbox, const struct error *err)
{
    timer_stop(&sandbox->connection.silence);
    error_keep(&sandbox->connection.foreign, err);
    sandbox->connection.foreign->retryable = false;
    log_warn("sandbox of another release: it can only be ended", kv("sandbox", sandbox->id),
             kv("error", err->message));
    sandbox->core->observer->on_known(sandbox->order.session);
}

/* A backend that cannot say whether the sandbox lives is asked again. */
static void on_unknown(struct sandbox *sandbox, const struct error *err)
{
    error_keep(&sandbox->last_error, err);
    if (str_equal(err->name, AGENT_OTHER_VERSION)) {
        on_foreign(sandbox, err);
        return;
    }
    if (backend_absence(sandbox->order.backend))
        return; /* no attempt of this daemon gets another answer */
    sandbox->last_error->retryable = true;
    log_warn("sandbox cannot be reached; trying again", kv("sandbox", sandbox->id),
             kv("error", err->message), kv("attempts", sandbox->connection.attempts));
    sandbox_reconnect_soon(sandbox);
}

/* The backend says that it is dead, or its init has refused to be connected to for a while. A backend
 * that knows of the end, and is about to tell its cause, is waited for. */
static bool is_dead(const struct sandbox *sandbox, const struct error *err)
{
    int64_t unknown_us = loop_now_us(sandbox->core->loop) - sandbox->connection.unknown_since_us;

    if (sandbox_has_ended(sandbox))
        return true;
    return err && err->code == ERR_GONE &&
           (sandbox->watch.state == BACKEND_UNWATCHED ||
            (unknown_us >= DYING_US && !backend_watch_is_ending(&sandbox->watch)));
}

static void on_adopt_end(struct workflow *workflow)
{
    struct sandbox *sandbox = sandbox_of(workflow);

    if (sandbox->state == SANDBOX_DESTROYING)
        sandbox_begin_destroy(sandbox);
    else if (is_dead(sandbox, workflow->err))
        sandbox_on_crash(sandbox);
    else if (!workflow->err)
        on_adopted(sandbox);
    else if (backend_watch_is_ending(&sandbox->watch))
        sandbox_reconnect_soon(sandbox); /* unless its end is told before */
    else
        on_unknown(sandbox, workflow->err);
}

void sandbox_adopt(struct sandbox *sandbox)
{
    assert(sandbox->state == SANDBOX_UNKNOWN && sandbox->order.session);
    assert(!sandbox_asks_backend(sandbox) && !workflow_is_running(&sandbox->workflow));
    expect_answer(sandbox);
    workflow_start(&sandbox->workflow, sandbox->core->loop, adopt_steps, on_adopt_end);
}

void sandbox_stop_asking(struct sandbox *sandbox)
{
    if (sandbox->state != SANDBOX_UNKNOWN)
        return;
    if (sandbox_stop_connecting(sandbox)) {
        part_done(sandbox, NULL);
        return;
    }
    if (!sandbox_asks_init(sandbox))
        return;
    agent_cancel(&sandbox->connection.request->base);
    sandbox_end_request(sandbox);
    agent_retire(steal_ptr(&sandbox->connection.agent));
    sandbox->core->observer->on_agent(sandbox->order.session);
    part_done(sandbox, NULL);
}
