/* SPDX-License-Identifier: Apache-2.0 */
#include "init/relay_stream_private.h"

#include "init/sys.h"

#include <string.h>
#include <sys/ioctl.h>

enum {
    FIRST_INPUT_BLOCKS = 4,
    MAX_OTHERS = 500, /* channels that are not of processes: those always find a number */
};

static uint16_t channel_places = 1; /* numbers below were used */
static uint16_t last_channel;
static unsigned other_count; /* channels that were not made for a process */

/* --- making and releasing ------------------------------------------------------------------- */

static bool is_over(const struct stream *stream)
{
    return stream->state == STREAM_FREE || stream->state == STREAM_DONE;
}

static void release_stream(struct stream *stream)
{
    stream_let_go(stream);
    if (stream->state != STREAM_FREE)
        ring_close(&stream->ring);
    stream->state = STREAM_FREE;
    stream->tell = 0;
}

static void release(struct channel *channel)
{
    release_stream(&channel->streams[CHANNEL_IN]);
    release_stream(&channel->streams[CHANNEL_OUT]);
    other_count -= channel->is_other;
    channel->kind = 0;
}

void channel_settle(struct channel *channel)
{
    if (!channel->is_process && is_over(&channel->streams[CHANNEL_IN]) &&
        is_over(&channel->streams[CHANNEL_OUT]))
        release(channel);
}

/* Numbers are used in turn, so that a frame that is late is about no channel. */
static uint16_t find_free(void)
{
    for (unsigned i = 1; i < RELAY_BRIDGE_CHANNEL; i++) {
        uint16_t number = (uint16_t)((last_channel + i) % RELAY_BRIDGE_CHANNEL);

        if (number && !relay_channels[number].kind)
            return number;
    }
    return 0;
}

static int open_stream(struct stream *stream, int fd, bool is_process)
{
    uint8_t queued = stream->queued;
    uint16_t next[QUEUES];

    memcpy(next, stream->next, sizeof next);
    *stream = (struct stream){
        .fd = -1,
        .state = is_process ? STREAM_DETACHED : STREAM_OPEN,
        .queued = queued,
        .window = stream_is_output(stream) ? RELAY_WINDOW : 0,
        .limit = UINT64_MAX,
        .greed = 1,
    };
    memcpy(stream->next, next, sizeof next);
    if (ring_open(&stream->ring, stream_is_output(stream) ? OUTPUT_GUARANTEE : INPUT_GUARANTEE) <
        0) {
        stream->state = STREAM_FREE;
        sys_close(fd);
        return -1;
    }
    return stream_watch(stream, fd);
}

static void clear(struct stream *stream)
{
    stream->fd = -1;
    stream->state = STREAM_FREE;
}

uint16_t channel_open(int fd, enum relay_kind kind, bool is_process)
{
    uint16_t number = find_free();
    struct channel *channel = &relay_channels[number];
    int second = kind == RELAY_BOTH ? (int)sys(fcntl, fd, F_DUPFD_CLOEXEC, 3) : -1;
    int result = 0;

    if (!number || (kind == RELAY_BOTH && second < 0) ||
        (!is_process && other_count == MAX_OTHERS)) {
        sys_close(fd);
        sys_close(second);
        return 0;
    }
    last_channel = number;
    if (number >= channel_places)
        channel_places = (uint16_t)(number + 1);
    channel->kind = kind;
    channel->is_process = is_process;
    channel->is_other = !is_process;
    other_count += channel->is_other;
    clear(&channel->streams[CHANNEL_IN]);
    clear(&channel->streams[CHANNEL_OUT]);
    if (kind != RELAY_OUTPUT)
        result = open_stream(&channel->streams[CHANNEL_IN], kind == RELAY_BOTH ? second : fd,
                             is_process);
    if (kind != RELAY_INPUT)
        result |= open_stream(&channel->streams[CHANNEL_OUT], fd, is_process);
    if (result < 0) {
        release(channel);
        return 0;
    }
    if (!is_process)
        (void)channel_attach(number, -1);
    return number;
}

/* --- sessions ------------------------------------------------------------------------------- */

static void attach_output(struct stream *stream)
{
    stream->state = stream->fd < 0 ? STREAM_ENDING : STREAM_OPEN;
    stream->limit = stream->fd < 0 ? stream->end : UINT64_MAX;
    stream_enqueue(QUEUE_TELL, stream);
    stream_enqueue(QUEUE_SEND, stream);
    stream_enqueue(QUEUE_WORK, stream);
}

