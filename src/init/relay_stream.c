/* SPDX-License-Identifier: Apache-2.0 */
#include "init/relay_stream_private.h"

#include "init/init.h"
#include "init/sys.h"

#include <errno.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>

enum { MAX_INPUT_WINDOW = 1024 * 1024, BUSY_PIPE = 256 * 1024 };

struct queue {
    uint16_t first;
    uint16_t last;
};

TABLE_SELDOM_USED struct channel relay_channels[RELAY_BRIDGE_CHANNEL];

static struct queue queues[QUEUES];
static int poll_fd = -1;
static uint32_t poll_tag;

void stream_prepare(int epoll_fd, uint32_t first_tag)
{
    poll_fd = epoll_fd;
    poll_tag = first_tag;
}

/* --- queues --------------------------------------------------------------------------------- */

struct stream *stream_at(unsigned number)
{
    return &relay_channels[number / 2].streams[number % 2];
}

struct channel *stream_channel(const struct stream *stream)
{
    size_t offset = (size_t)((const char *)stream - (const char *)relay_channels);

    return &relay_channels[offset / sizeof relay_channels[0]];
}

uint16_t channel_number(const struct stream *stream)
{
    return (uint16_t)(stream_channel(stream) - relay_channels);
}

bool stream_is_output(const struct stream *stream)
{
    return stream == &stream_channel(stream)->streams[CHANNEL_OUT];
}

static uint16_t stream_number(const struct stream *stream)
{
    return (uint16_t)(channel_number(stream) * 2 + stream_is_output(stream));
}

void stream_enqueue(enum queue_kind kind, struct stream *stream)
{
    uint16_t number = stream_number(stream);
    struct queue *queue = &queues[kind];

    if (stream->queued & 1u << kind)
        return;
    stream->queued |= (uint8_t)(1u << kind);
    stream->next[kind] = 0;
    if (queue->last)
        stream_at(queue->last)->next[kind] = number;
    else
        queue->first = number;
    queue->last = number;
}

struct stream *stream_dequeue(enum queue_kind kind)
{
    struct queue *queue = &queues[kind];
    struct stream *stream;

    if (!queue->first)
        return NULL;
    stream = stream_at(queue->first);
    queue->first = stream->next[kind];
    if (!queue->first)
        queue->last = 0;
    stream->queued &= (uint8_t) ~(1u << kind);
    return stream;
}

void stream_tell(struct stream *stream, unsigned what)
{
    stream->tell |= (uint8_t)what;
    stream_enqueue(QUEUE_TELL, stream);
}

/* --- descriptors ---------------------------------------------------------------------------- */

int stream_watch(struct stream *stream, int fd)
{
    struct epoll_event event = {
        .events = EPOLLET | (stream_is_output(stream) ? EPOLLIN | EPOLLRDHUP : EPOLLOUT),
        .data.u32 = poll_tag + stream_number(stream),
    };
    long flags = sys(fcntl, fd, F_GETFL, 0);

    if (!(flags & O_NONBLOCK))
        (void)sys(fcntl, fd, F_SETFL, flags | O_NONBLOCK);
    stream->fd = fd;
    stream->is_ready = true;
    stream_enqueue(QUEUE_WORK, stream);
    return (int)sys(epoll_ctl, poll_fd, EPOLL_CTL_ADD, fd, &event);
}

/* Init has duplicates, so that closing the descriptor alone would leave it in the poll. */
void stream_let_go(struct stream *stream)
{
    if (stream->fd < 0)
        return;
    (void)sys(epoll_ctl, poll_fd, EPOLL_CTL_DEL, stream->fd, NULL);
    if (stream_channel(stream)->kind == RELAY_BOTH)
        (void)sys(shutdown, stream->fd, stream_is_output(stream) ? SHUT_RD : SHUT_WR);
    sys_drop(&stream->fd);
    stream->is_ready = false;
}

/* A terminal hangs up whenever no program has it open, and takes input again when one does. */
static bool is_terminal(int fd)
{
    struct winsize size;

    return sys(ioctl, fd, TIOCGWINSZ, &size) >= 0;
}

void stream_wake(unsigned number, uint32_t events)
{
    struct stream *stream;

    if (number >= STREAM_COUNT)
        return;
    stream = stream_at(number);
    if (stream->fd < 0)
        return;
    stream->is_ready = true;
    stream_enqueue(QUEUE_WORK, stream);
    if (events & (EPOLLERR | EPOLLHUP) && !stream_is_output(stream) && !is_terminal(stream->fd))
        stream->error = EPIPE;
}

/* --- windows of input ----------------------------------------------------------------------- */

/* Bytes that the ring has room for wherever they begin in a block. */
static uint64_t input_capacity(const struct stream *stream)
{
    return (uint64_t)(stream->ring.guarantee - 1 + stream->ring.reserved) * POOL_BLOCK;
}

static uint64_t input_written(const struct stream *stream)
{
    return stream->end - stream->ring.length;
}

void stream_grant(struct stream *stream)
{
    uint64_t to = input_written(stream) + input_capacity(stream);

    if (to > stream->kept)
        stream->kept = to;
}

void stream_widen(struct stream *stream)
{
    uint64_t capacity = input_capacity(stream);

    if (!stream->ring.length && capacity < MAX_INPUT_WINDOW &&
        stream->kept - stream->end < capacity / 2)
        (void)ring_promise(&stream->ring, (unsigned)(capacity / POOL_BLOCK));
}

