#include "core/output/spool_private.h"

#include "base/alloc.h"
#include "base/str.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>

enum { TERMINAL_BYTES = 128 * 1024 }; /* at most this much is on its way through a terminal */

int output_full_parse(const char *name)
{
    static const char *const names[OUTPUT_FULL_KINDS] = { "drop", "block", "stop" };

    for (int i = 0; i < OUTPUT_FULL_KINDS; i++) {
        if (str_equal(names[i], name))
            return i;
    }
    return -1;
}

/* --- life ---------------------------------------------------------------------------------- */

static void on_stall(struct timer *timer)
{
    struct output *output = container_of(timer, struct output, stall);
    int64_t since_us = loop_now_us(output->options.loop) - output->options.stall_timeout_us;
    struct output_follower *follower, *following;
    struct list stalled = LIST_INIT(stalled);

    list_for_each_safe (follower, following, &output->followers, node) {
        if (follower->offset + output->cap_bytes > output->length ||
            follower->moved_at_us > since_us)
            continue;
        list_remove(&follower->node);
        list_append(&stalled, &follower->node);
    }
    while ((follower = list_first(&stalled, struct output_follower, node))) {
        list_remove(&follower->node);
        if (follower->on_stalled)
            follower->on_stalled(follower);
    }
    if (output->source.fd >= 0)
        output_drain(output);
}

struct output *output_new(const struct output_options *options)
{
    struct output *output = xnew(struct output);

    output->options = *options;
    output->options.cap_bytes = MAX(options->cap_bytes, (uint64_t)(4 * PAGE_BYTES));
    output->cap_bytes = output->options.cap_bytes;
    output->file = -1;
    output->source.fd = -1;
    list_init(&output->followers);
    timer_init(&output->stall, options->loop, on_stall);
    flow_join(&output->share, options->flows, options->flow, output_on_served);
    if (!options->is_new)
        output_find_earlier(output);
    if (options->recorded_bytes > output->length)
        output_note_missing(output);
    return output;
}

void output_free(struct output *output)
{
    if (!output)
        return;
    output_close_source(output);
    flow_leave(&output->share);
    while (!list_is_empty(&output->followers))
        list_remove(output->followers.next);
    fd_close(output->file);
    free(output);
}

static void keep_place(struct output *output, uint64_t offset)
{
    bool is_kept = list_is_linked(&output->ghost.node);

    output->ghost.offset = is_kept ? MIN(output->ghost.offset, offset) : offset;
    output->ghost.moved_at_us = loop_now_us(output->options.loop);
    if (!is_kept)
        list_append(&output->followers, &output->ghost.node);
}

void output_set_journal(struct output *output, struct journal *journal, unsigned stream)
{
    output->journal = journal;
    output->stream = stream;
}

void output_take(struct output *output, int fd, bool is_terminal)
{
    assert(output->source.fd < 0 && fd >= 0);
    output->is_terminal = output->cannot_splice = is_terminal;
    output->source.fd = fd;
    if (output->is_marked)
        keep_place(output, output->hole_end);
}

void output_attach(struct output *output, int fd)
{
    struct stat status;
    int flags = fcntl(fd, F_GETFL);

    if (flags >= 0 && !(flags & O_NONBLOCK))
        (void)fcntl(fd, F_SETFL, flags | O_NONBLOCK);
    output_take(output, fd, fstat(fd, &status) < 0 || !S_ISFIFO(status.st_mode));
    output_watch_source(output);
}

void output_finish(struct output *output)
{
    int waiting = 0;

    if (output->finishing)
        return;
    output->finishing = true;
    if (output->source.fd < 0) {
        output->finished = true;
        return;
    }
    if (output->is_terminal || ioctl(output->source.fd, FIONREAD, &waiting) < 0)
        waiting = TERMINAL_BYTES;
    output->finish_at = output->length + (uint64_t)waiting;
    if (output->is_terminal)
        flow_stop_waiting(&output->share); /* it has its pause behind it: it is the last one */
    output_drain(output);
}

bool output_is_finished(const struct output *output)
{
    return output->finished;
}

bool output_is_closed(const struct output *output)
{
    return output->source.fd < 0;
}

uint64_t output_length(const struct output *output)
{
    return output->length;
}

bool output_is_over(const struct output *output)
{
    return output->length > output->options.cap_bytes;
}

bool output_has_hole(const struct output *output, uint64_t *out_start, uint64_t *out_end)
{
    bool is_short = output->stored < output->length;

    if (!output->hole_end && !is_short)
        return false;
    *out_start = output->hole_end ? output->hole_start : output->stored;
    *out_end = is_short ? output->length : output->hole_end;
    return true;
}

bool output_extent(const struct output *output, uint64_t offset, uint64_t *out_start,
                   uint64_t *out_end)
{
    bool before_hole = output->hole_end && offset < output->hole_start;

    if (output->hole_end && !before_hole)
        offset = MAX(offset, output->hole_end);
    if (offset >= output->stored)
        return false;
    *out_start = offset;
    *out_end = before_hole ? output->hole_start : output->stored;
    return true;
}

const struct error *output_error(const struct output *output)
{
    if (output->error.code)
        return &output->error;
    return output->unread.code ? &output->unread : NULL;
}

void output_note_unread(struct output *output)
{
    error_sys(&output->unread, "read the spool %s", output->options.name);
}

ssize_t output_read(struct output *output, uint64_t start, void *bytes, size_t length)
{
    ssize_t count = pread(output->file, bytes, length, (off_t)start);

    if (count > 0)
        return count;
    if (count == 0)
        errno = ENODATA; /* the file is shorter than it was */
    output_note_unread(output);
    return -1;
}

int output_fd(const struct output *output)
{
    return output->file;
}

/* --- followers ----------------------------------------------------------------------------- */

void output_follow(struct output *output, struct output_follower *follower, uint64_t offset)
{
    list_remove(&output->ghost.node);
    follower->offset = follower->start = offset;
    follower->moved_at_us = loop_now_us(output->options.loop);
    output->passed = MAX(output->passed, MIN(offset, output->length));
    list_append(&output->followers, &follower->node);
    output_mark_followed(output);
    output_continue_source(output);
}

void output_follower_moved(struct output *output, struct output_follower *follower, uint64_t offset)
{
    if (offset <= follower->offset)
        return;
    follower->offset = offset;
    follower->moved_at_us = loop_now_us(output->options.loop);
    output->passed = MAX(output->passed, MIN(offset, output->length));
    if (list_is_linked(&follower->node))
        output_continue_source(output);
}

void output_unfollow(struct output *output, struct output_follower *follower)
{
    list_remove(&follower->node);
    output_mark_followed(output);
    output_continue_source(output);
}

/* Whether a later one has gone on where this one was: its client came back before we knew that it
 * had left. */
static bool is_resumed(const struct output *output, const struct output_follower *vanished)
{
    const struct list *node = vanished->node.next;

    for (; node != &output->followers; node = node->next) {
        const struct output_follower *later = container_of(node, struct output_follower, node);

        if (later->start + ON_ITS_WAY_BYTES >= vanished->offset &&
            later->start <= vanished->offset + ON_ITS_WAY_BYTES)
            return true;
    }
    return false;
}

void output_follower_vanished(struct output *output, struct output_follower *follower)
{
    bool was_waited_for = list_is_linked(&follower->node) && !is_resumed(output, follower);

    list_remove(&follower->node);
    if (was_waited_for && output->source.fd >= 0)
        keep_place(output, follower->offset);
    else
        output_unfollow(output, follower);
}
