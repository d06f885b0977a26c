#include "core/output/spool_private.h"

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

/* What was written has its place, also when the rest cannot be. */
static int write_all(struct output *output, const char *data, size_t length)
{
    size_t done = 0;

    while (done < length) {
        ssize_t count =
            pwrite(output->file, data + done, length - done, (off_t)(output->stored + done));

        if (count < 0 && errno == EINTR)
            continue;
        if (count <= 0)
            break;
        done += (size_t)count;
    }
    output->stored += done;
    return done == length ? 0 : -1;
}

/* Whether bytes have to stay where they are. */
static bool is_held(struct output *output)
{
    if (output->error.code && output->loss == LOSS_NONE)
        output->loss = output->options.on_loss ? LOSS_FOUND : LOSS_ACCEPTED;
    return output->loss == LOSS_FOUND || output->loss == LOSS_TOLD;
}

static ssize_t take_by_copy(struct output *output, size_t room)
{
    ssize_t count;

    if (is_held(output)) {
        errno = EAGAIN;
        return -1;
    }
    count = read(output->source.fd, scratch, MIN(room, sizeof(scratch)));

    if (count <= 0)
        return count;
    if (!output->error.code && output_create_file(output) == 0 &&
        write_all(output, scratch, (size_t)count) < 0)
        error_sys(&output->error, "write the spool %s", output->options.name);
    return count;
}

/* Whether bytes can be read without a wait for the kernel, which has them on their way. */
static bool has_bytes(const struct output *output)
{
    int count = 0;

    return ioctl(output->source.fd, FIONREAD, &count) < 0 || count > 0;
}

/* Of a terminal, this waits until the kernel has moved what is on its way. */
static bool is_ready(const struct output *output)
{
    struct pollfd ready = { .fd = output->source.fd, .events = POLLIN };

    return poll(&ready, 1, 0) > 0;
}

/*
 * Where splice cannot be used, as with terminals: bytes are read straight into the page cache of
 * the file, where they survive us, however soon we die. Room is made for them first, and what they
 * did not need is cut off when no more come.
 */
static ssize_t take_by_map(struct output *output, size_t room)
{
    ssize_t count;
    char *place;

    if (!has_bytes(output) && !is_ready(output)) {
        output_cut_room(output);
        errno = EAGAIN;
        return -1;
    }
    if (output->error.code || output_create_file(output) < 0)
        return take_by_copy(output, room);
    place = output_make_room(output);
    if (!place)
        return take_by_copy(output, room);
    count = read(output->source.fd, place, MIN(room, (size_t)READ_BYTES));
    if (count > 0)
        output->stored += (uint64_t)count;
    return count;
}

/*
 * One transfer: bytes taken, 0 at the end, -1 with errno. A failure of the file is noted and
 * answered with the copy, which drops from then on; EIO is the end of a terminal.
 */
static ssize_t take_some(struct output *output, size_t room)
{
    off_t place = (off_t)output->stored;
    ssize_t count;

    if (output->cannot_splice)
        return take_by_map(output, room);
    /* Readiness has to be real before the file is made: a program without output leaves none. */
    if (output->error.code || (output->file < 0 && !has_bytes(output)) ||
        output_create_file(output) < 0)
        return take_by_copy(output, room);
    count = splice(output->source.fd, NULL, output->file, &place, room, SPLICE_F_NONBLOCK);
    if (count > 0)
        output->stored += (uint64_t)count;
    if (count >= 0 || errno == EAGAIN || errno == EINTR)
        return count;
    if (errno == EINVAL)
        output->cannot_splice = true;
    else
        error_sys(&output->error, "write the spool %s", output->options.name);
    return output->cannot_splice ? take_by_map(output, room) : take_by_copy(output, room);
}

static uint64_t room_behind(const struct output *output, uint64_t offset)
{
    uint64_t limit = offset + output->cap_bytes;

    return limit > output->length ? limit - output->length : 0;
}

/* Bytes that may be taken before a follower would be left too far behind. */
static uint64_t follower_room(const struct output *output)
{
    uint64_t room = TURN_BYTES;
    const struct output_follower *follower;

    if (output->error.code)
        return room;
    list_for_each (follower, &output->followers, node)
        room = MIN(room, room_behind(output, follower->offset));
    if (output_is_blocking(output) && !output->finishing)
        room = MIN(room, room_behind(output, output->passed));
    return room;
}

static void on_source_ready(struct io_watch *watch, unsigned events);

void output_close_source(struct output *output)
{
    int fd = output->source.fd;

    io_watch_stop(&output->source);
    flow_stop_waiting(&output->share);
    output->source.fd = -1;
    timer_stop(&output->stall);
    output_cut_room(output);
    fd_close(fd);
    output->finished = output->finished || output->finishing;
}

/* It has been read to its end: the file is as long as its bytes, or marked for good. */
static void end_source(struct output *output)
{
    output_close_source(output);
    if (!output->is_ahead || ftruncate(output->file, (off_t)output->stored) < 0)
        return;
    output->is_ahead = false;
    output_write_marks(output);
}

/* Waiting for a follower: the first one to have stalled is given up when its time is over. */
static void wait_for_followers(struct output *output)
{
    int64_t first_us = INT64_MAX;
    const struct output_follower *follower;

    io_watch_stop(&output->source);
    list_for_each (follower, &output->followers, node) {
        if (follower->offset + output->cap_bytes <= output->length)
            first_us = MIN(first_us, follower->moved_at_us);
    }
    output->is_waiting = true;
    if (first_us < INT64_MAX)
        timer_arm_at(&output->stall, first_us + output->options.stall_timeout_us);
}

