/* SPDX-License-Identifier: Apache-2.0 */
/* The first half of workspace_archive.h: from a sandbox that ends into an archive. */

#include "base/alloc.h"
#include "base/fd.h"
#include "base/log.h"
#include "base/str.h"
#include "config/config.h"
#include "core/sandbox/archive_private.h"
#include "wire/json.h"
#include "wire/tar.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { PIECE = 256 * 1024, PIECES_PER_TURN = 8 };

static const struct config *config_of(const struct archive_work *work)
{
    return work->sandbox->core->parts.config;
}

static void part_name(const char *session_id, char name[ARCHIVE_NAME_SIZE + 8])
{
    snprintf(name, ARCHIVE_NAME_SIZE + 8, "kept/%s.tar.part", session_id);
}

/* --- the end ---------------------------------------------------------------------------------- */

static void report(const struct archive_work *work)
{
    const struct sandbox *sandbox = work->sandbox;
    scoped(buffer_fini) struct buffer text = BUFFER_INIT(4096);
    struct json_writer json = JSON_WRITER(&text);
    bool is_kept = work->err.code == ERR_NONE;

    json_begin_object(&json, NULL);
    json_put_int(&json, "generation", (int64_t)sandbox->order.generation);
    if (is_kept)
        json_put_int(&json, "bytes", (int64_t)work->bytes);
    else
        json_put_text(&json, "reason", work->err.message);
    json_end_object(&json);
    sandbox->core->observer->on_event(
        sandbox->order.session, is_kept ? "files.kept" : "files.not_kept", buffer_text(&text));
    if (!is_kept)
        log_warn("the files of a sandbox are not kept", kv("session", work->session_id),
                 kv("error", work->err.message));
}

static void note_kept(const struct archive_work *work)
{
    const struct sandbox *sandbox = work->sandbox;
    struct workspace_archive *archives = sandbox->core->archives;

    workspace_archive_forget(archives, work->replaced);
    archives->total_bytes += work->bytes;
    sandbox->core->observer->on_archived(sandbox->order.session, work->bytes,
                                         sandbox->order.generation);
}

static void finish(struct archive_work *work)
{
    struct sandbox *sandbox = work->sandbox;
    archive_done_fn *done = work->done;
    char part[ARCHIVE_NAME_SIZE + 8];

    part_name(work->session_id, part);
    if (work->err.code != ERR_NONE)
        (void)unlinkat(work->state_dir, part, 0);
    if (work->err.code == ERR_NONE)
        note_kept(work);
    report(work);
    agent_cancel(&work->request);
    sandbox->archive_work = NULL;
    archive_work_free(work);
    done(sandbox);
}

static void on_later(struct deferred *deferred)
{
    finish(container_of(deferred, struct archive_work, later));
}

/* --- onto the disk ---------------------------------------------------------------------------- */

/* On a worker's thread. The directory is synchronised too: an archive that was reported as kept
 * survives a power failure. */
