/* SPDX-License-Identifier: Apache-2.0 */
/* The answer side of an exchange. */

#include "net/http_connection.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

/* A body that the handler did not read is skipped up to this size; behind a longer one the connection closes. */
enum { SKIPPED_BYTES = 64 * 1024 };

static const char lead[] = "HTTP/1.1 ";

static void put(struct http_connection *connection, const void *data, size_t length)
{
    if (send_queue_append(&connection->send_queue, data, length) < 0)
        connection->broken = true;
}

#define PUT_LITERAL(connection, text) put(connection, text, sizeof(text) - 1)

static void put_text(struct http_connection *connection, const char *text)
{
    put(connection, text, strlen(text));
}

static void put_number(struct http_connection *connection, uint64_t number)
{
    char digits[20];
    size_t at = sizeof(digits);

    do {
        digits[--at] = (char)('0' + number % 10);
    } while (number /= 10);
    put(connection, digits + at, sizeof(digits) - at);
}

/* --- the head ------------------------------------------------------------------------------ */

bool exchange_rest_is_short(const struct http_exchange *exchange)
{
    const struct http_head *head = http_exchange_head(exchange);

    return exchange->request_done ||
           (!exchange->wants_continue && !head->chunked && head->content_length <= SKIPPED_BYTES);
}

/* While an answer streams, the rest of the request may still be read; a whole one is the end. */
static void answer_decide(struct http_exchange *exchange, int status, int64_t length, bool whole)
{
    const struct http_connection *connection = exchange_connection(exchange);
    const struct http_head *head = http_exchange_head(exchange);
    bool open_ended = length < 0 && head->minor_version == 0;

    exchange->started = true;
    exchange->answer_left = length;
    exchange->without_body = head->method == HTTP_HEAD || status == 204 || status == 304;
    exchange->chunked = length < 0 && !open_ended;
    exchange->keep_alive = head->keep_alive && !open_ended && !connection->server->draining &&
                           !connection->refused && connection->state == CONNECTION_OPEN &&
                           (!whole || exchange_rest_is_short(exchange));
}

static void put_status(struct http_connection *connection, int status)
{
    connection->exchange.status = status;
    put(connection, lead + connection->lead_sent, sizeof(lead) - 1 - connection->lead_sent);
    connection->lead_sent = 0;
    if (status == 200) {
        PUT_LITERAL(connection, "200 OK\r\n");
        return;
    }
    put_number(connection, (uint64_t)status);
    PUT_LITERAL(connection, " ");
    put_text(connection, http_status_text(status));
    PUT_LITERAL(connection, "\r\n");
}

static void put_request_id(struct http_exchange *exchange)
{
    struct http_connection *connection = exchange_connection(exchange);

    PUT_LITERAL(connection, "X-Request-Id: ");
    put_text(connection, exchange->id);
    PUT_LITERAL(connection, "\r\n");
}

static void put_connection_header(struct http_exchange *exchange)
{
    struct http_connection *connection = exchange_connection(exchange);

    if (!exchange->keep_alive)
        PUT_LITERAL(connection, "Connection: close\r\n");
    else if (http_exchange_head(exchange)->minor_version == 0)
        PUT_LITERAL(connection, "Connection: keep-alive\r\n");
}

static void put_head(struct http_exchange *exchange, int status, const char *type, int64_t length,
                     bool whole)
{
    struct http_connection *connection = exchange_connection(exchange);

    answer_decide(exchange, status, length, whole);
    put_status(connection, status);
    if (type) {
        PUT_LITERAL(connection, "Content-Type: ");
        put_text(connection, type);
        PUT_LITERAL(connection, "\r\n");
    }
    if (length >= 0 && status != 204 && status != 304) {
        PUT_LITERAL(connection, "Content-Length: ");
        put_number(connection, (uint64_t)length);
        PUT_LITERAL(connection, "\r\n");
    } else if (exchange->chunked && status != 204 && status != 304) {
        PUT_LITERAL(connection, "Transfer-Encoding: chunked\r\n");
    }
    put_request_id(exchange);
    put_connection_header(exchange);
    put(connection, exchange->headers.data, exchange->headers.length);
    PUT_LITERAL(connection, "\r\n");
}

void http_respond_header(struct http_exchange *exchange, const char *name, const char *value)
{
    assert(!exchange->started || exchange->ended);
    (void)http_put_header(&exchange->headers, name, value);
}

void http_respond_clear_headers(struct http_exchange *exchange)
{
    assert(!exchange->started || exchange->ended);
    buffer_clear(&exchange->headers);
}

/* --- the body ------------------------------------------------------------------------------ */

static void answer_written(struct http_exchange *exchange)
{
    struct http_connection *connection = exchange_connection(exchange);

    if (connection->send_queue.pending >= HTTP_HIGH_WATER)
        exchange->above_high_water = true;
    connection_wake(connection);
}

static void put_body(struct http_connection *connection, const void *data, size_t length)
{
    if (send_queue_write(&connection->send_queue, connection->socket.fd, data, length) < 0)
        connection->broken = true;
}

