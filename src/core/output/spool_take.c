/* SPDX-License-Identifier: Apache-2.0 */
#include "core/output/spool_private.h"

#include "base/fd.h"
#include "core/output/stream_order.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <string.h>
#include <sys/ioctl.h>

enum {
    TURN_BYTES = 1024 * 1024,   /* taken from one stream at a time, if it has that share */
    SCRATCH_BYTES = 128 * 1024, /* where splice cannot be used */
    PIPE_BYTES = 1024 * 1024,   /* of a stream that proves busy */
    BUSY_TURNS = 4,             /* turns in a row that found a full pipe */
    PIPE_FULL_BYTES = 64 * 1024,
    TERMINAL_TURN_BYTES = 64 * 1024,
    TERMINAL_RESTS = 16, /* turns in a row that find nothing before it is watched again */
};

static char scratch[SCRATCH_BYTES]; /* one loop, one thread */

/*
 * A byte that has left the pipe is in the file, or counted as lost, when the call that took it
 * returns, and only the thread of the loop takes bytes. The bridge of a sandbox that is elsewhere
 * relies on that: at the end of a turn it lets the sandbox forget every byte that is not in the pipe
 * any more. So nothing here may keep bytes in memory, or take them in a worker.
 */

/* Bytes that were written count as stored, also when the rest cannot be written. */
static int write_all(struct spool *spool, const char *data, size_t length)
{
    size_t done = fd_write_at(spool->file, data, length, (off_t)spool->stored);

    spool->stored += done;
    return done == length ? 0 : -1;
}

/* Whether bytes have to stay where they are. */
static bool is_held(struct spool *spool)
{
    if (spool->error.code && spool->loss == LOSS_NONE)
        spool->loss = spool->options.on_loss ? LOSS_FOUND : LOSS_ACCEPTED;
    return spool->loss == LOSS_FOUND || spool->loss == LOSS_TOLD;
}

static ssize_t take_by_copy(struct spool *spool, size_t room)
{
    ssize_t count;

    if (is_held(spool)) {
        errno = EAGAIN;
        return -1;
    }
    count = read(spool->source.fd, scratch, MIN(room, sizeof(scratch)));

    if (count <= 0)
        return count;
    if (!spool->error.code && spool_create_file(spool) == 0 &&
        write_all(spool, scratch, (size_t)count) < 0)
        error_sys(&spool->error, "write the spool %s", spool->options.name);
    return count;
}

/* Whether bytes can be read without a wait for the kernel, which has them on their way. */
static bool has_bytes(const struct spool *spool)
{
    int count = 0;

    return ioctl(spool->source.fd, FIONREAD, &count) < 0 || count > 0;
}

/* For a terminal, this waits until the kernel has moved the bytes that are on their way. */
static bool is_ready(const struct spool *spool)
{
    struct pollfd ready = { .fd = spool->source.fd, .events = POLLIN };

    return poll(&ready, 1, 0) > 0;
}

/*
 * Where splice cannot be used, as with terminals: bytes are read straight into the page cache of
 * the file, where they survive us, however soon we die. Room is made for them first, and unused
 * room is cut off when no more bytes come.
 */
static ssize_t take_by_map(struct spool *spool, size_t room)
{
    ssize_t count;
    char *place;

    if (!has_bytes(spool) && !is_ready(spool)) {
        spool_cut_room(spool);
        errno = EAGAIN;
        return -1;
    }
    if (spool->error.code || spool_create_file(spool) < 0)
        return take_by_copy(spool, room);
    place = spool_make_room(spool);
    if (!place)
        return take_by_copy(spool, room);
    count = read(spool->source.fd, place, MIN(room, (size_t)READ_BYTES));
    if (count > 0)
        spool->stored += (uint64_t)count;
    return count;
}

/*
 * One transfer: bytes taken, 0 at the end, -1 with errno. A failure of the file is noted and
 * answered with the copy, which drops from then on; EIO is the end of a terminal.
 */
static ssize_t take_some(struct spool *spool, size_t room)
{
    off_t place = (off_t)spool->stored;
    ssize_t count;

    if (spool->kind != SOURCE_PIPE)
        return take_by_map(spool, room);
    /* Readiness has to be real before the file is made: a program without output leaves none. */
    if (spool->error.code || (spool->file < 0 && !has_bytes(spool)) || spool_create_file(spool) < 0)
        return take_by_copy(spool, room);
    count = splice(spool->source.fd, NULL, spool->file, &place, room, SPLICE_F_NONBLOCK);
    if (count > 0)
        spool->stored += (uint64_t)count;
    if (count >= 0 || errno == EAGAIN || errno == EINTR)
        return count;
    if (errno == EINVAL || errno == ENOSYS || errno == EPERM)
        spool->kind = SOURCE_COPIED;
    else
        error_sys(&spool->error, "write the spool %s", spool->options.name);
    return spool->kind != SOURCE_PIPE ? take_by_map(spool, room) : take_by_copy(spool, room);
}