void output_watch_source(struct output *output)
{
    output->is_waiting = false;
    timer_stop(&output->stall);
    io_watch_start(&output->source, output->options.loop, output->source.fd, IO_READ,
                   on_source_ready);
}

/* A bigger pipe means fewer turns for the same bytes; only streams that need it get one. */
static void grow_pipe(struct output *output, uint64_t taken)
{
    output->busy_turns = taken >= PIPE_FULL_BYTES ? output->busy_turns + 1 : 0;
    if (output->busy_turns < BUSY_TURNS || output->is_grown)
        return;
    output->is_grown = true;
    if (!output->is_terminal)
        (void)fcntl(output->source.fd, F_SETPIPE_SZ, PIPE_BYTES);
}

/*
 * To ask a terminal whether it has bytes is to wait for the kernel's threads, for milliseconds on a
 * busy host, and the loop's own question is no other. So one that has written is not asked but
 * looked at, in a turn after the next pause; only the last bytes of a program are waited for, for a
 * bit.
 */
static bool is_resting(struct output *output, uint64_t taken, int64_t begun_us)
{
    if (!output->cannot_splice || !output->share.flow || has_bytes(output))
        return false;
    if (output->finishing && !output->finished)
        return taken && loop_now_us(output->options.loop) - begun_us >= FLOWS_US;
    if (taken)
        output->rests = TERMINAL_RESTS;
    else if (output->rests)
        output->rests--;
    else
        return false;
    return true;
}

/* Takes up to `limit` bytes: 1 when more may be there, 0 when the source is empty, -1 at its end.
 */
static int take_turn(struct output *output, uint64_t limit)
{
    int64_t begun_us = loop_now_us(output->options.loop);
    uint64_t taken = 0;
    int result = 1;

    if (output->cannot_splice)
        limit = MIN(limit, (uint64_t)TERMINAL_TURN_BYTES);
    while (taken < limit && !is_resting(output, taken, begun_us)) {
        ssize_t count = take_some(output, (size_t)(limit - taken));

        if (count < 0 && errno == EINTR)
            continue;
        if (count <= 0) {
            result = count < 0 && errno == EAGAIN ? 0 : -1;
            break;
        }
        taken += (uint64_t)count;
        output->length += (uint64_t)count;
        if (output->journal)
            journal_took(output->journal, output->stream, output->length);
        if (output->file >= 0 && !output->error.code)
            output_drop_middle(output);
    }
    grow_pipe(output, taken);
    return result;
}

static void changed(struct output *output)
{
    if (output->options.on_change)
        output->options.on_change(output->options.context);
}

/* Whether somebody follows who must not lose bytes even if the daemon goes meanwhile. */
void output_mark_followed(struct output *output)
{
    bool followed = !list_is_empty(&output->followers);

    if (output->is_marked == followed || output->file < 0)
        return;
    output->is_marked = followed;
    output_write_marks(output);
}

/* A follower that has read everything begins to stall only when there is something to read. The
 * place of one that vanished is not kept for longer than it would be waited for. */
static void restart_stall_clocks(struct output *output)
{
    int64_t now_us = loop_now_us(output->options.loop);
    struct output_follower *follower;

    if (list_is_linked(&output->ghost.node) &&
        output->ghost.moved_at_us + output->options.stall_timeout_us <= now_us)
        list_remove(&output->ghost.node);
    list_for_each (follower, &output->followers, node) {
        if (follower->offset >= output->length && follower != &output->ghost)
            follower->moved_at_us = now_us;
    }
    output_mark_followed(output);
}

/* After a transfer: what the source waits for now. */
static void wait_for_more(struct output *output, uint64_t taken, int result)
{
    bool has_room = result <= 0 || follower_room(output);
    bool waits = flow_took(&output->share, taken, result > 0 && has_room);

    if (output->source.fd < 0)
        return;
    if (result > 0 && has_room && output->cannot_splice)
        waits = flow_wait(&output->share);
    if (!has_room)
        wait_for_followers(output);
    else if (waits)
        io_watch_stop(&output->source);
    else
        output_watch_source(output);
}

static void hold_back(struct output *output, uint64_t taken)
{
    (void)flow_took(&output->share, taken, false);
    io_watch_stop(&output->source);
    output->loss = LOSS_TOLD;
    if (taken)
        changed(output);
    output->options.on_loss(output->options.context);
}

void output_drain(struct output *output)
{
    uint64_t before = output->length;
    bool was_finished = output->finished;
    uint64_t room, share;
    int result;

    if (output->loss == LOSS_TOLD) {
        io_watch_stop(&output->source);
        return;
    }
    restart_stall_clocks(output);
    room = follower_room(output);
    share = room ? flow_ask(&output->share) : 0;
    if (room && !share) {
        io_watch_stop(&output->source);
        return;
    }
    result = room ? take_turn(output, MIN(room, share)) : 1;
    if (is_held(output)) {
        hold_back(output, output->length - before);
        return;
    }
    if (result < 0)
        end_source(output);
    else if (output->finishing && (result == 0 || output->length >= output->finish_at))
        output->finished = true;
    output_keep_quota(output);
    wait_for_more(output, output->length - before, result);
    if (output->length != before || output->finished != was_finished || result < 0)
        changed(output);
}

void output_on_served(struct flow_source *source)
{
    output_drain(container_of(source, struct output, share));
}

void output_accept_loss(struct output *output)
{
    if (output->loss != LOSS_TOLD)
        return;
    output->loss = LOSS_ACCEPTED;
    if (output->source.fd >= 0)
        output_drain(output);
}

static void on_source_ready(struct io_watch *watch, unsigned events UNUSED)
{
    output_drain(container_of(watch, struct output, source));
}

void output_continue_source(struct output *output)
{
    if (output->source.fd >= 0 && output->is_waiting)
        output_watch_source(output);
}
