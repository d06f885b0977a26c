/* SPDX-License-Identifier: Apache-2.0 */
#include "core/sandbox/sandbox.h"

#include "base/alloc.h"
#include "base/str.h"
#include "config/config.h"
#include "core/backend_choice.h"
#include "core/ceiling.h"
#include "core/events.h"
#include "core/sandbox/sandbox_private.h"
#include "core/sandbox/workspace_archive.h"
#include "core/stamp.h"
#include "wire/json.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define TO(state) (1U << SANDBOX_##state)

static const struct {
    const char *name;
    unsigned successors;
} states[SANDBOX_STATES] = {
    [SANDBOX_NONE] = { "none", TO(CREATING) },
    [SANDBOX_CREATING] = { "creating", TO(READY) | TO(DESTROYING) },
    /* ready → creating: a pool member is claimed and bound to its session */
    [SANDBOX_READY] = { "ready", TO(CREATING) | TO(UNKNOWN) | TO(FREEZING) | TO(FROZEN_BY_OTHERS) |
                                     TO(CRASHED) | TO(DESTROYING) },
    [SANDBOX_UNKNOWN] = { "unknown", TO(READY) | TO(FREEZING) | TO(FROZEN) | TO(FROZEN_BY_OTHERS) |
                                         TO(CRASHED) | TO(DESTROYING) },
    [SANDBOX_FREEZING] = { "freezing",
                           TO(FROZEN) | TO(READY) | TO(UNKNOWN) | TO(CRASHED) | TO(DESTROYING) },
    [SANDBOX_FROZEN] = { "frozen", TO(THAWING) | TO(CRASHED) | TO(DESTROYING) },
    [SANDBOX_THAWING] = { "thawing",
                          TO(READY) | TO(UNKNOWN) | TO(FROZEN) | TO(CRASHED) | TO(DESTROYING) },
    [SANDBOX_FROZEN_BY_OTHERS] = { "frozen_by_others", TO(READY) | TO(UNKNOWN) | TO(FREEZING) |
                                                           TO(CRASHED) | TO(DESTROYING) },
    [SANDBOX_CRASHED] = { "crashed", TO(DESTROYING) },
    [SANDBOX_DESTROYING] = { "destroying", TO(NONE) },
};

const char *sandbox_state_name(enum sandbox_state state)
{
    return states[state].name;
}

/* In a record: the sandbox is whole, and no event has said that it is ready. */
#define RECORDED_MADE "made"

enum sandbox_state sandbox_state_parse(const char *name)
{
    if (str_equal(name, RECORDED_MADE))
        return SANDBOX_READY;
    for (unsigned state = 0; state < SANDBOX_STATES; state++)
        if (str_equal(states[state].name, name))
            return state;
    return SANDBOX_NONE;
}

bool sandbox_may_become(enum sandbox_state from, enum sandbox_state to)
{
    return states[from].successors & (1U << to);
}

void sandbox_set_state(struct sandbox *sandbox, enum sandbox_state state)
{
    assert(sandbox_may_become(sandbox->state, state));
    sandbox->state = state;
    if (state == SANDBOX_READY)
        usage_history_start(sandbox);
    if (state != SANDBOX_UNKNOWN) {
        timer_stop(&sandbox->connection.silence);
        sandbox->connection.unknown_since_us = 0;
        sandbox->connection.freezer = FREEZER_NONE;
    }
}

bool sandbox_has_init(const struct sandbox *sandbox)
{
    return sandbox->connection.agent && !agent_is_lost(sandbox->connection.agent);
}

bool sandbox_is_usable(const struct sandbox *sandbox)
{
    return sandbox->state == SANDBOX_READY;
}

/* --- what is known of it ----------------------------------------------------------------------- */

#undef TO
#define TO(state) (1U << RECORD_##state)

