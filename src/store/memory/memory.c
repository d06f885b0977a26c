#include "store/memory/memory.h"

#include "base/alloc.h"
#include "base/map.h"
#include "base/str.h"
#include "store/record.h"

#include <assert.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

/* --- tables -------------------------------------------------------------------------------- */

struct row {
    struct list node;      /* in the order of first puts */
    uint64_t position;     /* there */
    char *id;              /* owned */
    char *live_key;        /* owned; NULL unless it is a session that has a key and is not ended */
    struct change *change; /* owned; holds the record */
};

struct table {
    struct list rows;
    struct map by_id;
};

/* What a transaction did, so that it can be taken back. */
struct step {
    struct step *next;
    struct table *table;
    struct row *row;
    struct list *place; /* the node before it */
    bool added;
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
    struct map live_keys; /* to rows */
    uint64_t last_position;
    struct change_queue pending;
    struct list tickets;
    struct question *questions;
    struct question **questions_end;
    struct step *steps; /* of the running transaction, latest first */
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
    const struct session_record *session = (const void *)change->record;
    struct row *row = xnew(struct row);

    row->id = change_id(change);
    row->change = change;
    if (change->table == STORE_SESSIONS && session->key &&
        strcmp(session->state, STORE_STATE_ENDED) != 0)
        row->live_key = xasprintf("%s\x1f%s", session->owner, session->key);
    return row;
}

static void row_free(struct row *row)
{
    free(row->id);
    free(row->live_key);
    free(row);
}

static void row_link(struct memory_store *store, struct table *table, struct row *row,
                     struct list *place)
{
    list_insert_after(place, &row->node);
    map_put(&table->by_id, row->id, row);
    if (row->live_key)
        map_put(&store->live_keys, row->live_key, row);
}

static void row_unlink(struct memory_store *store, struct table *table, struct row *row)
{
    list_remove(&row->node);
    map_remove(&table->by_id, row->id);
    if (row->live_key)
        map_remove(&store->live_keys, row->live_key);
}

/* --- transactions -------------------------------------------------------------------------- */

static void note_step(struct memory_store *store, struct table *table, struct row *row,
                      struct list *place, bool added)
{
    struct step *step = xmalloc(sizeof(*step));

    *step = (struct step){ store->steps, table, row, place, added };
    store->steps = step;
}

static void remove_row(struct memory_store *store, struct table *table, struct row *row)
{
    note_step(store, table, row, row->node.previous, false);
    row_unlink(store, table, row);
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

static int apply_put(struct memory_store *store, struct change *change, struct error *err)
{
    struct table *table = &store->tables[change->table];
    struct row *row = row_new(change);
    struct row *old = map_get(&table->by_id, row->id);
    struct list *place = old ? old->node.previous : place_of(table, change);

    row->position = old ? old->position : ++store->last_position;
    if (old)
        remove_row(store, table, old);
    if (row->live_key && map_get(&store->live_keys, row->live_key)) {
        error_set(err, ERR_CONFLICT, "session %s: another session of the owner has its key",
                  row->id);
        row_free(row);
        return -1;
    }
    row_link(store, table, row, place);
    note_step(store, table, row, NULL, true);
    return 0;
}

static void remove_of_session(struct memory_store *store, enum store_table which, const char *id)
{
    const struct store_query of_session = { .session_id = id };
    struct table *table = &store->tables[which];
    struct row *row;
    struct row *following;

    list_for_each_safe (row, following, &table->rows, node) {
        if (record_matches(&record_types[which], row->change->record, FILTER_SESSION, &of_session))
            remove_row(store, table, row);
    }
}

static void apply_forget(struct memory_store *store, const struct change *change)
{
    scoped(free) char *id = change_id(change);
    struct table *table = &store->tables[change->table];
    struct row *row = map_get(&table->by_id, id);

    if (row)
        remove_row(store, table, row);
    if (change->table == STORE_SESSIONS) {
        remove_of_session(store, STORE_EXECUTIONS, id);
        remove_of_session(store, STORE_EVENTS, id);
    }
}

static void take_back(struct memory_store *store)
{
    struct step *step;

    while ((step = store->steps)) {
        store->steps = step->next;
        if (step->added) {
            row_unlink(store, step->table, step->row);
            row_free(step->row);
        } else {
            row_link(store, step->table, step->row, step->place);
        }
        free(step);
    }
}

/* The changes of puts live on in their rows; all else that the transaction replaced goes. */
static void keep(struct memory_store *store, struct change_queue *changes)
{
    struct step *step;
    struct change *change;

    while ((change = changes->first)) {
        changes->first = change->next;
        if (change->forget)
            free(change);
    }
    changes->last = NULL;
    while ((step = store->steps)) {
        store->steps = step->next;
        if (!step->added) {
            free(step->row->change);
            row_free(step->row);
        }
        free(step);
    }
}

static int apply_all(struct memory_store *store, const struct change_queue *changes,
                     struct error *err)
{
    if (store->fail_next != ERR_NONE) {
        error_set(err, store->fail_next, "commit failed, as the test asked");
        store->fail_next = ERR_NONE;
        return -1;
    }
    for (struct change *change = changes->first; change; change = change->next) {
        if (change->forget)
            apply_forget(store, change);
        else if (apply_put(store, change, err) < 0)
            return -1;
    }
    return 0;
}

static void commit_pending(struct memory_store *store)
{
    struct change_queue changes = change_queue_take(&store->pending);
    struct list tickets = LIST_INIT(tickets);
    struct error err = { 0 };

    if (!changes.first && list_is_empty(&store->tickets))
        return;
    while (!list_is_empty(&store->tickets)) {
        struct list *node = store->tickets.next;

        list_remove(node);
        list_append(&tickets, node);
    }
    if (apply_all(store, &changes, &err) < 0)
        take_back(store);
    else
        keep(store, &changes);
    store_transaction_ended(&store->base, &err, &changes);
    store_tickets_complete(&store->base, &tickets, &err);
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

    change_queue_append(&store->pending, change);
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

    list_for_each_safe (row, following, &table->rows, node) {
        free(row->change);
        row_free(row);
    }
    map_fini(&table->by_id);
}

static void memory_drain(struct store *base)
{
    struct memory_store *store = memory_from(base);

    while (store->pending.first || store->questions || !list_is_empty(&store->tickets))
        flush(&store->flush);
}

static void memory_free(struct store *base)
{
    struct memory_store *store = memory_from(base);

    loop_undefer(base->loop, &store->flush);
    for (size_t i = 0; i < RECORD_TABLES; i++)
        table_fini(&store->tables[i]);
    map_fini(&store->live_keys);
    free(store);
}

static const struct store_ops memory_ops = {
    .name = "memory",
    .drain = memory_drain,
    .free = memory_free,
    .change = memory_change,
    .commit = memory_commit,
    .query = memory_query,
    .query_expired = memory_query_expired,
};

struct store *store_open_memory(const struct store_options *options)
{
    struct memory_store *store = xnew(struct memory_store);

    store->base = (struct store){ .ops = &memory_ops, .loop = options->loop };
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
