/* SPDX-License-Identifier: Apache-2.0 */
#include "net/http_call.h"

#include "base/alloc.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>

enum {
    SEND_QUEUE_MAXIMUM = 1024 * 1024 * 1024,
    AGAIN_MAXIMUM = 64 * 1024,
    LOW_WATER = 128 * 1024,
    ROUNDS_PER_TURN = 16,
};

/* --- states ------------------------------------------------------------------------------- */

#define TO(state) (1U << (state))
#define TO_END (TO(CALL_FINISHED) | TO(CALL_CANCELLED))

static const unsigned successors[] = {
    [CALL_CONNECTING] = TO(CALL_CONNECTING) | TO(CALL_BACKLOGGED) | TO(CALL_ASKING) | TO_END,
    [CALL_BACKLOGGED] = TO(CALL_CONNECTING) | TO_END,
    [CALL_ASKING] = TO(CALL_CONNECTING) | TO(CALL_ANSWERED) | TO_END,
    [CALL_ANSWERED] = TO(CALL_RAW) | TO_END,
    [CALL_RAW] = TO_END,
    [CALL_FINISHED] = TO(CALL_CANCELLED),
    [CALL_CANCELLED] = TO(CALL_CANCELLED),
};

void call_enter(struct http_call *call, enum call_state state)
{
    assert(successors[call->state] & TO(state));
    call->state = state;
}

/* Whether the call is connected and has not ended. */
static bool call_is_open(const struct http_call *call)
{
    return call->state == CALL_ASKING || call->state == CALL_ANSWERED || call->state == CALL_RAW;
}

/* --- the end ------------------------------------------------------------------------------- */

void call_free(struct http_call *call)
{
    struct loop *loop = call->client->loop;

    loop_undefer(loop, &call->work);
    timer_stop(&call->connection.timer);
    io_watch_stop(&call->connection.socket);
    fd_close(call->connection.socket.fd);
    list_remove(&call->link);
    send_queue_fini(&call->request.queue);
    buffer_fini(&call->request.again);
    buffer_fini(&call->answer.unparsed);
    http_parser_free(call->answer.parser);
    free(call);
}

void call_finish(struct http_call *call, const struct error *err)
{
    if (call->state >= CALL_FINISHED)
        return;
    call_enter(call, CALL_FINISHED);
    timer_stop(&call->connection.timer);
    if (err)
        call->err = *err;
    call_wake(call);
}

static void call_fail(struct http_call *call, enum error_code code, const char *what)
{
    struct error err;

    error_set(&err, code, "%s %s", call->client->url, what);
    call_finish(call, &err);
}

/* The connection is given back before on_end, which may well start the next call. */
static void call_end(struct http_call *call)
{
    struct http_call_handler handler = call->handler;

    io_watch_stop(&call->connection.socket);
    call_give_back(call);
    call->settling = true;
    handler.on_end(call, call->err.code ? &call->err : NULL);
    call_free(call);
}

/* --- reading the answer: each step returns whether it got anywhere -------------------------- */

bool call_may_repeat(const struct http_call *call)
{
    return call->request.method != HTTP_POST && call->request.method != HTTP_PATCH &&
           call->request.again.length;
}

/* A connection that had idled may have been closed by the server at the same moment. A request that
 * may be repeated is sent once more on a new connection. */
static bool call_retry(struct http_call *call)
{
    if (!call->connection.reused || !call_may_repeat(call) || call->state != CALL_ASKING ||
        !http_parser_is_idle(call->answer.parser))
        return false;
    io_watch_stop(&call->connection.socket);
    fd_close(steal_fd(&call->connection.socket.fd));
    call->connection.reused = false;
    call->answer.input = INPUT_OPEN;
    call->request.sending = SENDING_ENDED;
    send_queue_fini(&call->request.queue);
    (void)send_queue_append(&call->request.queue, call->request.again.data,
                            call->request.again.length);
    call_connect(call);
    return true;
}

static void call_fail_unanswered(struct http_call *call)
{
    call_fail(call, ERR_UNAVAILABLE, "closed the connection without an answer");
    error_hint(&call->err, "%s", tls_failure(call->client->tls));
}

static bool step_end_of_input(struct http_call *call)
{
    bool is_idle = http_parser_is_idle(call->answer.parser);

    if (call->answer.input == INPUT_ENDED && http_parser_eof(call->answer.parser) == HTTP_DONE)
        call_finish(call, NULL);
    else if (!is_idle)
        call_fail(call, ERR_BACKEND, "cut its answer off");
    else if (!call_retry(call))
        call_fail_unanswered(call);
    return true;
}

