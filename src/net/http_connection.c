/* SPDX-License-Identifier: Apache-2.0 */
#include "net/http_connection.h"

#include "base/alloc.h"

#include <assert.h>
#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

enum {
    SEND_QUEUE_MAXIMUM = 256 * 1024 * 1024,
    ROUNDS_PER_TURN = 16,
    REQUESTS_PER_TURN = 4,
    LINGER_US = 3 * 1000 * 1000,
    LINGER_BYTES = 16 * 1024 * 1024,
    PEER_CHECK_US = 1000 * 1000,
    INPUT_KEPT = 4096,
};

/* --- closing ------------------------------------------------------------------------------- */

void connection_close(struct http_connection *connection)
{
    struct http_server *server = connection->server;

    connection->broken = true;
    connection->exchange.ended = true;
    if (connection->exchange.active)
        exchange_finish(&connection->exchange);
    loop_undefer(server->loop, &connection->work);
    timer_stop(&connection->timer);
    io_watch_stop(&connection->socket);
    fd_close(connection->socket.fd);
    list_remove(&connection->waiting);
    list_remove(&connection->link);
    assert(connection->refused ? server->refused : server->count);
    if (connection->refused)
        server->refused--;
    else
        server->count--;
    send_queue_fini(&connection->send_queue);
    buffer_fini(&connection->input);
    exchange_fini(&connection->exchange);
    http_parser_free(connection->parser);
    free(connection);
}

/* A hang-up or a reset, as opposed to an end of input. A connection whose halves were both closed in good
 * order hangs up too: what the client has sent before is still to be passed on. */
static void connection_check_peer(struct http_connection *connection)
{
    struct pollfd look = { .fd = connection->socket.fd };
    bool is_over = connection->peer_ended && connection->exchange.sending == EXCHANGE_ENDED;
    int bad = POLLERR | POLLNVAL | (is_over ? 0 : POLLHUP);

    if (poll(&look, 1, 0) == 1 && look.revents & bad)
        connection->broken = true;
}

/* --- reading ------------------------------------------------------------------------------- */

static void connection_discard(struct http_connection *connection)
{
    ssize_t length =
        recv(connection->socket.fd, connection->server->scratch, HTTP_INPUT_BYTES, MSG_DONTWAIT);

    if (length > 0)
        connection->discarded += (size_t)length;
    if (length == 0 || (length < 0 && errno != EAGAIN && errno != EINTR) ||
        connection->discarded > LINGER_BYTES)
        connection->broken = true;
}

/* Input is parsed in the read buffer; only unparsed bytes are copied. */
static void connection_read(struct http_connection *connection)
{
    uint8_t *scratch = connection->server->scratch;
    struct buffer *input = &connection->input;
    ssize_t length =
        recv(connection->socket.fd, scratch, HTTP_INPUT_BYTES - input->length, MSG_DONTWAIT);

    if (length == 0) {
        connection->peer_ended = true;
    } else if (length < 0) {
        connection->broken |= errno != EAGAIN && errno != EINTR;
    } else if (input->length) {
        connection->input_us = loop_now_us(connection->server->loop);
        (void)buffer_append(input, scratch, (size_t)length);
    } else {
        connection->input_us = loop_now_us(connection->server->loop);
        connection->data = scratch;
        connection->left = (size_t)length;
    }
}

void connection_load_input(struct http_connection *connection)
{
    if (connection->data)
        return;
    connection->data = connection->input.data;
    connection->left = connection->input.length;
}

void connection_store_input(struct http_connection *connection)
{
    struct buffer *input = &connection->input;

    assert(!input->length || connection->left <= input->length);
    if (input->length)
        buffer_consume(input, input->length - connection->left);
    else
        (void)buffer_append(input, connection->data, connection->left);
    if (!input->length && input->capacity > INPUT_KEPT)
        buffer_fini(input);
    connection->data = NULL;
    connection->left = 0;
}

/* --- settling ------------------------------------------------------------------------------ */

/* Whether the output fell below the mark where waiting steps may go on. */
static bool connection_flush(struct http_connection *connection)
{
    size_t before = connection->send_queue.pending;

    if (!before || connection->broken)
        return false;
    if (send_queue_flush(&connection->send_queue, connection->socket.fd) == SEND_QUEUE_BROKEN)
        connection->broken = true;
    if (connection->send_queue.pending < before || !connection->output_us)
        connection->output_us = connection->now_us;
    if (!connection->send_queue.pending)
        connection->output_us = 0;
    return before >= HTTP_LOW_WATER && connection->send_queue.pending < HTTP_LOW_WATER;
}

