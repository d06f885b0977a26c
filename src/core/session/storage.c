/* SPDX-License-Identifier: Apache-2.0 */
#include "core/session/storage.h"
#include "core/session/session_private.h"

#include "base/alloc.h"
#include "base/log.h"
#include "base/map.h"
#include "base/str.h"
#include "config/config.h"
#include "core/core.h"
#include "core/session/session.h"
#include "core/vault.h"
#include "loop/worker.h"
#include "store/store.h"
#include "wire/http/http.h"
#include "wire/json.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define DIRECTORY "storage"
#define PART ".part-"
#define OWNER_FILE ".owner"

enum {
    NAME_MAXIMUM = 200,
    OWNER_MAXIMUM = 4096,
    PATH_SIZE = ID_SIZE + 16,
    DOCUMENT_ID_SIZE = ID_SIZE + NAME_MAXIMUM + 2,
    DAMAGE_SIZE = 96,
};

/* The stored bytes of all sessions of an owner. */
struct owner_share {
    char *owner;       /* owned */
    unsigned sessions; /* the account goes with the last of them */
    uint64_t bytes;
};

/* The stored bytes of a session. Files being written count with the bytes written so far. */
struct session_share {
    char session_id[ID_SIZE];
    struct owner_share *owner; /* borrowed */
    uint64_t bytes;
    int64_t files;
    struct map recorded; /* by name; struct recorded_file, owned */
};

/* What the document of a file says. */
struct recorded_file {
    uint64_t bytes;
    uint64_t before; /* of the file that it was about to replace, or the same */
    char name[];
};

struct storage {
    struct core *core; /* borrowed */
    struct map shares; /* by session id; struct session_share, owned */
    struct map owners; /* by name; struct owner_share, owned */
    uint64_t total_bytes;
    uint64_t next_part;
};

struct storage_upload {
    struct storage *storage; /* borrowed */
    char session_id[ID_SIZE];
    char *name;    /* owned */
    char part[32]; /* the name until it is complete */
    int directory; /* owned */
    int file;      /* owned */
    uint64_t size;
    uint64_t before; /* of the file that it replaces */
    bool is_recorded;
    struct job job;
    struct store_ticket ticket;
    struct error err;
    storage_done_fn *done;
    void *user;
};

static void directory_path(const char *session_id, char path[PATH_SIZE])
{
    snprintf(path, PATH_SIZE, DIRECTORY "/%s", session_id);
}