static void secure(struct job *job)
{
    struct archive_work *work = container_of(job, struct archive_work, job);
    scoped(fd_close) int directory =
        openat(work->state_dir, "kept", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    char part[ARCHIVE_NAME_SIZE + 8], name[ARCHIVE_NAME_SIZE];
    struct stat status;

    part_name(work->session_id, part);
    workspace_archive_name(work->session_id, name);
    if (fstatat(work->state_dir, name, &status, AT_SYMLINK_NOFOLLOW) == 0)
        work->replaced = (uint64_t)status.st_size;
    if (fdatasync(work->file) < 0)
        error_sys(&work->err, "synchronise the archive");
    else if (renameat(work->state_dir, part, work->state_dir, name) < 0 || fsync(directory) < 0)
        error_sys(&work->err, "name the archive");
}

static void on_secured(struct job *job)
{
    struct archive_work *work = container_of(job, struct archive_work, job);

    work->in_job = false;
    if (work->sandbox)
        finish(work);
    else
        archive_work_free(work);
}

static void complete(struct archive_work *work)
{
    struct worker *worker = work->sandbox->core->parts.worker;

    io_watch_stop(&work->stream);
    if (!archive_has_end(work->file, work->bytes)) {
        error_set(&work->err, ERR_BACKEND, "the sandbox stopped while packing");
        finish(work);
        return;
    }
    work->job = (struct job){ .run = secure, .done = on_secured };
    work->in_job = true;
    if (worker) {
        worker_submit(worker, &work->job);
        return;
    }
    secure(&work->job);
    on_secured(&work->job);
}

/* --- out of the sandbox ----------------------------------------------------------------------- */

static int check_room(struct archive_work *work)
{
    const struct config *config = config_of(work);
    const struct workspace_archive *archives = work->sandbox->core->archives;

    if (work->bytes > config->keep.max_size_bytes)
        return error_set(&work->err, ERR_TOO_LARGE, "they are larger than keep.max_size");
    if (archives->total_bytes + work->bytes > config->keep.max_total_bytes)
        return error_set(&work->err, ERR_TOO_LARGE, "keep.max_total is exhausted");
    return 0;
}

/* Where the host refuses splice(2). */
static ssize_t copy_piece(const struct archive_work *work)
{
    static char piece[PIECE]; /* one loop, one thread */
    struct pollfd ready = { .fd = work->stream.fd, .events = POLLIN };
    ssize_t count;

    if (poll(&ready, 1, 0) == 0) {
        errno = EAGAIN;
        return -1;
    }
    count = read(work->stream.fd, piece, sizeof(piece));
    return count > 0 && fd_write_all(work->file, piece, (size_t)count) < 0 ? -1 : count;
}

/* From the pipe into the file without passing through us; 1 at its end. */
static int take_piece(struct archive_work *work)
{
    ssize_t count = splice(work->stream.fd, NULL, work->file, NULL, PIECE, SPLICE_F_NONBLOCK);

    if (count < 0 && (errno == ENOSYS || errno == EPERM))
        count = copy_piece(work);
    if (count < 0 && (errno == EAGAIN || errno == EINTR))
        return 0;
    if (count < 0)
        return error_sys(&work->err, "write the archive");
    work->bytes += (uint64_t)count;
    return count == 0 ? 1 : check_room(work);
}

static void on_packed(struct io_watch *watch, unsigned events UNUSED)
{
    struct archive_work *work = container_of(watch, struct archive_work, stream);
    uint64_t before;
    int result = 0;

    for (unsigned i = 0; i < PIECES_PER_TURN && result == 0; i++) {
        before = work->bytes;
        result = take_piece(work);
        if (result == 0 && work->bytes == before)
            return;
    }
    if (result > 0)
        complete(work);
    else if (result < 0)
        finish(work);
}

static void on_opened(struct agent_request *request)
{
    struct archive_work *work = container_of(request, struct archive_work, request);

    if (request->err.code != ERR_NONE) {
        work->err = request->err;
        finish(work);
        return;
    }
    work->stream.fd = request->result.file.fd;
    (void)fcntl(work->stream.fd, F_SETFL, O_NONBLOCK);
    io_watch_start(&work->stream, work->sandbox->core->loop, work->stream.fd, IO_READ, on_packed);
}

static void ask(struct archive_work *work)
{
    const struct config_list *names = &config_of(work)->keep.exclude;
    scoped(buffer_fini) struct buffer left_out = BUFFER_INIT(PROTOCOL_MAX_PATH - 1);

    for (size_t i = 0; i < names->count; i++)
        buffer_appendf(&left_out, "%s%s", i ? "\n" : "", names->items[i]);
    agent_file(work->sandbox->connection.agent,
               &(struct agent_file){
                   .kind = FILE_PACK, .user = "", .path = ".", .third = buffer_text(&left_out) },
               &work->request, on_opened);
}

static int open_part(struct archive_work *work)
{
    char part[ARCHIVE_NAME_SIZE + 8];

    part_name(work->session_id, part);
    if (mkdirat(work->state_dir, "kept", 0700) < 0 && errno != EEXIST)
        return error_sys(&work->err, "make the directory for archives");
    (void)unlinkat(work->state_dir, part, 0);
    work->file = openat(work->state_dir, part, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    return work->file < 0 ? error_sys(&work->err, "create the archive") : 0;
}

static void on_timeout(struct timer *timer)
{
    struct archive_work *work = container_of(timer, struct archive_work, timer);

    if (work->in_job || sandbox_asks_backend(work->sandbox))
        return; /* a moment more: it is as good as done, or has its own bound */
    error_set(&work->err, ERR_TIMEOUT, "packing took longer than keep.timeout");
    finish(work);
}

/* A frozen init cannot answer. */
static void on_thawed(struct backend_op *op)
{
    struct archive_work *work = sandbox_end_op(op)->archive_work;

    if (op->err.code == ERR_NONE) {
        ask(work);
        return;
    }
    work->err = op->err;
    finish(work);
}

enum archive_packing workspace_archive_packing(const struct sandbox *sandbox)
{
    const struct session *session = sandbox->order.session;

    if (!session || !sandbox->core->observer->keeps_files(session) || !sandbox->connection.agent ||
        sandbox_has_ended(sandbox))
        return PACK_NOTHING;
    /* The change ends before the files are packed. */
    if (sandbox->state == SANDBOX_FREEZING || sandbox->state == SANDBOX_THAWING)
        return PACK_FROZEN;
    if (sandbox_asks_backend(sandbox) || workflow_is_running(&sandbox->workflow))
        return PACK_NOTHING;
    if (sandbox->state == SANDBOX_FROZEN || sandbox->state == SANDBOX_FROZEN_BY_OTHERS)
        return PACK_FROZEN;
    return sandbox->state == SANDBOX_READY ? PACK_RUNNING : PACK_NOTHING;
}

void workspace_archive_pack(struct sandbox *sandbox, enum archive_packing packing,
                            archive_done_fn *done)
{
    struct archive_work *work =
        archive_work_new(sandbox, done, sandbox->core->parts.config->keep.timeout_ms, on_timeout);

    assert(packing != PACK_NOTHING);
    /* That it goes is known to a daemon that comes meanwhile. */
    sandbox->core->observer->on_changed(sandbox->order.session);
    if (open_part(work) < 0)
        loop_defer(sandbox->core->loop, &work->later, on_later);
    else if (packing == PACK_RUNNING)
        ask(work);
    else
        backend_freeze(sandbox->order.backend, sandbox->id, false,
                       sandbox_begin_op(sandbox, on_thawed));
}