static const unsigned record_successors[RECORD_STATES] = {
    [RECORD_NONE] = TO(INTENT),
    [RECORD_INTENT] = TO(MADE) | TO(DESTROYING) | TO(NONE),
    [RECORD_MADE] = TO(WHOLE) | TO(DESTROYING),
    [RECORD_WHOLE] = TO(MADE) | TO(DESTROYING), /* made again: a pool member is claimed */
    [RECORD_DESTROYING] = TO(NONE),
};

void sandbox_set_recorded(struct sandbox *sandbox, enum sandbox_recorded state)
{
    assert(record_successors[sandbox->record.state] & (1U << state));
    sandbox->record.state = state;
}

const char *sandbox_id(const struct sandbox *sandbox)
{
    return sandbox->id;
}

struct core *sandbox_core(const struct sandbox *sandbox)
{
    return sandbox->core;
}

struct session *sandbox_session(const struct sandbox *sandbox)
{
    return sandbox->order.session;
}

enum sandbox_state sandbox_state(const struct sandbox *sandbox)
{
    return sandbox->state;
}

struct backend *sandbox_backend(const struct sandbox *sandbox)
{
    return sandbox->order.backend;
}

uint64_t sandbox_generation(const struct sandbox *sandbox)
{
    return sandbox->order.generation;
}

const char *sandbox_flavor(const struct sandbox *sandbox)
{
    return sandbox->order.flavor;
}

uint32_t sandbox_gpus(const struct sandbox *sandbox)
{
    return sandbox->order.gpus;
}

void sandbox_put_location(const struct core *core, const struct sandbox *sandbox,
                          struct json_writer *json)
{
    const struct backend *backend = sandbox ? sandbox->order.backend
                                            : backends_default(core->parts.backends);

    backend_put_location(backend, sandbox ? &sandbox->made : NULL, json);
}

struct agent *sandbox_agent(const struct sandbox *sandbox)
{
    return sandbox->connection.agent;
}

const struct end_reason *sandbox_end(const struct sandbox *sandbox)
{
    return &sandbox->destruction.end;
}

uint32_t sandbox_attempts(const struct sandbox *sandbox)
{
    return sandbox->destruction.attempts;
}

const struct error *sandbox_out_of_reach(const struct sandbox *sandbox)
{
    const struct error *absence = backend_absence(sandbox->order.backend);

    return absence ? absence : sandbox->connection.foreign;
}

const struct error *sandbox_last_error(const struct sandbox *sandbox)
{
    return sandbox->last_error;
}

const struct sandbox_usage *sandbox_usage(const struct sandbox *sandbox)
{
    return &sandbox->readings.usage;
}

int64_t sandbox_measured_us(const struct sandbox *sandbox)
{
    return sandbox->readings.usage_wall_us;
}

int64_t sandbox_age_us(const struct sandbox *sandbox)
{
    return loop_now_us(sandbox->core->loop) - sandbox->ready_at_us;
}

int64_t sandbox_unknown_since_us(const struct sandbox *sandbox)
{
    return sandbox->connection.unknown_since_us;
}

bool sandbox_moves_files(const struct sandbox *sandbox)
{
    return sandbox->archive_work;
}

bool sandbox_has_restored_files(const struct sandbox *sandbox)
{
    return sandbox->files == FILES_RESTORED;
}

void sandbox_note_restored_files(struct sandbox *sandbox)
{
    sandbox->files = FILES_RESTORED;
}

bool sandbox_is_preloaded(const struct sandbox *sandbox)
{
    return sandbox->order.preloaded;
}

bool sandbox_waits_for_slot(const struct sandbox *sandbox)
{
    return sandbox->slot.state == SLOT_WAITING;
}

bool sandbox_holds_slot(const struct sandbox *sandbox)
{
    return sandbox->slot.state == SLOT_HELD;
}

const char *sandbox_slot_owner(const struct sandbox *sandbox)
{
    return capacity_owner_name(&sandbox->slot);
}

bool sandbox_is_evictable(const struct sandbox *sandbox)
{
    return list_is_linked(&sandbox->slot.idle);
}

