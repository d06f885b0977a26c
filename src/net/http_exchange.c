/* SPDX-License-Identifier: Apache-2.0 */
/* The request side of an exchange. */

#include "net/http_connection.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

enum { KEPT_BYTES = 64 * 1024, HEADERS_MAXIMUM = 256 * 1024, COUNTER_DIGITS = 12 };

/* Ids of requests are for finding lines in a log: unique, but a counter is enough behind the random
 * part that the server's first one has. */
static void id_advance(char id[ID_SIZE])
{
    static const char digits[] = "0123456789abcdefghjkmnpqrstvwxyz";
    size_t at = strlen(id);

    for (int place = 0; place < COUNTER_DIGITS; place++) {
        const char *digit = strchr(digits, id[--at]);

        if (digit[1]) {
            id[at] = digit[1];
            return;
        }
        id[at] = digits[0];
    }
}

static void buffer_reset(struct buffer *buffer, size_t maximum)
{
    if (buffer->capacity > KEPT_BYTES)
        buffer_fini(buffer);
    buffer_clear(buffer);
    buffer->maximum = maximum;
}

void exchange_begin(struct http_exchange *exchange)
{
    struct http_connection *connection = exchange_connection(exchange);
    const struct http_head *head = http_parser_head(connection->parser);
    struct buffer body = exchange->body;
    struct buffer headers = exchange->headers;

    *exchange = (struct http_exchange){
        .body = body,
        .headers = headers,
        .answer_left = -1,
        .pipe.fd = -1,
        .active = true,
        .wants_continue = head->expect_continue,
    };
    buffer_reset(&exchange->body, 0);
    buffer_reset(&exchange->headers, HEADERS_MAXIMUM);
    id_advance(connection->server->id);
    memcpy(exchange->id, connection->server->id, ID_SIZE);
    connection->requests++;
    list_remove(&connection->waiting);
}

void exchange_finish(struct http_exchange *exchange)
{
    http_close_fn *on_close = exchange->on_close;

    exchange->on_close = NULL;
    exchange_close_pipe(exchange);
    if (on_close)
        on_close(exchange);
    exchange->active = false;
}

void exchange_fini(struct http_exchange *exchange)
{
    buffer_fini(&exchange->body);
    buffer_fini(&exchange->headers);
}

bool exchange_wants_body(const struct http_exchange *exchange)
{
    return (exchange->on_body || exchange->on_data) && !exchange->paused && !exchange->ended &&
           !exchange->request_told;
}

void exchange_take_body(struct http_exchange *exchange, const uint8_t *data, size_t length)
{
    if (exchange->on_data)
        exchange->on_data(exchange, data, length);
    else if (buffer_append(&exchange->body, data, length) < 0)
        exchange_refuse(exchange, 413, "the body is too large");
}

void exchange_tell_end(struct http_exchange *exchange)
{
    exchange->request_told = true;
    if (exchange->on_data)
        exchange->on_data(exchange, NULL, 0);
    else
        exchange->on_body(exchange, &exchange->body);
}

/* --- for the handler ----------------------------------------------------------------------- */

const struct http_head *http_exchange_head(const struct http_exchange *exchange)
{
    return http_parser_head(exchange_connection(exchange)->parser);
}

const struct http_peer *http_exchange_peer(const struct http_exchange *exchange)
{
    return &exchange_connection(exchange)->peer;
}

const char *http_exchange_id(const struct http_exchange *exchange)
{
    return exchange->id;
}

void http_exchange_set_id(struct http_exchange *exchange, const char *id)
{
    snprintf(exchange->id, sizeof(exchange->id), "%s", id);
}

int http_exchange_status(const struct http_exchange *exchange)
{
    return exchange->status;
}

void http_exchange_set_user(struct http_exchange *exchange, void *user)
{
    exchange->user = user;
}

void *http_exchange_user(const struct http_exchange *exchange)
{
    return exchange->user;
}

void http_exchange_on_close(struct http_exchange *exchange, http_close_fn *on_close)
{
    exchange->on_close = on_close;
}

/* 100 is sent when the handler wants the body, and never after the body has begun. */
static void exchange_send_continue(struct http_exchange *exchange)
{
    static const char text[] = "HTTP/1.1 100 Continue\r\n\r\n";
    struct http_connection *connection = exchange_connection(exchange);

    if (exchange->wants_continue && !exchange->request_done && !connection->peer_ended &&
        !connection->left && !connection->input.length)
        (void)send_queue_append(&connection->send_queue, text, sizeof(text) - 1);
    exchange->wants_continue = false;
}

void http_exchange_read_body(struct http_exchange *exchange, size_t maximum, http_body_fn *on_body)
{
    const struct http_head *head = http_exchange_head(exchange);

    assert(!exchange->on_body && !exchange->on_data);
    exchange->on_body = on_body;
    exchange->body.maximum = maximum;
    if (head->content_length > 0 && (uint64_t)head->content_length > maximum)
        exchange_refuse(exchange, 413, "the body is too large");
    else
        exchange_send_continue(exchange);
    connection_expect_input(exchange_connection(exchange));
}

void http_exchange_stream_body(struct http_exchange *exchange, http_data_fn *on_data)
{
    assert(!exchange->on_body && !exchange->on_data);
    exchange->on_data = on_data;
    exchange_send_continue(exchange);
    connection_expect_input(exchange_connection(exchange));
}

void http_exchange_pause_body(struct http_exchange *exchange)
{
    exchange->paused = true;
}

void http_exchange_resume_body(struct http_exchange *exchange)
{
    exchange->paused = false;
    connection_expect_input(exchange_connection(exchange));
}
