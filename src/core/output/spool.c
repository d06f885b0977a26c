/* SPDX-License-Identifier: Apache-2.0 */
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

int spool_full_parse(const char *name)
{
    static const char *const names[SPOOL_FULL_KINDS] = { "drop", "block", "stop" };

    for (int i = 0; i < SPOOL_FULL_KINDS; i++) {
        if (str_equal(names[i], name))
            return i;
    }
    return -1;
}

/* --- life ---------------------------------------------------------------------------------- */

static void on_stall(struct timer *timer)
{
    struct spool *spool = container_of(timer, struct spool, stall);
    int64_t since_us = loop_now_us(spool->options.loop) - spool->options.stall_timeout_us;
    struct spool_follower *follower, *following;
    struct list stalled = LIST_INIT(stalled);

    list_for_each_safe (follower, following, &spool->followers, node) {
        if (follower->offset + spool->cap_bytes > spool->length || follower->moved_at_us > since_us)
            continue;
        list_remove(&follower->node);
        list_append(&stalled, &follower->node);
    }
    while ((follower = list_first(&stalled, struct spool_follower, node))) {
        list_remove(&follower->node);
        if (follower->on_stalled)
            follower->on_stalled(follower);
    }
    if (spool->source.fd >= 0)
        spool_drain(spool);
}

struct spool *spool_new(const struct spool_options *options)
{
    struct spool *spool = xnew(struct spool);

    spool->options = *options;
    spool->options.cap_bytes = MAX(options->cap_bytes, (uint64_t)(4 * PAGE_BYTES));
    spool->cap_bytes = spool->options.cap_bytes;
    spool->file = -1;
    spool->source.fd = -1;
    list_init(&spool->followers);
    timer_init(&spool->stall, options->loop, on_stall);
    flow_join(&spool->share, options->flows, options->flow, spool_on_served);
    if (!options->is_new)
        spool_find_earlier(spool);
    if (options->recorded_bytes > spool->length)
        spool_note_missing(spool);
    return spool;
}

void spool_free(struct spool *spool)
{
    if (!spool)
        return;
    spool_close_source(spool);
    flow_leave(&spool->share);
    while (!list_is_empty(&spool->followers))
        list_remove(spool->followers.next);
    fd_close(spool->file);
    free(spool->lost);
    free(spool);
}

static void keep_place(struct spool *spool, uint64_t offset)
{
    bool is_kept = list_is_linked(&spool->ghost.node);

    spool->ghost.offset = is_kept ? MIN(spool->ghost.offset, offset) : offset;
    spool->ghost.moved_at_us = loop_now_us(spool->options.loop);
    if (!is_kept)
        list_append(&spool->followers, &spool->ghost.node);
}

void spool_set_stream_order(struct spool *spool, struct stream_order *order, unsigned stream)
{
    spool->order = order;
    spool->stream = stream;
}

void spool_take(struct spool *spool, int fd, bool is_terminal)
{
    assert(spool->source.fd < 0 && fd >= 0);
    spool->kind = is_terminal ? SOURCE_TERMINAL : SOURCE_PIPE;
    spool->source.fd = fd;
    if (spool->is_marked && list_is_empty(&spool->followers))
        keep_place(spool, spool->hole_end);
}

void spool_attach(struct spool *spool, int fd)
{
    struct stat status;
    int flags = fcntl(fd, F_GETFL);

    if (flags >= 0 && !(flags & O_NONBLOCK))
        (void)fcntl(fd, F_SETFL, flags | O_NONBLOCK);
    spool_take(spool, fd, fstat(fd, &status) < 0 || !S_ISFIFO(status.st_mode));
    spool_watch_source(spool);
}

void spool_attach_at(struct spool *spool, int fd, uint64_t base)
{
    if (spool->source.fd >= 0)
        spool_close_source(spool);
    if (base > spool->length)
        spool_note_gap(spool, base);
    spool->skip = spool->length - base;
    spool_attach(spool, fd);
}

void spool_finish_at(struct spool *spool, uint64_t total)
{
    if (spool->phase != SPOOL_RUNNING)
        return;
    spool->phase = SPOOL_EXPECTING;
    spool->finish_at = total;
    if (spool->source.fd >= 0)
        spool_drain(spool);
    else
        spool_end_early(spool);
}

void spool_end_sources(struct spool *spool)
{
    enum spool_phase phase = spool->phase;

    spool->has_last_source = true;
    if (spool->source.fd < 0)
        spool_end_early(spool);
    if (spool->phase != phase && spool->options.on_change)
        spool->options.on_change(spool->options.context);
}

void spool_finish(struct spool *spool)
{
    int waiting = 0;

    if (spool->phase != SPOOL_RUNNING)
        return;
    spool->phase = SPOOL_FINISHING;
    if (spool->source.fd < 0) {
        spool->phase = SPOOL_FINISHED;
        return;
    }
    if (spool->kind == SOURCE_TERMINAL || ioctl(spool->source.fd, FIONREAD, &waiting) < 0)
        waiting = TERMINAL_BYTES;
    spool->finish_at = spool->length + (uint64_t)waiting;
    if (spool->kind == SOURCE_TERMINAL)
        flow_stop_waiting(&spool->share); /* it has its pause behind it: it is the last one */
    spool_drain(spool);
}

