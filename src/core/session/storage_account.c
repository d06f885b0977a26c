/* SPDX-License-Identifier: Apache-2.0 */
#include "base/alloc.h"
#include "base/map.h"
#include "config/config.h"
#include "core/core.h"
#include "core/session/storage_private.h"
#include "store/store.h"
#include "wire/json.h"

#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { DOCUMENT_ID_SIZE = ID_SIZE + STORAGE_NAME_MAXIMUM + 2 };

void storage_directory_path(const char *session_id, char path[STORAGE_PATH_SIZE])
{
    snprintf(path, STORAGE_PATH_SIZE, STORAGE_DIRECTORY "/%s", session_id);
}

int storage_open_directory(int state_dir, const char *session_id)
{
    char path[STORAGE_PATH_SIZE];

    storage_directory_path(session_id, path);
    return openat(state_dir, path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
}

/* --- accounts -------------------------------------------------------------------------------- */

static struct owner_share *owner_share_of(struct storage *storage, const char *owner)
{
    struct owner_share *share = map_get(&storage->owners, owner);

    if (share)
        return share;
    share = xnew(struct owner_share);
    share->owner = xstrdup(owner);
    map_put(&storage->owners, share->owner, share);
    return share;
}

/* NULL when the session has none and no owner is given to make one for. */
struct session_share *storage_share_of(struct storage *storage, const char *session_id,
                                       const char *owner)
{
    struct session_share *share = map_get(&storage->shares, session_id);

    if (share || !owner)
        return share;
    share = xnew(struct session_share);
    snprintf(share->session_id, sizeof(share->session_id), "%s", session_id);
    share->owner = owner_share_of(storage, owner);
    share->owner->sessions++;
    map_put(&storage->shares, share->session_id, share);
    return share;
}

void storage_share_add(struct storage *storage, struct session_share *share, uint64_t bytes)
{
    share->bytes += bytes;
    share->owner->bytes += bytes;
    storage->total_bytes += bytes;
}

void storage_share_subtract(struct storage *storage, struct session_share *share, uint64_t bytes)
{
    if (!share)
        return;
    bytes = MIN(bytes, share->bytes);
    share->bytes -= bytes;
    share->owner->bytes -= bytes;
    storage->total_bytes -= bytes;
}

void storage_session_share_free(struct session_share *share)
{
    struct map_slot *slot;

    map_for_each (slot, &share->recorded)
        free(slot->value);
    map_fini(&share->recorded);
    free(share);
}

void storage_owner_share_free(struct owner_share *share)
{
    free(share->owner);
    free(share);
}

static int refuse(struct error *err, const char *setting, uint64_t limit)
{
    error_named(err, ERR_LIMIT, "storage_full", "the file does not fit: %s is %" PRIu64 " bytes",
                setting, limit);
    return error_hint(err, "remove stored files, or ask the operator for a larger %s", setting);
}

/* Whether `more` bytes fit into every limit, for a file that has `size` already. */
int storage_check_room(const struct storage *storage, const struct session_share *share,
                       uint64_t size, uint64_t more, struct error *err)
{
    const struct config *config = storage->core->parts.config;

    if (size + more > config->storage.max_file_bytes) {
        error_named(err, ERR_TOO_LARGE, "file_too_large",
                    "the file is larger than storage.max_file (%" PRIu64 " bytes)",
                    config->storage.max_file_bytes);
        return error_hint(err, "store it in parts, or ask the operator for a larger "
                               "storage.max_file");
    }
    if (share->bytes + more > config->storage.max_session_bytes)
        return refuse(err, "storage.max_session", config->storage.max_session_bytes);
    if (storage->total_bytes + more > config->storage.max_total_bytes)
        return refuse(err, "storage.max_total", config->storage.max_total_bytes);
    if (share->owner->bytes + more > config->storage.max_owner_bytes)
        return refuse(err, "storage.max_owner", config->storage.max_owner_bytes);
    return 0;
}

/* --- records --------------------------------------------------------------------------------- */

static void document_id(const char *session_id, const char *name, char id[DOCUMENT_ID_SIZE])
{
    snprintf(id, DOCUMENT_ID_SIZE, "%s/%s", session_id, name);
}

void storage_note_recorded(struct session_share *share, const char *name, uint64_t bytes,
                           uint64_t before)
{
    size_t size = strlen(name) + 1;
    struct recorded_file *file = xmalloc(sizeof(*file) + size);

    free(map_remove(&share->recorded, name));
    file->bytes = bytes;
    file->before = before;
    memcpy(file->name, name, size);
    map_put(&share->recorded, file->name, file);
}

void storage_put_document(struct storage *storage, const struct session_share *share,
                          const char *name, uint64_t bytes, uint64_t before)
{
    char id[DOCUMENT_ID_SIZE];
    char json[96];

    document_id(share->session_id, name, id);
    snprintf(json, sizeof(json), "{\"bytes\":%" PRIu64 ",\"before\":%" PRIu64 "}", bytes, before);
    store_put_document(
        storage->core->parts.store,
        &(struct document_record){
            .kind = STORED_FILE_KIND, .id = id, .owner = share->owner->owner, .json = json });
}

void storage_forget_document(struct storage *storage, const char *session_id, const char *name)
{
    char id[DOCUMENT_ID_SIZE];

    document_id(session_id, name, id);
    store_forget_document(storage->core->parts.store, STORED_FILE_KIND, id);
}

void storage_restore(struct storage *storage, const struct document_record *record)
{
    scoped(json_decref) json_t *json = json_read(record->json, strlen(record->json), NULL);
    const char *slash = strchr(record->id, '/');
    char session_id[ID_SIZE] = "";

    if (!json || !slash || (size_t)(slash - record->id) >= sizeof(session_id))
        return;
    memcpy(session_id, record->id, (size_t)(slash - record->id));
    storage_note_recorded(storage_share_of(storage, session_id, record->owner ? record->owner : ""),
                          slash + 1, (uint64_t)json_integer_value(json_object_get(json, "bytes")),
                          (uint64_t)json_integer_value(json_object_get(json, "before")));
}

/* What is wrong with a file of so many bytes, -1 for one that is missing; NULL without damage. */
const char *storage_find_damage(const struct session_share *share, const char *name, int64_t bytes,
                                char text[STORAGE_DAMAGE_SIZE])
{
    const struct recorded_file *file = share ? map_get(&share->recorded, name) : NULL;

    if (!file ||
        (bytes >= 0 && ((uint64_t)bytes == file->bytes || (uint64_t)bytes == file->before)))
        return NULL;
    if (bytes < 0)
        snprintf(text, STORAGE_DAMAGE_SIZE, "it is missing");
    else
        snprintf(text, STORAGE_DAMAGE_SIZE, "it has %" PRId64 " bytes instead of %" PRIu64, bytes,
                 file->bytes);
    return text;
}
