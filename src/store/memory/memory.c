/* SPDX-License-Identifier: Apache-2.0 */
#include "store/memory/memory.h"

#include "base/alloc.h"
#include "base/map.h"
#include "base/str.h"
#include "store/claims.h"
#include "store/record.h"
#include "store/watches.h"

#include <assert.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

/* --- tables -------------------------------------------------------------------------------- */

struct row {
    struct list node;      /* in the order of first puts */
    uint64_t position;     /* there */
    char *id;              /* owned */
    struct change *change; /* owned; holds the record */
};

struct table {
    struct list rows;
    struct map by_id;
};

struct question {
    struct question *next;
    struct store_query *query; /* borrowed */
    enum store_table table;
    bool expired_only;
    int64_t now_wall_us;
};

struct memory_store {
    struct store base;
    struct table tables[RECORD_TABLES];
    struct claims claims;
    uint64_t last_position;
    struct change_queue pending;
    struct list tickets;
    struct question *questions;
    struct question **questions_end;
    struct deferred flush;
    enum error_code fail_next;
};

static const struct store_ops memory_ops;

static struct memory_store *memory_from(struct store *store)
{
    assert(store->ops == &memory_ops);
    return container_of(store, struct memory_store, base);
}

static struct row *row_new(struct change *change)
{
    struct row *row = xnew(struct row);

    row->id = change_id(change);
    row->change = change;
    return row;
}

static void row_free(struct row *row)
{
    free(row->change);
    free(row->id);
    free(row);
}

/* --- transactions -------------------------------------------------------------------------- */

static void remove_row(struct table *table, struct row *row)
{
    list_remove(&row->node);
    map_remove(&table->by_id, row->id);
    row_free(row);
}

static struct list *place_of(struct table *table, const struct change *change)
{
    const struct event_record *event = (const void *)change->record;
    struct list *place = table->rows.previous;

    if (change->table != STORE_EVENTS)
        return place;
    for (; place != &table->rows; place = place->previous) {
        const struct row *row = list_entry(place, struct row, node);

        if (((const struct event_record *)(const void *)row->change->record)->sequence <
            event->sequence)
            break;
    }
    return place;
}

static void apply_put(struct memory_store *store, struct change *change)
{
    struct table *table = &store->tables[change->table];
    struct row *row = row_new(change);
    struct row *old = map_get(&table->by_id, row->id);
    struct list *place = old ? old->node.previous : place_of(table, change);

    row->position = old ? old->position : ++store->last_position;
    if (old)
        remove_row(table, old);
    list_insert_after(place, &row->node);
    map_put(&table->by_id, row->id, row);
}

static void remove_of_session(struct memory_store *store, enum store_table which, const char *id)
{
    const struct store_query of_session = { .session_id = id };
    struct table *table = &store->tables[which];
    struct row *row;
    struct row *following;

    list_for_each_safe (row, following, &table->rows, node) {
        if (record_matches(&record_types[which], row->change->record, FILTER_SESSION, &of_session))
            remove_row(table, row);
    }
}

static void apply_forget(struct memory_store *store, const struct change *change)
{
    scoped(free) char *id = change_id(change);
    struct table *table = &store->tables[change->table];
    struct row *row = map_get(&table->by_id, id);

    if (row)
        remove_row(table, row);
    if (change->table == STORE_SESSIONS) {
        remove_of_session(store, STORE_EXECUTIONS, id);
        remove_of_session(store, STORE_EVENTS, id);
    }
}

/* The changes of puts live on in their rows. */
static int apply_all(struct memory_store *store, struct change_queue *changes, struct error *err)
{
    struct change *change;

    if (store->fail_next != ERR_NONE) {
        error_set(err, store->fail_next, "commit failed, as the test asked");
        store->fail_next = ERR_NONE;
        return -1;
    }
    while ((change = changes->first)) {
        changes->first = change->next;
        if (!change->forget) {
            apply_put(store, change);
            continue;
        }
        apply_forget(store, change);
        free(change);
    }
    changes->last = NULL;
    return 0;
}

static bool something_is_pending(const struct memory_store *store)
{
    return store->pending.first || !list_is_empty(&store->tickets) ||
           claims_are_waiting(&store->claims);
}

