#include "net/http_call.h"

#include "base/alloc.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

enum {
    SEND_QUEUE_MAXIMUM = 1024 * 1024 * 1024,
    AGAIN_MAXIMUM = 64 * 1024,
    LOW_WATER = 128 * 1024,
    ROUNDS_PER_TURN = 16,
};

/* --- the end ------------------------------------------------------------------------------- */

void call_free(struct http_call *call)
{
    struct loop *loop = call->client->loop;

    loop_undefer(loop, &call->work);
    timer_stop(&call->timer);
    io_watch_stop(&call->socket);
    fd_close(call->socket.fd);
    list_remove(&call->link);
    send_queue_fini(&call->send_queue);
    buffer_fini(&call->again);
    buffer_fini(&call->input);
    http_parser_free(call->parser);
    free(call);
}

void call_finish(struct http_call *call, const struct error *err)
{
    if (call->finished)
        return;
    call->finished = true;
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

    io_watch_stop(&call->socket);
    call_give_back(call);
    call->settling = true;
    handler.on_end(call, call->err.code ? &call->err : NULL);
    call_free(call);
}

/* --- reading the answer: each step returns whether it got anywhere -------------------------- */

/* A connection that had idled may have been closed by the server at the same moment. What changes
 * nothing, or nothing more when repeated, is sent once more on a fresh one. */
static bool call_retry(struct http_call *call)
{
    bool may_repeat = call->method != HTTP_POST && call->method != HTTP_PATCH;

    if (!call->reused || !may_repeat || !call->again.length || call->has_head ||
        !http_parser_is_idle(call->parser))
        return false;
    io_watch_stop(&call->socket);
    fd_close(steal_fd(&call->socket.fd));
    call->reused = false;
    call->peer_ended = call->peer_reset = false;
    call->write_failed = false;
    send_queue_fini(&call->send_queue);
    (void)send_queue_append(&call->send_queue, call->again.data, call->again.length);
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
    bool is_idle = http_parser_is_idle(call->parser);

    if (!call->peer_reset && http_parser_eof(call->parser) == HTTP_DONE)
        call_finish(call, NULL);
    else if (!is_idle)
        call_fail(call, ERR_BACKEND, "cut its answer off");
    else if (!call_retry(call))
        call_fail_unanswered(call);
    return true;
}

static void parser_expect_answer(struct http_call *call)
{
    if (call->method == HTTP_HEAD)
        http_parser_expect_no_body(call->parser);
}

static void answer_take_head(struct http_call *call)
{
    const struct http_head *head = http_parser_head(call->parser);

    if (head->status < 200 && head->status != 101)
        return;
    call->status = head->status;
    call->has_head = true;
    if (call->handler.on_head)
        call->handler.on_head(call, head);
}

static void answer_take_end(struct http_call *call)
{
    if (!call->has_head) {
        http_parser_next(call->parser);
        parser_expect_answer(call);
    } else if (call->status == 101) {
        call->raw = true;
        call->body_ended = false;
        call->wants_room = true;
    } else {
        call_finish(call, NULL);
    }
}

static bool step_answer(struct http_call *call)
{
    const uint8_t *body;
    size_t length;
    size_t used = 0;
    enum http_event event =
        http_parser_feed(call->parser, call->data, call->left, &used, &body, &length);

    if (used) {
        call->data += used;
        call->left -= used;
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
        return call->peer_ended && step_end_of_input(call);
    case HTTP_BAD:
        break;
    }
    call_fail(call, ERR_BACKEND, "sent a malformed answer");
    error_hint(&call->err, "%s", http_parser_reason(call->parser));
    return true;
}

static bool step_raw(struct http_call *call)
{
    const uint8_t *data = call->data;
    size_t length = call->left;

    call->left = 0;
    if (length)
        call->handler.on_data(call, data, length);
    else if (call->peer_reset)
        call_fail(call, ERR_BACKEND, "cut the stream off");
    else if (call->peer_ended)
        call_finish(call, NULL);
    return length || call->peer_ended;
}

/* Whether on_writable is due. */
static bool call_has_room(const struct http_call *call)
{
    return call->wants_room && !call->body_ended && !call->write_failed && !call->connecting &&
           call->send_queue.pending < LOW_WATER;
}

static bool call_step(struct http_call *call)
{
    if (call->finished || call->cancelled || call->connecting)
        return false;
    if (call_has_room(call)) {
        call->wants_room = false;
        if (call->handler.on_writable)
            call->handler.on_writable(call);
        return true;
    }
    if (call->paused)
        return false;
    return call->raw ? step_raw(call) : step_answer(call);
}

/* --- settling ------------------------------------------------------------------------------ */

/* An answer may come although the request could not be sent to its end; only reading tells. */
static void call_flush(struct http_call *call)
{
    if (!call->send_queue.pending || call->connecting || call->write_failed)
        return;
    if (send_queue_flush(&call->send_queue, call->socket.fd) == SEND_QUEUE_BROKEN) {
        call->write_failed = true;
        send_queue_fini(&call->send_queue);
    }
    if (call->raw && call->body_ended && !call->send_queue.pending)
        (void)shutdown(call->socket.fd, SHUT_WR);
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
    if (call->data)
        return;
    call->data = call->input.data;
    call->left = call->input.length;
}

static void input_store(struct http_call *call)
{
    if (call->input.length)
        buffer_consume(&call->input, call->input.length - call->left);
    else
        (void)buffer_append(&call->input, call->data, call->left);
    call->data = NULL;
    call->left = 0;
}

static void on_call_ready(struct io_watch *watch, unsigned events);

