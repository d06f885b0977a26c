/* SPDX-License-Identifier: Apache-2.0 */
#include "core/recovery.h"

#include "base/alloc.h"
#include "base/log.h"
#include "base/str.h"
#include "core/grants.h"
#include "core/metrics.h"
#include "core/money/approvals.h"
#include "core/money/budget.h"
#include "core/run/execution.h"
#include "core/sandbox/pool.h"
#include "core/sandbox/sandbox.h"
#include "core/sandbox/workspace_archive.h"
#include "core/session/idempotency.h"
#include "core/session/retention.h"
#include "core/session/scopes.h"
#include "core/session/session_key.h"
#include "core/session/session_observer.h"
#include "core/session/session_recover.h"
#include "core/session/storage.h"
#include "core/stamp.h"
#include "wire/json.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

enum { QUERIES = 10 };

struct recovery_query {
    struct store_query query;
    struct recovery *recovery; /* borrowed */
};

struct recovery {
    struct core *core; /* borrowed */
    core_done_fn *done;
    void *user;                             /* borrowed */
    struct recovery_query queries[QUERIES]; /* of the stage that runs */
    unsigned query_count;
    unsigned pending; /* answers that this stage still waits for */
    void (*next_stage)(struct recovery *recovery);
    struct error err;
    struct deferred release;
};

/* Of one backend. */
struct orphan_list {
    struct backend_op op;
    struct orphan_search *search; /* borrowed */
    struct backend *backend;      /* borrowed */
};

struct orphan_search {
    struct core *core; /* borrowed */
    size_t pending;    /* backends that have not answered yet, and one until all were asked */
    struct orphan_list lists[];
};

static const struct end_reason lost_meanwhile = { .kind = END_CRASHED, .detail = "unknown" };

/* --- stages: each begins when all answers of the one before are there ----------------------- */

/* The stage itself counts as one answer, so that it ends after it has asked everything. */
static void begin_stage(struct recovery *recovery, void (*next_stage)(struct recovery *))
{
    recovery->pending = 1;
    recovery->query_count = 0;
    recovery->next_stage = next_stage;
}

static void answer_came(struct recovery *recovery)
{
    if (--recovery->pending == 0)
        recovery->next_stage(recovery);
}

static struct recovery *recovery_of(struct store_query *query)
{
    return container_of(query, struct recovery_query, query)->recovery;
}

static void on_query_done(struct store_query *query)
{
    struct recovery *recovery = recovery_of(query);

    if (query->err.code != ERR_NONE && recovery->err.code == ERR_NONE)
        recovery->err = query->err;
    answer_came(recovery);
}

static void ask(struct recovery *recovery, enum store_table table, struct store_query query)
{
    struct recovery_query *slot = &recovery->queries[recovery->query_count++];

    assert(recovery->query_count <= QUERIES);
    query.done = on_query_done;
    *slot = (struct recovery_query){ .query = query, .recovery = recovery };
    recovery->pending++;
    store_query(recovery->core->parts.store, table, &slot->query);
}

/* --- the end ------------------------------------------------------------------------------- */

static void on_release(struct deferred *deferred)
{
    free(container_of(deferred, struct recovery, release));
}

static void finish(struct recovery *recovery)
{
    struct core *core = recovery->core;

    core->recovery = NULL;
    loop_defer(core->loop, &recovery->release, on_release);
    recovery->done(core, recovery->err.code == ERR_NONE ? NULL : &recovery->err, recovery->user);
}

/* session_on_sandbox_known() goes on with what waits for files. */
void recovery_resume_session(struct session *session)
{
    if (session_state(session) == SESSION_ENDING) {
        if (!session_waits_for_files(session))
            session_end_resume(session);
        return;
    }
    if (!session_waits_for_files(session))
        session_teardown_resume(session);
    session_serve_soon(session);
}

static void resume_sessions(struct core *core)
{
    struct session *session;
    struct session *following;

    session_for_each_safe (session, following, core)
        recovery_resume_session(session);
}

