/* SPDX-License-Identifier: Apache-2.0 */
/* The steps of a connection. Each returns whether it made progress. */

#include "net/http_connection.h"

static enum http_event connection_feed(struct http_connection *connection, const uint8_t **out_body,
                                       size_t *out_length)
{
    size_t used = 0;
    enum http_event event = http_parser_feed(connection->parser, connection->data, connection->left,
                                             &used, out_body, out_length);

    if (used) {
        connection->data += used;
        connection->left -= used;
    }
    return event;
}

void connection_end_requests(struct http_connection *connection)
{
    connection->state = CONNECTION_FLUSHING;
    connection->lingers |= connection->left > 0;
}

static bool step_discard(struct http_connection *connection)
{
    const uint8_t *body;
    size_t length;

    switch (connection_feed(connection, &body, &length)) {
    case HTTP_BODY:
        return true;
    case HTTP_DONE:
        connection->discarding = false;
        http_parser_next(connection->parser);
        return true;
    case HTTP_NEED_MORE:
        if (connection->peer_ended)
            connection_end_requests(connection);
        return false;
    case HTTP_BAD:
    case HTTP_HEAD_DONE:
        break;
    }
    connection_end_requests(connection);
    return false;
}

/* The received part of an unused body is parsed before the answer, so that every route refuses a
 * malformed one. False when it is malformed. */
bool connection_skip_body(struct http_connection *connection)
{
    struct http_exchange *exchange = &connection->exchange;
    enum http_event event = HTTP_BODY;
    const uint8_t *body;
    size_t length;

    while (!exchange->request_done && event == HTTP_BODY) {
        event = connection_feed(connection, &body, &length);
        exchange->request_done = event == HTTP_DONE;
    }
    return event != HTTP_BAD;
}

static bool step_raw(struct http_connection *connection)
{
    const uint8_t *data = connection->data;
    size_t length = connection->left;

    connection->left = 0;
    if (length)
        exchange_take_body(&connection->exchange, data, length);
    else
        connection->exchange.request_done = connection->peer_ended;
    return length || connection->peer_ended;
}

static bool step_body(struct http_connection *connection)
{
    struct http_exchange *exchange = &connection->exchange;
    const uint8_t *body;
    size_t length;

    switch (connection_feed(connection, &body, &length)) {
    case HTTP_BODY:
        exchange_take_body(exchange, body, length);
        return true;
    case HTTP_DONE:
        exchange->request_done = true;
        return true;
    case HTTP_NEED_MORE:
        if (!connection->peer_ended)
            return false;
        exchange_refuse(exchange, 400, "the body ended before its length");
        return true;
    case HTTP_BAD:
    case HTTP_HEAD_DONE:
        break;
    }
    exchange_refuse(exchange, http_parser_status(connection->parser),
                    http_parser_reason(connection->parser));
    return true;
}

void connection_refuse(struct http_connection *connection, int status, const char *message)
{
    exchange_begin(&connection->exchange);
    exchange_refuse(&connection->exchange, status, message);
}

static void connection_start_exchange(struct http_connection *connection)
{
    struct http_server *server = connection->server;
    struct http_exchange *exchange = &connection->exchange;
    const uint8_t *body;
    size_t length;

    exchange_begin(exchange);
    if (!http_parser_head(connection->parser)->has_body)
        exchange->request_done = connection_feed(connection, &body, &length) == HTTP_DONE;
    server->on_request(server->context, exchange);
}

static bool step_end_of_input(struct http_connection *connection)
{
    if (http_parser_is_idle(connection->parser))
        connection_end_requests(connection);
    else
        connection_refuse(connection, 400, "the head ended before its empty line");
    return true;
}

static bool step_head(struct http_connection *connection)
{
    const uint8_t *body;
    size_t length;

    if (connection->server->draining && http_parser_is_idle(connection->parser)) {
        connection_end_requests(connection);
        return true;
    }
    if (!connection->left)
        return connection->peer_ended && step_end_of_input(connection);
    if (connection->send_queue.pending >= HTTP_LOW_WATER)
        return false;
    if (http_parser_is_idle(connection->parser))
        connection->head_us = connection->now_us;
    switch (connection_feed(connection, &body, &length)) {
    case HTTP_HEAD_DONE:
        connection_start_exchange(connection);
        return true;
    case HTTP_NEED_MORE:
        return connection->peer_ended;
    default:
        connection_refuse(connection, http_parser_status(connection->parser),
                          http_parser_reason(connection->parser));
        return true;
    }
}

static bool step_finish(struct http_connection *connection)
{
    struct http_exchange *exchange = &connection->exchange;

    exchange_finish(exchange);
    connection->input_us = connection->now_us;
    list_append(&connection->server->waiting, &connection->waiting);
    if (!exchange->keep_alive || connection->state != CONNECTION_OPEN ||
        !exchange_rest_is_short(exchange)) {
        connection->lingers |= !exchange->request_done;
        connection_end_requests(connection);
    } else if (exchange->request_done) {
        http_parser_next(connection->parser);
    } else {
        connection->discarding = true;
    }
    return true;
}

static bool step_exchange(struct http_connection *connection)
{
    struct http_exchange *exchange = &connection->exchange;

    if (exchange->ended)
        return step_finish(connection);
    if (exchange->above_high_water && connection->send_queue.pending < HTTP_LOW_WATER) {
        exchange->above_high_water = false;
        if (exchange->on_drain)
            exchange->on_drain(exchange);
        return true;
    }
    if (!exchange_wants_body(exchange))
        return false;
    if (!exchange->request_done)
        return exchange->raw ? step_raw(connection) : step_body(connection);
    exchange_tell_end(exchange);
    return true;
}

bool connection_step(struct http_connection *connection)
{
    if (connection->broken)
        return false;
    if (connection->exchange.active)
        return step_exchange(connection);
    if (connection->state != CONNECTION_OPEN)
        return false;
    return connection->discarding ? step_discard(connection) : step_head(connection);
}