static void call_wait(struct http_call *call)
{
    bool reads = !call->connecting && !call->peer_ended && !call->paused;
    bool writes = call->connecting ? !call->backlogged
                                   : call->send_queue.pending || call_has_room(call);
    unsigned events = (reads ? IO_READ : 0U) | (writes ? IO_WRITE : 0U);

    if (call->socket.fd < 0 || !events)
        io_watch_stop(&call->socket);
    else if (events != call->socket.events)
        io_watch_start(&call->socket, call->client->loop, call->socket.fd, events, on_call_ready);
}

static void call_settle(struct http_call *call)
{
    call->settling = true;
    input_load(call);
    call_run(call);
    input_store(call);
    call->settling = false;
    if (call->cancelled)
        call_free(call);
    else if (call->finished)
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
    ssize_t length = recv(call->socket.fd, scratch, HTTP_CALL_INPUT_BYTES, MSG_DONTWAIT);

    call->peer_reset = length < 0 && errno != EAGAIN && errno != EINTR;
    call->peer_ended = length == 0 || call->peer_reset;
    if (length <= 0)
        return;
    if (call->input.length) {
        (void)buffer_append(&call->input, scratch, (size_t)length);
    } else {
        call->data = scratch;
        call->left = (size_t)length;
    }
}

static void on_call_ready(struct io_watch *watch, unsigned events)
{
    struct http_call *call = container_of(watch, struct http_call, socket);

    if (call->connecting)
        call_connect_ready(call);
    else if (events & IO_READ)
        call_read(call);
    call_settle(call);
}

void call_connected(struct http_call *call)
{
    call->connecting = false;
    timer_stop(&call->timer);
    call_wake(call);
}

/* --- the request --------------------------------------------------------------------------- */

static void put_request_head(struct buffer *head, struct http_call *call, const char *target,
                             const char *content_type, int64_t body_length,
                             const char *const *extra_headers)
{
    struct http_client *client = call->client;
    char length[24];

    buffer_appendf(head, "%s %s HTTP/1.1\r\n", http_method_name(call->method), target);
    http_put_header(head, "Host", client->host);
    if (content_type)
        http_put_header(head, "Content-Type", content_type);
    snprintf(length, sizeof(length), "%lld", (long long)body_length);
    if (call->streamed)
        http_put_header(head, "Transfer-Encoding", "chunked");
    else if (body_length > 0 || call->method == HTTP_POST || call->method == HTTP_PUT ||
             call->method == HTTP_PATCH)
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
    size_t length = body_length > 0 ? (size_t)body_length : 0;

    put_request_head(&head, call, target, content_type, body_length, extra_headers);
    if (head.overflowed || send_queue_append(&call->send_queue, head.data, head.length) < 0 ||
        send_queue_append(&call->send_queue, body, length) < 0)
        call_fail(call, ERR_TOO_LARGE, "is asked with too large a request");
    if (call->streamed || buffer_append(&call->again, head.data, head.length) < 0 ||
        buffer_append(&call->again, body, length) < 0)
        buffer_fini(&call->again);
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
    call->method = method;
    call->socket.fd = -1;
    call->streamed = call->wants_room = body_length < 0;
    call->body_ended = !call->streamed;
    call->again = BUFFER_INIT(AGAIN_MAXIMUM);
    call->input = BUFFER_INIT(2 * HTTP_CALL_INPUT_BYTES);
    call->parser = http_parser_new(HTTP_KIND_RESPONSE, NULL);
    parser_expect_answer(call);
    send_queue_init(&call->send_queue, SEND_QUEUE_MAXIMUM);
    list_append(&client->calls, &call->link);
    if (!target_is_valid(target)) {
        call_fail(call, ERR_INVALID, "is asked for a malformed target");
        return call;
    }
    call_fill(call, target, content_type, body, body_length, extra_headers);
    if (!call->finished)
        call_connect(call);
    return call;
}

void *http_call_user(const struct http_call *call)
{
    return call->user;
}

int http_call_status(const struct http_call *call)
{
    return call->status;
}

void http_call_write(struct http_call *call, const void *data, size_t length)
{
    bool chunked = call->streamed && !call->raw;
    char size[24];
    int digits = snprintf(size, sizeof(size), "%zx\r\n", length);

    assert(call->raw || (call->streamed && !call->body_ended));
    if (!length || call->finished || call->write_failed)
        return;
    if ((chunked && send_queue_append(&call->send_queue, size, (size_t)digits) < 0) ||
        send_queue_append(&call->send_queue, data, length) < 0 ||
        (chunked && send_queue_append(&call->send_queue, "\r\n", 2) < 0))
        call_fail(call, ERR_TOO_LARGE, "does not read as fast as it is written to");
    call->wants_room = true;
    call_wake(call);
}

void http_call_end(struct http_call *call)
{
    bool chunked = call->streamed && !call->raw;

    if (call->body_ended && !call->raw)
        return;
    call->body_ended = true;
    if (chunked && !call->write_failed)
        (void)send_queue_append(&call->send_queue, "0\r\n\r\n", 5);
    if (call->raw && !call->send_queue.pending)
        (void)shutdown(call->socket.fd, SHUT_WR);
    call_wake(call);
}

size_t http_call_pending(const struct http_call *call)
{
    return call->send_queue.pending;
}

void http_call_pause(struct http_call *call)
{
    call->paused = true;
}

void http_call_resume(struct http_call *call)
{
    call->paused = false;
    call_wake(call);
}

void http_call_cancel(struct http_call *call)
{
    call->cancelled = true;
    if (!call->settling)
        call_free(call);
}
