/* SPDX-License-Identifier: Apache-2.0 */
#include "auth/key_use.h"

#include "base/alloc.h"
#include "base/id.h"
#include "base/map.h"
#include "store/store.h"
#include "wire/json.h"

#include <stdlib.h>
#include <string.h>

#define DOCUMENT_KIND "key_use"

enum { FLUSH_US = 30 * 1000 * 1000 };

struct use {
    char key_id[ID_SIZE];
    int64_t last_us;
    bool fresh; /* not in the store yet */
};

struct key_use {
    struct loop *loop;   /* borrowed */
    struct store *store; /* borrowed; may be NULL */
    struct map uses;     /* by key; owned */
    struct timer flush;
    struct store_query query;
    bool loading;
    bool freed; /* goes when the query has ended */
};

static struct use *use_of(struct key_use *use, const char *key_id)
{
    struct use *entry = map_get(&use->uses, key_id);

    if (entry || strlen(key_id) >= ID_SIZE)
        return entry;
    entry = xnew(struct use);
    memcpy(entry->key_id, key_id, strlen(key_id) + 1);
    map_put(&use->uses, entry->key_id, entry);
    return entry;
}

/* --- the store ------------------------------------------------------------------------------- */

static void put_use(struct store *store, struct use *entry)
{
    scoped(buffer_fini) struct buffer text = BUFFER_INIT(256);
    struct json_writer json = JSON_WRITER(&text);

    json_begin_object(&json, NULL);
    json_put_time(&json, "last_used", entry->last_us);
    json_end_object(&json);
    store_put_document(store, &(struct document_record){ .kind = DOCUMENT_KIND,
                                                         .id = entry->key_id,
                                                         .json = buffer_text(&text) });
    entry->fresh = false;
}

static void flush(struct key_use *use)
{
    struct map_slot *slot;

    if (!use->store)
        return;
    map_for_each (slot, &use->uses) {
        struct use *entry = slot->value;

        if (entry->fresh)
            put_use(use->store, entry);
    }
}

static void on_flush(struct timer *timer)
{
    flush(container_of(timer, struct key_use, flush));
}

static void on_document(struct store_query *query, const struct document_record *record)
{
    struct key_use *use = container_of(query, struct key_use, query);
    scoped(json_decref) json_t *object = json_read(record->json, strlen(record->json), NULL);
    const char *text = json_string_value(json_object_get(object, "last_used"));
    struct use *entry = use_of(use, record->id);
    int64_t last_us;

    if (text && entry && clock_parse(text, &last_us) == 0)
        entry->last_us = MAX(entry->last_us, last_us);
}

static void release(struct key_use *use)
{
    struct map_slot *slot;

    map_for_each (slot, &use->uses)
        free(slot->value);
    map_fini(&use->uses);
    free(use);
}

static void on_loaded(struct store_query *query)
{
    struct key_use *use = container_of(query, struct key_use, query);

    use->loading = false;
    if (use->freed)
        release(use);
}

/* --- use ------------------------------------------------------------------------------------- */

struct key_use *key_use_new(struct loop *loop, struct store *store)
{
    struct key_use *use = xnew(struct key_use);

    use->loop = loop;
    use->store = store;
    timer_init(&use->flush, loop, on_flush);
    if (!store)
        return use;
    use->loading = true;
    use->query = (struct store_query){ .on_document = on_document,
                                       .done = on_loaded,
                                       .kind = DOCUMENT_KIND };
    store_query(store, STORE_DOCUMENTS, &use->query);
    return use;
}

void key_use_free(struct key_use *use)
{
    if (!use)
        return;
    timer_stop(&use->flush);
    flush(use);
    use->freed = true;
    if (!use->loading)
        release(use);
}

void key_use_note(struct key_use *use, const char *key_id)
{
    struct use *entry = use_of(use, key_id);

    entry->last_us = clock_wall_us(loop_clock(use->loop));
    entry->fresh = true;
    if (!timer_is_armed(&use->flush))
        timer_arm_in(&use->flush, FLUSH_US);
}

int64_t key_use_last_us(const struct key_use *use, const char *key_id)
{
    const struct use *entry = map_get(&use->uses, key_id);

    return entry ? entry->last_us : 0;
}