bool spool_is_finished(const struct spool *spool)
{
    return spool->phase == SPOOL_FINISHED;
}

bool spool_is_closed(const struct spool *spool)
{
    return spool->source.fd < 0;
}

uint64_t spool_length(const struct spool *spool)
{
    return spool->length;
}

bool spool_is_over(const struct spool *spool)
{
    return spool->length > spool->options.cap_bytes;
}

bool spool_has_hole(const struct spool *spool, uint64_t *out_start, uint64_t *out_end)
{
    const struct spool_range missing[] = {
        { spool->hole_start, spool->hole_end },
        spool->gap,
        { spool->stored, spool->length },
    };
    struct spool_range all = { UINT64_MAX, 0 };

    for (size_t i = 0; i < ARRAY_LENGTH(missing); i++) {
        if (missing[i].start == missing[i].end)
            continue;
        all.start = MIN(all.start, missing[i].start);
        all.end = MAX(all.end, missing[i].end);
    }
    if (all.start > all.end)
        return false;
    *out_start = all.start;
    *out_end = all.end;
    return true;
}

/* `offset`, or the end of the range that it is in. */
static uint64_t skip_range(uint64_t offset, uint64_t start, uint64_t end)
{
    return offset >= start && offset < end ? end : offset;
}

bool spool_extent(const struct spool *spool, uint64_t offset, uint64_t *out_start,
                  uint64_t *out_end)
{
    uint64_t end = spool->stored;

    offset = skip_range(offset, spool->gap.start, spool->gap.end);
    offset = skip_range(offset, spool->hole_start, spool->hole_end);
    offset = skip_range(offset, spool->gap.start, spool->gap.end);
    if (offset >= spool->stored)
        return false;
    if (offset < spool->hole_start)
        end = MIN(end, spool->hole_start);
    if (offset < spool->gap.start)
        end = MIN(end, spool->gap.start);
    *out_start = offset;
    *out_end = end;
    return true;
}

const struct error *spool_error(const struct spool *spool)
{
    if (spool->error.code)
        return &spool->error;
    if (spool->lost)
        return spool->lost;
    return spool->unread.code ? &spool->unread : NULL;
}

void spool_note_unread(struct spool *spool)
{
    error_sys(&spool->unread, "read the spool %s", spool->options.name);
}

ssize_t spool_read(struct spool *spool, uint64_t start, void *bytes, size_t length)
{
    ssize_t count = pread(spool->file, bytes, length, (off_t)start);

    if (count > 0)
        return count;
    if (count == 0)
        errno = ENODATA; /* the file is shorter than it was */
    spool_note_unread(spool);
    return -1;
}

int spool_fd(const struct spool *spool)
{
    return spool->file;
}

/* --- followers ----------------------------------------------------------------------------- */

void spool_follow(struct spool *spool, struct spool_follower *follower, uint64_t offset)
{
    list_remove(&spool->ghost.node);
    follower->offset = follower->start = offset;
    follower->moved_at_us = loop_now_us(spool->options.loop);
    spool->passed = MAX(spool->passed, MIN(offset, spool->length));
    list_append(&spool->followers, &follower->node);
    spool_mark_followed(spool);
    spool_continue_source(spool);
}

void spool_follower_moved(struct spool *spool, struct spool_follower *follower, uint64_t offset)
{
    if (offset <= follower->offset)
        return;
    follower->offset = offset;
    follower->moved_at_us = loop_now_us(spool->options.loop);
    spool->passed = MAX(spool->passed, MIN(offset, spool->length));
    if (list_is_linked(&follower->node))
        spool_continue_source(spool);
}

void spool_unfollow(struct spool *spool, struct spool_follower *follower)
{
    list_remove(&follower->node);
    spool_mark_followed(spool);
    spool_continue_source(spool);
}

/* Whether a later follower has continued at the offset of this one: its client came back before the
 * daemon knew that it had left. */
static bool is_resumed(const struct spool *spool, const struct spool_follower *vanished)
{
    const struct list *node = vanished->node.next;

    for (; node != &spool->followers; node = node->next) {
        const struct spool_follower *later = container_of(node, struct spool_follower, node);

        if (later->start + ON_ITS_WAY_BYTES >= vanished->offset &&
            later->start <= vanished->offset + ON_ITS_WAY_BYTES)
            return true;
    }
    return false;
}

/* Without a source, too: after a restart, readers come before the sandbox has answered. */
void spool_follower_vanished(struct spool *spool, struct spool_follower *follower)
{
    bool was_waited_for = list_is_linked(&follower->node) && !is_resumed(spool, follower);

    list_remove(&follower->node);
    if (was_waited_for && spool->phase != SPOOL_FINISHED)
        keep_place(spool, follower->offset);
    else
        spool_unfollow(spool, follower);
}