/* --- ends ----------------------------------------------------------------------------------- */

void stream_refuse(struct stream *stream)
{
    stream_let_go(stream);
    ring_clear(&stream->ring);
    if (stream->state == STREAM_OPEN) {
        stream->state = STREAM_REFUSED;
        stream_tell(stream, TELL_CLOSE);
    } else if (stream->state == STREAM_ENDING) {
        stream_tell(stream, TELL_ACK);
    }
}

void stream_stop(struct stream *stream)
{
    if (stream->state != STREAM_OPEN && stream->state != STREAM_ENDING)
        return;
    stream->limit = stream->sent;
    stream->state = STREAM_ENDING;
    stream_enqueue(QUEUE_TELL, stream);
}

void stream_drop(struct stream *stream)
{
    stream_let_go(stream);
    ring_clear(&stream->ring);
    stream->place = (struct ring_place){ 0 };
    stream->end = stream->sent;
    stream_stop(stream);
}

/* The source has ended. A terminal says EIO when no program has it open any more. */
static void end_output(struct stream *stream, int error)
{
    stream_let_go(stream);
    stream->error = error == EIO ? 0 : error;
    if (stream->state != STREAM_OPEN)
        return;
    stream->state = STREAM_ENDING;
    stream->limit = stream->end;
    stream_enqueue(QUEUE_TELL, stream);
}

void stream_hang_up(struct stream *stream)
{
    end_output(stream, EIO);
}

/* --- reading and writing -------------------------------------------------------------------- */

static size_t output_room(const struct stream *stream)
{
    uint64_t to = stream->kept + stream->window;
    uint64_t room = to > stream->end ? to - stream->end : 0;

    if (stream->ring.length >= STREAM_RING_LIMIT)
        return 0;
    return room < STREAM_PIECE ? (size_t)room : STREAM_PIECE;
}

/* Once, of a pipe that was full: fewer turns of the program and the relay move the same bytes. */
static void enlarge(struct stream *stream)
{
    if (!stream->is_large)
        (void)sys(fcntl, stream->fd, F_SETPIPE_SZ, BUSY_PIPE);
    stream->is_large = true;
}

bool stream_read(struct stream *stream, size_t room)
{
    struct iovec parts[RING_PARTS];
    size_t wanted = (size_t)stream->greed * POOL_BLOCK;
    unsigned count;
    long length;

    if (wanted > room)
        wanted = room;
    count = ring_reserve(&stream->ring, wanted, parts);
    if (!count) {
        stream_enqueue(QUEUE_STARVED, stream);
        return false;
    }
    length = sys(readv, stream->fd, parts, count);
    ring_commit(&stream->ring, length > 0 ? (size_t)length : 0);
    if (length == -EINTR)
        return true;
    if (length <= 0) {
        stream->is_ready = false;
        if (length != -EAGAIN)
            end_output(stream, (int)-length);
        return false;
    }
    stream->end += (uint64_t)length;
    if ((size_t)length == STREAM_PIECE)
        enlarge(stream);
    if ((size_t)length == wanted && stream->greed < STREAM_PIECE / POOL_BLOCK)
        stream->greed = (uint8_t)(stream->greed * 2);
    else if ((size_t)length < wanted / 2)
        stream->greed = (uint8_t)((stream->greed + 1) / 2);
    return true;
}

static void work_output(struct stream *stream)
{
    size_t room;

    if (stream->fd < 0 || !stream->is_ready ||
        (stream->state != STREAM_OPEN && stream->state != STREAM_DETACHED))
        return;
    room = output_room(stream);
    if (!room)
        return; /* until an ACK comes */
    if (stream_read(stream, room))
        stream_enqueue(QUEUE_WORK, stream);
    if (stream->end > stream->sent)
        stream_enqueue(QUEUE_SEND, stream);
}

static void work_input(struct stream *stream)
{
    struct iovec parts[RING_PARTS];
    long length;

    if (stream->fd < 0)
        return;
    if (stream->ring.length && stream->is_ready) {
        unsigned count = ring_peek(&stream->ring, parts);

        length = sys(writev, stream->fd, parts, count);
        if (length == -EAGAIN || length == 0) {
            stream->is_ready = false;
        } else if (length < 0 && length != -EINTR) {
            stream_refuse(stream);
            return;
        } else if (length > 0) {
            ring_drop(&stream->ring, (size_t)length);
            if (stream->state == STREAM_OPEN)
                stream_tell(stream, TELL_ACK);
        }
        if (stream->ring.length && stream->is_ready)
            stream_enqueue(QUEUE_WORK, stream);
    }
    if (stream->ring.length)
        return;
    if (stream->state == STREAM_ENDING || stream->error)
        stream_refuse(stream);
}

/* Each stream at most once, so that the output of a program's two streams keeps its order. */
bool stream_work(void)
{
    uint16_t last;
    struct stream *stream;

    if (queues[QUEUE_STARVED].first && pool_has_bulk())
        while ((stream = stream_dequeue(QUEUE_STARVED)))
            stream_enqueue(QUEUE_WORK, stream);
    last = queues[QUEUE_WORK].last;
    while ((stream = stream_dequeue(QUEUE_WORK))) {
        if (stream->state != STREAM_FREE && stream_is_output(stream))
            work_output(stream);
        else if (stream->state != STREAM_FREE)
            work_input(stream);
        if (stream_number(stream) == last)
            break;
    }
    return queues[QUEUE_WORK].first != 0;
}