static uint64_t room_behind(const struct spool *spool, uint64_t offset)
{
    uint64_t limit = offset + spool->cap_bytes;

    return limit > spool->length ? limit - spool->length : 0;
}

/* Bytes that may be taken before a follower would be left too far behind. */
static uint64_t follower_room(const struct spool *spool)
{
    uint64_t room = TURN_BYTES;
    const struct spool_follower *follower;

    if (spool->error.code)
        return room;
    list_for_each (follower, &spool->followers, node)
        room = MIN(room, room_behind(spool, follower->offset));
    if (spool_is_blocking(spool) && spool->phase == SPOOL_RUNNING)
        room = MIN(room, room_behind(spool, spool->passed));
    return room;
}

static void on_source_ready(struct io_watch *watch, unsigned events);

void spool_close_source(struct spool *spool)
{
    int fd = spool->source.fd;

    io_watch_stop(&spool->source);
    flow_stop_waiting(&spool->share);
    spool->source.fd = -1;
    timer_stop(&spool->stall);
    spool_cut_room(spool);
    fd_close(fd);
    if (spool->phase == SPOOL_FINISHING)
        spool->phase = SPOOL_FINISHED;
}

void spool_end_early(struct spool *spool)
{
    if (spool->phase != SPOOL_EXPECTING)
        return;
    if (spool->length >= spool->finish_at)
        spool->phase = SPOOL_FINISHED;
    else if (spool->has_last_source)
        spool_lose_rest(spool);
}

/* It has been read to its end: the file is as long as its bytes, or marked for good. */
static void end_source(struct spool *spool)
{
    spool_close_source(spool);
    spool_end_early(spool);
    if (!spool->is_ahead || ftruncate(spool->file, (off_t)spool->stored) < 0)
        return;
    spool->is_ahead = false;
    spool_write_marks(spool);
}

/* Waiting for a follower: the first one to have stalled is given up when its time is over. */
static void wait_for_followers(struct spool *spool)
{
    int64_t first_us = INT64_MAX;
    const struct spool_follower *follower;

    io_watch_stop(&spool->source);
    list_for_each (follower, &spool->followers, node) {
        if (follower->offset + spool->cap_bytes <= spool->length)
            first_us = MIN(first_us, follower->moved_at_us);
    }
    spool->is_waiting = true;
    if (first_us < INT64_MAX)
        timer_arm_at(&spool->stall, first_us + spool->options.stall_timeout_us);
}

void spool_watch_source(struct spool *spool)
{
    spool->is_waiting = false;
    timer_stop(&spool->stall);
    io_watch_start(&spool->source, spool->options.loop, spool->source.fd, IO_READ, on_source_ready);
}

/* A bigger pipe means fewer turns for the same bytes; only streams that need it get one. */
static void grow_pipe(struct spool *spool, uint64_t taken)
{
    spool->busy_turns = taken >= PIPE_FULL_BYTES ? spool->busy_turns + 1 : 0;
    if (spool->busy_turns < BUSY_TURNS || spool->is_grown)
        return;
    spool->is_grown = true;
    if (spool->kind != SOURCE_TERMINAL)
        (void)fcntl(spool->source.fd, F_SETPIPE_SZ, PIPE_BYTES);
}

/*
 * To ask a terminal whether it has bytes is to wait for the kernel's threads, for milliseconds on a
 * busy host, and the loop's own question is no other. So one that has written is not asked but
 * looked at, in a turn after the next pause; only the last bytes of a program are waited for, for a
 * bit.
 */
static bool is_resting(struct spool *spool, uint64_t taken, int64_t begun_us)
{
    if (spool->kind == SOURCE_PIPE || !spool->share.flow || has_bytes(spool))
        return false;
    if (spool->phase == SPOOL_FINISHING)
        return taken && loop_now_us(spool->options.loop) - begun_us >= FLOWS_US;
    if (taken)
        spool->rests = TERMINAL_RESTS;
    else if (spool->rests)
        spool->rests--;
    else
        return false;
    return true;
}

/* The bytes that are in the file already: 1 when they are behind, else as take_turn(). There are no
 * more of them at a time than fit into the pipe. */
static int skip_known(struct spool *spool)
{
    while (spool->skip) {
        ssize_t count =
            read(spool->source.fd, scratch, (size_t)MIN(spool->skip, (uint64_t)sizeof(scratch)));

        if (count < 0 && errno == EINTR)
            continue;
        if (count <= 0)
            return count < 0 && errno == EAGAIN ? 0 : -1;
        spool->skip -= (uint64_t)count;
    }
    return 1;
}

/* Takes up to `limit` bytes: 1 when more may be there, 0 when the source is empty, -1 at its end.
 */
