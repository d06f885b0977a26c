/* SPDX-License-Identifier: Apache-2.0 */
#include "base/alloc.h"
#include "base/map.h"
#include "config/config.h"
#include "core/core.h"
#include "core/session/session.h"
#include "core/session/session_private.h"
#include "core/session/storage_private.h"
#include "loop/worker.h"
#include "store/store.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

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

/* --- writing --------------------------------------------------------------------------------- */

static int write_owner(int directory, const char *owner, struct error *err)
{
    scoped(fd_close) int fd = openat(directory, STORAGE_OWNER_FILE,
                                     O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0600);
    size_t length = strlen(owner);

    if (fd < 0 || write(fd, owner, length) != (ssize_t)length)
        return error_sys(err, "write the owner of a stored file");
    return 0;
}

static int make_directory(struct storage *storage, const struct session *session, struct error *err)
{
    int state_dir = storage->core->parts.state_dir;
    char path[STORAGE_PATH_SIZE];
    scoped(fd_close) int fd = storage_open_directory(state_dir, session->identity.id);

    if (fd >= 0)
        return steal_fd(&fd);
    storage_directory_path(session->identity.id, path);
    if ((mkdirat(state_dir, STORAGE_DIRECTORY, 0700) < 0 && errno != EEXIST) ||
        (mkdirat(state_dir, path, 0700) < 0 && errno != EEXIST))
        return error_sys(err, "create the directory of stored files");
    fd = storage_open_directory(state_dir, session->identity.id);
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
    struct session_share *share = storage_share_of(
        storage, session->identity.id, session->identity.owner ? session->identity.owner : "");
    struct storage_upload *upload;
    struct stat status;

    if (storage_check_name(name, err) < 0 || storage_check_room(storage, share, 0, size, err) < 0)
        return NULL;
    upload = xnew(struct storage_upload);
    upload->storage = storage;
    upload->file = upload->directory = -1;
    upload->name = xstrdup(name);
    snprintf(upload->session_id, sizeof(upload->session_id), "%s", session->identity.id);
    snprintf(upload->part, sizeof(upload->part), STORAGE_PART "%" PRIu64, storage->next_part++);
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
    struct session_share *share = storage_share_of(storage, upload->session_id, NULL);

    if (!share)
        return error_named(err, ERR_GONE, "session_ended", "the session is gone");
    if (storage_check_room(storage, share, upload->size, length, err) < 0)
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
        storage_share_add(storage, share, (uint64_t)count);
    }
    return 0;
}

void storage_upload_abort(struct storage_upload *upload)
{
    if (!upload)
        return;
    (void)unlinkat(upload->directory, upload->part, 0);
    storage_share_subtract(
        upload->storage, storage_share_of(upload->storage, upload->session_id, NULL), upload->size);
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
    const struct session_share *share = storage_share_of(upload->storage, upload->session_id, NULL);

    if (share)
        storage_put_document(upload->storage, share, upload->name, upload->size, upload->before);
    store_commit(upload->storage->core->parts.store, &upload->ticket, done);
}

/* Whether the document is written. */
static bool take_record(struct storage_upload *upload)
{
    struct session_share *share = storage_share_of(upload->storage, upload->session_id, NULL);

    if (upload->ticket.err->code != ERR_NONE) {
        upload->err = *upload->ticket.err;
        return false;
    }
    upload->is_recorded = true;
    if (share)
        storage_note_recorded(share, upload->name, upload->size, upload->before);
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
    struct session_share *share = storage_share_of(upload->storage, upload->session_id, NULL);
    struct stat status;
    bool replaces = fstatat(upload->directory, upload->name, &status, AT_SYMLINK_NOFOLLOW) == 0;

    if (renameat(upload->directory, upload->part, upload->directory, upload->name) < 0) {
        error_sys(&upload->err, "store \"%.200s\"", upload->name);
        upload->done(upload->user, upload->size, &upload->err);
        storage_upload_abort(upload);
        return;
    }
    if (replaces)
        storage_share_subtract(upload->storage, share, (uint64_t)status.st_size);
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
    const struct session_share *share = storage_share_of(upload->storage, upload->session_id, NULL);
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
