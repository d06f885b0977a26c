/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A new file that replaces the old one when it is complete.
 *
 * Where descriptors of files pass, bytes are written to the file at once. Otherwise they go through
 * a socket, and the rest waits in memory: at most one piece, since callers wait for on_room. Init
 * says NOTE_LAST when all of it is in the file, and only then is it committed; or before, when
 * something is wrong.
 */

#include "agent/files_private.h"
#include "base/alloc.h"
#include "base/fd.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <sys/socket.h>

enum {
    PENDING_MAXIMUM = 64 * 1024 * 1024, /* more than any caller adds without waiting */
    NOTES_MAXIMUM = 16 * 1024,
    NOTES_PIECE = 4 * 1024,
};

static void close_all(struct file_writer *writer)
{
    io_watch_stop(&writer->socket);
    fd_close(steal_fd(&writer->socket.fd));
    fd_close(steal_fd(&writer->file));
    buffer_fini(&writer->pending);
    buffer_fini(&writer->notes);
}

/* --- failing --------------------------------------------------------------------------------- */

static void note_failure(struct file_writer *writer, int number)
{
    close_all(writer);
    agent_cancel(&writer->request);
    writer->state = WRITER_FAILED;
    writer->sys_errno = number;
    file_error(&writer->err, number, writer->path);
}

/* From the loop: the caller waits for `done`, for room, or will see it with the next bytes. */
static void fail(struct file_writer *writer, int number)
{
    bool is_committed = writer->state >= WRITER_SENDING;

    note_failure(writer, number);
    if (is_committed)
        writer->done(writer);
    else if (writer->on_room)
        writer->on_room(writer);
}

static void on_failed_before(struct deferred *deferred)
{
    struct file_writer *writer = container_of(deferred, struct file_writer, failure);

    writer->done(writer);
}

/* --- committing ------------------------------------------------------------------------------ */

static void on_committed(struct agent_request *request)
{
    struct file_writer *writer = container_of(request, struct file_writer, request);

    file_request_error(request, writer->path, &writer->err, &writer->sys_errno);
    writer->state = writer->err.code ? WRITER_FAILED : WRITER_DONE;
    if (!writer->err.code) {
        writer->stat = request->result.file.stat;
        free(steal_ptr(&writer->temporary));
    }
    writer->done(writer);
}

static void commit(struct file_writer *writer, struct agent *agent)
{
    struct agent_file file = {
        .kind = FILE_COMMIT,
        .user = writer->actor.user,
        .path = writer->path,
        .second = writer->temporary,
        .third = writer->attributes,
        .flags = writer->flags | writer->actor.flags,
        .expected = writer->expected,
    };

    close_all(writer);
    writer->state = WRITER_COMMITTING;
    agent_file(agent, &file, &writer->request, on_committed);
}

/* --- init's last word ------------------------------------------------------------------------ */

/* The errno of a transfer that init calls complete. */
static int check_complete(const struct file_writer *writer, const struct protocol_note *last)
{
    if (writer->state != WRITER_CONFIRMING)
        return EPROTO;
    return last->amount == writer->sent ? 0 : EIO;
}

/* The errno of a transfer that is over, 0 when it went well, -1 when it is not over yet. */
static int read_last(struct file_writer *writer)
{
    void *place = buffer_reserve(&writer->notes, NOTES_PIECE);
    ssize_t count = place ? recv(writer->socket.fd, place, NOTES_PIECE, MSG_DONTWAIT) : 0;
    struct protocol_note_view note;
    long used;

    if (count < 0 && (errno == EAGAIN || errno == EINTR))
        return -1;
    if (count > 0)
        buffer_advance(&writer->notes, (size_t)count);
    used = protocol_note_decode(writer->notes.data, writer->notes.length, &note);
    if (used == 0 && count > 0)
        return -1;
    if (used <= 0)
        return used < 0 ? EPROTO : EIO;
    if (note.fixed.kind != NOTE_LAST)
        return EPROTO;
    return note.fixed.error ? note.fixed.error : check_complete(writer, &note.fixed);
}

static void take_last(struct file_writer *writer)
{
    struct agent *agent = writer->agent;
    int result = read_last(writer);

    if (result > 0) {
        fail(writer, result);
    } else if (result == 0) {
        agent_cancel(&writer->request);
        commit(writer, agent);
    }
}

/* --- through a socket ------------------------------------------------------------------------ */

static void on_socket(struct io_watch *watch, unsigned events);

static void watch_socket(struct file_writer *writer)
{
    unsigned events = IO_READ | (writer->pending.length ? IO_WRITE : 0U);

    if (writer->socket.events != events)
        io_watch_start(&writer->socket, writer->loop, writer->socket.fd, events, on_socket);
}

/* Sends and returns the number of bytes that the socket takes. After init has closed its side, the
 * rest counts as sent: its last note, which is still to be read, has the error. */
static size_t send_some(struct file_writer *writer, const void *data, size_t length)
{
    size_t sent = 0;

    while (sent < length) {
        ssize_t count = send(writer->socket.fd, (const char *)data + sent, length - sent,
                             MSG_DONTWAIT | MSG_NOSIGNAL);

        if (count < 0 && errno == EINTR)
            continue;
        if (count < 0 && errno == EAGAIN)
            break;
        sent = count < 0 ? length : sent + (size_t)count;
    }
    writer->sent += sent;
    return sent;
}

static void confirm(struct file_writer *writer)
{
    writer->state = WRITER_CONFIRMING;
    (void)shutdown(writer->socket.fd, SHUT_WR);
}