/* While the connection settles, its input is loaded already. */
static bool request_is_sound(struct http_exchange *exchange)
{
    struct http_connection *connection = exchange_connection(exchange);
    bool result;

    if (exchange->request_done || connection->state != CONNECTION_OPEN)
        return true;
    if (!connection->settling)
        connection_load_input(connection);
    result = connection_skip_body(connection);
    if (!connection->settling)
        connection_store_input(connection);
    return result;
}

void http_respond(struct http_exchange *exchange, int status, const char *type, const void *body,
                  size_t length)
{
    struct http_connection *connection = exchange_connection(exchange);

    if (exchange->ended)
        return;
    assert(!exchange->started);
    if (!request_is_sound(exchange)) {
        exchange_refuse(exchange, http_parser_status(connection->parser),
                        http_parser_reason(connection->parser));
        return;
    }
    put_head(exchange, status, type, (int64_t)length, true);
    if (!exchange->without_body)
        put_body(connection, body, length);
    exchange->answer_left = 0;
    exchange->ended = true;
    connection_wake(connection);
}

void http_respond_start(struct http_exchange *exchange, int status, const char *type,
                        int64_t length)
{
    if (exchange->ended)
        return;
    assert(!exchange->started);
    put_head(exchange, status, type, length, false);
    connection_wake(exchange_connection(exchange));
}

void http_respond_upgrade(struct http_exchange *exchange, const char *protocol,
                          http_data_fn *on_data)
{
    struct http_connection *connection = exchange_connection(exchange);

    if (exchange->ended)
        return;
    assert(!exchange->started && exchange->request_done && !exchange->on_body);
    http_respond_header(exchange, "Connection", "Upgrade");
    http_respond_header(exchange, "Upgrade", protocol);
    exchange->started = true;
    exchange->raw = true;
    exchange->request_done = false;
    exchange->request_told = false;
    exchange->on_data = on_data;
    put_status(connection, 101);
    put_request_id(exchange);
    put(connection, exchange->headers.data, exchange->headers.length);
    PUT_LITERAL(connection, "\r\n");
    connection_wake(connection);
}

void http_respond_half_close(struct http_exchange *exchange)
{
    if (exchange->ended || exchange->sending != EXCHANGE_SENDS)
        return;
    assert(exchange->raw);
    exchange->sending = EXCHANGE_ENDS;
    connection_wake(exchange_connection(exchange));
}

/* How much of `length` may be written: never more than was promised. */
static size_t answer_take(struct http_exchange *exchange, size_t length)
{
    assert(exchange->started || exchange->ended);
    if (exchange->ended || exchange->sending != EXCHANGE_SENDS ||
        exchange_connection(exchange)->broken)
        return 0;
    if (exchange->answer_left >= 0) {
        length = MIN(length, (size_t)exchange->answer_left);
        exchange->answer_left -= (int64_t)length;
    }
    return exchange->without_body ? 0 : length;
}

static void put_chunk_size(struct http_exchange *exchange, size_t length)
{
    char text[24];

    if (exchange->chunked)
        put(exchange_connection(exchange), text,
            (size_t)snprintf(text, sizeof(text), "%zx\r\n", length));
}

static void put_chunk_end(struct http_exchange *exchange)
{
    if (exchange->chunked)
        PUT_LITERAL(exchange_connection(exchange), "\r\n");
}

void http_respond_write(struct http_exchange *exchange, const void *data, size_t length)
{
    length = answer_take(exchange, length);
    if (!length)
        return;
    put_chunk_size(exchange, length);
    put_body(exchange_connection(exchange), data, length);
    put_chunk_end(exchange);
    answer_written(exchange);
}

void http_respond_write_file(struct http_exchange *exchange, int fd, int64_t offset, size_t length)
{
    struct http_connection *connection = exchange_connection(exchange);
    int copy;

    length = answer_take(exchange, length);
    if (!length)
        return;
    copy = fcntl(fd, F_DUPFD_CLOEXEC, 0);
    if (copy < 0) {
        http_exchange_abort(exchange);
        return;
    }
    put_chunk_size(exchange, length);
    send_queue_append_file(&connection->send_queue, copy, offset, length);
    put_chunk_end(exchange);
    answer_written(exchange);
}

void http_respond_end(struct http_exchange *exchange)
{
    struct http_connection *connection = exchange_connection(exchange);

    if (exchange->ended)
        return;
    assert(exchange->started);
    if (exchange->answer_left > 0 && !exchange->without_body) {
        http_exchange_abort(exchange);
        return;
    }
    if (exchange->chunked && !exchange->without_body)
        PUT_LITERAL(connection, "0\r\n\r\n");
    exchange->ended = true;
    connection_wake(connection);
}

/* --- the rest of it, from a descriptor ------------------------------------------------------ */

void exchange_close_pipe(struct http_exchange *exchange)
{
    io_watch_stop(&exchange->pipe);
    fd_close(steal_fd(&exchange->pipe.fd));
}