static void go_on(struct recovery *recovery)
{
    struct core *core = recovery->core;

    core->recovery = NULL;
    if (core->parts.node) /* documents that are read from now on come from other machines */
        core->parts.store->load.same_boot = false;
    workspace_archive_start(core->archives);
    storage_start(core->storage);
    budgets_start(core->budgets);
    approvals_start(core->approvals);
    session_keys_start(core);
    resume_sessions(core);
    if (!core->stopping)
        pool_start(core->pool);
    retention_start(core->retention);
    scopes_start(core->scopes);
    grants_start(core->grants);
    log_info("recovered", kv("sessions", core->sessions_by_id.count),
             kv("sandboxes", core->sandboxes_by_id.count));
    finish(recovery);
}

/* --- third stage: what exists --------------------------------------------------------------- */

/* Executions that an earlier daemon left running in a sandbox that is not there to be adopted. */
static void lose_holds(struct session *session)
{
    if (session)
        session_lose_restored_holds(session, &lost_meanwhile);
}

static void finish_destroying(struct sandbox *sandbox)
{
    lose_holds(sandbox_session(sandbox));
    sandbox_resume_destroy(sandbox);
}

/* A sandbox that goes with its session is not adopted first. */
static void reconcile_made(struct sandbox *sandbox)
{
    const struct session *session = sandbox_session(sandbox);

    if (!session)
        sandbox_destroy(sandbox, END_REPLACED, "pool of an earlier daemon");
    else if (session_state(session) != SESSION_ENDING || session_keeps_files(session))
        sandbox_adopt(sandbox);
}

/* The sandbox stays as it is until a daemon has the backend again. */
static void report_absent(const struct sandbox *sandbox, const struct error *why)
{
    log_warn("sandbox of a backend that this daemon does not have: its state is unknown",
             kv("sandbox", sandbox_id(sandbox)), kv("backend", sandbox_backend(sandbox)->ops->name),
             kv("error", why->message), kv("hint", why->hint));
}

/* The table of recovery.h. */
void recovery_reconcile(struct sandbox *sandbox)
{
    const struct error *absence = backend_absence(sandbox_backend(sandbox));

    if (absence)
        report_absent(sandbox, absence);
    switch (sandbox_state(sandbox)) {
    case SANDBOX_UNKNOWN:
        reconcile_made(sandbox);
        break;
    case SANDBOX_CREATING:
        sandbox_destroy(sandbox, END_FAILED, "half created when the daemon ended");
        break;
    case SANDBOX_CRASHED:
        sandbox_destroy(sandbox, END_CRASHED, lost_meanwhile.detail);
        break;
    case SANDBOX_DESTROYING:
        finish_destroying(sandbox);
        break;
    case SANDBOX_NONE:
    case SANDBOX_READY:
    case SANDBOX_FREEZING:
    case SANDBOX_FROZEN:
    case SANDBOX_THAWING:
    case SANDBOX_FROZEN_BY_OTHERS:
    case SANDBOX_STATES:
        break;
    }
}

static void destroy_unrecorded(struct core *core, const struct backend *backend, const char *id)
{
    if (map_get(&core->sandboxes_by_id, id))
        return;
    log_warn("sandbox without a record; removing it", kv("sandbox", id),
             kv("backend", backend->ops->name));
    metrics_add(core->metrics, METRIC_SWEEP_REMOVED, 0, 1);
    sandbox_destroy(sandbox_restore_orphan(core, backend, id), END_FAILED, "orphan");
}

/* Asks the store whether a sandbox of a shared backend has a record: another node may have taken it
 * over. */
struct orphan_question {
    struct store_query query;
    struct core *core;             /* borrowed */
    const struct backend *backend; /* borrowed */
    char id[ID_SIZE];
    bool is_recorded;
};

static void on_record_of_orphan(struct store_query *query,
                                const struct sandbox_record *record UNUSED)
{
    container_of(query, struct orphan_question, query)->is_recorded = true;
}

static void on_orphan_known(struct store_query *query)
{
    struct orphan_question *question = container_of(query, struct orphan_question, query);

    if (query->err.code == ERR_NONE && !question->is_recorded && !question->core->stopping)
        destroy_unrecorded(question->core, question->backend, question->id);
    free(question);
}