static void send_pending(struct file_writer *writer)
{
    buffer_consume(&writer->pending,
                   send_some(writer, writer->pending.data, writer->pending.length));
    if (writer->pending.length)
        return;
    if (writer->state == WRITER_SENDING)
        confirm(writer);
    watch_socket(writer);
    if (writer->state == WRITER_OPEN && writer->on_room)
        writer->on_room(writer);
}

static void on_socket(struct io_watch *watch, unsigned events)
{
    struct file_writer *writer = container_of(watch, struct file_writer, socket);

    if (events & IO_READ)
        take_last(writer);
    else if (writer->pending.length)
        send_pending(writer);
}

/* --- for the caller -------------------------------------------------------------------------- */

static void on_opened(struct agent_request *request)
{
    struct file_writer *writer = container_of(request, struct file_writer, opening.request);

    file_request_error(request, writer->path, &writer->err, &writer->sys_errno);
    writer->state = writer->err.code ? WRITER_FAILED : WRITER_OPEN;
    if (!writer->err.code) {
        writer->temporary = xstrdup(request->result.file.temporary);
        if (request->result.file.fd < 0) {
            note_failure(writer, ENXIO);
        } else if (writer->is_streamed) {
            writer->socket.fd = request->result.file.fd;
            watch_socket(writer);
        } else {
            writer->file = request->result.file.fd;
        }
    }
    writer->done(writer);
}

void file_writer_open_as(struct file_writer *writer, struct agent *agent,
                         const struct file_actor *actor, const char *path, uint32_t mode,
                         file_writer_fn *done)
{
    bool is_streamed = !files_pass(agent);
    struct agent_file file = {
        .kind = is_streamed ? FILE_WRITE : FILE_OPEN_WRITE,
        .user = actor->user,
        .path = path,
        .flags = actor->flags,
        .mode = mode,
    };

    *writer = (struct file_writer){
        .state = WRITER_OPENING,
        .is_streamed = is_streamed,
        .actor = *actor,
        .path = path,
        .done = done,
        .file = -1,
        .loop = agent_loop(agent),
        .socket.fd = -1,
        .pending = BUFFER_INIT(PENDING_MAXIMUM),
        .notes = BUFFER_INIT(NOTES_MAXIMUM),
    };
    file_ask_start(&writer->opening, agent, &file, on_opened);
}

void file_writer_open(struct file_writer *writer, struct agent *agent, const char *path,
                      uint32_t mode, file_writer_fn *done)
{
    file_writer_open_as(writer, agent, &(struct file_actor){ .user = "" }, path, mode, done);
}

/* Bytes that the socket does not take wait behind the ones that wait already. */
static int add_to_stream(struct file_writer *writer, const void *data, size_t length)
{
    size_t sent = writer->pending.length ? 0 : send_some(writer, data, length);

    if (sent < length &&
        buffer_append(&writer->pending, (const char *)data + sent, length - sent) < 0)
        return EFBIG;
    watch_socket(writer);
    return 0;
}

int file_writer_add(struct file_writer *writer, const void *data, size_t length)
{
    int number;

    if (writer->state == WRITER_FAILED)
        return -1;
    assert(writer->state == WRITER_OPEN);
    if (!writer->is_streamed) {
        if (fd_write_all(writer->file, data, length) == 0)
            return 0;
        writer->sys_errno = errno;
        return file_error(&writer->err, writer->sys_errno, writer->path);
    }
    number = add_to_stream(writer, data, length);
    if (number)
        note_failure(writer, number);
    return number ? -1 : 0;
}

bool file_writer_is_full(const struct file_writer *writer)
{
    return writer->pending.length > 0;
}

/* The connection to init is lost, so the file cannot be committed. */
static void on_agent_lost(struct agent_request *request)
{
    struct file_writer *writer = container_of(request, struct file_writer, request);
    struct error err = request->err;

    note_failure(writer, EIO);
    writer->sys_errno = 0;
    writer->err = err;
    writer->done(writer);
}

void file_writer_commit(struct file_writer *writer, struct agent *agent, uint32_t flags,
                        const struct protocol_version *expected, file_writer_fn *done)
{
    writer->done = done;
    writer->flags = flags;
    writer->expected = expected ? *expected : (struct protocol_version){ 0 };
    if (!agent && writer->state == WRITER_OPEN)
        note_failure(writer, EIO);
    if (writer->state == WRITER_FAILED) {
        loop_defer(writer->loop, &writer->failure, on_failed_before);
        return;
    }
    assert(writer->state == WRITER_OPEN);
    if (!writer->is_streamed) {
        commit(writer, agent);
        return;
    }
    writer->agent = agent;
    writer->state = WRITER_SENDING;
    agent_attend(agent, &writer->request, on_agent_lost);
    if (!writer->pending.length)
        confirm(writer);
}

static void on_abandoned(struct agent_request *request UNUSED)
{
}

void file_writer_fini(struct file_writer *writer, struct agent *agent)
{
    struct agent_file file = { .kind = FILE_COMMIT,
                               .user = writer->actor.user,
                               .path = writer->path,
                               .second = writer->temporary,
                               .flags = FILE_ABANDON | writer->actor.flags };

    if (writer->state == WRITER_UNUSED)
        return;
    file_ask_cancel(&writer->opening);
    agent_cancel(&writer->request);
    loop_undefer(writer->loop, &writer->failure);
    close_all(writer);
    if (writer->temporary && agent) {
        agent_file(agent, &file, &writer->request, on_abandoned);
        agent_cancel(&writer->request);
    }
    free(steal_ptr(&writer->temporary));
    writer->state = WRITER_UNUSED;
}
