/* SPDX-License-Identifier: Apache-2.0 */
/* The bytes of one TCP connection: each direction ends by itself, as on the wire. */

#include "face/port_private.h"

#include "core/core.h"

#include <errno.h>
#include <sys/socket.h>
#include <unistd.h>

enum {
    PIECE_BYTES = 64 * 1024,
    WAITING_BYTES = 256 * 1024,                  /* inward: more holds the client back */
    QUEUE_MAXIMUM = WAITING_BYTES + 1024 * 1024, /* with what one turn of the server brings */
};

static void settle(struct port_proxy *proxy);

/* --- outward: from the sandbox to the client -------------------------------------------------- */

static void end_outward(struct port_proxy *proxy, ssize_t count)
{
    proxy->outward = PORT_HALF_ENDED;
    if (count < 0)
        http_exchange_abort(proxy->request->exchange);
    else
        http_respond_half_close(proxy->request->exchange);
}

static void read_socket(struct port_proxy *proxy)
{
    static uint8_t bytes[PIECE_BYTES];
    ssize_t count = recv(proxy->socket.fd, bytes, sizeof(bytes), MSG_DONTWAIT);

    if (count < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    if (count <= 0) {
        end_outward(proxy, count);
        return;
    }
    port_stream_note_bytes(&proxy->stream);
    http_respond_write(proxy->request->exchange, bytes, (size_t)count);
}

static bool reads(const struct port_proxy *proxy)
{
    return proxy->outward == PORT_HALF_OPEN &&
           http_respond_pending(proxy->request->exchange) < HTTP_HIGH_WATER;
}

/* --- inward ----------------------------------------------------------------------------------- */

/* The server reads no more: what the client still sends is dropped. */
static void give_up_inward(struct port_proxy *proxy)
{
    send_queue_fini(&proxy->queue);
    proxy->inward = PORT_HALF_ENDED;
}

static void flush(struct port_proxy *proxy)
{
    if (proxy->inward == PORT_HALF_ENDED)
        return;
    if (proxy->queue.pending &&
        send_queue_flush(&proxy->queue, proxy->socket.fd) == SEND_QUEUE_BROKEN) {
        give_up_inward(proxy);
        return;
    }
    if (proxy->inward == PORT_HALF_ENDING && !proxy->queue.pending) {
        proxy->inward = PORT_HALF_ENDED;
        (void)shutdown(proxy->socket.fd, SHUT_WR);
    }
}

static void on_client_data(struct http_exchange *exchange, const uint8_t *data, size_t length)
{
    struct request *request = http_exchange_user(exchange);
    struct port_proxy *proxy = request->state;

    port_stream_note_bytes(&proxy->stream);
    if (proxy->inward == PORT_HALF_OPEN && !length)
        proxy->inward = PORT_HALF_ENDING;
    if (proxy->inward == PORT_HALF_OPEN && send_queue_append(&proxy->queue, data, length) < 0)
        http_exchange_abort(exchange);
    settle(proxy);
}

/* --- both ------------------------------------------------------------------------------------- */

static void on_socket_ready(struct io_watch *watch, unsigned events)
{
    struct port_proxy *proxy = container_of(watch, struct port_proxy, socket);

    if (events & IO_READ && reads(proxy))
        read_socket(proxy);
    settle(proxy);
}

static void wait(struct port_proxy *proxy)
{
    unsigned events = (reads(proxy) ? IO_READ : 0U) | (proxy->queue.pending ? IO_WRITE : 0U);

    if (!events)
        io_watch_stop(&proxy->socket);
    else if (events != proxy->socket.events)
        io_watch_start(&proxy->socket, proxy->request->core->loop, proxy->socket.fd, events,
                       on_socket_ready);
}

static void settle(struct port_proxy *proxy)
{
    struct http_exchange *exchange = proxy->request->exchange;

    flush(proxy);
    if (proxy->queue.pending >= WAITING_BYTES)
        http_exchange_pause_body(exchange);
    else
        http_exchange_resume_body(exchange);
    if (proxy->inward == PORT_HALF_ENDED && proxy->outward == PORT_HALF_ENDED)
        http_respond_end(exchange);
    wait(proxy);
}

static void on_drain(struct http_exchange *exchange)
{
    struct request *request = http_exchange_user(exchange);

    settle(request->state);
}

void port_tunnel_begin(struct port_proxy *proxy, int fd)
{
    struct http_exchange *exchange = proxy->request->exchange;

    proxy->socket.fd = fd;
    send_queue_init(&proxy->queue, QUEUE_MAXIMUM);
    http_respond_on_drain(exchange, on_drain);
    http_respond_upgrade(exchange, "tcp", on_client_data);
    settle(proxy);
}

void port_tunnel_fini(struct port_proxy *proxy)
{
    if (proxy->socket.fd < 0)
        return;
    io_watch_stop(&proxy->socket);
    fd_close(steal_fd(&proxy->socket.fd));
    send_queue_fini(&proxy->queue);
}
