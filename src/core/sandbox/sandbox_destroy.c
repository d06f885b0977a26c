/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The one way out, for ends, teardown, eviction, crashes, replacement, failed starts and shutdown
 * alike: sandbox_destroy() reports to the holders that it goes, and destroy_steps does the rest.
 */

#include "core/sandbox/sandbox_private.h"

#include "base/backoff.h"
#include "base/log.h"
#include "core/metrics.h"
#include "core/sandbox/pool.h"

#include <assert.h>
#include <stdio.h>

static const struct backoff destroy_backoff_us = { .first = 200 * 1000, .most = 30 * 1000 * 1000 };

static bool is_recorded(const struct sandbox *sandbox)
{
    return sandbox->record.state != RECORD_NONE;
}

/* --- the steps ----------------------------------------------------------------------------- */

static void on_packed(struct sandbox *sandbox)
{
    workflow_step_done(&sandbox->workflow, NULL);
}

static void pack_files(struct workflow *workflow)
{
    struct sandbox *sandbox = sandbox_of(workflow);

    if (sandbox->destruction.packing == PACK_NOTHING)
        workflow_step_done(workflow, NULL);
    else
        workspace_archive_pack(sandbox, sandbox->destruction.packing, on_packed);
}

static void close_connection(struct workflow *workflow)
{
    sandbox_drop_agent_soon(sandbox_of(workflow));
    workflow_step_done(workflow, NULL);
}

/* It may be freezing, or be asked why it crashed. */
static void wait_for_backend(struct workflow *workflow)
{
    if (!sandbox_asks_backend(sandbox_of(workflow)))
        workflow_step_done(workflow, NULL);
}

void sandbox_destroy_on_answer(struct sandbox *sandbox)
{
    if (workflow_is_at(&sandbox->workflow, wait_for_backend))
        workflow_step_done(&sandbox->workflow, NULL);
}

/* A store that fails does not keep the sandbox alive: it is destroyed all the same. */
static void on_recorded(struct store_ticket *ticket)
{
    struct sandbox *sandbox = container_of(ticket, struct sandbox, record.ticket);

    if (ticket->err->code != ERR_NONE)
        log_error("destroying could not be recorded; continuing without it",
                  kv("sandbox", sandbox->id), kv("error", ticket->err->message));
    workflow_step_done(&sandbox->workflow, NULL);
}

static void record_destroying(struct workflow *workflow)
{
    struct sandbox *sandbox = sandbox_of(workflow);

    if (!is_recorded(sandbox) || sandbox->record.state == RECORD_DESTROYING) {
        workflow_step_done(workflow, NULL);
        return;
    }
    sandbox_set_recorded(sandbox, RECORD_DESTROYING);
    sandbox_save(sandbox);
    store_commit_as(sandbox->core->parts.store, &sandbox->record.ticket, STORE_WRITTEN,
                    on_recorded);
}

static void try_again(struct sandbox *sandbox, const struct error *err)
{
    struct core *core = sandbox->core;

    sandbox->destruction.attempts++;
    error_keep(&sandbox->last_error, err);
    sandbox->last_error->retryable = true;
    metrics_add(core->metrics, METRIC_DESTROY_FAILURES, 0, 1);
    log_error("sandbox could not be destroyed; trying again", kv("sandbox", sandbox->id),
              kv("attempts", sandbox->destruction.attempts), kv("error", err->message));
    sandbox_save(sandbox);
    if (!backend_absence(sandbox->order.backend)) /* else the next daemon goes on */
        timer_arm_in(&sandbox->timer,
                     backoff_delay(&destroy_backoff_us, sandbox->destruction.attempts));
    if (sandbox->order.session)
        core->observer->on_stuck(sandbox->order.session, sandbox->last_error);
}

static void on_destroyed(struct backend_op *op)
{
    struct sandbox *sandbox = sandbox_end_op(op);
    struct error err = op->err;

    if (err.code == ERR_NONE)
        workflow_step_done(&sandbox->workflow, NULL);
    else
        try_again(sandbox, &err);
}

/* Another node may have taken over a sandbox that both can reach. */
static bool may_be_anothers(const struct sandbox *sandbox)
{
    return sandbox->order.backend->ops->capabilities.shared && !core_may_act(sandbox->core, NULL);
}

static void destroy_at_backend(struct workflow *workflow)
{
    struct sandbox *sandbox = sandbox_of(workflow);
    struct error err = { 0 };

    if (may_be_anothers(sandbox)) {
        (void)core_may_act(sandbox->core, &err);
        try_again(sandbox, &err);
        return;
    }
    if (is_recorded(sandbox))
        backend_destroy(sandbox->order.backend, sandbox->id,
                        sandbox_begin_op(sandbox, on_destroyed));
    else
        workflow_step_done(workflow, NULL); /* the backend was never asked to make it */
}

void sandbox_destroy_again(struct sandbox *sandbox)
{
    assert(workflow_is_at(&sandbox->workflow, destroy_at_backend));
    destroy_at_backend(&sandbox->workflow);
}