bool sandbox_waits_to_build(const struct sandbox *sandbox)
{
    return sandbox->build.turn.state == BUILD_WAITING;
}

bool sandbox_is_building(const struct sandbox *sandbox)
{
    return sandbox->build.turn.state == BUILD_HELD;
}

bool sandbox_asks_backend(const struct sandbox *sandbox)
{
    return sandbox->op && sandbox->op->sandbox;
}

bool sandbox_asks_init(const struct sandbox *sandbox)
{
    return sandbox->connection.request && sandbox->connection.request->sandbox;
}

bool sandbox_is_busy(const struct sandbox *sandbox)
{
    if (sandbox->state == SANDBOX_DESTROYING)
        return sandbox_destroy_is_busy(sandbox);
    return sandbox_asks_backend(sandbox) || workflow_is_running(&sandbox->workflow);
}

bool sandbox_is_at_rest(const struct sandbox *sandbox)
{
    return !sandbox->op && !sandbox->connection.request;
}

struct python_zygote *sandbox_python_zygote(const struct sandbox *sandbox)
{
    return sandbox->python_zygote;
}

void sandbox_set_python_zygote(struct sandbox *sandbox, struct python_zygote *zygote)
{
    assert(!sandbox->python_zygote);
    sandbox->python_zygote = zygote;
}

struct sandbox *sandbox_next(const struct core *core, const struct sandbox *sandbox)
{
    const struct list *next = sandbox ? sandbox->node.next : core->sandboxes.next;

    return next == &core->sandboxes ? NULL : container_of(next, struct sandbox, node);
}

/* --- what is done with it -------------------------------------------------------------------- */

struct backend_op *sandbox_begin_op(struct sandbox *sandbox, backend_done_fn *done)
{
    assert(!sandbox_asks_backend(sandbox));
    if (!sandbox->op)
        sandbox->op = xnew(struct sandbox_op);
    *sandbox->op = (struct sandbox_op){ .base = { .done = done }, .sandbox = sandbox };
    return &sandbox->op->base;
}

struct sandbox *sandbox_end_op(struct backend_op *op)
{
    struct sandbox *sandbox = steal_ptr(&container_of(op, struct sandbox_op, base)->sandbox);

    assert(sandbox && op == &sandbox->op->base);
    sandbox_rest_soon(sandbox);
    sandbox_destroy_on_answer(sandbox);
    return sandbox;
}

static void on_rest(struct deferred *deferred)
{
    struct sandbox *sandbox = container_of(deferred, struct sandbox, rest);

    if (!sandbox_asks_backend(sandbox))
        free(steal_ptr(&sandbox->op));
    if (!sandbox_asks_init(sandbox))
        free(steal_ptr(&sandbox->connection.request));
}

void sandbox_end_request(struct sandbox *sandbox)
{
    assert(sandbox_asks_init(sandbox));
    sandbox->connection.request->sandbox = NULL;
    sandbox_rest_soon(sandbox);
}

void sandbox_rest_soon(struct sandbox *sandbox)
{
    loop_defer(sandbox->core->loop, &sandbox->rest, on_rest);
}

/* --- memory -------------------------------------------------------------------------------- */

/* The purpose of the timer follows from the state. */
static void on_timer(struct timer *timer)
{
    struct sandbox *sandbox = container_of(timer, struct sandbox, timer);
    struct error err = { 0 };

    switch (sandbox->state) {
    case SANDBOX_CREATING:
        error_named(&err, ERR_TIMEOUT, "sandbox_not_ready", "the sandbox was not ready in time%s%s",
                    sandbox->last_error ? ": " : "",
                    sandbox->last_error ? sandbox->last_error->message : "");
        if (sandbox->last_error && *sandbox->last_error->hint)
            error_hint(&err, "%s", sandbox->last_error->hint);
        sandbox_fail(sandbox, &err);
        break;
    case SANDBOX_UNKNOWN:
        sandbox_adopt(sandbox);
        break;
    case SANDBOX_DESTROYING:
        sandbox_destroy_again(sandbox);
        break;
    case SANDBOX_NONE:
    case SANDBOX_READY:
    case SANDBOX_FREEZING:
    case SANDBOX_FROZEN:
    case SANDBOX_THAWING:
    case SANDBOX_FROZEN_BY_OTHERS:
    case SANDBOX_CRASHED:
    case SANDBOX_STATES:
        break;
    }
}