static void ask_about_orphan(struct core *core, const struct backend *backend, const char *id)
{
    struct orphan_question *question = xnew(struct orphan_question);

    question->core = core;
    question->backend = backend;
    snprintf(question->id, sizeof(question->id), "%s", id);
    question->query = (struct store_query){ .on_sandbox = on_record_of_orphan,
                                            .done = on_orphan_known,
                                            .id = question->id };
    store_query(core->parts.store, STORE_SANDBOXES, &question->query);
}

static void destroy_orphan(struct core *core, const struct backend *backend, const char *id)
{
    if (map_get(&core->sandboxes_by_id, id))
        return;
    if (backend->ops->capabilities.shared)
        ask_about_orphan(core, backend, id);
    else
        destroy_unrecorded(core, backend, id);
}

static void release_search(struct orphan_search *search)
{
    if (--search->pending == 0)
        free(steal_ptr(&search->core->orphans));
}

static void on_existing(struct backend_op *op)
{
    struct orphan_list *list = container_of(op, struct orphan_list, op);

    if (op->err.code != ERR_NONE)
        log_warn("the backend could not list its sandboxes; continuing without it",
                 kv("backend", list->backend->ops->name), kv("error", op->err.message));
    else
        for (size_t i = 0; i < op->result.list.count; i++)
            destroy_orphan(list->search->core, list->backend, op->result.list.ids[i]);
    if (op->err.code == ERR_NONE)
        free(op->result.list.ids);
    release_search(list->search);
}

static void search_orphans(struct core *core)
{
    const struct backends *backends = core->parts.backends;
    size_t count = backends_count(backends);
    struct orphan_search *search = xmalloc(sizeof(*search) + count * sizeof(search->lists[0]));

    *search = (struct orphan_search){ .core = core, .pending = 1 };
    core->orphans = search;
    for (size_t i = 0; i < count; i++) {
        struct orphan_list *list = &search->lists[i];

        *list = (struct orphan_list){ .op.done = on_existing,
                                      .search = search,
                                      .backend = backends_at(backends, i) };
        if (backend_absence(list->backend))
            continue; /* its sandboxes stay as they are */
        search->pending++;
        backend_list(list->backend, &list->op);
    }
    release_search(search);
}

static void meet_reality(struct recovery *recovery)
{
    struct core *core = recovery->core;
    struct sandbox *sandbox;
    struct sandbox *following;
    struct session *session;

    if (recovery->err.code != ERR_NONE) {
        finish(recovery);
        return;
    }
    search_orphans(core);
    for (sandbox = sandbox_next(core, NULL); sandbox; sandbox = following) {
        following = sandbox_next(core, sandbox);
        recovery_reconcile(sandbox);
    }
    session_for_each (session, core) {
        if (!session_sandbox(session))
            lose_holds(session);
    }
    go_on(recovery);
}

/* --- second stage: what belongs to sessions ------------------------------------------------- */

static void on_sandbox(struct store_query *query, const struct sandbox_record *record)
{
    recovery_restore_sandbox(recovery_of(query)->core, record);
}

struct sandbox *recovery_restore_sandbox(struct core *core, const struct sandbox_record *record)
{
    struct session *session = map_get(&core->sessions_by_id, record->session_id);
    enum sandbox_state state = sandbox_state_parse(record->state);
    struct sandbox_order order;
    struct sandbox *sandbox;

    if (!id_is_valid(record->id, ID_SANDBOX)) {
        log_warn("record of a sandbox that cannot exist; removing it", kv("sandbox", record->id));
        store_forget_sandbox(core->parts.store, record->id);
        return NULL;
    }
    if (session && session_sandbox(session))
        session = NULL; /* it has another one: this one goes */
    if (session)
        order = session_order(session);
    sandbox = sandbox_restore(core, session ? &order : NULL, record);
    if (session)
        session_adopt_sandbox(session, sandbox);
    if (session && (state == SANDBOX_READY || state == SANDBOX_FROZEN) &&
        record->generation > session_generation(session)) {
        if (workspace_archive_can_restore(sandbox))
            sandbox_note_restored_files(sandbox); /* before it was recorded as ready */
        session_set_generation(session, record->generation);
    }
    return sandbox;
}

