/* SPDX-License-Identifier: Apache-2.0 */
#include "store/redis/private.h"

#include "base/alloc.h"
#include "base/log.h"
#include "base/str.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { EXAMINE_MOST = 1000, WANTED_MOST = 500, FILTER_MAXIMUM = 1024 * 1024 };

struct redis_found {
    struct redis_found *next;
    uint64_t position;
    alignas(max_align_t) char record[];
};

/* Successors: waiting → reading → (counting) → over. */
enum asking_state { ASKING_WAITING, ASKING_READING, ASKING_COUNTING };

struct redis_asking {
    struct list node;
    struct redis_store *store; /* borrowed */
    struct store_query *query; /* borrowed */
    enum store_table table;
    enum asking_state state;
    bool expired_only;
    bool by_text;
    int64_t now_wall_us;
    uint64_t needs; /* the commit that has all puts made before it */
    struct redis_plan plan;
    char cursor[32];
    uint64_t offset;  /* where scores are not unique */
    uint64_t skipped; /* of query->after */
    struct redis_found *first;
    struct redis_found **end;
    uint32_t count;
    size_t bytes;
    struct redis_request request;
};

static void send_part(struct redis_asking *asking);

/* --- the end -------------------------------------------------------------------------------- */

static void deliver(struct redis_asking *asking, bool worked)
{
    struct store_query *query = asking->query;
    struct redis_found *found;

    while ((found = asking->first)) {
        asking->first = found->next;
        if (worked) {
            query->position = found->position;
            record_deliver(asking->table, query, found->record);
        }
        free(found);
    }
}

static void finish(struct redis_asking *asking, const struct error *err)
{
    struct store_query *query = asking->query;

    list_remove(&asking->node);
    if (err)
        query->err = *err;
    deliver(asking, !err);
    redis_plan_fini(&asking->plan);
    free(asking);
    query->done(query);
}

/* --- an answer ------------------------------------------------------------------------------ */

static bool is_full(const struct redis_asking *asking)
{
    const struct store_query *query = asking->query;

    return (query->limit && asking->count == query->limit) ||
           (query->limit_bytes && asking->bytes >= query->limit_bytes);
}

static void take(struct redis_asking *asking, const redisReply *hash)
{
    const struct record_type *type = &record_types[asking->table];
    struct redis_store *store = asking->store;
    alignas(max_align_t) char record[RECORD_MAXIMUM];
    struct redis_found *found;
    uint64_t position;
    bool same_boot;

    if (!redis_read_record(hash, asking->table, store->boot_id, record, &position, &same_boot)) {
        store->base.load.damaged++;
        log_error("store record damaged; it is not used", kv("table", type->table),
                  kv("position", position));
        return;
    }
    if (asking->table != STORE_EVENTS && asking->skipped < asking->query->after) {
        asking->skipped++;
        return;
    }
    if (type->has_stamps && !same_boot)
        record_renew_stamps(type, record, asking->now_wall_us - loop_now_us(store->base.loop));
    found = record_copy(type, record, offsetof(struct redis_found, record));
    found->position = position;
    *asking->end = found;
    asking->end = &found->next;
    asking->count++;
    asking->bytes += record_size(type, record);
}

static void take_all(struct redis_asking *asking, const redisReply *reply)
{
    for (size_t i = 3; i < reply->elements && !asking->query->is_cut; i++) {
        asking->query->is_cut = is_full(asking);
        if (!asking->query->is_cut)
            take(asking, reply->element[i]);
    }
}

static void count_or_finish(struct redis_asking *asking)
{
    bool is_known = !asking->query->count || asking->expired_only || *asking->plan.id;

    if (asking->state == ASKING_COUNTING || is_known) {
        finish(asking, NULL);
        return;
    }
    asking->state = ASKING_COUNTING;
    asking->cursor[0] = '\0';
    asking->query->total = 0;
    send_part(asking);
}

static void take_part(struct redis_asking *asking, const redisReply *reply)
{
    const char *cursor = reply->element[0]->str;
    uint64_t removed = strtoull(reply->element[2]->str, NULL, 10);

    asking->query->total += strtoull(reply->element[1]->str, NULL, 10);
    if (asking->state == ASKING_READING)
        take_all(asking, reply);
    snprintf(asking->cursor, sizeof(asking->cursor), "%s", cursor);
    asking->offset += EXAMINE_MOST - removed;
    if (*cursor && !asking->query->is_cut)
        send_part(asking);
    else
        count_or_finish(asking);
}

static void on_part(struct redis_request *request, const redisReply *reply)
{
    struct redis_asking *asking = container_of(request, struct redis_asking, request);
    struct error err = { 0 };

    if (redis_reply_is_noscript(reply)) {
        asking->by_text = true;
        send_part(asking);
    } else if (reply && reply->type == REDIS_REPLY_INTEGER) {
        asking->query->total = (uint64_t)reply->integer;
        finish(asking, NULL);
    } else if (redis_reply_has_words(reply, 3)) {
        take_part(asking, reply);
    } else {
        error_named(&err, ERR_UNAVAILABLE, "store_away", "the store cannot be read: %s",
                    !reply                             ? "the connection was lost"
                    : reply->type == REDIS_REPLY_ERROR ? reply->str
                                                       : "an answer of another kind");
        err.retryable = true;
        finish(asking, &err);
    }
}

/* --- a question ----------------------------------------------------------------------------- */