struct backend *sandbox_default_backend(const struct core *core)
{
    const struct config *config = core->parts.config;

    return backend_choose(
        core, &(struct backend_wishes){ .flavor = config_flavor_find(config, ""),
                                        .template_name = config->sandbox.template_name });
}

struct sandbox_order sandbox_default_order(const struct core *core)
{
    const struct config *config = core->parts.config;
    struct backend *backend = sandbox_default_backend(core);
    struct sandbox_order order = {
        .flavor = "",
        .source = { SOURCE_TEMPLATE,
                    backend_default_source(backend, config->sandbox.template_name) },
        .backend = backend,
        .limits = { .memory_bytes = config->sandbox.memory_bytes,
                    .disk_bytes = config->sandbox.disk_bytes,
                    .cpu_millis = config->sandbox.cpu_millis,
                    .pids = (uint32_t)config->sandbox.pids },
        .network = { .mode = (enum network_mode)config->sandbox.network },
    };

    ceiling_cut_limits(core->ceiling, NULL, NULL, &order.limits);
    return order;
}

static void free_order(struct sandbox_order *order)
{
    free((char *)order->session_id);
    free((char *)order->owner);
    free((char *)order->flavor);
    free((char *)order->source.name);
    free((char *)order->mounts_json);
}

static char *copy_or_null(const char *text)
{
    return text ? xstrdup(text) : NULL;
}

void sandbox_set_order(struct sandbox *sandbox, const struct sandbox_order *order)
{
    assert(!order->session == !order->session_id && !order->session == !order->owner);
    free_order(&sandbox->order);
    sandbox->order = *order;
    sandbox->order.session_id = copy_or_null(order->session_id);
    sandbox->order.owner = copy_or_null(order->owner);
    sandbox->order.flavor = copy_or_null(order->flavor);
    sandbox->order.source.name = copy_or_null(order->source.name);
    sandbox->order.mounts_json = copy_or_null(order->mounts_json);
}

struct sandbox *sandbox_new(struct core *core, const struct sandbox_order *order)
{
    struct sandbox *sandbox = xnew(struct sandbox);

    sandbox->core = core;
    sandbox_set_order(sandbox, order);
    sandbox->limits = order->limits;
    sandbox->created = stamp_now(core);
    sandbox->destruction.agent_fd = -1;
    list_init(&sandbox->pool_node);
    list_init(&sandbox->slot.idle);
    timer_init(&sandbox->timer, core->loop, on_timer);
    timer_init(&sandbox->connection.silence, core->loop, sandbox_on_silence);
    timer_init(&sandbox->build.retry, core->loop, NULL);
    list_append(&core->sandboxes, &sandbox->node);
    return sandbox;
}

enum sandbox_wish sandbox_wish(const struct sandbox *sandbox)
{
    assert(sandbox->order.session);
    return sandbox->core->observer->wish(sandbox->order.session);
}

void sandbox_note_left(struct sandbox *sandbox)
{
    if (!sandbox->destruction.since.wall_us)
        sandbox->destruction.since = stamp_now(sandbox->core);
}

static void on_drop_agent(struct deferred *deferred)
{
    struct sandbox *sandbox = container_of(deferred, struct sandbox, connection.drop);

    if (sandbox->connection.agent)
        sandbox->destruction.agent_fd = agent_release(steal_ptr(&sandbox->connection.agent));
}

