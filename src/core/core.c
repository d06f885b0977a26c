#include "core/core.h"

#include "agent/agent.h"
#include "base/alloc.h"
#include "base/log.h"
#include "core/ceiling.h"
#include "core/events.h"
#include "core/metrics.h"
#include "core/money/approvals.h"
#include "core/money/budget.h"
#include "core/output/spool_shares.h"
#include "core/recovery.h"
#include "core/run/context.h"
#include "core/run/execution.h"
#include "core/run/programs.h"
#include "core/run/rules.h"
#include "core/sandbox/builds.h"
#include "core/sandbox/capacity.h"
#include "core/sandbox/pool.h"
#include "core/sandbox/sandbox.h"
#include "core/sandbox/workspace_archive.h"
#include "core/session/idempotency.h"
#include "core/session/retention.h"
#include "core/session/scopes.h"
#include "core/session/session_money.h"
#include "core/session/session_observer.h"
#include "core/session/session_recover.h"
#include "core/session/storage.h"
#include "core/shares.h"
#include "core/vault.h"
#include "loop/flow.h"
#include "store/store.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>

enum {
    REPAIR_DELAY_US = 1000 * 1000,
    SHUTDOWN_LOOK_US = 5 * 1000,
    SHUTDOWN_REPEAT_US = 200 * 1000,
    SHUTDOWN_WRITES = 10, /* that fail, until what they were to write is given up */
};

/* --- puts that the store has lost ----------------------------------------------------------- */

/* The record of a sandbox that is gone, which the store did not forget. */
struct leftover {
    struct list node;
    char id[ID_SIZE];
};

static void forget_leftovers(struct core *core, bool again)
{
    struct leftover *leftover;

    while ((leftover = list_first(&core->leftovers, struct leftover, node))) {
        list_remove(&leftover->node);
        if (again)
            store_forget_sandbox(core->parts.store, leftover->id);
        free(leftover);
    }
}

/* The current state of everything that lives is put again; what it said before does not matter. */
static void repair(struct core *core)
{
    struct session *session;
    struct sandbox *sandbox;

    session_for_each (session, core) {
        if (session_is_recorded(session))
            session_changed(session);
    }
    for (sandbox = sandbox_next(core, NULL); sandbox; sandbox = sandbox_next(core, sandbox))
        sandbox_repair(sandbox);
    executions_repair(core);
    budgets_repair(core->budgets);
    approvals_repair(core->approvals);
    forget_leftovers(core, true);
}

static void on_repair(struct timer *timer)
{
    repair(container_of(timer, struct core, repair));
}

static void on_lost(struct store *store, enum store_table table, const char *id)
{
    struct core *core = store->on_lost_data;

    if (table == STORE_SANDBOXES && !map_get(&core->sandboxes_by_id, id)) {
        struct leftover *leftover = xnew(struct leftover);

        snprintf(leftover->id, sizeof(leftover->id), "%s", id);
        list_append(&core->leftovers, &leftover->node);
    }
    if (!timer_is_armed(&core->repair)) /* for any table: a later success shows that it works */
        timer_arm_in(&core->repair, REPAIR_DELAY_US);
}

/* --- life ----------------------------------------------------------------------------------- */

struct core *core_new(const struct core_parts *parts)
{
    struct core *core = xnew(struct core);

    core->parts = *parts;
    core->loop = parts->loop;
    core->money = &session_money;
    core->observer = &session_observer;
    core->programs = &run_programs;
    list_init(&core->sessions);
    list_init(&core->sandboxes);
    list_init(&core->leftovers);
    timer_init(&core->repair, core->loop, on_repair);
    core->metrics = xnew(struct metrics);
    core->approvals = approvals_new(core);
    core->budgets = budgets_new(core);
    core->capacity = capacity_new(core);
    core->builds = builds_new(core);
    core->ceiling = ceiling_new(core);
    core->events = events_new(core, parts->store->load.last_sequence);
    core->flows = flows_new(core->loop);
    core->idempotency = idempotency_new(core);
    core->keep = keep_new(core);
    core->storage = storage_new(core);
    core->pool = pool_new(core);
    core->retention = retention_new(core);
    core->rules = rules_new(parts->config);
    core->scopes = scopes_new(core);
    core->spool_shares = spool_shares_new(core);
    core->shares = shares_new(core);
    core->vault = vault_new(parts->state_dir);
    parts->store->on_lost = on_lost;
    parts->store->on_lost_data = core;
    return core;
}

static void free_sessions(struct core *core)
{
    struct session *session;

    while ((session = session_next(core, NULL)))
        session_free(session);
    map_fini(&core->sessions_by_id);
    map_fini(&core->sessions_by_key);
}

/* First of all: requests to an init are embedded in what asked, which goes next. */
static void drop_agents(struct core *core)
{
    struct sandbox *sandbox;

    for (sandbox = sandbox_next(core, NULL); sandbox; sandbox = sandbox_next(core, sandbox))
        sandbox_drop_agent(sandbox);
}

static void free_sandboxes(struct core *core)
{
    struct sandbox *sandbox;

    while ((sandbox = sandbox_next(core, NULL)))
        sandbox_free(sandbox);
    map_fini(&core->sandboxes_by_id);
}

static void shutdown_free(struct core *core);