static void attach_input(struct stream *stream)
{
    stream->state = STREAM_OPEN;
    if (stream->fd < 0) {
        stream_refuse(stream);
        return;
    }
    if (!stream->ring.reserved)
        (void)ring_promise(&stream->ring, FIRST_INPUT_BLOCKS - 1);
    stream_tell(stream, TELL_ACK);
    stream_enqueue(QUEUE_WORK, stream);
}

uint64_t channel_attach(uint16_t number, int fd)
{
    struct stream *in = &relay_channels[number].streams[CHANNEL_IN];
    struct stream *out = &relay_channels[number].streams[CHANNEL_OUT];

    if (in->state != STREAM_FREE && in->fd < 0 && fd >= 0) {
        in->error = 0;
        if (stream_watch(in, fd) < 0)
            stream_let_go(in);
    } else {
        sys_close(fd); /* the channel has it, or its source has ended */
    }
    if (in->state != STREAM_FREE)
        attach_input(in);
    if (out->state != STREAM_FREE)
        attach_output(out);
    return channel_base(number);
}

static void detach(struct stream *stream)
{
    if (stream->state == STREAM_FREE)
        return;
    stream->state = STREAM_DETACHED;
    stream->tell = 0;
    if (!stream_is_output(stream))
        return;
    stream->sent = stream->kept;
    stream->place = (struct ring_place){ 0 };
    stream->window = RELAY_WINDOW;
    stream->limit = UINT64_MAX;
    stream_enqueue(QUEUE_WORK, stream);
}

void channel_detach_all(void)
{
    for (uint16_t i = 1; i < channel_places; i++) {
        if (!relay_channels[i].kind)
            continue;
        if (!relay_channels[i].is_process) {
            release(&relay_channels[i]);
            continue;
        }
        detach(&relay_channels[i].streams[CHANNEL_IN]);
        detach(&relay_channels[i].streams[CHANNEL_OUT]);
    }
}

/* --- of processes --------------------------------------------------------------------------- */

void channel_end_input(uint16_t number)
{
    stream_refuse(&relay_channels[number].streams[CHANNEL_IN]);
}

bool channel_is_flushed(uint16_t number)
{
    return !relay_channels[number].streams[CHANNEL_IN].ring.length;
}

void channel_forget(uint16_t number)
{
    struct channel *channel = &relay_channels[number];
    struct stream *in = &channel->streams[CHANNEL_IN];
    struct stream *out = &channel->streams[CHANNEL_OUT];

    channel->is_process = false;
    if (in->state != STREAM_FREE)
        stream_refuse(in);
    if (out->state != STREAM_FREE)
        stream_drop(out);
    if (in->state == STREAM_DETACHED)
        in->state = STREAM_DONE;
    if (out->state == STREAM_DETACHED)
        out->state = STREAM_DONE;
    channel_settle(channel);
}

uint64_t channel_base(uint16_t number)
{
    const struct channel *channel = &relay_channels[number];

    return channel->kind == RELAY_INPUT    ? channel->streams[CHANNEL_IN].end
           : channel->kind == RELAY_OUTPUT ? channel->streams[CHANNEL_OUT].kept
                                           : 0;
}

/* The kernel does not count a terminal's output: all of it is read, regardless of the window. */
uint64_t channel_total(uint16_t number, bool is_terminal)
{
    struct stream *stream = &relay_channels[number].streams[CHANNEL_OUT];
    int in_pipe = 0;

    while (is_terminal && stream->fd >= 0 && stream->ring.length < STREAM_RING_LIMIT &&
           (stream->state == STREAM_OPEN || stream->state == STREAM_DETACHED) &&
           stream_read(stream, STREAM_PIECE))
        stream_enqueue(QUEUE_SEND, stream);
    if (stream->fd >= 0 && sys(ioctl, stream->fd, FIONREAD, &in_pipe) < 0)
        in_pipe = 0;
    return stream->end + (uint64_t)in_pipe;
}

/* A terminal with more output than fits the ring stays open until the sandbox ends. */
void channel_hang_up(uint16_t number)
{
    struct stream *stream = &relay_channels[number].streams[CHANNEL_OUT];

    if (stream->fd >= 0 && stream->ring.length < STREAM_RING_LIMIT)
        stream_hang_up(stream);
}
