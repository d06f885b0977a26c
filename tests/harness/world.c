/* SPDX-License-Identifier: Apache-2.0 */
#include "harness/world.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

enum { TURNS_TO_SETTLE = 3 };

static char template_name[] = "host";
static char flavor_name[] = "cpu-basic";
static struct config_flavor flavors[] = { { .name = flavor_name } };

static void fill_config(struct config *config)
{
    static char nothing[] = "";
    *config = (struct config){ 0 };
    config->sandbox.template_name = template_name;
    config->sandbox.memory_bytes = 2ULL << 30;
    config->sandbox.disk_bytes = 4ULL << 30;
    config->sandbox.cpu_millis = 1000;
    config->sandbox.pids = 256;
    config->sandbox.auto_restart = true;
    config->sandbox.start_timeout_ms = 30 * 1000;
    config->sandbox.silence_timeout_ms = 120 * 1000;
    config->approvals.timeout_ms = 3600 * 1000;
    config->budget.window_ms = 3600 * 1000;
    config->budget.session_cap = 5000000;
    config->budget.first_warning = 5000000;
    config->sessions.enabled = true;
    config->python.path = nothing;
    config->session.idle_timeout_ms = 30 * 60 * 1000;
    config->session.max_lifetime_ms = 24 * 3600 * 1000;
    config->session.grace_ms = 30 * 1000;
    config->session.retention_ms = 24 * 3600 * 1000;
    config->capacity.max_sandboxes = 1000;
    config->capacity.max_per_owner = 100;
    config->capacity.overflow = OVERFLOW_EVICT;
    config->capacity.wait_timeout_ms = 30 * 1000;
    config->flavors.items = flavors;
    config->flavors.count = 1;
}

void world_init(struct world *world)
{
    *world = (struct world){ .state_dir = -1 };
    simulated_clock_init(&world->clock, 1000 * 1000000LL, 1767225600LL * 1000000);
    world->loop = loop_new(&world->clock.clock);
    world->store = fake_store_new(world->loop);
    world->backend = fake_backend_new(world->loop);
    world->backends = backends_new(world->loop);
    backends_add(world->backends, world->backend, BACKEND_OF_CALLERS);
    fill_config(&world->config);
}

void world_join(struct world *world, struct world *first, const char *node)
{
    *world = (struct world){ .state_dir = -1, .node = node, .is_guest = true };
    world->loop = first->loop;
    world->store = fake_store_join(first->store, node);
    world->backend = fake_backend_new(world->loop);
    world->backends = backends_new(world->loop);
    backends_add(world->backends, world->backend, BACKEND_OF_CALLERS);
    world->config = first->config;
}

struct backend *world_add_backend(struct world *world, const char *name, enum backend_access access)
{
    struct backend *backend = fake_backend_new(world->loop);

    fake_backend_set_name(backend, name);
    backends_add(world->backends, backend, access);
    return backend;
}

void world_fini(struct world *world)
{
    if (world->core)
        world_kill(world, false);
    backends_free(world->backends);
    store_close(world->store);
    if (!world->is_guest)
        loop_free(world->loop);
}

static void on_started(struct core *core, const struct error *err, void *user)
{
    (void)core;
    assert(!err);
    *(bool *)user = true;
}

void world_start(struct world *world)
{
    bool started = false;

    world->core = core_new(&(struct core_parts){
        .loop = world->loop,
        .config = &world->config,
        .store = world->store,
        .backends = world->backends,
        .state_dir = world->state_dir,
        .worker = world->worker,
        .node = world->node,
    });
    core_start(world->core, on_started, &started);
    world_settle(world);
    assert(started);
}

/* Turns are whole: nothing of the core is deferred between them but what it deferred itself. */
void world_kill(struct world *world, bool effect)
{
    fake_store_crash(world->store);
    for (size_t i = 0; i < backends_count(world->backends); i++)
        if (!backend_absence(backends_at(world->backends, i)))
            fake_backend_drop(backends_at(world->backends, i), effect);
    core_free(world->core);
    world->core = NULL;
    world_settle(world);
}