static void parser_expect_answer(struct http_call *call)
{
    if (call->request.method == HTTP_HEAD)
        http_parser_expect_no_body(call->answer.parser);
}

static void answer_become_raw(struct http_call *call)
{
    call_enter(call, CALL_RAW);
    if (call->request.sending != SENDING_FAILED)
        call->request.sending = SENDING_WANTS_ROOM;
}

static void answer_take_head(struct http_call *call)
{
    const struct http_head *head = http_parser_head(call->answer.parser);

    if (head->status < 200 && head->status != 101)
        return;
    call->answer.status = head->status;
    call_enter(call, CALL_ANSWERED);
    if (call->handler.on_head)
        call->handler.on_head(call, head);
    if (call->state == CALL_ANSWERED && call->request.upgrades && head->status == 200 &&
        !head->chunked && head->content_length < 0)
        answer_become_raw(call);
}

static void answer_take_end(struct http_call *call)
{
    if (call->state == CALL_ASKING) {
        http_parser_next(call->answer.parser);
        parser_expect_answer(call);
    } else if (call->state == CALL_ANSWERED && call->answer.status == 101) {
        answer_become_raw(call);
    } else {
        call_finish(call, NULL);
    }
}

static bool step_answer(struct http_call *call)
{
    const uint8_t *body;
    size_t length;
    size_t used = 0;
    enum http_event event = http_parser_feed(call->answer.parser, call->answer.data,
                                             call->answer.left, &used, &body, &length);

    if (used) {
        call->answer.data += used;
        call->answer.left -= used;
    }
    switch (event) {
    case HTTP_HEAD_DONE:
        answer_take_head(call);
        return true;
    case HTTP_BODY:
        call->handler.on_data(call, body, length);
        return true;
    case HTTP_DONE:
        answer_take_end(call);
        return true;
    case HTTP_NEED_MORE:
        return call->answer.input != INPUT_OPEN && step_end_of_input(call);
    case HTTP_BAD:
        break;
    }
    call_fail(call, ERR_BACKEND, "sent a malformed answer");
    error_hint(&call->err, "%s", http_parser_reason(call->answer.parser));
    return true;
}

static bool step_raw(struct http_call *call)
{
    const uint8_t *data = call->answer.data;
    size_t length = call->answer.left;

    call->answer.left = 0;
    if (length)
        call->handler.on_data(call, data, length);
    else if (call->answer.input == INPUT_RESET)
        call_fail(call, ERR_BACKEND, "cut the stream off");
    else if (call->answer.input == INPUT_ENDED)
        call_finish(call, NULL);
    return length || call->answer.input != INPUT_OPEN;
}

/* Whether on_writable is due. */
static bool call_has_room(const struct http_call *call)
{
    return call_is_open(call) && call->request.sending == SENDING_WANTS_ROOM &&
           call->request.queue.pending < LOW_WATER;
}

static bool call_step(struct http_call *call)
{
    if (!call_is_open(call))
        return false;
    if (call_has_room(call)) {
        call->request.sending = SENDING_OPEN;
        if (call->handler.on_writable)
            call->handler.on_writable(call);
        return true;
    }
    if (call->answer.paused)
        return false;
    return call->state == CALL_RAW ? step_raw(call) : step_answer(call);
}

/* --- settling ------------------------------------------------------------------------------ */

/* A response may come although the request could not be sent completely; only reading shows
 * that. */
static void call_flush(struct http_call *call)
{
    if (!call->request.queue.pending || call_is_connecting(call) || call->err.code ||
        call->request.sending == SENDING_FAILED)
        return;
    if (send_queue_flush(&call->request.queue, call->connection.socket.fd) == SEND_QUEUE_BROKEN) {
        call->request.sending = SENDING_FAILED;
        send_queue_fini(&call->request.queue);
    }
    if (call->state == CALL_RAW && call->request.sending == SENDING_ENDED &&
        !call->request.queue.pending)
        (void)shutdown(call->connection.socket.fd, SHUT_WR);
}

static void call_run(struct http_call *call)
{
    for (int round = 0; round < ROUNDS_PER_TURN; round++) {
        bool moved = false;

        while (call_step(call))
            moved = true;
        call_flush(call);
        if (!moved && !call_has_room(call))
            return;
    }
}

static void input_load(struct http_call *call)
{
    if (call->answer.data)
        return;
    call->answer.data = call->answer.unparsed.data;
    call->answer.left = call->answer.unparsed.length;
}