static void commit_pending(struct memory_store *store)
{
    struct change_queue changes;
    struct list tickets = LIST_INIT(tickets);
    struct error err = { 0 };

    if (!something_is_pending(store))
        return;
    claims_decide(&store->claims, clock_wall_us(loop_clock(store->base.loop)), &store->pending);
    changes = change_queue_take(&store->pending);
    list_move_all(&store->tickets, &tickets);
    store_watches_note(&store->base, &changes);
    (void)apply_all(store, &changes, &err);
    store_transaction_ended(&store->base, &err, &changes);
    claims_end(&store->claims, &err);
    store_tickets_complete(&store->base, &tickets, &err);
    store_watches_tell(&store->base, &err);
}

/* --- queries ------------------------------------------------------------------------------- */

static bool has_labels(const struct store_query *query, const char *labels_json)
{
    json_t *labels = query->label_count ? json_loads(labels_json, 0, NULL) : NULL;
    bool fits = true;

    for (unsigned i = 0; i < query->label_count; i++) {
        const char *value = json_string_value(json_object_get(labels, query->labels[i].name));

        fits = fits && str_equal(value, query->labels[i].value);
    }
    json_decref(labels);
    return fits;
}

static bool is_visible(const struct memory_store *store, const struct question *question,
                       unsigned filters, const void *record)
{
    const struct event_record *event = record;
    const struct document_record *document = record;
    const struct session_record *session = record;

    if (question->expired_only)
        return session->retain_until_wall_us > 0 &&
               session->retain_until_wall_us <= question->now_wall_us;
    if (question->table == STORE_EVENTS && event->sequence <= question->query->after)
        return false;
    if (question->table == STORE_DOCUMENTS && document->expires_wall_us &&
        document->expires_wall_us <= clock_wall_us(loop_clock(store->base.loop)))
        return false;
    return record_matches(&record_types[question->table], record, filters, question->query) &&
           (!question->query->label_count || has_labels(question->query, session->labels_json));
}

static int compare_retention(const void *a, const void *b)
{
    const struct session_record *const *left = a;
    const struct session_record *const *right = b;

    return ((*left)->retain_until_wall_us > (*right)->retain_until_wall_us) -
           ((*left)->retain_until_wall_us < (*right)->retain_until_wall_us);
}

/* A copy that knows its position, because a callback may cause anything. */
enum { COPY_HEADER = alignof(max_align_t) };

static void *copy_row(enum store_table table, const struct row *row)
{
    char *copy = record_copy(&record_types[table], row->change->record, COPY_HEADER);

    memcpy(copy, &row->position, sizeof(row->position));
    return copy + COPY_HEADER;
}

static uint64_t position_of(const void *copy)
{
    uint64_t position;

    memcpy(&position, (const char *)copy - COPY_HEADER, sizeof(position));
    return position;
}

static bool is_behind(const struct question *question, uint64_t position)
{
    const struct store_query *query = question->query;

    if (!query->behind || question->table == STORE_EVENTS || question->expired_only)
        return true;
    return query->newest_first ? position < query->behind : position > query->behind;
}

static size_t collect(struct memory_store *store, const struct question *question, void **records)
{
    unsigned filters = record_filters(&record_types[question->table], question->query);
    struct list *rows = &store->tables[question->table].rows;
    bool backwards = question->query->newest_first;
    size_t count = 0;

    for (struct list *node = backwards ? rows->previous : rows->next; node != rows;
         node = backwards ? node->previous : node->next) {
        const struct row *row = list_entry(node, struct row, node);

        if (!is_visible(store, question, filters, row->change->record))
            continue;
        question->query->total++;
        if (is_behind(question, row->position))
            records[count++] = copy_row(question->table, row);
    }
    if (question->expired_only && count)
        qsort(records, count, sizeof(*records), compare_retention);
    return count;
}