/* Its session has ended without it: no report of its end will come. */
static void end_stray(struct core *core, const struct execution_record *record)
{
    struct execution_record ended = *record;

    ended.state = execution_state_name(EXECUTION_CRASHED);
    ended.reason = "crashed: unknown";
    ended.ended = stamp_now(core);
    store_put_execution(core->parts.store, &ended);
}

static void on_execution(struct store_query *query, const struct execution_record *record)
{
    struct core *core = recovery_of(query)->core;
    struct session *session = map_get(&core->sessions_by_id, record->session_id);

    if (session)
        execution_restore(session, record);
    else if (!core_is_clustered(core)) /* otherwise its session may be another node's */
        end_stray(core, record);
}

/* The approvals of other nodes are in the same store. */
static void restore_approval(struct core *core, const struct document_record *record)
{
    scoped(json_decref) json_t *json = json_read(record->json, strlen(record->json), NULL);
    const char *session = json_string_value(json_object_get(json, "session"));

    if (!core->parts.node || (session && map_get(&core->sessions_by_id, session)))
        approvals_restore(core->approvals, record);
}

static void on_document(struct store_query *query, const struct document_record *record)
{
    struct core *core = recovery_of(query)->core;

    if (str_equal(record->kind, IDEMPOTENCY_KIND))
        idempotency_restore(core->idempotency, record);
    else if (str_equal(record->kind, SESSION_KEY_KIND))
        session_key_restore(core, record);
    else if (str_equal(record->kind, APPROVAL_KIND))
        restore_approval(core, record);
    else if (str_equal(record->kind, STORED_FILE_KIND))
        storage_restore(core->storage, record);
    else if (str_equal(record->kind, GRANT_KIND))
        grants_restore(core->grants, record);
    else
        budgets_restore(core->budgets, record);
}

static void load_rest(struct recovery *recovery)
{
    static const enum execution_state unfinished[] = { EXECUTION_QUEUED, EXECUTION_RUNNING };
    static const char *const documents[] = { SESSION_KEY_KIND, IDEMPOTENCY_KIND, APPROVAL_KIND,
                                             BUDGET_SESSION_KIND, BUDGET_OWNER_KIND };

    begin_stage(recovery, meet_reality);
    ask(recovery, STORE_SANDBOXES,
        (struct store_query){ .on_sandbox = on_sandbox, .node = recovery->core->parts.node });
    for (size_t i = 0; i < ARRAY_LENGTH(unfinished); i++)
        ask(recovery, STORE_EXECUTIONS,
            (struct store_query){ .on_execution = on_execution,
                                  .state = execution_state_name(unfinished[i]) });
    for (size_t i = 0; i < ARRAY_LENGTH(documents); i++)
        ask(recovery, STORE_DOCUMENTS,
            (struct store_query){ .on_document = on_document, .kind = documents[i] });
    if (core_is_clustered(recovery->core))
        ask(recovery, STORE_DOCUMENTS,
            (struct store_query){ .on_document = on_document, .kind = GRANT_KIND });
    else
        ask(recovery, STORE_DOCUMENTS,
            (struct store_query){ .on_document = on_document, .kind = STORED_FILE_KIND });
    answer_came(recovery);
}

/* --- first stage: sessions ------------------------------------------------------------------ */

static void on_session(struct store_query *query, const struct session_record *record)
{
    session_restore(recovery_of(query)->core, record);
}

void recovery_start(struct core *core, core_done_fn *done, void *user)
{
    struct recovery *recovery = xnew(struct recovery);

    *recovery = (struct recovery){ .core = core, .done = done, .user = user };
    core->recovery = recovery;
    begin_stage(recovery, load_rest);
    ask(recovery, STORE_SESSIONS,
        (struct store_query){ .on_session = on_session, .node = core->parts.node, .live = true });
    answer_came(recovery);
}

void recovery_free(struct recovery *recovery)
{
    free(recovery);
}