static void forget_record(struct workflow *workflow)
{
    struct sandbox *sandbox = sandbox_of(workflow);
    char reason[END_TEXT_SIZE];

    end_reason_text(&sandbox->destruction.end, reason);
    if (is_recorded(sandbox)) {
        sandbox_emit(sandbox, "sandbox.destroyed", reason);
        store_forget_sandbox(sandbox->core->parts.store, sandbox->id);
        sandbox_set_recorded(sandbox, RECORD_NONE);
    }
    list_remove(&sandbox->node);
    map_remove(&sandbox->core->sandboxes_by_id, sandbox->id);
    workflow_step_done(workflow, NULL);
}

static void release_slot(struct workflow *workflow)
{
    capacity_release(sandbox_of(workflow)->core->capacity, sandbox_of(workflow));
    workflow_step_done(workflow, NULL);
}

static void report_gone(struct workflow *workflow)
{
    struct sandbox *sandbox = sandbox_of(workflow);
    struct core *core = sandbox->core;
    struct session *session = sandbox->order.session;

    sandbox_set_state(sandbox, SANDBOX_NONE);
    if (session) {
        core->observer->on_left(session, sandbox->id, &sandbox->destruction.since);
        core->observer->on_gone(session, sandbox);
        sandbox->order.session = NULL;
    }
    pool_kick(core->pool);
    workflow_step_done(workflow, NULL);
}

/* No step fails: the one that the backend may refuse is tried again for ever, with back-off. */
static const struct workflow_step destroy_steps[] = {
    { "pack its files", pack_files },
    { "close the connection to its init", close_connection },
    { "wait for the backend", wait_for_backend },
    { "record that it goes", record_destroying },
    { "destroy it at the backend", destroy_at_backend },
    { "forget its record", forget_record },
    { "release its slot", release_slot },
    { "report that it is gone", report_gone },
    { 0 },
};

/* --- the way into the table ------------------------------------------------------------------ */

static void on_release(struct deferred *deferred)
{
    sandbox_free(container_of(deferred, struct sandbox, release));
}

/* Freed after the commit that the caller of session_end() is waiting for. */
static void on_destroy_end(struct workflow *workflow)
{
    struct sandbox *sandbox = sandbox_of(workflow);

    assert(!workflow->err && sandbox->state == SANDBOX_NONE);
    loop_defer_last(sandbox->core->loop, &sandbox->release, on_release);
}

void sandbox_begin_destroy(struct sandbox *sandbox)
{
    assert(sandbox->state == SANDBOX_DESTROYING && !workflow_is_running(&sandbox->workflow));
    timer_stop(&sandbox->timer);
    timer_stop(&sandbox->build.retry);
    workflow_start(&sandbox->workflow, sandbox->core->loop, destroy_steps, on_destroy_end);
}

/* Files that are being packed and a backend that refuses are left to the next daemon. */
bool sandbox_destroy_is_busy(const struct sandbox *sandbox)
{
    const struct workflow *workflow = &sandbox->workflow;

    if (workflow_is_at(workflow, pack_files) && sandbox->destruction.packing != PACK_NOTHING)
        return false;
    return sandbox_asks_backend(sandbox) ||
           (workflow_is_running(workflow) && !workflow_is_at(workflow, destroy_at_backend));
}

static void detach(struct sandbox *sandbox)
{
    timer_stop(&sandbox->timer);
    backend_watch_stop(&sandbox->watch);
    sandbox_stop_report(sandbox);
    capacity_set_idle(sandbox->core->capacity, sandbox, false);
    capacity_set_leaving(sandbox->core->capacity, sandbox);
    if (sandbox->order.session)
        sandbox->core->observer->on_leaving(sandbox->order.session, &sandbox->destruction.end);
    else
        pool_on_leaving(sandbox->core->pool, sandbox);
}

/* A start or an adoption that is under way ends first, and sandbox_begin_destroy() comes from there.
 */
void sandbox_destroy(struct sandbox *sandbox, enum end_kind kind, const char *detail)
{
    struct end_reason *end = &sandbox->destruction.end;
    struct error err = { 0 };

    if (sandbox->state == SANDBOX_DESTROYING || sandbox->state == SANDBOX_NONE)
        return;
    sandbox->destruction.packing = workspace_archive_packing(sandbox);
    end->kind = kind;
    snprintf(end->detail, sizeof(end->detail), "%s", detail ? detail : "");
    sandbox_set_state(sandbox, SANDBOX_DESTROYING);
    sandbox_note_left(sandbox);
    detach(sandbox);
    sandbox->core->programs->free_python(steal_ptr(&sandbox->python_zygote));
    if (!workflow_is_running(&sandbox->workflow)) {
        sandbox_begin_destroy(sandbox);
        return;
    }
    error_set(&err, ERR_GONE, "the sandbox is being destroyed");
    workflow_cancel(&sandbox->workflow, &err);
    sandbox_abort_step(sandbox, &err);
}

void sandbox_resume_destroy(struct sandbox *sandbox)
{
    assert(sandbox->state == SANDBOX_DESTROYING && sandbox->record.state == RECORD_DESTROYING);
    capacity_set_leaving(sandbox->core->capacity, sandbox);
    sandbox_note_left(sandbox);
    sandbox_begin_destroy(sandbox);
}
