#include "store/sqlite/keys.h"

#include "base/alloc.h"
#include "base/str.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct taken {
    char id[ID_SIZE];
    char name[]; /* owner and key */
};

static char *name_of(const char *owner, const char *key)
{
    return xasprintf("%s\n%s", owner ? owner : "", key);
}

static void take(struct keys *keys, const char *id, const char *name)
{
    size_t size = strlen(name) + 1;
    struct taken *taken = xmalloc(sizeof(*taken) + size);

    snprintf(taken->id, sizeof(taken->id), "%s", id);
    memcpy(taken->name, name, size);
    map_put(&keys->by_name, taken->name, taken);
    map_put(&keys->by_id, taken->id, taken);
}

static void give_back(struct keys *keys, struct taken *taken)
{
    map_remove(&keys->by_name, taken->name);
    map_remove(&keys->by_id, taken->id);
    free(taken);
}

void keys_load(struct keys *keys, sqlite3 *handle)
{
    sqlite3_stmt *row = NULL;
    int code = sqlite3_prepare_v2(
        handle, "SELECT id, owner, key FROM sessions WHERE key <> '' AND state <> 'ended'", -1,
        &row, NULL);

    while (code == SQLITE_OK && (code = sqlite3_step(row)) == SQLITE_ROW) {
        const char *id = (const char *)sqlite3_column_text(row, 0);
        const char *key = (const char *)sqlite3_column_text(row, 2);
        scoped(free) char *name =
            name_of((const char *)sqlite3_column_text(row, 1), key ? key : "");

        code = SQLITE_OK;
        if (id && !map_get(&keys->by_name, name) && !map_get(&keys->by_id, id))
            take(keys, id, name);
    }
    keys->unknown = code != SQLITE_DONE;
    sqlite3_finalize(row);
}

void keys_fini(struct keys *keys)
{
    struct map_slot *slot;

    map_for_each (slot, &keys->by_name)
        free(slot->value);
    map_fini(&keys->by_name);
    map_fini(&keys->by_id);
}

bool keys_note(struct keys *keys, const struct change *change)
{
    const struct session_record *session = (const void *)change->record;
    scoped(free) char *name = NULL;
    struct taken *taken;

    if (change->table != STORE_SESSIONS)
        return false;
    if (!change->forget && !str_is_empty(session->key) &&
        !str_equal(session->state, STORE_STATE_ENDED))
        name = name_of(session->owner, session->key);
    taken = map_get(&keys->by_id, session->id);
    if (taken && name && str_equal(taken->name, name))
        return keys->unknown;
    if (taken)
        give_back(keys, taken);
    if (!name)
        return false;
    if (map_get(&keys->by_name, name))
        return true;
    take(keys, session->id, name);
    return keys->unknown;
}