static int open_directory(int state_dir, const char *session_id)
{
    char path[PATH_SIZE];

    directory_path(session_id, path);
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
static struct session_share *share_of(struct storage *storage, const char *session_id,
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

static void share_add(struct storage *storage, struct session_share *share, uint64_t bytes)
{
    share->bytes += bytes;
    share->owner->bytes += bytes;
    storage->total_bytes += bytes;
}

static void share_subtract(struct storage *storage, struct session_share *share, uint64_t bytes)
{
    if (!share)
        return;
    bytes = MIN(bytes, share->bytes);
    share->bytes -= bytes;
    share->owner->bytes -= bytes;
    storage->total_bytes -= bytes;
}

static void session_share_free(struct session_share *share)
{
    struct map_slot *slot;

    map_for_each (slot, &share->recorded)
        free(slot->value);
    map_fini(&share->recorded);
    free(share);
}

static void owner_share_free(struct owner_share *share)
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
static int check_room(const struct storage *storage, const struct session_share *share,
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

/* --- names ----------------------------------------------------------------------------------- */

int storage_check_name(const char *name, struct error *err)
{
    size_t length = strlen(name);
    bool is_plain = length > 0 && length <= NAME_MAXIMUM && name[0] != '.' && !strchr(name, '/') &&
                    str_is_utf8(name, length);

    for (size_t i = 0; is_plain && i < length; i++)
        is_plain = (unsigned char)name[i] >= 0x20 && name[i] != 0x7f;
    if (is_plain)
        return 0;
    error_named(err, ERR_INVALID, "invalid_name",
                "\"%.200s\" is not a valid name for a stored file", name);
    return error_hint(err,
                      "use a plain file name of at most %d bytes that does not begin with a dot",
                      NAME_MAXIMUM);
}

/* --- records --------------------------------------------------------------------------------- */

static void document_id(const char *session_id, const char *name, char id[DOCUMENT_ID_SIZE])
{
    snprintf(id, DOCUMENT_ID_SIZE, "%s/%s", session_id, name);
}

static void note_recorded(struct session_share *share, const char *name, uint64_t bytes,
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

static void put_document(struct storage *storage, const struct session_share *share,
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

static void forget_document(struct storage *storage, const char *session_id, const char *name)
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
    note_recorded(share_of(storage, session_id, record->owner ? record->owner : ""), slash + 1,
                  (uint64_t)json_integer_value(json_object_get(json, "bytes")),
                  (uint64_t)json_integer_value(json_object_get(json, "before")));
}

/* What is wrong with a file of so many bytes, -1 for one that is missing; NULL without damage. */
static const char *find_damage(const struct session_share *share, const char *name, int64_t bytes,
                               char text[DAMAGE_SIZE])
{
    const struct recorded_file *file = share ? map_get(&share->recorded, name) : NULL;

    if (!file ||
        (bytes >= 0 && ((uint64_t)bytes == file->bytes || (uint64_t)bytes == file->before)))
        return NULL;
    if (bytes < 0)
        snprintf(text, DAMAGE_SIZE, "it is missing");
    else
        snprintf(text, DAMAGE_SIZE, "it has %" PRId64 " bytes instead of %" PRIu64, bytes,
                 file->bytes);
    return text;
}

/* --- writing --------------------------------------------------------------------------------- */

static int write_owner(int directory, const char *owner, struct error *err)
{
    scoped(fd_close) int fd =
        openat(directory, OWNER_FILE, O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0600);
    size_t length = strlen(owner);

    if (fd < 0 || write(fd, owner, length) != (ssize_t)length)
        return error_sys(err, "write the owner of a stored file");
    return 0;
}

static int make_directory(struct storage *storage, const struct session *session, struct error *err)
{
    int state_dir = storage->core->parts.state_dir;
    char path[PATH_SIZE];
    scoped(fd_close) int fd = open_directory(state_dir, session->identity.id);

    if (fd >= 0)
        return steal_fd(&fd);
    directory_path(session->identity.id, path);
    if ((mkdirat(state_dir, DIRECTORY, 0700) < 0 && errno != EEXIST) ||
        (mkdirat(state_dir, path, 0700) < 0 && errno != EEXIST))
        return error_sys(err, "create the directory of stored files");
    fd = open_directory(state_dir, session->identity.id);
    if (fd < 0)
        return error_sys(err, "open the directory of stored files");
    if (write_owner(fd, session->identity.owner ? session->identity.owner : "", err) < 0)
        return -1;
    return steal_fd(&fd);
}

static void upload_free(struct storage_upload *upload)
{
    fd_close(upload->file);
    fd_close(upload->directory);
    free(upload->name);
    free(upload);
}

static int check_count(const struct storage *storage, const struct session_share *share,
                       bool replaces, struct error *err)
{
    int64_t maximum = storage->core->parts.config->storage.max_files;

    if (replaces || share->files < maximum)
        return 0;
    error_named(err, ERR_LIMIT, "storage_full",
                "the session has %" PRId64 " stored files: storage.max_files is %" PRId64,
                share->files, maximum);
    return error_hint(err, "remove stored files, or store an archive of several");
}

struct storage_upload *storage_upload_begin(struct storage *storage, const struct session *session,
                                            const char *name, uint64_t size, struct error *err)
{
    struct session_share *share = share_of(storage, session->identity.id,
                                           session->identity.owner ? session->identity.owner : "");
    struct storage_upload *upload;
    struct stat status;

    if (storage_check_name(name, err) < 0 || check_room(storage, share, 0, size, err) < 0)
        return NULL;
    upload = xnew(struct storage_upload);
    upload->storage = storage;
    upload->file = upload->directory = -1;
    upload->name = xstrdup(name);
    snprintf(upload->session_id, sizeof(upload->session_id), "%s", session->identity.id);
    snprintf(upload->part, sizeof(upload->part), PART "%" PRIu64, storage->next_part++);
    upload->directory = make_directory(storage, session, err);
    if (upload->directory >= 0) {
        bool replaces = fstatat(upload->directory, name, &status, AT_SYMLINK_NOFOLLOW) == 0;

        if (check_count(storage, share, replaces, err) == 0) {
            upload->file = openat(upload->directory, upload->part,
                                  O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
            if (upload->file >= 0)
                return upload;
            error_sys(err, "store \"%.200s\"", name);
        }
    }
    upload_free(upload);
    return NULL;
}

int storage_upload_write(struct storage_upload *upload, const void *data, size_t length,
                         struct error *err)
{
    struct storage *storage = upload->storage;
    struct session_share *share = share_of(storage, upload->session_id, NULL);

    if (!share)
        return error_named(err, ERR_GONE, "session_ended", "the session is gone");
    if (check_room(storage, share, upload->size, length, err) < 0)
        return -1;
    while (length > 0) {
        ssize_t count = write(upload->file, data, length);

        if (count < 0 && errno == EINTR)
            continue;
        if (count <= 0)
            return error_sys(err, "store \"%.200s\"", upload->name);
        data = (const char *)data + count;
        length -= (size_t)count;
        upload->size += (uint64_t)count;
        share_add(storage, share, (uint64_t)count);
    }
    return 0;
}

void storage_upload_abort(struct storage_upload *upload)
{
    if (!upload)
        return;
    (void)unlinkat(upload->directory, upload->part, 0);
    share_subtract(upload->storage, share_of(upload->storage, upload->session_id, NULL),
                   upload->size);
    upload_free(upload);
}

/* The content is on the disk before the name, and the name before the answer: both are flushed on a
 * worker's thread. The name is given on the loop, where no other upload gives or takes one
 * meanwhile, so that a replaced file is counted once. */
static void submit(struct storage_upload *upload, job_fn *run, job_fn *done)
{
    struct worker *worker = upload->storage->core->parts.worker;

    upload->job = (struct job){ .run = run, .done = done };
    if (worker) {
        worker_submit(worker, &upload->job);
        return;
    }
    run(&upload->job);
    done(&upload->job);
}

static void flush_content(struct job *job)
{
    struct storage_upload *upload = container_of(job, struct storage_upload, job);

    if (fdatasync(upload->file) < 0)
        error_sys(&upload->err, "store \"%.200s\"", upload->name);
}

static void flush_name(struct job *job)
{
    struct storage_upload *upload = container_of(job, struct storage_upload, job);

    if (fsync(upload->directory) < 0)
        error_sys(&upload->err, "store \"%.200s\"", upload->name);
}

static void finish_upload(struct storage_upload *upload)
{
    upload->done(upload->user, upload->size, upload->err.code ? &upload->err : NULL);
    upload_free(upload);
}

static void record(struct storage_upload *upload, store_done_fn *done)
{
    const struct session_share *share = share_of(upload->storage, upload->session_id, NULL);

    if (share)
        put_document(upload->storage, share, upload->name, upload->size, upload->before);
    store_commit(upload->storage->core->parts.store, &upload->ticket, done);
}

/* Whether the document is written. */
static bool take_record(struct storage_upload *upload)
{
    struct session_share *share = share_of(upload->storage, upload->session_id, NULL);

    if (upload->ticket.err->code != ERR_NONE) {
        upload->err = *upload->ticket.err;
        return false;
    }
    upload->is_recorded = true;
    if (share)
        note_recorded(share, upload->name, upload->size, upload->before);
    return true;
}

static void on_recorded(struct store_ticket *ticket)
{
    struct storage_upload *upload = container_of(ticket, struct storage_upload, ticket);

    (void)take_record(upload);
    finish_upload(upload);
}

static void on_name_flushed(struct job *job)
{
    struct storage_upload *upload = container_of(job, struct storage_upload, job);

    if (upload->err.code == ERR_NONE && !upload->is_recorded &&
        !core_is_clustered(upload->storage->core))
        record(upload, on_recorded);
    else
        finish_upload(upload);
}

static void give_name(struct storage_upload *upload)
{
    struct session_share *share = share_of(upload->storage, upload->session_id, NULL);
    struct stat status;
    bool replaces = fstatat(upload->directory, upload->name, &status, AT_SYMLINK_NOFOLLOW) == 0;

    if (renameat(upload->directory, upload->part, upload->directory, upload->name) < 0) {
        error_sys(&upload->err, "store \"%.200s\"", upload->name);
        upload->done(upload->user, upload->size, &upload->err);
        storage_upload_abort(upload);
        return;
    }
    if (replaces)
        share_subtract(upload->storage, share, (uint64_t)status.st_size);
    else if (share)
        share->files++;
    submit(upload, flush_name, on_name_flushed);
}

static void on_replacement_recorded(struct store_ticket *ticket)
{
    struct storage_upload *upload = container_of(ticket, struct storage_upload, ticket);

    if (take_record(upload)) {
        give_name(upload);
        return;
    }
    upload->done(upload->user, upload->size, &upload->err);
    storage_upload_abort(upload);
}

/* A daemon that is killed in between must not find damage. A new file is recorded when it has its
 * name: without a document it is taken as it is. One that replaces another is recorded before, with
 * the lengths of both. */
static void on_content_flushed(struct job *job)
{
    struct storage_upload *upload = container_of(job, struct storage_upload, job);
    const struct session_share *share = share_of(upload->storage, upload->session_id, NULL);
    const struct recorded_file *earlier = share ? map_get(&share->recorded, upload->name) : NULL;

    upload->before = earlier ? earlier->bytes : upload->size;
    if (upload->err.code != ERR_NONE) {
        upload->done(upload->user, upload->size, &upload->err);
        storage_upload_abort(upload);
    } else if (earlier) {
        record(upload, on_replacement_recorded);
    } else {
        give_name(upload);
    }
}

void storage_upload_finish(struct storage_upload *upload, storage_done_fn *done, void *user)
{
    upload->done = done;
    upload->user = user;
    submit(upload, flush_content, on_content_flushed);
}

/* --- reading --------------------------------------------------------------------------------- */

static int is_visible(const struct dirent *entry)
{
    return entry->d_name[0] != '.';
}

static int stat_entry(int directory, const char *name, struct storage_entry *out_entry)
{
    struct stat status;

    if (fstatat(directory, name, &status, AT_SYMLINK_NOFOLLOW) < 0)
        return -1;
    if (!S_ISREG(status.st_mode)) {
        errno = ENOENT;
        return -1;
    }
    *out_entry = (struct storage_entry){
        .name = name,
        .size = (uint64_t)status.st_size,
        .modified_wall_us = status.st_mtim.tv_sec * 1000000 + status.st_mtim.tv_nsec / 1000,
    };
    return 0;
}

/* The directory of stored files: -1 without an error when the session has none. */
static int open_stored(struct storage *storage, const char *session_id, struct error *err)
{
    int directory = open_directory(storage->core->parts.state_dir, session_id);

    if (directory < 0 && errno != ENOENT)
        error_sys(err, "open the directory of stored files");
    return directory;
}

static int by_name(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

/* Adds the recorded files that are not there. */
static size_t add_missing(const struct session_share *share, struct dirent **there, size_t count,
                          char **names)
{
    struct map found = { 0 };
    const struct map_slot *slot;

    for (size_t i = 0; i < count; i++) {
        names[i] = there[i]->d_name;
        map_put(&found, names[i], there[i]);
    }
    if (share) {
        map_for_each (slot, &share->recorded) {
            struct recorded_file *file = slot->value;

            if (!map_get(&found, file->name))
                names[count++] = file->name;
        }
    }
    map_fini(&found);
    qsort(names, count, sizeof(*names), by_name);
    return count;
}

static void report_file(const struct session_share *share, int directory, const char *name,
                        storage_entry_fn *on_entry, void *user)
{
    struct storage_entry entry = { .name = name };
    bool is_there = directory >= 0 && stat_entry(directory, name, &entry) == 0;
    char text[DAMAGE_SIZE];

    entry.damage = find_damage(share, name, is_there ? (int64_t)entry.size : -1, text);
    if (is_there || entry.damage)
        on_entry(user, &entry);
}

int storage_list(struct storage *storage, const char *session_id, storage_entry_fn *on_entry,
                 void *user, struct error *err)
{
    struct error failure = { 0 };
    scoped(fd_close) int directory = open_stored(storage, session_id, &failure);
    const struct session_share *share = share_of(storage, session_id, NULL);
    struct dirent **there = NULL;
    int count = directory < 0 ? 0 : scandirat(directory, ".", &there, is_visible, NULL);
    scoped(free) char **names = NULL;
    size_t total;

    if (count < 0)
        error_sys(&failure, "read the directory of stored files");
    if (failure.code != ERR_NONE) {
        *err = failure;
        return -1;
    }
    names = xcalloc((size_t)count + (share ? share->recorded.count : 0) + 1, sizeof(*names));
    total = add_missing(share, there, (size_t)count, names);
    for (size_t i = 0; i < total; i++)
        report_file(share, directory, names[i], on_entry, user);
    for (int i = 0; i < count; i++)
        free(there[i]);
    free(there);
    return 0;
}

static int refuse_unknown(const char *name, struct error *err)
{
    error_named(err, ERR_NOT_FOUND, "file_not_found", "stored file \"%.200s\" not found", name);
    return -1;
}

/* The file in its directory, -1 as for storage_open(). */
static int find_file(int directory, const char *name, struct storage_entry *out_entry,
                     struct error *err)
{
    struct error ignored = { 0 };

    if (directory < 0 || storage_check_name(name, &ignored) < 0)
        return refuse_unknown(name, err);
    if (stat_entry(directory, name, out_entry) == 0)
        return 0;
    return errno == ENOENT ? refuse_unknown(name, err) : error_sys(err, "read \"%.200s\"", name);
}

int storage_open(struct storage *storage, const char *session_id, const char *name,
                 struct storage_entry *out_entry, struct error *err)
{
    scoped(fd_close) int directory = open_stored(storage, session_id, err);
    const struct session_share *share = share_of(storage, session_id, NULL);
    char text[DAMAGE_SIZE];
    const char *damage;
    int fd;

    if (err->code != ERR_NONE)
        return -1;
    if (find_file(directory, name, out_entry, err) < 0 && err->code != ERR_NOT_FOUND)
        return -1;
    damage = find_damage(share, name, err->code ? -1 : (int64_t)out_entry->size, text);
    if (damage) {
        error_named(err, ERR_INTERNAL, "store_damaged", "stored file \"%.200s\" is damaged: %s",
                    name, damage);
        return error_hint(err, "storage/%s in the state directory has what is left", session_id);
    }
    if (err->code != ERR_NONE)
        return -1;
    fd = openat(directory, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    return fd < 0 ? error_sys(err, "open \"%.200s\"", name) : fd;
}

struct removal {
    struct store_ticket ticket;
    storage_done_fn *done;
    void *user;
};

static void on_forgotten(struct store_ticket *ticket)
{
    struct removal *removal = container_of(ticket, struct removal, ticket);

    removal->done(removal->user, 0, ticket->err->code ? ticket->err : NULL);
    free(removal);
}

int storage_remove(struct storage *storage, const char *session_id, const char *name,
                   storage_done_fn *done, void *user, struct error *err)
{
    scoped(fd_close) int directory = open_stored(storage, session_id, err);
    struct session_share *share = share_of(storage, session_id, NULL);
    struct recorded_file *file = share ? map_get(&share->recorded, name) : NULL;
    struct storage_entry entry = { 0 };
    struct removal *removal;

    if (err->code != ERR_NONE)
        return -1;
    if (find_file(directory, name, &entry, err) == 0) {
        if (unlinkat(directory, name, 0) < 0)
            return error_sys(err, "remove \"%.200s\"", name);
        share_subtract(storage, share, entry.size);
        if (share)
            share->files--;
    } else if (!file || err->code != ERR_NOT_FOUND) {
        return -1;
    }
    *err = (struct error){ 0 };
    if (file) {
        forget_document(storage, session_id, name);
        free(map_remove(&share->recorded, name));
    }
    removal = xnew(struct removal);
    removal->done = done;
    removal->user = user;
    store_commit(storage->core->parts.store, &removal->ticket, on_forgotten);
    return 0;
}

/* --- sharing --------------------------------------------------------------------------------- */

static const char about[] = "storage";

static char *signed_text(const char *session_id, const char *name, int64_t expires_wall_s)
{
    return xasprintf("%s\n%s\n%" PRId64, session_id, name, expires_wall_s);
}

char *storage_sign_url(struct storage *storage, const char *session_id, const char *name,
                       int64_t expires_wall_s)
{
    scoped(free) char *text = signed_text(session_id, name, expires_wall_s);
    scoped(buffer_fini) struct buffer path = BUFFER_INIT(4096);
    char signature[VAULT_SIGNATURE_SIZE];

    vault_sign(storage->core->vault, about, text, signature);
    (void)http_escape(&path, name);
    return xasprintf("/api/v1/shared/%s/%s?expires=%" PRId64 "&signature=%s", session_id,
                     buffer_text(&path), expires_wall_s, signature);
}

bool storage_url_is_signed(struct storage *storage, const char *session_id, const char *name,
                           int64_t expires_wall_s, const char *signature)
{
    scoped(free) char *text = signed_text(session_id, name, expires_wall_s);
    int64_t now_s = clock_wall_us(loop_clock(storage->core->loop)) / 1000000;

    return vault_is_signed(storage->core->vault, about, text, signature) && now_s < expires_wall_s;
}

/* --- with the record of the session ---------------------------------------------------------- */

void storage_unlink(int state_dir, const char *session_id)
{
    int fd = open_directory(state_dir, session_id);
    DIR *directory = fd >= 0 ? fdopendir(fd) : NULL;
    const struct dirent *entry;
    char path[PATH_SIZE];

    if (!directory) {
        fd_close(fd);
        return;
    }
    while ((entry = readdir(directory)))
        if (!str_equal(entry->d_name, ".") && !str_equal(entry->d_name, ".."))
            (void)unlinkat(dirfd(directory), entry->d_name, 0);
    closedir(directory);
    directory_path(session_id, path);
    (void)unlinkat(state_dir, path, AT_REMOVEDIR);
}

void storage_forget(struct storage *storage, const char *session_id)
{
    struct session_share *share = map_remove(&storage->shares, session_id);
    const struct map_slot *slot;

    if (!share)
        return;
    map_for_each (slot, &share->recorded)
        forget_document(storage, session_id, ((struct recorded_file *)slot->value)->name);
    share_subtract(storage, share, share->bytes);
    if (--share->owner->sessions == 0) {
        (void)map_remove(&storage->owners, share->owner->owner);
        owner_share_free(share->owner);
    }
    session_share_free(share);
}

uint64_t storage_total_bytes(const struct storage *storage)
{
    return storage->total_bytes;
}

/* --- life ------------------------------------------------------------------------------------ */

struct storage *storage_new(struct core *core)
{
    struct storage *storage = xnew(struct storage);

    storage->core = core;
    return storage;
}

void storage_free(struct storage *storage)
{
    struct map_slot *slot;

    if (!storage)
        return;
    map_for_each (slot, &storage->shares)
        session_share_free(slot->value);
    map_for_each (slot, &storage->owners)
        owner_share_free(slot->value);
    map_fini(&storage->shares);
    map_fini(&storage->owners);
    free(storage);
}

static char *read_owner(int directory)
{
    scoped(fd_close) int fd = openat(directory, OWNER_FILE, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
    char text[OWNER_MAXIMUM] = "";
    ssize_t length = fd < 0 ? 0 : read(fd, text, sizeof(text) - 1);

    text[MAX(length, (ssize_t)0)] = '\0';
    return xstrdup(text);
}

static void count_file(struct storage *storage, struct session_share *share, int directory,
                       const char *name)
{
    struct storage_entry entry;

    if (str_starts_with(name, PART)) {
        (void)unlinkat(directory, name, 0);
    } else if (name[0] != '.' && stat_entry(directory, name, &entry) == 0) {
        share_add(storage, share, entry.size);
        share->files++;
    }
}

static void count_session(struct storage *storage, const char *session_id)
{
    int fd = open_directory(storage->core->parts.state_dir, session_id);
    DIR *directory = fd >= 0 ? fdopendir(fd) : NULL;
    scoped(free) char *owner = directory ? read_owner(fd) : NULL;
    const struct dirent *entry;
    struct session_share *share;

    if (!directory) {
        fd_close(fd);
        return;
    }
    share = share_of(storage, session_id, owner);
    while ((entry = readdir(directory)))
        count_file(storage, share, fd, entry->d_name);
    closedir(directory);
}

void storage_start(struct storage *storage)
{
    int fd = openat(storage->core->parts.state_dir, DIRECTORY, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *directory = fd >= 0 ? fdopendir(fd) : NULL;
    const struct dirent *entry;

    if (!directory) {
        fd_close(fd);
        return;
    }
    while ((entry = readdir(directory)))
        if (entry->d_name[0] != '.' && strlen(entry->d_name) < ID_SIZE)
            count_session(storage, entry->d_name);
    closedir(directory);
}
