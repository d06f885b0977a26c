/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/listing.h"

#include "base/alloc.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static void finish(struct listing *listing)
{
    io_watch_stop(&listing->pipe);
    fd_close(steal_fd(&listing->pipe.fd));
    listing->done(listing);
}

static bool entries_are_whole(const struct listing *listing)
{
    struct protocol_entry_view entry;
    size_t at = 0;
    long used;

    while ((used = protocol_entry_decode(listing->bytes.data + at, listing->bytes.length - at,
                                         &entry)) > 0) {
        at += (size_t)used;
        if (entry.is_last)
            return true;
    }
    return false;
}

static bool notes_are_whole(const struct listing *listing)
{
    struct protocol_note_view note;
    size_t at = 0;

    while (listing_next_note(listing, &at, &note))
        if (note.fixed.kind == NOTE_LAST)
            return true;
    return false;
}

static bool is_whole(const struct listing *listing)
{
    return listing->has_notes ? notes_are_whole(listing) : entries_are_whole(listing);
}

static void on_pipe(struct io_watch *watch, unsigned events UNUSED)
{
    struct listing *listing = container_of(watch, struct listing, pipe);
    void *place = buffer_reserve(&listing->bytes, 64 * 1024);
    ssize_t count = place ? read(watch->fd, place, 64 * 1024) : -1;

    if (count < 0 && place && (errno == EAGAIN || errno == EINTR))
        return;
    if (count > 0) {
        buffer_advance(&listing->bytes, (size_t)count);
        return;
    }
    if (!place)
        error_named(&listing->err, ERR_TOO_LARGE, "too_many_entries",
                    "the directory has too many entries for one answer");
    else if (!is_whole(listing))
        error_named(&listing->err, ERR_BACKEND, "backend", "the list of files was cut off");
    finish(listing);
}

static void on_opened(struct agent_request *request)
{
    struct listing *listing = container_of(request, struct listing, request);
    int fd = request->err.code ? -1 : request->result.file.fd;

    listing->err = request->err;
    listing->sys_errno = request->sys_errno;
    if (fd < 0) {
        if (!listing->err.code)
            error_named(&listing->err, ERR_BACKEND, "backend", "no list of files came");
        listing->done(listing);
        return;
    }
    (void)fcntl(fd, F_SETFL, O_NONBLOCK);
    io_watch_start(&listing->pipe, listing->loop, fd, IO_READ, on_pipe);
}

static void listing_init(struct listing *listing, struct loop *loop, bool has_notes,
                         listing_done_fn *done)
{
    *listing = (struct listing){
        .loop = loop,
        .done = done,
        .has_notes = has_notes,
        .bytes = BUFFER_INIT(LISTING_MAXIMUM),
        .pipe = { .fd = -1 },
    };
}

void listing_start_file(struct listing *listing, struct loop *loop, struct agent *agent,
                        const struct agent_file *file, listing_done_fn *done)
{
    listing_init(listing, loop, file->kind == FILE_GREP || file->kind == FILE_DESCRIBE, done);
    agent_file(agent, file, &listing->request, on_opened);
}

void listing_start_ports(struct listing *listing, struct loop *loop, struct agent *agent,
                         listing_done_fn *done)
{
    listing_init(listing, loop, true, done);
    agent_ports(agent, &listing->request, on_opened);
}

void listing_start(struct listing *listing, struct loop *loop, struct agent *agent,
                   const char *user, const char *path, unsigned depth, listing_done_fn *done)
{
    struct agent_file file = { .kind = FILE_LIST, .user = user, .path = path, .depth = depth };

    listing_start_file(listing, loop, agent, &file, done);
}

void listing_fini(struct listing *listing)
{
    if (!listing->loop)
        return;
    agent_cancel(&listing->request);
    io_watch_stop(&listing->pipe);
    fd_close(steal_fd(&listing->pipe.fd));
    buffer_fini(&listing->bytes);
}

bool listing_next(const struct listing *listing, size_t *at, struct protocol_entry_view *out_entry)
{
    long used =
        protocol_entry_decode(listing->bytes.data + *at, listing->bytes.length - *at, out_entry);

    if (used <= 0 || out_entry->is_last)
        return false;
    *at += (size_t)used;
    return true;
}

bool listing_next_note(const struct listing *listing, size_t *at,
                       struct protocol_note_view *out_note)
{
    long used =
        protocol_note_decode(listing->bytes.data + *at, listing->bytes.length - *at, out_note);

    if (used <= 0)
        return false;
    *at += (size_t)used;
    return true;
}

/* --- order ------------------------------------------------------------------------------------ */

struct item {
    const char *path;
    size_t length;
    size_t place;
};

/* A slash comes before everything else, so that a directory is followed by its content. */
static int compare_items(const void *left, const void *right)
{
    const struct item *a = left, *b = right;
    size_t shorter = a->length < b->length ? a->length : b->length;
    size_t at = 0;

    while (at < shorter && a->path[at] == b->path[at])
        at++;
    if (at == shorter && a->length != b->length)
        return a->length < b->length ? -1 : 1;
    if (at == shorter)
        return a->place < b->place ? -1 : 1;
    if (a->path[at] == '/' || b->path[at] == '/')
        return a->path[at] == '/' ? -1 : 1;
    return (unsigned char)a->path[at] < (unsigned char)b->path[at] ? -1 : 1;
}

static bool next_item(const struct listing *listing, size_t *at, struct item *out_item)
{
    struct protocol_entry_view entry;
    struct protocol_note_view note;

    out_item->place = *at;
    if (listing->has_notes) {
        if (!listing_next_note(listing, at, &note) || note.fixed.kind == NOTE_LAST)
            return false;
        out_item->path = note.path;
        out_item->length = note.fixed.path_length;
        return true;
    }
    if (!listing_next(listing, at, &entry))
        return false;
    out_item->path = entry.path;
    out_item->length = entry.fixed.path_length;
    return true;
}

size_t *listing_sort(const struct listing *listing, size_t *out_count)
{
    struct item *items = NULL;
    size_t count = 0, capacity = 0, at = 0;
    struct item item;
    size_t *places;

    while (next_item(listing, &at, &item)) {
        if (count == capacity) {
            capacity = capacity ? capacity * 2 : 256;
            items = xrealloc(items, capacity, sizeof(*items));
        }
        items[count++] = item;
    }
    if (count)
        qsort(items, count, sizeof(*items), compare_items);
    places = xmalloc((count + 1) * sizeof(*places));
    for (size_t i = 0; i < count; i++)
        places[i] = items[i].place;
    free(items);
    *out_count = count;
    return places;
}

int listing_cut(const struct listing *listing)
{
    struct protocol_entry_view entry = { 0 };
    size_t at = 0;

    while (listing_next(listing, &at, &entry))
        continue;
    return entry.is_last ? entry.fixed.error : 0;
}