static void input_store(struct http_call *call)
{
    assert(!call->answer.unparsed.length || call->answer.left <= call->answer.unparsed.length);
    if (call->answer.unparsed.length)
        buffer_consume(&call->answer.unparsed, call->answer.unparsed.length - call->answer.left);
    else
        (void)buffer_append(&call->answer.unparsed, call->answer.data, call->answer.left);
    call->answer.data = NULL;
    call->answer.left = 0;
}

static void on_call_ready(struct io_watch *watch, unsigned events);

static void call_wait(struct http_call *call)
{
    bool reads = call_is_open(call) && call->answer.input == INPUT_OPEN && !call->answer.paused;
    bool writes = call_is_connecting(call) ? call->state == CALL_CONNECTING
                                           : call->request.queue.pending || call_has_room(call);
    unsigned events = (reads ? IO_READ : 0U) | (writes ? IO_WRITE : 0U);

    if (call->connection.socket.fd < 0 || !events)
        io_watch_stop(&call->connection.socket);
    else if (events != call->connection.socket.events)
        io_watch_start(&call->connection.socket, call->client->loop, call->connection.socket.fd,
                       events, on_call_ready);
}

static void call_settle(struct http_call *call)
{
    assert(!call->settling);
    call->settling = true;
    input_load(call);
    call_run(call);
    input_store(call);
    call->settling = false;
    if (call->state == CALL_CANCELLED)
        call_free(call);
    else if (call->state == CALL_FINISHED)
        call_end(call);
    else
        call_wait(call);
}

static void on_work(struct deferred *deferred)
{
    call_settle(container_of(deferred, struct http_call, work));
}

void call_wake(struct http_call *call)
{
    if (!call->settling)
        loop_defer(call->client->loop, &call->work, on_work);
}

static void call_read(struct http_call *call)
{
    uint8_t *scratch = call->client->scratch;
    ssize_t length = recv(call->connection.socket.fd, scratch, HTTP_CALL_INPUT_BYTES, MSG_DONTWAIT);

    if (length == 0)
        call->answer.input = INPUT_ENDED;
    else if (length < 0 && errno != EAGAIN && errno != EINTR)
        call->answer.input = INPUT_RESET;
    if (length <= 0)
        return;
    if (call->answer.unparsed.length) {
        (void)buffer_append(&call->answer.unparsed, scratch, (size_t)length);
    } else {
        call->answer.data = scratch;
        call->answer.left = (size_t)length;
    }
}

static void on_call_ready(struct io_watch *watch, unsigned events)
{
    struct http_call *call = container_of(watch, struct http_call, connection.socket);

    if (call_is_connecting(call))
        call_connect_ready(call);
    else if (events & IO_READ)
        call_read(call);
    call_settle(call);
}

void call_connected(struct http_call *call)
{
    call_enter(call, CALL_ASKING);
    timer_stop(&call->connection.timer);
    call_wake(call);
}

/* --- the request --------------------------------------------------------------------------- */

static bool headers_have(const char *const *headers, const char *name)
{
    for (; headers && headers[0]; headers += 2) {
        if (strcasecmp(headers[0], name) == 0)
            return true;
    }
    return false;
}

static void put_request_head(struct buffer *head, struct http_call *call, const char *target,
                             const char *content_type, int64_t body_length,
                             const char *const *extra_headers)
{
    struct http_client *client = call->client;
    char length[24];

    buffer_appendf(head, "%s %s HTTP/1.1\r\n", http_method_name(call->request.method), target);
    if (!headers_have(extra_headers, "Host"))
        http_put_header(head, "Host", client->host);
    if (content_type)
        http_put_header(head, "Content-Type", content_type);
    snprintf(length, sizeof(length), "%lld", (long long)body_length);
    if (call->request.chunked)
        http_put_header(head, "Transfer-Encoding", "chunked");
    else if (body_length > 0 || call->request.method == HTTP_POST ||
             call->request.method == HTTP_PUT || call->request.method == HTTP_PATCH)
        http_put_header(head, "Content-Length", length);
    buffer_append(head, client->headers.data, client->headers.length);
    for (; extra_headers && extra_headers[0]; extra_headers += 2)
        http_put_header(head, extra_headers[0], extra_headers[1]);
    buffer_append(head, "\r\n", 2);
}

static bool target_is_valid(const char *target)
{
    if (*target != '/')
        return false;
    for (; *target; target++) {
        if ((uint8_t)*target <= ' ' || (uint8_t)*target >= 0x7f)
            return false;
    }
    return true;
}