/* Whether the next request waits for the next turn. */
static bool connection_has_had_its_share(const struct http_connection *connection, unsigned last)
{
    return connection->requests == last && !connection->exchange.active && connection->left;
}

/* Bounded: a client that reads as fast as we write, or that sends many requests without waiting for
 * the answers, must not keep the loop for itself. */
static void connection_run(struct http_connection *connection)
{
    unsigned last = connection->requests + REQUESTS_PER_TURN;

    connection->again = true;
    for (int round = 0; round < ROUNDS_PER_TURN; round++) {
        bool moved = false;

        while (!connection_has_had_its_share(connection, last) && connection_step(connection))
            moved = true;
        moved |= connection_flush(connection);
        if (connection_has_had_its_share(connection, last))
            return;
        if (!moved) {
            connection->again = false;
            return;
        }
    }
}

/* Closes the sending half of an upgraded connection, if that is asked for and all is sent. */
static void connection_half_close(struct http_connection *connection)
{
    struct http_exchange *exchange = &connection->exchange;

    if (!exchange->active || exchange->sending != EXCHANGE_ENDS || connection->send_queue.pending ||
        connection->broken)
        return;
    exchange->sending = EXCHANGE_ENDED;
    connection->broken = shutdown(connection->socket.fd, SHUT_WR) < 0;
}

/* After the end of input, with an answer to come: has the client left, or does it listen? */
static void connection_doubt(struct http_connection *connection)
{
    if (!connection->peer_ended || !connection->exchange.active || connection->broken)
        return;
    if (!connection->probed && !connection->peer.is_unix)
        exchange_probe(&connection->exchange);
    connection->probed = true;
    connection_check_peer(connection);
}

static bool connection_is_finished(struct http_connection *connection)
{
    if (connection->broken)
        return true;
    if (connection->state != CONNECTION_FLUSHING || connection->send_queue.pending ||
        connection->exchange.active)
        return false;
    if (connection->peer_ended || !connection->lingers)
        return true;
    connection->state = CONNECTION_LINGERING;
    connection->linger_us = connection->now_us;
    return shutdown(connection->socket.fd, SHUT_WR) < 0;
}

/* --- watched events ------------------------------------------------------------------------ */

static bool connection_reads(const struct http_connection *connection)
{
    return !connection->peer_ended && connection->input.length < HTTP_INPUT_BYTES &&
           connection->state != CONNECTION_FLUSHING;
}

static int64_t after(int64_t since_us, int64_t timeout_ms)
{
    return timeout_ms ? since_us + timeout_ms * 1000 : INT64_MAX;
}

static int64_t write_deadline_us(const struct http_connection *connection)
{
    return after(connection->output_us, connection->server->limits.write_timeout_ms);
}

static int64_t exchange_deadline_us(const struct http_connection *connection)
{
    const struct http_exchange *exchange = &connection->exchange;
    int64_t deadline_us = INT64_MAX;

    if (!exchange->request_done && !exchange->raw && exchange_wants_body(exchange))
        deadline_us = after(connection->input_us, connection->server->limits.body_timeout_ms);
    if (!connection_reads(connection))
        deadline_us = MIN(deadline_us, connection->now_us + PEER_CHECK_US);
    return deadline_us;
}

/* Without an exchange: for the next head, the rest of one, or the rest of an unwanted body. */
static int64_t request_deadline_us(const struct http_connection *connection)
{
    const struct http_server_limits *limits = &connection->server->limits;
    int64_t head_us = after(connection->input_us, limits->head_timeout_ms);
    int64_t idle_us = after(connection->input_us, limits->idle_timeout_ms);

    if (connection->discarding)
        return after(connection->input_us, limits->body_timeout_ms);
    if (!http_parser_is_idle(connection->parser))
        return after(connection->head_us, limits->head_timeout_ms);
    return connection->requests ? idle_us : MIN(head_us, idle_us);
}

