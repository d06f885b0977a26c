/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The assembly of the core: it makes every part, gives each room the tables of the rooms above it,
 * and takes the parts down in reverse. It includes all rooms, and no room includes it.
 */

#include "core/core.h"

#include "agent/agent.h"
#include "base/alloc.h"
#include "core/ceiling.h"
#include "core/events.h"
#include "core/grants.h"
#include "core/metrics.h"
#include "core/money/approvals.h"
#include "core/money/budget.h"
#include "core/output/spool_shares.h"
#include "core/recovery.h"
#include "core/rehome.h"
#include "core/repair.h"
#include "core/run/context/context.h"
#include "core/run/execution.h"
#include "core/run/programs.h"
#include "core/run/rules.h"
#include "core/sandbox/builds.h"
#include "core/sandbox/capacity.h"
#include "core/sandbox/pool.h"
#include "core/sandbox/sandbox.h"
#include "core/sandbox/usage_history.h"
#include "core/sandbox/workspace_archive.h"
#include "core/session/idempotency.h"
#include "core/session/open_question.h"
#include "core/session/retention.h"
#include "core/session/scopes.h"
#include "core/session/session_observer.h"
#include "core/session/session_recover.h"
#include "core/session/source_question.h"
#include "core/session/storage.h"
#include "core/shares.h"
#include "core/shutdown.h"
#include "core/vault.h"
#include "loop/flow.h"
#include "store/store.h"

#include <stdlib.h>

struct core *core_new(const struct core_parts *parts)
{
    struct core *core = xnew(struct core);

    core->parts = *parts;
    core->loop = parts->loop;
    core->money = &session_money;
    core->observer = &session_observer;
    core->programs = &run_sandbox_programs;
    core->session_programs = &run_session_programs;
    list_init(&core->sessions);
    list_init(&core->sandboxes);
    list_init(&core->strays);
    list_init(&core->source_questions);
    list_init(&core->open_questions);
    list_init(&core->rehomings);
    core->metrics = xnew(struct metrics);
    core->grants = grants_new(core);
    core->approvals = approvals_new(core);
    core->budgets = budgets_new(core);
    core->capacity = capacity_new(core);
    core->builds = builds_new(core);
    core->ceiling = ceiling_new(core);
    core->events = events_new(core, parts->store->load.last_sequence);
    core->flows = flows_new(core->loop);
    core->idempotency = idempotency_new(core);
    core->archives = workspace_archive_new(core);
    core->storage = storage_new(core);
    core->pool = pool_new(core);
    core->retention = retention_new(core);
    core->rules = rules_new(parts->config);
    core->scopes = scopes_new(core);
    core->spool_shares = spool_shares_new(core);
    core->shares = shares_new(core);
    core->vault = vault_new(parts->state_dir, parts->node_key);
    core->repair = repair_new(core);
    core->sampler = usage_sampler_new(core);
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

bool core_may_act(const struct core *core, struct error *err)
{
    const struct core_parts *parts = &core->parts;

    if (!parts->may_act || parts->may_act(parts->may_act_context))
        return true;
    if (err) {
        error_named(err, ERR_UNAVAILABLE, "node_isolated",
                    "this node cannot reach the store, and others may have taken its sessions");
        error_hint(err, "repeat the request, or ask another node");
        err->retryable = true;
    }
    return false;
}

void core_free(struct core *core)
{
    if (!core)
        return;
    repair_free(core->repair);
    core->stopping = true;
    drop_agents(core);
    contexts_drop_all(core);
    executions_drop_all(core);
    source_questions_free(core);
    open_questions_free(core);
    free_sessions(core);
    free_sandboxes(core);
    usage_sampler_free(core->sampler);
    map_fini(&core->executions_by_id);
    shutdown_free(core->shutdown);
    recovery_free(core->recovery);
    rehomings_free(core);
    free(core->orphans);
    scopes_free(core->scopes);
    spool_shares_free(core->spool_shares);
    shares_free(core->shares);
    vault_free(core->vault);
    workspace_archive_free(core->archives);
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
    grants_free(core->grants);
    free(core->metrics);
    free(core);
}

void core_start(struct core *core, core_done_fn *done, void *user)
{
    spool_shares_scan(core->spool_shares);
    recovery_start(core, done, user);
}