static void on_pipe(struct io_watch *watch, unsigned events UNUSED)
{
    struct http_exchange *exchange = container_of(watch, struct http_exchange, pipe);
    struct http_connection *connection = exchange_connection(exchange);
    uint8_t *bytes = connection->server->scratch;
    ssize_t count = read(watch->fd, bytes, MIN(exchange->pipe_left, (size_t)HTTP_INPUT_BYTES));

    if (count < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    if (count <= 0) { /* it was cut off, and so is the answer */
        exchange_close_pipe(exchange);
        http_exchange_abort(exchange);
        return;
    }
    http_respond_write(exchange, bytes, (size_t)count);
    exchange->pipe_left -= (size_t)count;
    if (!exchange->pipe_left) {
        exchange_close_pipe(exchange);
        http_respond_end(exchange);
    } else if (http_respond_pending(exchange) >= HTTP_HIGH_WATER) {
        io_watch_stop(watch);
    }
}

static void read_pipe(struct http_exchange *exchange)
{
    if (exchange->pipe.fd >= 0)
        io_watch_start(&exchange->pipe, exchange_connection(exchange)->server->loop,
                       exchange->pipe.fd, IO_READ, on_pipe);
}

static bool is_regular(int fd)
{
    struct stat status;

    return fstat(fd, &status) == 0 && S_ISREG(status.st_mode);
}

void http_respond_content(struct http_exchange *exchange, int fd, int64_t offset, size_t length)
{
    if (exchange->ended)
        return;
    assert(exchange->started && exchange->pipe.fd < 0);
    if (exchange->without_body || !length || is_regular(fd)) {
        if (length)
            http_respond_write_file(exchange, fd, offset, length);
        http_respond_end(exchange);
        return;
    }
    exchange->pipe.fd = fcntl(fd, F_DUPFD_CLOEXEC, 0);
    if (exchange->pipe.fd < 0) {
        http_exchange_abort(exchange);
        return;
    }
    exchange->pipe_left = length;
    exchange->on_drain = read_pipe;
    read_pipe(exchange);
}

size_t http_respond_pending(const struct http_exchange *exchange)
{
    return exchange_connection(exchange)->send_queue.pending;
}

void http_respond_on_drain(struct http_exchange *exchange, http_close_fn *on_drain)
{
    exchange->on_drain = on_drain;
}

/* Without a length and without chunks only a reset says that this is not the end. */
void http_exchange_reset(struct http_exchange *exchange)
{
    struct linger now = { .l_onoff = 1 };

    if (!exchange->ended)
        (void)setsockopt(exchange_connection(exchange)->socket.fd, SOL_SOCKET, SO_LINGER, &now,
                         sizeof(now));
    http_exchange_abort(exchange);
}

void http_exchange_abort(struct http_exchange *exchange)
{
    struct http_connection *connection = exchange_connection(exchange);
    struct linger now = { .l_onoff = 1 };

    if (exchange->ended || connection->broken)
        return;
    (void)send_queue_flush(&connection->send_queue, connection->socket.fd);
    if (exchange->started && !exchange->chunked && exchange->answer_left < 0)
        (void)setsockopt(connection->socket.fd, SOL_SOCKET, SO_LINGER, &now, sizeof(now));
    connection->broken = true;
    connection_wake(connection);
}

/* --- errors of the server itself ----------------------------------------------------------- */

static const char *refusal_name(int status)
{
    switch (status) {
    case 408:
        return "request_timeout";
    case 413:
        return "too_large";
    case 414:
        return "uri_too_long";
    case 417:
        return "expectation_failed";
    case 431:
        return "headers_too_large";
    case 501:
        return "not_implemented";
    case 503:
        return "overloaded";
    case 505:
        return "version_not_supported";
    default:
        return "invalid";
    }
}

/* The message is one of our own literals and needs no escapes. */
void exchange_refuse(struct http_exchange *exchange, int status, const char *message)
{
    struct http_connection *connection = exchange_connection(exchange);
    bool is_retryable = status == 503 || status == 408;
    char body[512];
    int length;

    if (exchange->started) {
        http_exchange_abort(exchange);
        return;
    }
    connection->state = CONNECTION_FLUSHING;
    connection->lingers = true;
    buffer_clear(&exchange->headers);
    if (status == 503)
        http_respond_header(exchange, "Retry-After", "1");
    length = snprintf(body, sizeof(body),
                      "{\"error\":{\"code\":\"%s\",\"message\":\"%s\",\"hint\":\"\","
                      "\"retryable\":%s}}\n",
                      refusal_name(status), message, is_retryable ? "true" : "false");
    http_respond(exchange, status, "application/json", body, (size_t)length);
}

/* --- is the client still there ------------------------------------------------------------- */

void exchange_probe(struct http_exchange *exchange)
{
    struct http_connection *connection = exchange_connection(exchange);
    const char *text = "0";
    size_t length = 1;
    ssize_t sent;

    if (connection->send_queue.pending || exchange->ended || !exchange->request_done)
        return;
    if (!exchange->started) {
        text = lead + connection->lead_sent;
        length = sizeof(lead) - 1 - connection->lead_sent;
    } else if (!exchange->chunked || exchange->without_body) {
        return;
    }
    if (!length)
        return;
    sent = send(connection->socket.fd, text, length, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent > 0 && !exchange->started)
        connection->lead_sent += (size_t)sent;
}
