#include "core/sandbox/sandbox_private.h"

#include "base/log.h"
#include "core/metrics.h"
#include "core/sandbox/capacity.h"
#include "core/sandbox/pool.h"
#include "core/sandbox/workspace_archive.h"

#include <assert.h>
#include <stdio.h>

/*
 * The one way out, for ends, teardown, eviction, crashes, replacement, failed starts and shutdown
 * alike:
 *
 *     1. report the loss to the holds of its session
 *     2. pack its files, if they are kept
 *     3. record it as destroying
 *     4. have the backend destroy it, again and again until the backend confirms
 *     5. forget its record, release its slot, report to the session
 */

static void on_release(struct deferred *deferred)
{
    sandbox_free(container_of(deferred, struct sandbox, release));
}

static void on_gone(struct sandbox *sandbox)
{
    struct core *core = sandbox->core;
    struct session *session = sandbox->order.session;
    char reason[END_TEXT_SIZE];

    end_reason_text(&sandbox->end, reason);
    if (sandbox->recorded) {
        sandbox_emit(sandbox, "sandbox.destroyed", reason);
        store_forget_sandbox(core->parts.store, sandbox->id);
    }
    sandbox_set_state(sandbox, SANDBOX_NONE);
    list_remove(&sandbox->node);
    map_remove(&core->sandboxes_by_id, sandbox->id);
    capacity_release(core->capacity, sandbox);
    if (session) {
        core->observer->on_left(session, sandbox->id, &sandbox->left);
        core->observer->on_gone(session, sandbox);
        sandbox->order.session = NULL;
    }
    /* Behind the record that whoever asked for the end waits for. */
    timer_stop(&sandbox->timer);
    timer_stop(&sandbox->retry);
    loop_defer_last(core->loop, &sandbox->release, on_release);
    pool_kick(core->pool);
}

static void on_failed(struct sandbox *sandbox, const struct error *err)
{
    struct core *core = sandbox->core;

    sandbox->attempts++;
    error_keep(&sandbox->last_error, err);
    sandbox->last_error->retryable = true;
    metrics_add(core->metrics, METRIC_DESTROY_FAILURES, 0, 1);
    log_error("sandbox could not be destroyed; trying again", kv("sandbox", sandbox->id),
              kv("attempts", sandbox->attempts), kv("error", err->message));
    sandbox_save(sandbox);
    timer_arm_in(&sandbox->timer, sandbox_backoff_us(sandbox->attempts));
    if (sandbox->order.session)
        core->observer->on_stuck(sandbox->order.session, sandbox->last_error);
}

static void on_destroyed(struct backend_op *op)
{
    struct sandbox *sandbox = sandbox_end_op(op);
    struct error err = op->err;

    if (err.code == ERR_NONE)
        on_gone(sandbox);
    else
        on_failed(sandbox, &err);
}

/* A store that fails does not keep the sandbox alive: it is destroyed all the same. */
static void on_recorded(struct store_ticket *ticket)
{
    struct sandbox *sandbox = container_of(ticket, struct sandbox, ticket);

    sandbox->ticket_running = false;
    sandbox->destroy_recorded = true;
    if (ticket->err->code != ERR_NONE)
        log_error("destroying could not be recorded; continuing without it",
                  kv("sandbox", sandbox->id), kv("error", ticket->err->message));
    sandbox_destroy_next(sandbox);
}

void sandbox_destroy_next(struct sandbox *sandbox)
{
    const struct core *core = sandbox->core;

    if (sandbox->workflow.running || sandbox->op_running || sandbox->ticket_running ||
        sandbox->keep_work)
        return;
    if (!sandbox->recorded) {
        on_gone(sandbox);
    } else if (!sandbox->destroy_recorded) {
        sandbox->ticket_running = true;
        sandbox_save(sandbox);
        store_commit_as(core->parts.store, &sandbox->ticket, STORE_WRITTEN, on_recorded);
    } else {
        backend_destroy(core->parts.backend, sandbox->id, sandbox_begin_op(sandbox, on_destroyed));
    }
}

static void detach(struct sandbox *sandbox)
{
    timer_stop(&sandbox->timer);
    sandbox->leaving[1] = process_release(&sandbox->process);
    capacity_set_idle(sandbox->core->capacity, sandbox, false);
    capacity_set_leaving(sandbox->core->capacity, sandbox);
    if (sandbox->order.session)
        sandbox->core->observer->on_leaving(sandbox->order.session, &sandbox->end);
    else
        pool_on_leaving(sandbox->core->pool, sandbox);
}

static void on_kept(struct sandbox *sandbox)
{
    sandbox_drop_agent_soon(sandbox);
    sandbox_destroy_next(sandbox);
}

void sandbox_destroy(struct sandbox *sandbox, enum end_kind kind, const char *detail)
{
    bool is_frozen = sandbox->state == SANDBOX_FROZEN;
    bool keeps = keep_applies(sandbox);
    struct error err = { 0 };

    if (sandbox->state == SANDBOX_DESTROYING || sandbox->state == SANDBOX_NONE)
        return;
    sandbox->end.kind = kind;
    snprintf(sandbox->end.detail, sizeof(sandbox->end.detail), "%s", detail ? detail : "");
    sandbox_set_state(sandbox, SANDBOX_DESTROYING);
    sandbox_note_left(sandbox);
    detach(sandbox);
    if (sandbox->workflow.running) {
        error_set(&err, ERR_GONE, "the sandbox is being destroyed");
        workflow_cancel(&sandbox->workflow, &err);
        sandbox_abort_step(sandbox, &err);
    }
    sandbox->core->programs->free_python(steal_ptr(&sandbox->warm));
    if (keeps)
        keep_pack(sandbox, is_frozen, on_kept);
    else
        on_kept(sandbox);
}

void sandbox_resume_destroy(struct sandbox *sandbox)
{
    assert(sandbox->state == SANDBOX_DESTROYING && sandbox->recorded);
    capacity_set_leaving(sandbox->core->capacity, sandbox);
    sandbox->destroy_recorded = true;
    sandbox_note_left(sandbox);
    sandbox_destroy_next(sandbox);
}
