/* SPDX-License-Identifier: Apache-2.0 */
#include "core/rehome.h"

#include "backend/backends.h"
#include "base/alloc.h"
#include "base/log.h"
#include "base/str.h"
#include "core/events.h"
#include "core/execution_state.h"
#include "core/grants.h"
#include "core/metrics.h"
#include "core/money/approvals.h"
#include "core/money/budget.h"
#include "core/recovery.h"
#include "core/run/execution.h"
#include "core/sandbox/sandbox.h"
#include "core/sandbox/workspace_archive.h"
#include "core/session/scopes.h"
#include "core/session/session_key.h"
#include "core/session/session_move.h"
#include "core/session/session_recover.h"
#include "core/stamp.h"
#include "store/store.h"
#include "wire/json.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

enum { QUERIES = 8, EVENT_MAXIMUM = 1024 };

static const char node_lost[] = "crashed: node lost";

struct rehoming_query {
    struct store_query query;
    struct rehoming *rehoming; /* borrowed */
};

/* Copies of records of one kind. */
struct found {
    void **records; /* owned */
    size_t count;
};

/*
 * One session that comes. All that the store has of it is read before anything is restored: a session
 * that is in memory can be used, ended and freed, and must be complete.
 */
struct rehoming {
    struct list node;  /* core->rehomings */
    struct core *core; /* borrowed */
    char *from;        /* owned: the lost node; NULL: it was given up */
    char session_id[ID_SIZE];
    struct session_record
        *record; /* owned; NULL until it is read, and when it is not to be taken */
    char *key;   /* owned: "owner\nkey"; NULL without one */
    struct found sandboxes, documents, executions;
    struct rehoming_query queries[QUERIES];
    unsigned query_count, pending;
    bool is_incomplete; /* a query has failed */
};

/* A session of the lost node, while it is restored here. */
struct arrival {
    const struct rehoming *rehoming;
    struct core *core;
    struct session *session;
    uint64_t generation; /* of its sandbox there; 0: it had none, or this node can reach it */
    bool was_ready;
    unsigned ended; /* executions */
};

static void found_add(struct found *found, enum store_table table, const void *record)
{
    found->records = xrealloc(found->records, found->count + 1, sizeof(*found->records));
    found->records[found->count++] = store_copy_record(table, record);
}

static void found_fini(struct found *found)
{
    for (size_t i = 0; i < found->count; i++)
        free(found->records[i]);
    free(found->records);
}

static void rehoming_free(struct rehoming *rehoming)
{
    list_remove(&rehoming->node);
    found_fini(&rehoming->sandboxes);
    found_fini(&rehoming->documents);
    found_fini(&rehoming->executions);
    free(rehoming->record);
    free(rehoming->from);
    free(rehoming->key);
    free(rehoming);
}

static struct rehoming *rehoming_of(struct store_query *query)
{
    return container_of(query, struct rehoming_query, query)->rehoming;
}

/* --- what it brings along ------------------------------------------------------------------- */

static bool can_reach(const struct core *core, const struct sandbox_record *record)
{
    const struct backend *backend = backends_find(core->parts.backends, record->backend);

    return backend && backend->ops->capabilities.shared &&
           !map_get(&core->sandboxes_by_id, record->id);
}

/* From now on this is the node that has it. */
static struct sandbox *take_sandbox(struct core *core, const struct sandbox_record *record)
{
    struct sandbox_record taken = *record;

    taken.node = NULL;
    store_put_sandbox(core->parts.store, &taken);
    return recovery_restore_sandbox(core, &taken);
}

/* Returns the sandbox if this node can reach it. */
static struct sandbox *restore_sandbox(struct arrival *arrival, const struct sandbox_record *record)
{
    enum sandbox_state state = sandbox_state_parse(record->state);

    if (can_reach(arrival->core, record))
        return take_sandbox(arrival->core, record);
    if (record->generation < arrival->generation)
        return NULL;
    arrival->generation = record->generation;
    arrival->was_ready = state == SANDBOX_READY || state == SANDBOX_FROZEN;
    return NULL;
}

static void tell_ended(struct session *session, const struct execution_record *record)
{
    scoped(buffer_fini) struct buffer text = BUFFER_INIT(EVENT_MAXIMUM);
    struct json_writer json = JSON_WRITER(&text);

    json_begin_object(&json, NULL);
    json_put_text(&json, "execution_id", record->id);
    json_put_text(&json, "state", record->state);
    json_put_text(&json, "reason", record->reason);
    json_end_object(&json);
    session_emit(session, "execution.ended", buffer_text(&text));
}

/* Without its sandbox, what it had written is on the disk of the lost node. */
static void restore_execution(struct arrival *arrival, const struct execution_record *record)
{
    struct execution_record ended = *record;

    if (session_sandbox(arrival->session)) {
        execution_restore(arrival->session, record);
        return;
    }
    ended.state = execution_state_name(EXECUTION_CRASHED);
    ended.reason = node_lost;
    ended.ended = stamp_now(arrival->core);
    store_put_execution(arrival->core->parts.store, &ended);
    tell_ended(arrival->session, &ended);
    arrival->ended++;
}