static int take_turn(struct spool *spool, uint64_t limit)
{
    int64_t begun_us = loop_now_us(spool->options.loop);
    uint64_t taken = 0;
    int result = skip_known(spool);

    if (result <= 0)
        return result;
    if (spool->kind != SOURCE_PIPE)
        limit = MIN(limit, (uint64_t)TERMINAL_TURN_BYTES);
    while (taken < limit && !is_resting(spool, taken, begun_us)) {
        ssize_t count = take_some(spool, (size_t)(limit - taken));

        if (count < 0 && errno == EINTR)
            continue;
        if (count <= 0) {
            result = count < 0 && errno == EAGAIN ? 0 : -1;
            break;
        }
        taken += (uint64_t)count;
        spool->length += (uint64_t)count;
        if (spool->order)
            stream_order_took(spool->order, spool->stream, spool->length);
        if (spool->file >= 0 && !spool->error.code)
            spool_drop_middle(spool);
    }
    grow_pipe(spool, taken);
    return result;
}

/* After a transfer of the program's last bytes. */
static bool is_complete(const struct spool *spool, int result)
{
    if (spool->phase == SPOOL_FINISHING && result == 0)
        return true;
    return (spool->phase == SPOOL_FINISHING || spool->phase == SPOOL_EXPECTING) &&
           spool->length >= spool->finish_at;
}

static void changed(struct spool *spool)
{
    if (spool->options.on_change)
        spool->options.on_change(spool->options.context);
}

/* Marks whether the spool has a follower, which must not lose bytes even if the daemon ends
 * meanwhile. */
void spool_mark_followed(struct spool *spool)
{
    bool followed = !list_is_empty(&spool->followers);

    if (spool->is_marked == followed || spool->file < 0)
        return;
    spool->is_marked = followed;
    spool_write_marks(spool);
}

/* A follower that has read everything begins to stall only when there is something to read. The
 * offset of a follower that vanished is not kept for longer than the follower would be waited for.
 */
static void restart_stall_clocks(struct spool *spool)
{
    int64_t now_us = loop_now_us(spool->options.loop);
    struct spool_follower *follower;

    if (list_is_linked(&spool->ghost.node) &&
        spool->ghost.moved_at_us + spool->options.stall_timeout_us <= now_us)
        list_remove(&spool->ghost.node);
    list_for_each (follower, &spool->followers, node) {
        if (follower->offset >= spool->length && follower != &spool->ghost)
            follower->moved_at_us = now_us;
    }
    spool_mark_followed(spool);
}

/* After a transfer: sets the event that the source waits for now. */
static void wait_for_more(struct spool *spool, uint64_t taken, int result)
{
    bool has_room = result <= 0 || follower_room(spool);
    bool waits = flow_took(&spool->share, taken, result > 0 && has_room);

    if (spool->source.fd < 0)
        return;
    if (result > 0 && has_room && spool->kind != SOURCE_PIPE)
        waits = flow_wait(&spool->share);
    if (!has_room)
        wait_for_followers(spool);
    else if (waits)
        io_watch_stop(&spool->source);
    else
        spool_watch_source(spool);
}

static void hold_back(struct spool *spool, uint64_t taken)
{
    (void)flow_took(&spool->share, taken, false);
    io_watch_stop(&spool->source);
    spool->loss = LOSS_TOLD;
    if (taken)
        changed(spool);
    spool->options.on_loss(spool->options.context);
}

void spool_drain(struct spool *spool)
{
    uint64_t before = spool->length;
    enum spool_phase phase = spool->phase;
    uint64_t room, share;
    int result;

    if (spool->loss == LOSS_TOLD) {
        io_watch_stop(&spool->source);
        return;
    }
    restart_stall_clocks(spool);
    room = follower_room(spool);
    share = room ? flow_ask(&spool->share) : 0;
    if (room && !share) {
        io_watch_stop(&spool->source);
        return;
    }
    result = room ? take_turn(spool, MIN(room, share)) : 1;
    if (is_held(spool)) {
        hold_back(spool, spool->length - before);
        return;
    }
    if (result < 0)
        end_source(spool);
    else if (is_complete(spool, result))
        spool->phase = SPOOL_FINISHED;
    spool_keep_quota(spool);
    wait_for_more(spool, spool->length - before, result);
    if (spool->length != before || spool->phase != phase || result < 0)
        changed(spool);
}

void spool_on_served(struct flow_source *source)
{
    spool_drain(container_of(source, struct spool, share));
}

void spool_accept_loss(struct spool *spool)
{
    if (spool->loss != LOSS_TOLD)
        return;
    spool->loss = LOSS_ACCEPTED;
    if (spool->source.fd >= 0)
        spool_drain(spool);
}

static void on_source_ready(struct io_watch *watch, unsigned events UNUSED)
{
    spool_drain(container_of(watch, struct spool, source));
}

void spool_continue_source(struct spool *spool)
{
    if (spool->source.fd >= 0 && spool->is_waiting)
        spool_watch_source(spool);
}