void core_free(struct core *core)
{
    if (!core)
        return;
    core->parts.store->on_lost = NULL;
    core->stopping = true;
    drop_agents(core);
    contexts_drop_all(core);
    executions_drop_all(core);
    free_sessions(core);
    free_sandboxes(core);
    map_fini(&core->executions_by_id);
    shutdown_free(core);
    recovery_free(core->recovery);
    free(core->orphans);
    scopes_free(core->scopes);
    spool_shares_free(core->spool_shares);
    shares_free(core->shares);
    vault_free(core->vault);
    keep_free(core->keep);
    storage_free(core->storage);
    retention_free(core->retention);
    rules_free(core->rules);
    pool_free(core->pool);
    idempotency_free(core->idempotency);
    events_free(core->events);
    flows_free(core->flows);
    capacity_free(core->capacity);
    builds_free(core->builds);
    ceiling_free(core->ceiling);
    approvals_free(core->approvals);
    budgets_free(core->budgets);
    free(core->metrics);
    forget_leftovers(core, false);
    timer_stop(&core->repair);
    free(core);
}

void core_start(struct core *core, core_done_fn *done, void *user)
{
    spool_shares_scan(core->spool_shares);
    recovery_start(core, done, user);
}

/* --- shutdown ------------------------------------------------------------------------------- */

enum shutdown_state {
    SHUTDOWN_RECOVERING, /* what an earlier daemon left is not known yet */
    SHUTDOWN_ENDING,     /* operations end, with `destroy` everything */
    SHUTDOWN_WRITING,    /* the store makes the last of it durable */
    SHUTDOWN_DONE
};

struct core_shutdown {
    struct core *core; /* borrowed */
    core_done_fn *done;
    void *user; /* borrowed */
    struct timer look;
    struct store_ticket ticket;
    unsigned failed_writes;
    int64_t deadline_us;
    enum shutdown_state state;
    bool destroy;
};

static void shutdown_free(struct core *core)
{
    if (core->shutdown)
        timer_stop(&core->shutdown->look);
    free(core->shutdown);
}

/* The backend and the store have nothing left to answer. */
static bool is_quiet(const struct core *core)
{
    const struct sandbox *sandbox;
    const struct session *session;

    for (sandbox = sandbox_next(core, NULL); sandbox; sandbox = sandbox_next(core, sandbox))
        if (sandbox_is_busy(sandbox))
            return false;
    session_for_each (session, core) {
        if (!session_is_recorded(session))
            return false;
    }
    return !core->recovery && !core->orphans && !retention_is_busy(core->retention);
}

static bool is_finished(const struct core_shutdown *shutdown)
{
    const struct core *core = shutdown->core;

    if (shutdown->destroy && !list_is_empty(&core->sessions))
        return false;
    if (shutdown->destroy && !list_is_empty(&core->sandboxes))
        return false;
    return is_quiet(core);
}

static void shutdown_end(struct core_shutdown *shutdown, const struct error *err)
{
    assert(shutdown->state != SHUTDOWN_DONE);
    shutdown->state = SHUTDOWN_DONE;
    shutdown->done(shutdown->core, err, shutdown->user);
}

static void on_all_written(struct store_ticket *ticket)
{
    struct core_shutdown *shutdown = container_of(ticket, struct core_shutdown, ticket);

    if (ticket->err->code == ERR_NONE) {
        shutdown_end(shutdown, NULL);
    } else if (++shutdown->failed_writes == SHUTDOWN_WRITES) {
        shutdown_end(shutdown, ticket->err);
    } else {
        shutdown->state = SHUTDOWN_ENDING;
        timer_arm_in(&shutdown->look, SHUTDOWN_REPEAT_US);
    }
}

/* What the store has lost lately has its last chance. */
static void begin_writing(struct core_shutdown *shutdown)
{
    struct core *core = shutdown->core;

    shutdown->state = SHUTDOWN_WRITING;
    executions_save_incomplete(core);
    if (timer_is_armed(&core->repair)) {
        timer_stop(&core->repair);
        repair(core);
    }
    store_commit(core->parts.store, &shutdown->ticket, on_all_written);
}

/* Sessions are ended when all of them are known, with their sandboxes. */
static void begin_ending(struct core_shutdown *shutdown)
{
    struct core *core = shutdown->core;
    struct session *session;
    struct session *following;

    shutdown->state = SHUTDOWN_ENDING;
    pool_stop(core->pool); /* the next daemon makes its own */
    session_for_each_safe (session, following, core) {
        if (shutdown->destroy)
            session_end(session, END_SHUTDOWN, NULL, NULL, NULL);
        else
            session_serve_soon(session);
    }
}

static void on_look(struct timer *timer)
{
    struct core_shutdown *shutdown = container_of(timer, struct core_shutdown, look);
    struct core *core = shutdown->core;
    struct error err = { 0 };

    if (shutdown->state == SHUTDOWN_RECOVERING && !core->recovery)
        begin_ending(shutdown);
    if (shutdown->state == SHUTDOWN_ENDING && is_finished(shutdown)) {
        begin_writing(shutdown);
    } else if (loop_now_us(core->loop) >= shutdown->deadline_us) {
        error_set(&err, ERR_TIMEOUT, "%zu sandboxes were not gone in time",
                  core->sandboxes_by_id.count);
        shutdown_end(shutdown, &err);
    } else {
        timer_arm_in(timer, SHUTDOWN_LOOK_US);
    }
}

void core_stop(struct core *core, bool destroy, int64_t timeout_ms, core_done_fn *done, void *user)
{
    struct core_shutdown *shutdown = xnew(struct core_shutdown);

    assert(!core->shutdown);
    *shutdown =
        (struct core_shutdown){ .core = core,
                                .done = done,
                                .user = user,
                                .destroy = destroy,
                                .deadline_us = loop_now_us(core->loop) + timeout_ms * 1000 };
    core->shutdown = shutdown;
    core->stopping = true;
    timer_init(&shutdown->look, core->loop, on_look);
    timer_arm_in(&shutdown->look, 0);
}