static void call_fill(struct http_call *call, const char *target, const char *content_type,
                      const void *body, int64_t body_length, const char *const *extra_headers)
{
    scoped(buffer_fini) struct buffer head = BUFFER_INIT(1024 * 1024);
    size_t length = body && body_length > 0 ? (size_t)body_length : 0;

    put_request_head(&head, call, target, content_type, body_length, extra_headers);
    if (head.overflowed || send_queue_append(&call->request.queue, head.data, head.length) < 0 ||
        send_queue_append(&call->request.queue, body, length) < 0)
        call_fail(call, ERR_TOO_LARGE, "is asked with too large a request");
    if (call->request.streamed || buffer_append(&call->request.again, head.data, head.length) < 0 ||
        buffer_append(&call->request.again, body, length) < 0)
        buffer_fini(&call->request.again);
}

struct http_call *http_client_request(struct http_client *client, enum http_method method,
                                      const char *target, const char *content_type,
                                      const void *body, int64_t body_length,
                                      const char *const *extra_headers,
                                      const struct http_call_handler *handler, void *user)
{
    struct http_call *call = xnew(struct http_call);

    assert(handler->on_data && handler->on_end);
    call->client = client;
    call->handler = *handler;
    call->user = user;
    call->request.method = method;
    call->connection.socket.fd = -1;
    call->request.streamed = body_length < 0 || (!body && body_length > 0);
    call->request.chunked = body_length < 0;
    call->request.upgrades = headers_have(extra_headers, "Upgrade");
    call->request.sending = call->request.streamed ? SENDING_WANTS_ROOM : SENDING_ENDED;
    call->request.again = BUFFER_INIT(AGAIN_MAXIMUM);
    call->answer.unparsed = BUFFER_INIT(2 * HTTP_CALL_INPUT_BYTES);
    call->answer.parser = http_parser_new(HTTP_KIND_RESPONSE, NULL);
    parser_expect_answer(call);
    send_queue_init(&call->request.queue, SEND_QUEUE_MAXIMUM);
    list_append(&client->calls, &call->link);
    if (!target_is_valid(target)) {
        call_fail(call, ERR_INVALID, "is asked for a malformed target");
        return call;
    }
    call_fill(call, target, content_type, body, body_length, extra_headers);
    if (call->state == CALL_CONNECTING)
        call_connect(call);
    return call;
}

void *http_call_user(const struct http_call *call)
{
    return call->user;
}

int http_call_status(const struct http_call *call)
{
    return call->answer.status;
}

void http_call_write(struct http_call *call, const void *data, size_t length)
{
    struct call_request *request = &call->request;
    bool chunked = request->chunked && call->state != CALL_RAW;
    char size[24];
    int digits = snprintf(size, sizeof(size), "%zx\r\n", length);

    assert(call->state >= CALL_RAW || (request->streamed && request->sending != SENDING_ENDED));
    if (!length || call->state >= CALL_FINISHED || request->sending == SENDING_FAILED)
        return;
    if ((chunked && send_queue_append(&request->queue, size, (size_t)digits) < 0) ||
        send_queue_append(&request->queue, data, length) < 0 ||
        (chunked && send_queue_append(&request->queue, "\r\n", 2) < 0))
        call_fail(call, ERR_TOO_LARGE, "does not read as fast as it is written to");
    if (request->sending == SENDING_OPEN)
        request->sending = SENDING_WANTS_ROOM;
    call_wake(call);
}

void http_call_end(struct http_call *call)
{
    struct call_request *request = &call->request;
    bool is_raw = call->state == CALL_RAW;

    if (request->sending == SENDING_ENDED)
        return;
    if (request->sending != SENDING_FAILED) {
        request->sending = SENDING_ENDED;
        if (request->chunked && call->state < CALL_RAW)
            (void)send_queue_append(&request->queue, "0\r\n\r\n", 5);
    }
    if (is_raw && !request->queue.pending)
        (void)shutdown(call->connection.socket.fd, SHUT_WR);
    call_wake(call);
}

int http_call_release(struct http_call *call, struct buffer *rest)
{
    int fd = call->connection.socket.fd;

    assert(call->state == CALL_RAW);
    input_load(call);
    (void)buffer_append(rest, call->answer.data, call->answer.left);
    call->answer.left = 0;
    io_watch_stop(&call->connection.socket);
    call->connection.socket.fd = -1;
    http_call_cancel(call);
    return fd;
}

size_t http_call_pending(const struct http_call *call)
{
    return call->request.queue.pending;
}

void http_call_pause(struct http_call *call)
{
    call->answer.paused = true;
}

void http_call_resume(struct http_call *call)
{
    call->answer.paused = false;
    call_wake(call);
}

void http_call_cancel(struct http_call *call)
{
    call_enter(call, CALL_CANCELLED);
    if (!call->settling)
        call_free(call);
}