static void restore_document(struct arrival *arrival, const struct document_record *record)
{
    struct core *core = arrival->core;

    if (str_equal(record->kind, SESSION_KEY_KIND))
        session_key_restore(core, record);
    else if (str_equal(record->kind, APPROVAL_KIND))
        approvals_restore_of(core->approvals, record, arrival->rehoming->session_id);
    else
        budgets_restore(core->budgets, record);
}

static void tell_moved(const struct arrival *arrival)
{
    const char *from = arrival->rehoming->from;
    scoped(buffer_fini) struct buffer text = BUFFER_INIT(EVENT_MAXIMUM);
    struct json_writer json = JSON_WRITER(&text);

    json_begin_object(&json, NULL);
    if (from)
        json_put_text(&json, "from", from);
    json_put_text(&json, "node", arrival->core->parts.node);
    json_put_text(&json, "reason", from ? "node lost" : "drain");
    json_end_object(&json);
    session_emit(arrival->session, "session.moved", buffer_text(&text));
    log_info("session moved to this node", kv("session", arrival->rehoming->session_id),
             kv("from", from ? from : ""), kv("executions", arrival->ended));
}

static void settle(const struct arrival *arrival)
{
    struct session *session = arrival->session;

    session_key_repair(session);
    tell_moved(arrival);
    if (arrival->generation && !session_sandbox(session))
        session_lose_elsewhere(session, arrival->was_ready ? arrival->generation : 0);
    session_check_archive(session);
    budget_recover(session);
    approvals_resume_of(arrival->core->approvals, arrival->rehoming->session_id);
}

static void restore(const struct rehoming *rehoming)
{
    const struct found *sandboxes = &rehoming->sandboxes;
    scoped(free) struct sandbox **taken = xcalloc(sandboxes->count + 1, sizeof(struct sandbox *));
    struct arrival arrival = { .rehoming = rehoming,
                               .core = rehoming->core,
                               .session = session_restore(rehoming->core, rehoming->record) };

    for (size_t i = 0; i < sandboxes->count; i++)
        taken[i] = restore_sandbox(&arrival, sandboxes->records[i]);
    for (size_t i = 0; i < rehoming->documents.count; i++)
        restore_document(&arrival, rehoming->documents.records[i]);
    for (size_t i = 0; i < rehoming->executions.count; i++)
        restore_execution(&arrival, rehoming->executions.records[i]);
    settle(&arrival);
    for (size_t i = 0; i < sandboxes->count; i++)
        if (taken[i])
            recovery_reconcile(taken[i]);
    recovery_resume_session(arrival.session);
}

/* --- reading -------------------------------------------------------------------------------- */

static bool is_to_take(const struct core *core, const struct session_record *record)
{
    return !core->stopping && str_equal(record->node, core->parts.node) &&
           !str_equal(record->state, STORE_STATE_ENDED) &&
           !map_get(&core->sessions_by_id, record->id);
}

static void on_sandbox(struct store_query *query, const struct sandbox_record *record)
{
    found_add(&rehoming_of(query)->sandboxes, STORE_SANDBOXES, record);
}

static void on_document(struct store_query *query, const struct document_record *record)
{
    found_add(&rehoming_of(query)->documents, STORE_DOCUMENTS, record);
}

static void on_execution(struct store_query *query, const struct execution_record *record)
{
    found_add(&rehoming_of(query)->executions, STORE_EXECUTIONS, record);
}

static void note_failure(const struct rehoming *rehoming, const struct store_query *query)
{
    if (query->err.code != ERR_NONE)
        log_warn("a session that moved here could not be read; it is looked for again",
                 kv("session", rehoming->session_id), kv("error", query->err.message));
}

static void on_answer(struct store_query *query)
{
    struct rehoming *rehoming = rehoming_of(query);

    note_failure(rehoming, query);
    rehoming->is_incomplete |= query->err.code != ERR_NONE;
    if (--rehoming->pending > 0)
        return;
    if (!rehoming->is_incomplete && is_to_take(rehoming->core, rehoming->record))
        restore(rehoming);
    rehoming_free(rehoming);
}

static void ask(struct rehoming *rehoming, enum store_table table, struct store_query query)
{
    struct rehoming_query *slot = &rehoming->queries[rehoming->query_count++];

    assert(rehoming->query_count <= QUERIES);
    query.done = on_answer;
    *slot = (struct rehoming_query){ .query = query, .rehoming = rehoming };
    rehoming->pending++;
    store_query(rehoming->core->parts.store, table, &slot->query);
}

