/* SPDX-License-Identifier: Apache-2.0 */
#include "net/stream_relay.h"

#include "base/macros.h"
#include "base/scoped.h"

#include <errno.h>
#include <sys/socket.h>

enum {
    PIECE_BYTES = 64 * 1024,
    WAITING_BYTES = 256 * 1024,
    QUEUE_MAXIMUM = 4 * WAITING_BYTES, /* the front of a queue is given back in large pieces */
};

static void settle(struct stream_relay *relay);

static void on_over(struct deferred *deferred)
{
    struct stream_relay *relay = container_of(deferred, struct stream_relay, end);

    relay->on_end(relay);
}

static void finish(struct stream_relay *relay)
{
    for (unsigned i = 0; i < 2; i++)
        io_watch_stop(&relay->ends[i].socket);
    loop_defer(relay->loop, &relay->end, on_over);
}

/* The other side has to see that this is no good end. */
static void fail(struct stream_relay *relay)
{
    static const struct linger now = { .l_onoff = 1 };

    relay->has_failed = true;
    for (unsigned i = 0; i < 2; i++)
        (void)setsockopt(relay->ends[i].socket.fd, SOL_SOCKET, SO_LINGER, &now, sizeof(now));
    finish(relay);
}

static void read_end(struct stream_relay *relay, unsigned from)
{
    static uint8_t bytes[PIECE_BYTES];
    struct stream_end *to = &relay->ends[!from];
    ssize_t count = recv(relay->ends[from].socket.fd, bytes, sizeof(bytes), MSG_DONTWAIT);

    if (count < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    if (count == 0)
        to->half = STREAM_HALF_ENDING;
    else if (count < 0 || send_queue_append(&to->queue, bytes, (size_t)count) < 0)
        fail(relay);
}

static void flush_end(struct stream_relay *relay, struct stream_end *end)
{
    if (end->queue.pending && send_queue_flush(&end->queue, end->socket.fd) == SEND_QUEUE_BROKEN) {
        fail(relay);
    } else if (end->half == STREAM_HALF_ENDING && !end->queue.pending) {
        end->half = STREAM_HALF_ENDED;
        (void)shutdown(end->socket.fd, SHUT_WR);
    }
}

static void on_ready(struct io_watch *watch, unsigned events, unsigned number)
{
    struct stream_end *end = container_of(watch, struct stream_end, socket);
    struct stream_relay *relay = container_of(end - number, struct stream_relay, ends[0]);

    if (events & IO_READ)
        read_end(relay, number);
    settle(relay);
}

static void on_first_ready(struct io_watch *watch, unsigned events)
{
    on_ready(watch, events, 0);
}

static void on_second_ready(struct io_watch *watch, unsigned events)
{
    on_ready(watch, events, 1);
}

static void wait_for(struct stream_relay *relay, unsigned number)
{
    struct stream_end *end = &relay->ends[number];
    const struct stream_end *other = &relay->ends[!number];
    bool reads = other->half == STREAM_HALF_OPEN && other->queue.pending < WAITING_BYTES;
    unsigned events = (reads ? IO_READ : 0U) | (end->queue.pending ? IO_WRITE : 0U);

    if (!events)
        io_watch_stop(&end->socket);
    else if (events != end->socket.events)
        io_watch_start(&end->socket, relay->loop, end->socket.fd, events,
                       number ? on_second_ready : on_first_ready);
}

static void settle(struct stream_relay *relay)
{
    for (unsigned i = 0; i < 2 && !relay->has_failed; i++)
        flush_end(relay, &relay->ends[i]);
    if (relay->has_failed)
        return;
    if (relay->ends[0].half == STREAM_HALF_ENDED && relay->ends[1].half == STREAM_HALF_ENDED) {
        finish(relay);
        return;
    }
    wait_for(relay, 0);
    wait_for(relay, 1);
}

void stream_relay_start(struct stream_relay *relay, struct loop *loop, int first, int second,
                        stream_relay_fn *on_end)
{
    *relay = (struct stream_relay){ .on_end = on_end, .loop = loop };
    relay->ends[0].socket.fd = first;
    relay->ends[1].socket.fd = second;
    for (unsigned i = 0; i < 2; i++)
        send_queue_init(&relay->ends[i].queue, QUEUE_MAXIMUM);
    settle(relay);
}

void stream_relay_put(struct stream_relay *relay, unsigned end, const void *data, size_t length)
{
    if (send_queue_append(&relay->ends[end].queue, data, length) < 0)
        fail(relay);
    else
        settle(relay);
}

void stream_relay_stop(struct stream_relay *relay)
{
    if (!relay->loop)
        return;
    loop_undefer(relay->loop, &relay->end);
    for (unsigned i = 0; i < 2; i++) {
        io_watch_stop(&relay->ends[i].socket);
        fd_close(relay->ends[i].socket.fd);
        send_queue_fini(&relay->ends[i].queue);
    }
    *relay = (struct stream_relay){ 0 };
}
