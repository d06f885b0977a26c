/* SPDX-License-Identifier: Apache-2.0 */
#include "base/alloc.h"
#include "base/map.h"
#include "base/str.h"
#include "core/core.h"
#include "core/session/storage_private.h"
#include "core/vault.h"
#include "store/store.h"
#include "wire/http/http.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { OWNER_MAXIMUM = 4096 };

/* --- names ----------------------------------------------------------------------------------- */

int storage_check_name(const char *name, struct error *err)
{
    size_t length = strlen(name);
    bool is_plain = length > 0 && length <= STORAGE_NAME_MAXIMUM && name[0] != '.' &&
                    !strchr(name, '/') && str_is_utf8(name, length);

    for (size_t i = 0; is_plain && i < length; i++)
        is_plain = (unsigned char)name[i] >= 0x20 && name[i] != 0x7f;
    if (is_plain)
        return 0;
    error_named(err, ERR_INVALID, "invalid_name",
                "\"%.200s\" is not a valid name for a stored file", name);
    return error_hint(err,
                      "use a plain file name of at most %d bytes that does not begin with a dot",
                      STORAGE_NAME_MAXIMUM);
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
    int directory = storage_open_directory(storage->core->parts.state_dir, session_id);

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
    char text[STORAGE_DAMAGE_SIZE];

    entry.damage = storage_find_damage(share, name, is_there ? (int64_t)entry.size : -1, text);
    if (is_there || entry.damage)
        on_entry(user, &entry);
}

int storage_list(struct storage *storage, const char *session_id, storage_entry_fn *on_entry,
                 void *user, struct error *err)
{
    struct error failure = { 0 };
    scoped(fd_close) int directory = open_stored(storage, session_id, &failure);
    const struct session_share *share = storage_share_of(storage, session_id, NULL);
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
    const struct session_share *share = storage_share_of(storage, session_id, NULL);
    char text[STORAGE_DAMAGE_SIZE];
    const char *damage;
    int fd;

    if (err->code != ERR_NONE)
        return -1;
    if (find_file(directory, name, out_entry, err) < 0 && err->code != ERR_NOT_FOUND)
        return -1;
    damage = storage_find_damage(share, name, err->code ? -1 : (int64_t)out_entry->size, text);
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
    struct session_share *share = storage_share_of(storage, session_id, NULL);
    struct recorded_file *file = share ? map_get(&share->recorded, name) : NULL;
    struct storage_entry entry = { 0 };
    struct removal *removal;

    if (err->code != ERR_NONE)
        return -1;
    if (find_file(directory, name, &entry, err) == 0) {
        if (unlinkat(directory, name, 0) < 0)
            return error_sys(err, "remove \"%.200s\"", name);
        storage_share_subtract(storage, share, entry.size);
        if (share)
            share->files--;
    } else if (!file || err->code != ERR_NOT_FOUND) {
        return -1;
    }
    *err = (struct error){ 0 };
    if (file) {
        storage_forget_document(storage, session_id, name);
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
    int fd = storage_open_directory(state_dir, session_id);
    DIR *directory = fd >= 0 ? fdopendir(fd) : NULL;
    const struct dirent *entry;
    char path[STORAGE_PATH_SIZE];

    if (!directory) {
        fd_close(fd);
        return;
    }
    while ((entry = readdir(directory)))
        if (!str_equal(entry->d_name, ".") && !str_equal(entry->d_name, ".."))
            (void)unlinkat(dirfd(directory), entry->d_name, 0);
    closedir(directory);
    storage_directory_path(session_id, path);
    (void)unlinkat(state_dir, path, AT_REMOVEDIR);
}

void storage_forget(struct storage *storage, const char *session_id)
{
    struct session_share *share = map_remove(&storage->shares, session_id);
    const struct map_slot *slot;

    if (!share)
        return;
    map_for_each (slot, &share->recorded)
        storage_forget_document(storage, session_id, ((struct recorded_file *)slot->value)->name);
    storage_share_subtract(storage, share, share->bytes);
    if (--share->owner->sessions == 0) {
        (void)map_remove(&storage->owners, share->owner->owner);
        storage_owner_share_free(share->owner);
    }
    storage_session_share_free(share);
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
        storage_session_share_free(slot->value);
    map_for_each (slot, &storage->owners)
        storage_owner_share_free(slot->value);
    map_fini(&storage->shares);
    map_fini(&storage->owners);
    free(storage);
}

static char *read_owner(int directory)
{
    scoped(fd_close) int fd =
        openat(directory, STORAGE_OWNER_FILE, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
    char text[OWNER_MAXIMUM] = "";
    ssize_t length = fd < 0 ? 0 : read(fd, text, sizeof(text) - 1);

    text[MAX(length, (ssize_t)0)] = '\0';
    return xstrdup(text);
}

static void count_file(struct storage *storage, struct session_share *share, int directory,
                       const char *name)
{
    struct storage_entry entry;

    if (str_starts_with(name, STORAGE_PART)) {
        (void)unlinkat(directory, name, 0);
    } else if (name[0] != '.' && stat_entry(directory, name, &entry) == 0) {
        storage_share_add(storage, share, entry.size);
        share->files++;
    }
}

static void count_session(struct storage *storage, const char *session_id)
{
    int fd = storage_open_directory(storage->core->parts.state_dir, session_id);
    DIR *directory = fd >= 0 ? fdopendir(fd) : NULL;
    scoped(free) char *owner = directory ? read_owner(fd) : NULL;
    const struct dirent *entry;
    struct session_share *share;

    if (!directory) {
        fd_close(fd);
        return;
    }
    share = storage_share_of(storage, session_id, owner);
    while ((entry = readdir(directory)))
        count_file(storage, share, fd, entry->d_name);
    closedir(directory);
}

void storage_start(struct storage *storage)
{
    int fd = openat(storage->core->parts.state_dir, STORAGE_DIRECTORY,
                    O_RDONLY | O_DIRECTORY | O_CLOEXEC);
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