static void answer(struct memory_store *store, const struct question *question)
{
    struct store_query *query = question->query;
    scoped(free) void **records =
        xcalloc(store->tables[question->table].by_id.count, sizeof(*records));
    size_t count = collect(store, question, records);
    size_t from = question->table == STORE_EVENTS ? 0 : MIN((size_t)query->after, count);
    size_t until = query->limit ? MIN(from + query->limit, count) : count;
    size_t bytes = 0;

    for (size_t i = 0; i < count; i++) {
        if (query->limit_bytes && bytes >= query->limit_bytes)
            until = MIN(until, i);
        if (i >= from && i < until) {
            bytes += record_size(&record_types[question->table], records[i]);
            query->position = position_of(records[i]);
            record_deliver(question->table, query, records[i]);
        }
        free((char *)records[i] - COPY_HEADER);
    }
    query->is_cut = until < count;
    query->done(query);
}

static struct question *take_questions(struct memory_store *store)
{
    struct question *first = store->questions;

    store->questions = NULL;
    store->questions_end = &store->questions;
    return first;
}

static void answer_all(struct memory_store *store, struct question *question)
{
    while (question) {
        struct question *next = question->next;

        answer(store, question);
        free(question);
        question = next;
    }
}

static void flush(struct deferred *deferred)
{
    struct memory_store *store = container_of(deferred, struct memory_store, flush);
    struct question *questions = take_questions(store);

    commit_pending(store);
    answer_all(store, questions);
}

static void ask(struct store *base, const struct question *template)
{
    struct memory_store *store = memory_from(base);
    struct question *question = xmalloc(sizeof(*question));

    *question = *template;
    *store->questions_end = question;
    store->questions_end = &question->next;
    loop_defer_last(base->loop, &store->flush, flush);
}

/* --- the operations ------------------------------------------------------------------------ */

static void memory_change(struct store *base, struct change *change)
{
    struct memory_store *store = memory_from(base);

    assert(!claims_have(&store->claims, change));
    change_queue_append(&store->pending, change);
    loop_defer_last(base->loop, &store->flush, flush);
}

static void memory_claim(struct store *base, struct store_claim *claim)
{
    struct memory_store *store = memory_from(base);

    claims_add(&store->claims, claim);
    loop_defer_last(base->loop, &store->flush, flush);
}

static void memory_commit(struct store *base, struct store_ticket *ticket)
{
    struct memory_store *store = memory_from(base);

    list_append(&store->tickets, &ticket->node);
    loop_defer_last(base->loop, &store->flush, flush);
}

static void memory_query(struct store *base, enum store_table table, struct store_query *query)
{
    ask(base, &(struct question){ .query = query, .table = table });
}

static void memory_query_expired(struct store *base, int64_t now_wall_us, struct store_query *query)
{
    ask(base, &(struct question){ .query = query,
                                  .table = STORE_SESSIONS,
                                  .expired_only = true,
                                  .now_wall_us = now_wall_us });
}

static void table_fini(struct table *table)
{
    struct row *row;
    struct row *following;

    list_for_each_safe (row, following, &table->rows, node)
        row_free(row);
    map_fini(&table->by_id);
}

static void memory_drain(struct store *base)
{
    struct memory_store *store = memory_from(base);

    while (something_is_pending(store) || store->questions)
        flush(&store->flush);
}

static void memory_free(struct store *base)
{
    struct memory_store *store = memory_from(base);

    loop_undefer(base->loop, &store->flush);
    for (size_t i = 0; i < RECORD_TABLES; i++)
        table_fini(&store->tables[i]);
    claims_fini(&store->claims);
    store_fini(base);
    free(store);
}

static const struct store_ops memory_ops = {
    .name = "memory",
    .drain = memory_drain,
    .free = memory_free,
    .change = memory_change,
    .commit = memory_commit,
    .claim = memory_claim,
    .watch = store_watch_nothing,
    .query = memory_query,
    .query_expired = memory_query_expired,
};

struct store *store_open_memory(const struct store_options *options)
{
    struct memory_store *store = xnew(struct memory_store);

    store_init(&store->base, &memory_ops, options);
    claims_init(&store->claims);
    store->questions_end = &store->questions;
    list_init(&store->tickets);
    for (size_t i = 0; i < RECORD_TABLES; i++)
        list_init(&store->tables[i].rows);
    return &store->base;
}

void store_memory_fail_next(struct store *store, enum error_code code)
{
    memory_from(store)->fail_next = code;
}

size_t store_memory_count(struct store *store, enum store_table table)
{
    return memory_from(store)->tables[table].by_id.count;
}
