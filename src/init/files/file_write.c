/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Content for a new file through a stream socket, for a daemon that cannot be given the file itself.
 * The end of the content is the shutdown of the writing side: then the file waits under its
 * temporary name for FILE_COMMIT. If the daemon hangs up instead, or a write fails, it is removed.
 */

#include "init/files/file_output.h"
#include "init/files/file_work.h"
#include "init/sys.h"

#include <errno.h>

struct writing {
    int socket;
    int file;
    char *buffer;
    int error; /* errno that ended it */
    uint64_t bytes;
};

int file_write_open(struct file_work *work)
{
    char name[PATH_NAME_SIZE];
    int ends[2];
    long result;

    work->base = path_open_parent(work->job->file_texts.path, true, name);
    if (work->base < 0)
        return work->base;
    result = sys(socketpair, AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends);
    if (result < 0)
        return (int)result;
    result = file_do_open_write(work, work->base, name);
    if (result < 0)
        return (int)result;
    work->file = work->fd;
    work->fd = ends[0];
    work->stream = ends[1];
    return 0;
}

/* A daemon that has only shut its writing side down waits for the note; one that has closed the
 * socket, or died, does not. */
static bool has_hung_up(int socket)
{
    struct pollfd poll = { .fd = socket };

    return sys(poll, &poll, 1, 0) > 0 && poll.revents & (POLLHUP | POLLERR);
}

static void write_piece(struct writing *writing, size_t length)
{
    const char *at = writing->buffer;

    while (length && !writing->error) {
        long result = sys(write, writing->file, at, length);

        if (result < 0 && result != -EINTR) {
            writing->error = (int)-result;
        } else if (result > 0) {
            at += result;
            length -= (size_t)result;
            writing->bytes += (uint64_t)result;
        }
    }
}

/* Until the end of the content, or an error. */
static void take_content(struct writing *writing)
{
    while (!writing->error) {
        long count = sys(read, writing->socket, writing->buffer, FILE_OUTPUT_SIZE);

        if (count == 0)
            return;
        if (count > 0)
            write_piece(writing, (size_t)count);
        else if (count != -EINTR)
            writing->error = (int)-count;
    }
}

static bool tell_end(const struct writing *writing)
{
    char bytes[sizeof(struct protocol_note)];
    struct file_output notes = { .fd = writing->socket, .bytes = bytes, .size = sizeof bytes };
    struct protocol_note last = {
        .kind = NOTE_LAST,
        .error = writing->error,
        .amount = writing->bytes,
    };

    file_output_note(&notes, &last, NULL, NULL, 0);
    file_output_flush(&notes);
    return !notes.is_broken;
}

/* Content that is still unread when this end closes would take the note with it. */
static void drain(const struct writing *writing)
{
    long count;

    do
        count = sys(read, writing->socket, writing->buffer, FILE_OUTPUT_SIZE);
    while (count > 0 || count == -EINTR);
}

void file_write_read(struct file_work *work)
{
    struct writing writing = {
        .socket = work->stream,
        .file = work->file,
        .buffer = file_memory(work)->content,
    };
    bool is_kept;

    take_content(&writing);
    is_kept = !writing.error && !has_hung_up(writing.socket);
    if (!is_kept)
        (void)sys(unlinkat, work->base, work->temporary, 0);
    if (!tell_end(&writing) && is_kept)
        (void)sys(unlinkat, work->base, work->temporary, 0);
    if (writing.error)
        drain(&writing);
}