void sandbox_drop_agent(struct sandbox *sandbox)
{
    loop_undefer(sandbox->core->loop, &sandbox->connection.drop);
    agent_free(steal_ptr(&sandbox->connection.agent));
}

/* Not at once: one of its callbacks may be on the stack. */
void sandbox_drop_agent_soon(struct sandbox *sandbox)
{
    loop_defer(sandbox->core->loop, &sandbox->connection.drop, on_drop_agent);
}

void sandbox_free(struct sandbox *sandbox)
{
    struct core *core = sandbox->core;

    (void)sandbox_stop_connecting(sandbox);
    sandbox_free_report(sandbox);
    usage_history_fini(&sandbox->history);
    map_remove(&core->sandboxes_by_id, sandbox->id);
    list_remove(&sandbox->node);
    list_remove(&sandbox->pool_node);
    list_remove(&sandbox->slot.idle);
    list_remove(&sandbox->slot.node);
    grant_wish_end(&sandbox->slot.wish);
    builds_pass(core->builds, &sandbox->build.turn);
    timer_stop(&sandbox->timer);
    timer_stop(&sandbox->connection.silence);
    timer_stop(&sandbox->build.retry);
    if (sandbox->slot.timeout.loop)
        timer_stop(&sandbox->slot.timeout);
    workflow_drop(&sandbox->workflow);
    loop_undefer(core->loop, &sandbox->connection.drop);
    loop_undefer(core->loop, &sandbox->rest);
    loop_undefer(core->loop, &sandbox->release);
    backend_watch_stop(&sandbox->watch);
    workspace_archive_cancel(sandbox);
    core->programs->free_python(sandbox->python_zygote);
    agent_free(sandbox->connection.agent);
    fd_close(sandbox->destruction.agent_fd);
    free(sandbox->op);
    free(sandbox->connection.request);
    free(sandbox->parts.err);
    free(sandbox->last_error);
    free(sandbox->connection.foreign);
    free_order(&sandbox->order);
    free(sandbox);
}

bool sandbox_is_up(const struct sandbox *sandbox)
{
    return sandbox->state >= SANDBOX_READY && sandbox->state <= SANDBOX_FROZEN_BY_OTHERS;
}

bool sandbox_is_coming_or_up(const struct sandbox *sandbox)
{
    return sandbox->state == SANDBOX_CREATING || sandbox_is_up(sandbox);
}

/* --- record and events --------------------------------------------------------------------- */

/* The record tells the next daemon whether the sandbox is whole, and whether this one has frozen it. For
 * its state at that moment the kernel and its init are asked. */
static const char *recorded_state(const struct sandbox *sandbox)
{
    if (sandbox->state >= SANDBOX_FREEZING && sandbox->state <= SANDBOX_THAWING)
        return sandbox_state_name(SANDBOX_FROZEN);
    if (sandbox_is_coming_or_up(sandbox) && sandbox->record.state == RECORD_MADE)
        return RECORDED_MADE;
    return sandbox_state_name(sandbox_is_up(sandbox) ? SANDBOX_READY : sandbox->state);
}

/* With the record that it is ready or goes comes what it costs: one transaction. */
void sandbox_save(struct sandbox *sandbox)
{
    struct core *core = sandbox->core;
    char reason[END_TEXT_SIZE];
    struct sandbox_record record = {
        .backend = sandbox->order.backend->ops->name,
        .state = recorded_state(sandbox),
        .end_reason = reason,
        .last_error = sandbox->last_error ? sandbox->last_error->message : "",
        .generation = sandbox->order.generation,
        .handle = sandbox->made.handle,
        .attempts = sandbox->destruction.attempts,
        .created = sandbox->created,
    };

    if (sandbox->order.session && sandbox->destruction.since.wall_us)
        core->observer->on_left(sandbox->order.session, sandbox->id, &sandbox->destruction.since);
    memcpy(record.id, sandbox->id, sizeof(record.id));
    if (sandbox->order.session)
        snprintf(record.session_id, sizeof(record.session_id), "%s", sandbox->order.session_id);
    end_reason_text(&sandbox->destruction.end, reason);
    store_put_sandbox(core->parts.store, &record);
}

