/* SPDX-License-Identifier: Apache-2.0 */
#include "core/sandbox/sandbox_private.h"

#include "base/backoff.h"
#include "base/log.h"
#include "base/str.h"
#include "config/config.h"
#include "core/metrics.h"
#include "core/mounts.h"

#include <stdio.h>
#include <string.h>

static const struct backoff build_backoff_us = { .first = 200 * 1000, .most = 30 * 1000 * 1000 };

/* --- the turn of an owner: for backends that make the sandboxes of one owner in sequence ----- */

static bool is_of(const struct sandbox *sandbox, const char *owner)
{
    return sandbox->order.session && str_equal(sandbox->order.owner, owner);
}

static struct sandbox *find_turn(const struct core *core, const char *owner, enum owner_turn turn)
{
    struct sandbox *sandbox;

    list_for_each (sandbox, &core->sandboxes, node) {
        if (sandbox->build.owner_turn == turn && is_of(sandbox, owner))
            return sandbox;
    }
    return NULL;
}

void sandbox_take_turn(struct workflow *workflow)
{
    struct sandbox *sandbox = container_of(workflow, struct sandbox, workflow);
    const struct core *core = sandbox->core;

    if (sandbox->order.session && sandbox->order.backend->ops->capabilities.serialize_per_owner) {
        if (find_turn(core, sandbox->order.owner, TURN_HELD)) {
            sandbox->build.owner_turn = TURN_WAITING;
            return;
        }
        sandbox->build.owner_turn = TURN_HELD;
    }
    workflow_step_done(workflow, NULL);
}

/* The turn passes to the sandbox of the same owner that has waited longest. */
void sandbox_pass_turn(struct sandbox *sandbox)
{
    struct sandbox *next;
    bool held = sandbox->build.owner_turn == TURN_HELD;

    sandbox->build.owner_turn = TURN_NONE;
    if (!held || !sandbox->order.session)
        return;
    next = find_turn(sandbox->core, sandbox->order.owner, TURN_WAITING);
    if (!next)
        return;
    next->build.owner_turn = TURN_HELD;
    workflow_step_done(&next->workflow, NULL);
}

/* --- building ----------------------------------------------------------------------------------
 */

static void on_build_turn(struct build_turn *turn)
{
    workflow_step_done(&container_of(turn, struct sandbox, build.turn)->workflow, NULL);
}

void sandbox_wait_to_build(struct workflow *workflow)
{
    struct sandbox *sandbox = container_of(workflow, struct sandbox, workflow);

    if (builds_take(sandbox->core->builds, &sandbox->build.turn, sandbox->order.owner,
                    on_build_turn))
        workflow_step_done(workflow, NULL);
}

static void build(struct sandbox *sandbox);

static void on_retry(struct timer *timer)
{
    build(container_of(timer, struct sandbox, build.retry));
}

/* The remains of the failed attempt are gone, or are removed with the next attempt. */
static void on_cleared(struct backend_op *op)
{
    struct sandbox *sandbox = sandbox_end_op(op);

    if (sandbox->state != SANDBOX_CREATING) {
        workflow_step_done(&sandbox->workflow, sandbox->last_error);
        return;
    }
    sandbox->build.retry.on_expire = on_retry;
    timer_arm_in(&sandbox->build.retry, backoff_delay(&build_backoff_us, sandbox->build.failures));
}

/* The time that it has to become ready goes on: see sandbox.start_timeout. */
static void try_again(struct sandbox *sandbox, const struct error *err)
{
    error_keep(&sandbox->last_error, err);
    sandbox->build.failures++;
    log_warn("sandbox could not be created; trying again", kv("sandbox", sandbox->id),
             kv("attempts", sandbox->build.failures), kv("error", err->message));
    backend_destroy(sandbox->order.backend, sandbox->id, sandbox_begin_op(sandbox, on_cleared));
}

static bool differs(uint64_t asked, uint64_t is)
{
    return is && is != asked;
}

/* A sandbox with other resources than those that were asked for is not ready. */
static int check_resources(const struct sandbox *sandbox, const struct backend_op *op,
                           struct error *err)
{
    const struct sandbox_limits *asked = &sandbox->limits;
    const struct sandbox_limits *is = &op->result.made.limits;
    const char *what = NULL;

