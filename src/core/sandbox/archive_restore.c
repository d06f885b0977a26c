/* SPDX-License-Identifier: Apache-2.0 */
/* The second half of workspace_archive.h: from the archive into the next sandbox. */

#include "base/alloc.h"
#include "base/log.h"
#include "config/config.h"
#include "core/sandbox/archive_private.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

enum { PIECE = 64 * 1024, PIECES_PER_TURN = 16 };

/* A sandbox without the files is ready all the same: its session reports that they were reset. */
static void finish(struct archive_work *work)
{
    struct sandbox *sandbox = work->sandbox;
    archive_done_fn *done = work->done;

    if (work->err.code != ERR_NONE)
        log_warn("the files of a session could not be restored", kv("session", work->session_id),
                 kv("error", work->err.message));
    if (work->err.code == ERR_NONE)
        sandbox_note_restored_files(sandbox);
    agent_cancel(&work->request);
    sandbox->archive_work = NULL;
    archive_work_free(work);
    done(sandbox);
}

static void on_later(struct deferred *deferred)
{
    finish(container_of(deferred, struct archive_work, later));
}

static void on_timeout(struct timer *timer)
{
    struct archive_work *work = container_of(timer, struct archive_work, timer);

    error_set(&work->err, ERR_TIMEOUT, "unpacking took longer than keep.timeout");
    finish(work);
}

/* --- init's last word ------------------------------------------------------------------------- */

/* True when it has come. */
static bool find_last(struct archive_work *work)
{
    struct protocol_note_view note;
    size_t at = 0;
    long used;

    while ((used = protocol_note_decode(work->notes.data + at, work->notes.length - at, &note)) >
           0) {
        at += (size_t)used;
        if (note.fixed.kind != NOTE_LAST)
            continue;
        if (note.fixed.error)
            error_set(&work->err, ERR_BACKEND, "unpack: %.*s (%s)", (int)note.fixed.text_length,
                      note.text, strerror(note.fixed.error));
        return true;
    }
    return false;
}

static bool read_notes(struct archive_work *work)
{
    void *place = buffer_reserve(&work->notes, 16 * 1024);
    ssize_t count = place ? recv(work->stream.fd, place, 16 * 1024, MSG_DONTWAIT) : 0;

    if (count < 0 && (errno == EAGAIN || errno == EINTR))
        return false;
    if (count > 0)
        buffer_advance(&work->notes, (size_t)count);
    if (find_last(work))
        return true;
    if (count > 0)
        return false;
    error_set(&work->err, ERR_BACKEND, "the sandbox stopped while unpacking");
    return true;
}

/* --- the archive ------------------------------------------------------------------------------ */

static void on_stream(struct io_watch *watch, unsigned events);

/* 1 when there may be more, 0 when the socket is full, -1 at the end. An archive that is cut short
 * may look whole to init: what it says in the end counts only if it is worse. */
static int send_piece(struct archive_work *work)
{
    uint8_t piece[PIECE];
    ssize_t length = pread(work->file, piece, sizeof(piece), (off_t)work->bytes);
    ssize_t count = 0;

    if (length > 0)
        count = send(work->stream.fd, piece, (size_t)length, MSG_DONTWAIT | MSG_NOSIGNAL);
    if (length >= 0 && count < 0 && (errno == EAGAIN || errno == EINTR))
        return 0;
    if (length < 0)
        error_sys(&work->err, "read the archive");
    else if (count < 0)
        error_sys(&work->err, "send the archive");
    else if (length == 0 && work->bytes < work->archive_bytes)
        error_set(&work->err, ERR_BACKEND, "the archive became shorter while it was read");
    else if (length == 0 && !archive_has_end(work->file, work->bytes))
        error_set(&work->err, ERR_BACKEND, "the archive is cut short");
    work->bytes += (uint64_t)MAX(count, (ssize_t)0);
    return count > 0 ? 1 : -1;
}

static void send_pieces(struct archive_work *work)
{
    int result = 1;

    for (unsigned i = 0; i < PIECES_PER_TURN && result > 0; i++)
        result = send_piece(work);
    work->is_sent = result < 0;
    if (!work->is_sent)
        return;
    (void)shutdown(work->stream.fd, SHUT_WR);
    io_watch_start(&work->stream, work->sandbox->core->loop, work->stream.fd, IO_READ, on_stream);
}

static void on_stream(struct io_watch *watch, unsigned events)
{
    struct archive_work *work = container_of(watch, struct archive_work, stream);

    if (events & IO_READ && read_notes(work))
        finish(work);
    else if (events & IO_WRITE && !work->is_sent)
        send_pieces(work);
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
    io_watch_start(&work->stream, work->sandbox->core->loop, work->stream.fd, IO_READ | IO_WRITE,
                   on_stream);
}

bool workspace_archive_can_restore(const struct sandbox *sandbox)
{
    const struct sandbox_observer *observer = sandbox->core->observer;
    const struct session *session = sandbox->order.session;

    return session && observer->keeps_files(session) && observer->has_archive(session);
}

void workspace_archive_restore(struct sandbox *sandbox, archive_done_fn *done)
{
    struct archive_work *work =
        archive_work_new(sandbox, done, sandbox->core->parts.config->keep.timeout_ms, on_timeout);
    char name[ARCHIVE_NAME_SIZE];
    struct stat status;

    workspace_archive_name(work->session_id, name);
    work->file = openat(work->state_dir, name, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
    if (work->file < 0 || fstat(work->file, &status) < 0 || !sandbox->connection.agent) {
        error_sys(&work->err, "open the archive");
        loop_defer(sandbox->core->loop, &work->later, on_later);
        return;
    }
    work->archive_bytes = (uint64_t)status.st_size;
    agent_file(sandbox->connection.agent,
               &(struct agent_file){ .kind = FILE_UNPACK, .user = "", .path = "." }, &work->request,
               on_opened);
}