void world_restart(struct world *world)
{
    world_kill(world, false);
    world_start(world);
}

void world_settle(struct world *world)
{
    for (int i = 0; i < TURNS_TO_SETTLE; i++)
        loop_turn(world->loop, 0);
}

void world_advance(struct world *world, int64_t ms)
{
    loop_advance(world->loop, &world->clock, ms * 1000);
    world_settle(world);
}

/* --- sessions ------------------------------------------------------------------------------ */

static void on_opened(struct session_op *op)
{
    container_of(op, struct opened, op)->done = true;
}

struct session *world_open(struct world *world, const struct session_request *request,
                           struct opened *opened)
{
    *opened = (struct opened){ 0 };
    session_open(world->core, request, &opened->op, on_opened);
    world_settle(world);
    return opened->done && opened->op.err.code == ERR_NONE ? opened->op.session : NULL;
}

struct session *world_open_simple(struct world *world, const char *owner, const char *key)
{
    struct session_request request = SESSION_REQUEST_INIT;
    struct opened opened;

    request.owner = owner;
    request.key = key;
    return world_open(world, &request, &opened);
}

struct session *world_find(struct world *world, const char *id)
{
    return session_find(world->core, "", true, id);
}

static void on_use_ready(struct session_hold *hold)
{
    container_of(hold, struct tried, hold)->ready++;
}

static void on_use_lost(struct session_hold *hold)
{
    container_of(hold, struct tried, hold)->lost++;
}

void world_use_pinned(struct world *world, struct session *session, uint64_t generation,
                      struct tried *tried)
{
    *tried = (struct tried){ 0 };
    session_hold_begin(&tried->hold, session, generation, on_use_ready, on_use_lost);
    world_settle(world);
}

void world_use(struct world *world, struct session *session, struct tried *tried)
{
    world_use_pinned(world, session, 0, tried);
}

static void on_ended(struct session_op *op)
{
    container_of(op, struct ended, op)->done++;
}

void world_end(struct world *world, struct session *session, enum end_kind kind,
               struct ended *ended)
{
    *ended = (struct ended){ 0 };
    session_end(session, kind, NULL, &ended->op, on_ended);
    world_settle(world);
}

/* --- records ------------------------------------------------------------------------------- */

struct lookup {
    struct store_query query;
    struct world_record *out;
    const char *type;
    unsigned count;
};

static void on_session(struct store_query *query, const struct session_record *record)
{
    struct lookup *lookup = container_of(query, struct lookup, query);
    struct world_record *out = lookup->out;

    lookup->count++;
    snprintf(out->state, sizeof(out->state), "%s", record->state);
    snprintf(out->end_reason, sizeof(out->end_reason), "%s", record->end_reason);
    out->generation = record->generation;
    out->created = record->created;
    out->started = record->started;
    out->last_activity = record->last_activity;
    out->expires = record->expires;
    out->ended = record->ended;
}

static void on_event(struct store_query *query, const struct event_record *record)
{
    struct lookup *lookup = container_of(query, struct lookup, query);

    if (strcmp(record->type, lookup->type) == 0)
        lookup->count++;
}

static void on_done(struct store_query *query)
{
    assert(query->err.code == ERR_NONE);
}

bool world_record(struct world *world, const char *session_id, struct world_record *out_record)
{
    struct lookup lookup = { .out = out_record };

    lookup.query = (struct store_query){ .on_session = on_session, .done = on_done };
    lookup.query.id = session_id;
    store_query(world->store, STORE_SESSIONS, &lookup.query);
    world_settle(world);
    return lookup.count == 1;
}

unsigned world_events(struct world *world, const char *session_id, const char *type)
{
    struct lookup lookup = { .type = type };

    lookup.query = (struct store_query){ .on_event = on_event, .done = on_done };
    lookup.query.session_id = session_id;
    store_query(world->store, STORE_EVENTS, &lookup.query);
    world_settle(world);
    return lookup.count;
}