    if (differs(asked->memory_bytes, is->memory_bytes))
        what = "memory";
    else if (differs(asked->disk_bytes, is->disk_bytes))
        what = "disk";
    else if (differs(asked->cpu_millis, is->cpu_millis))
        what = "cpus";
    else if (differs(asked->pids, is->pids))
        what = "pids";
    else if (is->memory_bytes && op->result.made.gpus != sandbox->order.gpus)
        what = "gpus";
    if (!what)
        return 0;
    error_named(err, ERR_BACKEND, "resources_differ",
                "the sandbox started with other %s than requested", what);
    err->retryable = false;
    return error_hint(err, "it was removed; another flavor may work");
}

static void keep_made(struct sandbox *sandbox, const struct backend_op *op)
{
    sandbox->made = op->result.made.sandbox;
    metrics_add(sandbox->core->metrics, METRIC_SANDBOXES_CREATED, 0, 1);
    if (sandbox->state == SANDBOX_CREATING)
        sandbox_watch(sandbox);
}

static void on_built(struct backend_op *op)
{
    struct sandbox *sandbox = sandbox_end_op(op);
    struct error err = op->err;

    builds_pass(sandbox->core->builds, &sandbox->build.turn);
    if (err.code != ERR_NONE && err.retryable && sandbox->state == SANDBOX_CREATING) {
        try_again(sandbox, &err);
        return;
    }
    if (err.code == ERR_NONE) {
        keep_made(sandbox, op);
        (void)check_resources(sandbox, op, &err);
    }
    workflow_step_done(&sandbox->workflow, err.code == ERR_NONE ? NULL : &err);
}

/* The time to become ready runs while nothing happens: a download that goes on is waited for. */
static void on_progress(struct backend_op *op, const char *what, uint64_t done_bytes,
                        uint64_t total_bytes)
{
    struct sandbox *sandbox = container_of(op, struct sandbox_op, base)->sandbox;
    char done[STR_UNIT_SIZE], total[STR_UNIT_SIZE], text[3 * STR_UNIT_SIZE];

    str_format_size(done_bytes, done);
    str_format_size(total_bytes, total);
    snprintf(text, sizeof(text),
             total_bytes  ? "%s: %s of %s"
             : done_bytes ? "%s: %s"
                          : "%s",
             what, done, total);
    sandbox_emit(sandbox, "sandbox.progress", text);
    if (sandbox->state == SANDBOX_CREATING)
        sandbox_start_timeout(sandbox);
}

static void build(struct sandbox *sandbox)
{
    scoped(mounts_fini) struct mounts mounts = { 0 };
    struct error err = { 0 };
    struct sandbox_spec spec = {
        .source = sandbox->order.source,
        .limits = sandbox->limits,
        .network = sandbox->order.network,
        .gpus = sandbox->order.gpus,
        .session = sandbox->order.session ? sandbox->order.session_id : "",
        .owner = sandbox->order.session ? sandbox->order.owner : "",
        .generation = sandbox->order.session ? sandbox_generation(sandbox) : 0,
    };
    struct backend_op *op;

    if (mounts_parse(&mounts, sandbox->order.mounts_json, &err) < 0) {
        builds_pass(sandbox->core->builds, &sandbox->build.turn);
        workflow_step_done(&sandbox->workflow, &err);
        return;
    }
    spec.mounts = mounts.items;
    spec.mount_count = mounts.count;
    memcpy(spec.id, sandbox->id, sizeof(spec.id));
    op = sandbox_begin_op(sandbox, on_built);
    op->on_progress = on_progress;
    backend_create(sandbox->order.backend, &spec, op);
}

void sandbox_build(struct workflow *workflow)
{
    build(container_of(workflow, struct sandbox, workflow));
}

bool sandbox_abort_build(struct sandbox *sandbox, const struct error *err)
{
    if (sandbox->build.owner_turn == TURN_WAITING)
        sandbox->build.owner_turn = TURN_NONE;
    else if (sandbox->build.turn.state == BUILD_WAITING)
        builds_pass(sandbox->core->builds, &sandbox->build.turn);
    else if (timer_is_armed(&sandbox->build.retry))
        timer_stop(&sandbox->build.retry);
    else
        return false;
    workflow_step_done(&sandbox->workflow, err);
    return true;
}