static void bound(char text[32], uint64_t value, const char *otherwise)
{
    if (value)
        snprintf(text, 32, "(%" PRIu64, value);
    else
        snprintf(text, 32, "%s", otherwise);
}

/* From where to where the index is walked. */
static void set_bounds(const struct redis_asking *asking, char from[32], char to[32])
{
    const struct store_query *query = asking->query;
    bool is_event = asking->table == STORE_EVENTS;
    bool reads = asking->state == ASKING_READING;

    bound(from,
          is_event                        ? query->after
          : reads && !query->newest_first ? query->behind
                                          : 0,
          "-inf");
    bound(to, !is_event && reads && query->newest_first ? query->behind : 0, "+inf");
    if (asking->expired_only)
        snprintf(to, 32, "%" PRId64, asking->now_wall_us);
    else if (asking->cursor[0])
        snprintf(query->newest_first ? to : from, 32, "(%.30s", asking->cursor);
}

static uint64_t wanted_of(const struct redis_asking *asking)
{
    const struct store_query *query = asking->query;
    uint64_t skips = asking->table == STORE_EVENTS ? 0 : query->after - asking->skipped;

    if (!query->limit)
        return WANTED_MOST;
    return MIN((uint64_t)WANTED_MOST, skips + query->limit - asking->count + 1);
}

static void send_length(struct redis_asking *asking)
{
    scoped(free) char *key = xasprintf("%s%s", asking->store->prefix, asking->plan.index);

    redis_link_send(&asking->store->link, &asking->request,
                    (struct redis_word[]){ REDIS_WORD("ZCARD"), REDIS_WORD(key) }, 2);
}

static void send_part(struct redis_asking *asking)
{
    struct redis_store *store = asking->store;
    bool counts = asking->state == ASKING_COUNTING;
    scoped(buffer_fini) struct buffer filter = BUFFER_INIT(FILTER_MAXIMUM);
    char from[32], to[32], offset[24], wanted[24], most[24], now[24];

    asking->request.on_reply = on_part;
    if (counts && asking->plan.is_counted) {
        send_length(asking);
        return;
    }
    set_bounds(asking, from, to);
    snprintf(offset, sizeof(offset), "%" PRIu64, asking->expired_only ? asking->offset : 0);
    snprintf(wanted, sizeof(wanted), "%" PRIu64, wanted_of(asking));
    snprintf(most, sizeof(most), "%d", EXAMINE_MOST);
    snprintf(now, sizeof(now), "%" PRId64, asking->now_wall_us);
    redis_pack_filter(&filter, asking->table, asking->query, &asking->plan, counts);
    redis_script_call(&store->query_script, &store->link, &asking->request,
                      (struct redis_word[]){ REDIS_WORD(store->prefix),
                                             REDIS_WORD(redis_table(asking->table)),
                                             REDIS_WORD(asking->plan.index),
                                             REDIS_WORD(asking->plan.id),
                                             REDIS_WORD(asking->query->newest_first ? "1" : ""),
                                             REDIS_WORD(from),
                                             REDIS_WORD(to),
                                             REDIS_WORD(offset),
                                             REDIS_WORD(wanted),
                                             REDIS_WORD(most),
                                             REDIS_WORD(now),
                                             { (const char *)filter.data, filter.length } },
                      12, asking->by_text);
}

void redis_ask(struct redis_store *store, enum store_table table, struct store_query *query,
               bool expired_only, int64_t now_wall_us)
{
    struct redis_asking *asking = xnew(struct redis_asking);

    asking->store = store;
    asking->query = query;
    asking->table = table;
    asking->expired_only = expired_only;
    asking->now_wall_us = now_wall_us;
    asking->end = &asking->first;
    asking->needs = store->made + redis_has_pending(store);
    if (expired_only)
        asking->plan = (struct redis_plan){ .index = xstrdup("s.retention"), .id = xstrdup("") };
    else
        redis_plan_make(&asking->plan, table, query, store->base.node);
    list_append(&store->askings, &asking->node);
    redis_flush_soon(store);
}

void redis_send_askings(struct redis_store *store)
{
    struct redis_asking *asking;
    struct redis_asking *following;

    if (store->reach == REACH_AWAY)
        redis_fail_askings(store, &store->away);
    if (!redis_link_is_ready(&store->link) || store->commit.flight == FLIGHT_UNSENT)
        return;
    list_for_each_safe (asking, following, &store->askings, node) {
        if (asking->state != ASKING_WAITING || asking->needs > store->made)
            continue;
        asking->state = ASKING_READING;
        send_part(asking);
    }
}

void redis_fail_askings(struct redis_store *store, const struct error *err)
{
    struct list failed = LIST_INIT(failed);
    struct redis_asking *asking;
    struct redis_asking *following;

    list_for_each_safe (asking, following, &store->askings, node) {
        if (asking->state != ASKING_WAITING)
            continue; /* its request says so */
        list_remove(&asking->node);
        list_append(&failed, &asking->node);
    }
    while ((asking = list_first(&failed, struct redis_asking, node)))
        finish(asking, err);
}

void redis_asking_reset(struct redis_store *store)
{
    struct redis_asking *asking;

    list_for_each (asking, &store->askings, node) {
        deliver(asking, false);
        asking->end = &asking->first;
        asking->state = ASKING_WAITING;
        asking->cursor[0] = '\0';
        asking->offset = asking->skipped = asking->count = 0;
        asking->bytes = 0;
        asking->query->is_cut = false;
        asking->query->total = 0;
    }
}