static void ask_for_executions(struct rehoming *rehoming)
{
    static const enum execution_state unfinished[] = { EXECUTION_QUEUED, EXECUTION_RUNNING };

    for (size_t i = 0; i < ARRAY_LENGTH(unfinished); i++)
        ask(rehoming, STORE_EXECUTIONS,
            (struct store_query){ .on_execution = on_execution,
                                  .session_id = rehoming->session_id,
                                  .state = execution_state_name(unfinished[i]) });
}

static void ask_for_rest(struct rehoming *rehoming)
{
    const char *id = rehoming->session_id;

    rehoming->query_count = 0;
    ask(rehoming, STORE_SANDBOXES,
        (struct store_query){ .on_sandbox = on_sandbox, .session_id = id });
    ask_for_executions(rehoming);
    ask(rehoming, STORE_DOCUMENTS,
        (struct store_query){ .on_document = on_document, .kind = BUDGET_SESSION_KIND, .id = id });
    ask(rehoming, STORE_DOCUMENTS,
        (struct store_query){
            .on_document = on_document, .kind = APPROVAL_KIND, .owner = rehoming->record->owner });
    if (rehoming->key)
        ask(rehoming, STORE_DOCUMENTS,
            (struct store_query){
                .on_document = on_document, .kind = SESSION_KEY_KIND, .id = rehoming->key });
}

static void on_session(struct store_query *query, const struct session_record *record)
{
    struct rehoming *rehoming = rehoming_of(query);

    if (rehoming->record || !is_to_take(rehoming->core, record))
        return;
    rehoming->record = store_copy_record(STORE_SESSIONS, record);
    rehoming->key = record->key ? xasprintf("%s\n%s", record->owner, record->key) : NULL;
}

static void on_session_read(struct store_query *query)
{
    struct rehoming *rehoming = rehoming_of(query);

    note_failure(rehoming, query);
    if (rehoming->record && query->err.code == ERR_NONE)
        ask_for_rest(rehoming);
    else
        rehoming_free(rehoming);
}

void core_take_session(struct core *core, const char *session_id, const char *from)
{
    struct rehoming *rehoming = xnew(struct rehoming);
    struct rehoming_query *first = &rehoming->queries[0];

    assert(core->parts.node);
    rehoming->core = core;
    rehoming->from = from ? xstrdup(from) : NULL;
    snprintf(rehoming->session_id, ID_SIZE, "%s", session_id);
    list_append(&core->rehomings, &rehoming->node);
    *first = (struct rehoming_query){
        .query = { .on_session = on_session, .done = on_session_read, .id = rehoming->session_id },
        .rehoming = rehoming
    };
    store_query(core->parts.store, STORE_SESSIONS, &first->query);
}

/* --- all that are not in memory ------------------------------------------------------------- */

struct search {
    struct store_query query;
    struct core *core; /* borrowed */
    char *from;        /* owned: whose records; NULL: our own */
};

static void on_found(struct store_query *query, const struct session_record *record)
{
    struct core *core = container_of(query, struct search, query)->core;

    if (is_to_take(core, record))
        core_take_session(core, record->id, NULL);
}

static void on_searched(struct store_query *query)
{
    struct search *search = container_of(query, struct search, query);

    free(search->from);
    free(search);
}

void core_drop_node(struct core *core, const char *node)
{
    grants_drop_node(core, node);
    scopes_drop_node(core, node);
}

void core_take_sessions(struct core *core)
{
    struct search *search = xnew(struct search);

    search->core = core;
    search->query = (struct store_query){
        .on_session = on_found, .done = on_searched, .node = core->parts.node, .live = true
    };
    store_query(core->parts.store, STORE_SESSIONS, &search->query);
}

/* --- sandboxes that have no session ----------------------------------------------------------- */

static void on_member(struct store_query *query, const struct sandbox_record *record)
{
    struct core *core = container_of(query, struct search, query)->core;
    struct sandbox *sandbox;

    if (*record->session_id || core->stopping || !can_reach(core, record))
        return;
    sandbox = take_sandbox(core, record);
    if (sandbox)
        recovery_reconcile(sandbox);
}

void core_take_pool(struct core *core, const char *from)
{
    struct search *search = xnew(struct search);

    search->core = core;
    search->from = xstrdup(from);
    search->query =
        (struct store_query){ .on_sandbox = on_member, .done = on_searched, .node = search->from };
    store_query(core->parts.store, STORE_SANDBOXES, &search->query);
}

/* --- sessions that go ----------------------------------------------------------------------- */

unsigned core_give_up_sessions(struct core *core)
{
    struct session *session, *following;
    unsigned stay = 0;

    session_for_each_safe (session, following, core) {
        if (session_can_go(session))
            session_give_up(session);
        else
            stay++;
    }
    return stay;
}

void rehomings_free(struct core *core)
{
    struct rehoming *rehoming, *following;

    list_for_each_safe (rehoming, following, &core->rehomings, node)
        rehoming_free(rehoming);
}
