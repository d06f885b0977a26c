/* SPDX-License-Identifier: Apache-2.0 */
#include "store/store.h"

#include "base/alloc.h"
#include "base/log.h"
#include "base/str.h"
#include "store/record.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

/* Versions of claims are unique among all processes that ever use the store: each begins anywhere in
 * 62 bits. */
static uint64_t first_version(void)
{
    uint64_t random;

    if (getrandom(&random, sizeof(random), 0) != sizeof(random))
        abort();
    return random >> 2;
}

void store_init(struct store *store, const struct store_ops *ops,
                const struct store_options *options)
{
    *store = (struct store){ .ops = ops,
                             .loop = options->loop,
                             .node = xstrdup(options->node ? options->node : ""),
                             .version = first_version() };
    list_init(&store->watches.started);
    list_init(&store->watches.notes);
}

void store_fini(struct store *store)
{
    free(steal_ptr(&store->node));
}

const struct error *store_absence(const struct store *store)
{
    return store->absence.code == ERR_NONE ? NULL : &store->absence;
}

void store_renew(struct store *store, struct store_renewal *renewal, const char *description)
{
    renewal->err = (struct error){ 0 };
    renewal->homeless = 0;
    renewal->sent_us = loop_now_us(store->loop);
    store->ops->renew(store, renewal, description);
}

void store_rehome(struct store *store, struct store_rehoming *rehoming,
                  const struct store_node *from, unsigned most)
{
    rehoming->err = (struct error){ 0 };
    rehoming->taken = 0;
    rehoming->sequence = 0;
    store->ops->rehome(store, rehoming, from, most);
}

void store_drain(struct store *store)
{
    if (store)
        store->ops->drain(store);
}

void store_close(struct store *store)
{
    store_drain(store);
    if (store)
        store->ops->free(store);
}

static void change(struct store *store, enum store_table table, bool forget, const void *record)
{
    store->changes++;
    store->ops->change(store, change_new(table, forget, record));
}

static void put(struct store *store, enum store_table table, const void *record)
{
    change(store, table, false, record);
}

/* The same, with the node of this process unless it names one. */
static void put_of_node(struct store *store, enum store_table table, const void *record,
                        size_t node_at)
{
    alignas(max_align_t) char copy[RECORD_MAXIMUM];
    const char **node = (const char **)(void *)(copy + node_at);

    memcpy(copy, record, record_types[table].size);
    if (str_is_empty(*node))
        *node = store->node;
    put(store, table, copy);
}

void store_put_session(struct store *store, const struct session_record *record)
{
    assert(record->id[0] && !str_is_empty(record->state));
    put_of_node(store, STORE_SESSIONS, record, offsetof(struct session_record, node));
}

void store_put_sandbox(struct store *store, const struct sandbox_record *record)
{
    assert(record->id[0] && !str_is_empty(record->state));
    put_of_node(store, STORE_SANDBOXES, record, offsetof(struct sandbox_record, node));
}

void store_put_execution(struct store *store, const struct execution_record *record)
{
    assert(record->id[0] && record->session_id[0] && !str_is_empty(record->state));
    put(store, STORE_EXECUTIONS, record);
}

void store_put_event(struct store *store, const struct event_record *record)
{
    assert(record->sequence && !str_is_empty(record->type));
    put(store, STORE_EVENTS, record);
}

void store_put_document(struct store *store, const struct document_record *record)
{
    assert(!str_is_empty(record->kind) && !str_is_empty(record->id) && !record->version);
    put(store, STORE_DOCUMENTS, record);
}

void store_forget_session(struct store *store, const char *id)
{
    struct session_record record = { 0 };

    snprintf(record.id, sizeof(record.id), "%s", id);
    change(store, STORE_SESSIONS, true, &record);
}

void store_forget_sandbox(struct store *store, const char *id)
{
    struct sandbox_record record = { 0 };

    snprintf(record.id, sizeof(record.id), "%s", id);
    change(store, STORE_SANDBOXES, true, &record);
}

void store_forget_document(struct store *store, const char *kind, const char *id)
{
    struct document_record record = { .kind = kind, .id = id };

    change(store, STORE_DOCUMENTS, true, &record);
}

static void submit(struct store *store, struct store_claim *claim, uint64_t expected,
                   const struct document_record *document, bool is_release, store_claim_fn *done)
{
    assert(done && !str_is_empty(document->kind) && !str_is_empty(document->id));
    *claim = (struct store_claim){ .done = done, .version = document->version };
    claim->private.expected = expected;
    claim->private.change = change_new(STORE_DOCUMENTS, is_release, document);
    store->changes++;
    store->ops->claim(store, claim);
}

