#include "api/listing.h"

#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

static void finish(struct listing *listing)
{
    io_watch_stop(&listing->pipe);
    fd_close(steal_fd(&listing->pipe.fd));
    listing->done(listing);
}

static bool is_whole(const struct listing *listing)
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

void listing_start(struct listing *listing, struct loop *loop, struct agent *agent,
                   const char *user, const char *path, unsigned depth, listing_done_fn *done)
{
    struct agent_file file = { .kind = FILE_LIST, .user = user, .path = path, .depth = depth };

    *listing = (struct listing){
        .loop = loop, .done = done, .bytes = BUFFER_INIT(LISTING_MAXIMUM), .pipe = { .fd = -1 }
    };
    agent_file(agent, &file, &listing->request, on_opened);
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

int listing_cut(const struct listing *listing)
{
    struct protocol_entry_view entry = { 0 };
    size_t at = 0;

    while (listing_next(listing, &at, &entry))
        continue;
    return entry.is_last ? entry.fixed.error : 0;
}