static int64_t connection_deadline_us(const struct http_connection *connection)
{
    int64_t deadline_us = INT64_MAX;

    if (connection->state == CONNECTION_LINGERING)
        return connection->linger_us + LINGER_US;
    if (connection->send_queue.pending)
        deadline_us = write_deadline_us(connection);
    if (connection->exchange.active)
        return MIN(deadline_us, exchange_deadline_us(connection));
    if (connection->state == CONNECTION_FLUSHING || connection->send_queue.pending)
        return deadline_us;
    return request_deadline_us(connection);
}

static void on_connection_ready(struct io_watch *watch, unsigned events);

/* The timer is only ever moved forward here; when it comes too early it is armed again, which is
 * cheaper than moving it with every request. */
static void connection_wait(struct http_connection *connection)
{
    struct io_watch *socket = &connection->socket;
    unsigned events = (connection_reads(connection) ? IO_READ : 0U) |
                      (connection->send_queue.pending || connection->again ? IO_WRITE : 0U);
    int64_t deadline_us = connection_deadline_us(connection);

    if (!events)
        io_watch_stop(socket);
    else if (events != socket->events)
        io_watch_start(socket, connection->server->loop, socket->fd, events, on_connection_ready);
    if (deadline_us != INT64_MAX &&
        (!timer_is_armed(&connection->timer) || connection->timer.deadline_us > deadline_us))
        timer_arm_at(&connection->timer, deadline_us);
}

void connection_settle(struct http_connection *connection)
{
    connection->settling = true;
    connection->now_us = loop_now_us(connection->server->loop);
    connection_load_input(connection);
    connection_run(connection);
    connection_half_close(connection);
    connection_doubt(connection);
    connection_store_input(connection);
    connection->settling = false;
    if (connection_is_finished(connection))
        connection_close(connection);
    else
        connection_wait(connection);
}

static void on_work(struct deferred *deferred)
{
    connection_settle(container_of(deferred, struct http_connection, work));
}

void connection_wake(struct http_connection *connection)
{
    if (!connection->settling)
        loop_defer(connection->server->loop, &connection->work, on_work);
}

void connection_expect_input(struct http_connection *connection)
{
    connection->input_us = loop_now_us(connection->server->loop);
    connection_wake(connection);
}

/* --- events -------------------------------------------------------------------------------- */

static void on_connection_ready(struct io_watch *watch, unsigned events)
{
    struct http_connection *connection = container_of(watch, struct http_connection, socket);

    if (events & IO_READ && connection->state == CONNECTION_LINGERING)
        connection_discard(connection);
    else if (events & IO_READ)
        connection_read(connection);
    connection_settle(connection);
}

static void connection_expire(struct http_connection *connection)
{
    struct http_exchange *exchange = &connection->exchange;

    if (connection->state == CONNECTION_LINGERING ||
        (connection->send_queue.pending && write_deadline_us(connection) <= connection->now_us))
        connection->broken = true;
    else if (exchange->active)
        exchange_refuse(exchange, 408, "the body takes too long");
    else if (connection->discarding || http_parser_is_idle(connection->parser))
        connection_end_requests(connection);
    else
        connection_refuse(connection, 408, "the head takes too long");
}

static void on_timer(struct timer *timer)
{
    struct http_connection *connection = container_of(timer, struct http_connection, timer);
    bool checks_peer = connection->exchange.active && !connection_reads(connection);

    connection->now_us = loop_now_us(connection->server->loop);
    if (checks_peer)
        connection_check_peer(connection);
    if (connection_deadline_us(connection) <= connection->now_us)
        connection_expire(connection);
    connection_settle(connection);
}

void connection_open(struct http_server *server, int fd, const struct http_peer *peer, bool refused)
{
    struct http_connection *connection = xnew(struct http_connection);

    connection->server = server;
    connection->socket.fd = fd;
    connection->refused = refused;
    connection->parser = http_parser_new(HTTP_KIND_REQUEST, &server->limits.message);
    connection->input = BUFFER_INIT(HTTP_INPUT_BYTES);
    connection->input_us = connection->now_us = loop_now_us(server->loop);
    send_queue_init(&connection->send_queue, SEND_QUEUE_MAXIMUM);
    connection->peer = *peer;
    timer_init(&connection->timer, server->loop, on_timer);
    list_append(&server->connections, &connection->link);
    if (refused) {
        server->refused++;
        connection_refuse(connection, 503, "too many connections");
        connection_settle(connection);
        return;
    }
    server->count++;
    list_append(&server->waiting, &connection->waiting);
    connection_wait(connection);
}