void sandbox_repair(struct sandbox *sandbox)
{
    if (sandbox->record.state != RECORD_NONE)
        sandbox_save(sandbox);
}

void sandbox_emit(struct sandbox *sandbox, const char *type, const char *reason)
{
    scoped(buffer_fini) struct buffer data = BUFFER_INIT(1024);
    struct json_writer json = JSON_WRITER(&data);

    if (!sandbox->order.session)
        return;
    json_begin_object(&json, NULL);
    json_put_text(&json, "sandbox_id", sandbox->id);
    json_put_text(&json, "sandbox", sandbox->id);
    json_put_int(&json, "generation", (int64_t)sandbox->order.generation);
    json_put_text(&json, "flavor", sandbox->order.flavor);
    if (reason)
        json_put_text(&json, "reason", reason);
    json_end_object(&json);
    sandbox->core->observer->on_event(sandbox->order.session, type, buffer_text(&data));
}

/* --- recovery ------------------------------------------------------------------------------ */

static enum sandbox_recorded restored_record(enum sandbox_state state)
{
    switch (state) {
    case SANDBOX_UNKNOWN:
        return RECORD_WHOLE;
    case SANDBOX_DESTROYING:
        return RECORD_DESTROYING;
    case SANDBOX_NONE:
    case SANDBOX_CREATING:
    case SANDBOX_READY:
    case SANDBOX_FREEZING:
    case SANDBOX_FROZEN:
    case SANDBOX_THAWING:
    case SANDBOX_FROZEN_BY_OTHERS:
    case SANDBOX_CRASHED:
    case SANDBOX_STATES:
        break;
    }
    return RECORD_INTENT;
}

struct sandbox *sandbox_restore(struct core *core, const struct sandbox_order *order,
                                const struct sandbox_record *record)
{
    struct sandbox_order pooled = sandbox_default_order(core);
    struct sandbox *sandbox = sandbox_new(core, order ? order : &pooled);

    sandbox->order.backend = backends_of_record(core->parts.backends, record->backend);
    memcpy(sandbox->id, record->id, sizeof(sandbox->id));
    memcpy(sandbox->made.id, record->id, sizeof(sandbox->made.id));
    map_put(&core->sandboxes_by_id, sandbox->id, sandbox);
    sandbox->state = sandbox_state_parse(record->state);
    if (sandbox->state == SANDBOX_FROZEN)
        sandbox->connection.freezer = FREEZER_SESSION;
    if (sandbox->state == SANDBOX_NONE)
        sandbox->state = SANDBOX_DESTROYING;
    else if (sandbox_is_up(sandbox))
        sandbox->state = SANDBOX_UNKNOWN;
    sandbox->order.generation = record->generation;
    if (record->handle)
        snprintf(sandbox->made.handle, sizeof(sandbox->made.handle), "%s", record->handle);
    sandbox->created = record->created;
    sandbox->destruction.attempts = record->attempts;
    sandbox->destruction.end = end_reason_parse(record->end_reason);
    sandbox->record.state =
        str_equal(record->state, RECORDED_MADE) ? RECORD_MADE : restored_record(sandbox->state);
    sandbox->ready_at_us = record->created.boot_us;
    capacity_take(core->capacity, sandbox, sandbox->order.owner);
    return sandbox;
}

struct sandbox *sandbox_restore_orphan(struct core *core, const struct backend *backend,
                                       const char *id)
{
    struct sandbox_record record = { .backend = backend->ops->name,
                                     .state = sandbox_state_name(SANDBOX_CRASHED),
                                     .created = stamp_now(core) };

    memcpy(record.id, id, sizeof(record.id));
    return sandbox_restore(core, NULL, &record);
}