void store_claim(struct store *store, struct store_claim *claim, uint64_t expected,
                 const struct document_record *document, store_claim_fn *done)
{
    struct document_record claimed = *document;

    claimed.version = ++store->version;
    submit(store, claim, expected, &claimed, false, done);
}

void store_claim_guard(struct store_claim *claim, const char *session_id)
{
    snprintf(claim->private.guarded, sizeof(claim->private.guarded), "%s", session_id);
}

void store_release(struct store *store, struct store_claim *claim, uint64_t expected,
                   const char *kind, const char *id, store_claim_fn *done)
{
    submit(store, claim, expected, &(struct document_record){ .kind = kind, .id = id }, true, done);
}

void store_commit_as(struct store *store, struct store_ticket *ticket, enum store_grade grade,
                     store_done_fn *done)
{
    assert(done);
    *ticket = (struct store_ticket){ .done = done, .grade = grade, .changes = store->changes };
    store->ops->commit(store, ticket);
}

void store_commit(struct store *store, struct store_ticket *ticket, store_done_fn *done)
{
    store_commit_as(store, ticket, STORE_SYNCED, done);
}

bool store_is_written(const struct store *store)
{
    return store->written == store->changes;
}

static bool query_can_deliver(enum store_table table, const struct store_query *query)
{
    switch (table) {
    case STORE_SESSIONS:
        return query->on_session;
    case STORE_SANDBOXES:
        return query->on_sandbox;
    case STORE_EXECUTIONS:
        return query->on_execution;
    case STORE_EVENTS:
        return query->on_event;
    case STORE_DOCUMENTS:
        return query->on_document;
    }
    return false;
}

void *store_copy_record(enum store_table table, const void *record)
{
    return record_copy(&record_types[table], record, 0);
}

void store_query(struct store *store, enum store_table table, struct store_query *query)
{
    assert(query->done && query_can_deliver(table, query));
    assert(!query->label_count ||
           (table == STORE_SESSIONS && str_equal(query->state, STORE_STATE_ENDED) &&
            str_is_empty(query->id) && str_is_empty(query->key)));
    query->err = (struct error){ 0 };
    query->total = 0;
    query->is_cut = false;
    store->ops->query(store, table, query);
}

void store_query_expired(struct store *store, int64_t now_wall_us, struct store_query *query)
{
    assert(query->done && query->on_session);
    query->err = (struct error){ 0 };
    query->total = 0;
    query->is_cut = false;
    store->ops->query_expired(store, now_wall_us, query);
}

static void report_lost(struct store *store, const struct error *err, struct change_queue *lost)
{
    uint64_t count = 0;
    uint64_t left_out;

    for (struct change *change = lost->first; change; change = change->next) {
        scoped(free) char *id = change_id(change);

        count++;
        log_debug("store change lost", kv("table", record_types[change->table].table), kv("id", id),
                  kv("forget", change->forget));
        if (store->on_lost)
            store->on_lost(store, change->table, id);
    }
    store->counts.lost += count;
    if (log_repeat_is_due(&store->failures_logged, clock_now_us(&clock_system), &left_out))
        log_error("store transaction failed", kv("error", err->message), kv("hint", err->hint),
                  kv("changes_lost", count), kv("repeated", left_out));
}

void store_note_failure(struct store *store, const struct error *err)
{
    store->counts.failing = true;
    store->counts.last_failure = *err;
}

void store_transaction_ended(struct store *store, const struct error *err,
                             struct change_queue *lost)
{
    store->counts.transactions++;
    store->counts.failing = false;
    if (err->code != ERR_NONE) {
        store->counts.failed_transactions++;
        store_note_failure(store, err);
        report_lost(store, err, lost);
    }
    change_queue_free(lost);
}

void store_tickets_complete(struct store *store, struct list *tickets, const struct error *err)
{
    struct error reported = err->code != ERR_NONE ? *err : store->unheard;

    store->unheard = list_is_empty(tickets) ? reported : (struct error){ 0 };
    while (!list_is_empty(tickets)) {
        struct store_ticket *ticket = list_entry(tickets->next, struct store_ticket, node);

        list_remove(&ticket->node);
        if (reported.code == ERR_NONE)
            store->written = MAX(store->written, ticket->changes);
        ticket->err = &reported;
        ticket->done(ticket);
    }
}
