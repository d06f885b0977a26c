/* SPDX-License-Identifier: Apache-2.0 */
#include "e2b/envd/rpc.h"

#include "base/alloc.h"
#include "base/str.h"
#include "core/core.h"
#include "core/metrics.h"
#include "wire/base64.h"
#include "wire/http/gzip.h"

#include <assert.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

enum {
    KEEPALIVE_S = 90,
    KEEPALIVE_MAXIMUM_S = 3600,
    MESSAGE_MAXIMUM = REQUEST_BODY_MAXIMUM,
    STREAM_MESSAGE_MAXIMUM = 4 * 1024 * 1024, /* of one envelope of many */
};

/* --- life ------------------------------------------------------------------------------------ */

static void on_gone(struct request *request)
{
    struct rpc *rpc = request->state;

    timer_stop(&rpc->keepalive);
    timer_stop(&rpc->deadline);
    if (rpc->release)
        rpc->release(rpc);
    json_decref(rpc->input);
    buffer_fini(&rpc->received);
    free(rpc);
}

static void on_drain(struct http_exchange *exchange)
{
    struct request *request = http_exchange_user(exchange);
    struct rpc *rpc = request->state;

    if (rpc->on_room && rpc->state_of_answer == RPC_STREAMING)
        rpc->on_room(rpc);
}

static void count_answer(const struct rpc *rpc, int status)
{
    metrics_add(rpc->request->core->metrics, METRIC_HTTP_REQUESTS, (unsigned)status / 100, 1);
}

/* --- answers --------------------------------------------------------------------------------- */

/* The message as the client wants it; `json` or `binary`, which it fills. NULL when it is too
 * large. */
static struct buffer *encode(const struct rpc *rpc, struct buffer *json, struct buffer *binary)
{
    scoped(json_decref) json_t *message = NULL;

    if (json->overflowed)
        return NULL;
    if (rpc->type.codec == CONNECT_JSON)
        return json;
    message = json_read(json->data, json->length, NULL);
    if (!message || protobuf_encode(rpc->method->output, message, binary, NULL) < 0)
        return NULL;
    return binary;
}

static void send_end(struct rpc *rpc, enum connect_code code, const char *message)
{
    scoped(buffer_fini) struct buffer bytes = BUFFER_INIT(32 * 1024);

    rpc_start(rpc);
    (void)connect_end_append(&bytes, code, message);
    http_respond_write(rpc->request->exchange, bytes.data, bytes.length);
    http_respond_end(rpc->request->exchange);
    timer_stop(&rpc->keepalive);
    rpc->state_of_answer = RPC_OVER;
}

static void fail_call(struct rpc *rpc, enum connect_code code, const char *message)
{
    scoped(buffer_fini) struct buffer text = BUFFER_INIT(16 * 1024);
    struct json_writer json = JSON_WRITER(&text);
    int status = connect_code_status(code);

    connect_put_error(&json, NULL, code, message);
    count_answer(rpc, status);
    rpc->state_of_answer = RPC_OVER;
    http_respond(rpc->request->exchange, status, "application/json", text.data, text.length);
}

void rpc_fail(struct rpc *rpc, enum connect_code code, const char *format, ...)
{
    char message[1024];
    va_list args;

    if (rpc->state_of_answer == RPC_OVER || !rpc->request->exchange)
        return;
    va_start(args, format);
    vsnprintf(message, sizeof(message), format, args);
    va_end(args);
    if (rpc->type.is_stream)
        send_end(rpc, code, message);
    else
        fail_call(rpc, code, message);
}

void rpc_fail_error(struct rpc *rpc, const struct error *err)
{
    rpc_fail(rpc, connect_code_of(err), "%s%s%s", err->message, *err->hint ? "; " : "", err->hint);
}

void rpc_abort(struct rpc *rpc)
{
    if (rpc->state_of_answer == RPC_OVER)
        return;
    rpc->state_of_answer = RPC_OVER;
    timer_stop(&rpc->keepalive);
    http_exchange_reset(rpc->request->exchange);
}

void rpc_reply(struct rpc *rpc, struct buffer *json)
{
    scoped(buffer_fini) struct buffer binary = BUFFER_INIT(REQUEST_REPLY_MAXIMUM);
    const struct buffer *body = encode(rpc, json, &binary);

    if (rpc->state_of_answer == RPC_OVER)
        return;
    if (!body) {
        rpc_fail(rpc, CONNECT_RESOURCE_EXHAUSTED, "the answer is too large");
    } else if (rpc->type.is_stream) { /* one message, because the client sent a stream */
        rpc_send(rpc, json);
        rpc_end(rpc);
    } else {
        count_answer(rpc, 200);
        rpc->state_of_answer = RPC_OVER;
        http_respond(rpc->request->exchange, 200, connect_type_name(rpc->type),
                     body->length ? (const void *)body->data : "", body->length);
    }
}

void rpc_reply_empty(struct rpc *rpc)
{
    scoped(buffer_fini) struct buffer text = BUFFER_INIT(8);

    (void)buffer_append_text(&text, "{}");
    rpc_reply(rpc, &text);
}

/* --- streams out ----------------------------------------------------------------------------- */

static void on_keepalive(struct timer *timer)
{
    struct rpc *rpc = container_of(timer, struct rpc, keepalive);
    scoped(buffer_fini) struct buffer text = BUFFER_INIT(256);

    if (rpc->method->keepalive && rpc_has_room(rpc)) {
        (void)buffer_append_text(&text, rpc->method->keepalive);
        rpc_send(rpc, &text);
    }
    timer_arm_in(&rpc->keepalive, rpc->keepalive_us);
}

void rpc_start(struct rpc *rpc)
{
    if (rpc->state_of_answer != RPC_OPEN)
        return;
    rpc->state_of_answer = RPC_STREAMING;
    count_answer(rpc, 200);
    http_respond_on_drain(rpc->request->exchange, on_drain);
    http_respond_start(rpc->request->exchange, 200, connect_type_name(rpc->type), -1);
    timer_init(&rpc->keepalive, rpc->request->core->loop, on_keepalive);
    timer_arm_in(&rpc->keepalive, rpc->keepalive_us);
}

void rpc_send(struct rpc *rpc, struct buffer *json)
{
    scoped(buffer_fini) struct buffer binary = BUFFER_INIT(REQUEST_REPLY_MAXIMUM);
    scoped(buffer_fini) struct buffer bytes = BUFFER_INIT(REQUEST_REPLY_MAXIMUM);
    const struct buffer *message = encode(rpc, json, &binary);

    assert(rpc->state_of_answer == RPC_OPEN || rpc->state_of_answer == RPC_STREAMING);
    if (!message || connect_envelope_append(&bytes, 0, message->data, message->length) < 0) {
        rpc_fail(rpc, CONNECT_RESOURCE_EXHAUSTED, "the answer is too large");
        return;
    }
    rpc_start(rpc);
    http_respond_write(rpc->request->exchange, bytes.data, bytes.length);
    timer_arm_in(&rpc->keepalive, rpc->keepalive_us);
}

bool rpc_has_room(const struct rpc *rpc)
{
    return http_respond_pending(rpc->request->exchange) < HTTP_HIGH_WATER;
}

void rpc_end(struct rpc *rpc)
{
    if (rpc->state_of_answer != RPC_OVER)
        send_end(rpc, CONNECT_OK, NULL);
}

/* --- messages in ----------------------------------------------------------------------------- */

static json_t *read_message(const struct body_format *format, const void *data, size_t length,
                            struct error *err)
{
    scoped(json_decref) json_t *raw = NULL;

    if (format->is_binary)
        return protobuf_decode(format->schema, data, length, err);
    raw = length ? json_read_request(data, length, err) : json_object();
    return raw ? protobuf_canonical(format->schema, raw, err) : NULL;
}

/* The same with its compression. */
static json_t *read_bytes(const struct body_format *format, const void *data, size_t length,
                          bool is_compressed, struct error *err)
{
    scoped(buffer_fini) struct buffer plain = BUFFER_INIT(MESSAGE_MAXIMUM);

    if (!is_compressed || length == 0)
        return read_message(format, length ? data : "", length, err);
    if (gunzip_message(data, length, &plain) == 0)
        return read_message(format, plain.data, plain.length, err);
    error_set(err, ERR_INVALID, "the message is not gzip, or too large");
    return NULL;
}

/* A server stream has exactly one message; its envelope is the body. */
static json_t *read_envelope(const struct body_format *format, const struct buffer *body,
                             struct error *err)
{
    struct connect_envelope envelope = { 0 };
    long used = connect_envelope_decode(body->data, body->length, MESSAGE_MAXIMUM, &envelope);

    if (used <= 0 || (size_t)used != body->length || envelope.flags & CONNECT_END) {
        error_set(err, ERR_INVALID, "the body must be one envelope with one message");
        return NULL;
    }
    if (envelope.flags & CONNECT_COMPRESSED && !format->is_compressed) {
        error_set(err, ERR_INVALID, "a compressed message needs Connect-Content-Encoding: gzip");
        return NULL;
    }
    return read_bytes(format, envelope.message, envelope.length,
                      envelope.flags & CONNECT_COMPRESSED, err);
}

static json_t *read_body(const struct body_format *format, const struct buffer *body,
                         struct error *err)
{
    if (format->is_envelope)
        return read_envelope(format, body, err);
    return read_bytes(format, body->data, body->length, format->is_compressed, err);
}

static bool header_is(const struct rpc *rpc, const char *name, const char *value)
{
    const char *text = request_header(rpc->request, name);

    return text && strcasecmp(text, value) == 0;
}

static struct body_format format_of(const struct rpc *rpc)
{
    const char *header = rpc->type.is_stream ? "connect-content-encoding" : "content-encoding";

    return (struct body_format){
        .read = read_body,
        .schema = rpc->method->input,
        .is_binary = rpc->type.codec == CONNECT_BINARY,
        .is_envelope = rpc->type.is_stream,
        .is_compressed = header_is(rpc, header, "gzip"),
    };
}

static void take_body(struct request *request, json_t *document, const struct error *err)
{
    struct rpc *rpc = request->state;

    rpc->state_of_answer = RPC_OPEN;
    rpc->input = document;
    if (document)
        rpc->method->handle(rpc);
    else
        rpc_fail(rpc, CONNECT_INVALID_ARGUMENT, "%s", err->message);
}

static void on_body(struct http_exchange *exchange, struct buffer *body)
{
    struct request *request = http_exchange_user(exchange);
    struct body_format format = format_of(request->state);

    request_parse_body_as(request, body, &format, take_body);
}

/* --- streams in ------------------------------------------------------------------------------ */

void rpc_pause(struct rpc *rpc)
{
    rpc->is_paused = true;
    http_exchange_pause_body(rpc->request->exchange);
}

static int take_next(struct rpc *rpc)
{
    struct body_format format = format_of(rpc);
    struct connect_envelope envelope;
    long used = connect_envelope_decode(rpc->received.data, rpc->received.length,
                                        STREAM_MESSAGE_MAXIMUM, &envelope);
    struct error err = { 0 };

    if (used < 0)
        rpc_fail(rpc, CONNECT_INVALID_ARGUMENT, "the stream has a malformed or too large envelope");
    if (used <= 0)
        return -1;
    json_decref(rpc->input);
    rpc->input = read_bytes(&format, envelope.message, envelope.length,
                            envelope.flags & CONNECT_COMPRESSED, &err);
    buffer_consume(&rpc->received, (size_t)used);
    if (!rpc->input) {
        rpc_fail(rpc, CONNECT_INVALID_ARGUMENT, "%s", err.message);
        return -1;
    }
    rpc->on_message(rpc);
    return 0;
}

static void take_all(struct rpc *rpc)
{
    rpc->is_taking = true;
    while (!rpc->is_paused && rpc->state_of_answer == RPC_OPEN && rpc->received.length)
        if (take_next(rpc) < 0)
            break;
    rpc->is_taking = false;
    if (rpc->is_paused || rpc->state_of_answer != RPC_OPEN || !rpc->has_ended_input)
        return;
    if (rpc->received.length)
        rpc_fail(rpc, CONNECT_INVALID_ARGUMENT, "the stream ends within an envelope");
    else
        rpc->on_end(rpc);
}

void rpc_resume(struct rpc *rpc)
{
    if (!rpc->is_paused || rpc->state_of_answer != RPC_OPEN)
        return;
    rpc->is_paused = false;
    http_exchange_resume_body(rpc->request->exchange);
    if (!rpc->is_taking)
        take_all(rpc);
}

static void on_stream(struct http_exchange *exchange, const uint8_t *data, size_t length)
{
    struct request *request = http_exchange_user(exchange);
    struct rpc *rpc = request->state;

    if (rpc->state_of_answer != RPC_OPEN)
        return;
    if (length == 0)
        rpc->has_ended_input = true;
    else if (buffer_append(&rpc->received, data, length) < 0) {
        rpc_fail(rpc, CONNECT_RESOURCE_EXHAUSTED, "a message of the stream is too large");
        return;
    }
    take_all(rpc);
}

static void begin_stream(struct rpc *rpc)
{
    rpc->state_of_answer = RPC_OPEN;
    rpc->received = BUFFER_INIT(STREAM_MESSAGE_MAXIMUM + 1024 * 1024);
    rpc->method->handle(rpc);
    if (rpc->state_of_answer == RPC_OPEN)
        http_exchange_stream_body(rpc->request->exchange, on_stream);
}

/* --- a call ---------------------------------------------------------------------------------- */

/* The user in "Basic base64(user:password)". E2B's default user, "user", stands for the default
 * user of the sandbox, which a template may call otherwise. */
static int read_user(struct rpc *rpc)
{
    const char *header = request_header(rpc->request, "authorization");
    scoped(buffer_fini) struct buffer text = BUFFER_INIT(512);
    size_t length;

    if (!header || strncasecmp(header, "Basic ", 6) != 0)
        return 0;
    if (base64_decode(header + 6, strlen(header + 6), &text) < 0)
        return -1;
    length = strcspn(buffer_text(&text), ":");
    if (length >= sizeof(rpc->user) || !str_is_utf8((const char *)text.data, length))
        return -1;
    memcpy(rpc->user, text.data, length);
    rpc->user[length] = '\0';
    if (str_equal(rpc->user, "user"))
        *rpc->user = '\0';
    return 0;
}

static void on_deadline(struct timer *timer)
{
    struct rpc *rpc = container_of(timer, struct rpc, deadline);

    if (rpc->state_of_answer != RPC_READING)
        rpc_fail(rpc, CONNECT_DEADLINE_EXCEEDED, "the time of the call is over");
}

static void arm_deadline(struct rpc *rpc)
{
    timer_init(&rpc->deadline, rpc->request->core->loop, on_deadline);
    if (rpc->timeout_ms && !rpc->method->has_own_deadline)
        timer_arm_in(&rpc->deadline, rpc->timeout_ms * 1000);
}

static int read_headers(struct rpc *rpc)
{
    const char *timeout = request_header(rpc->request, "connect-timeout-ms");
    const char *interval = request_header(rpc->request, "keepalive-ping-interval");
    uint64_t seconds = KEEPALIVE_S;

    if (timeout && connect_timeout_parse(timeout, &rpc->timeout_ms) < 0) {
        rpc_fail(rpc, CONNECT_INVALID_ARGUMENT, "invalid Connect-Timeout-Ms");
        return -1;
    }
    if (interval && (str_to_u64(interval, &seconds) < 0 || seconds == 0))
        seconds = KEEPALIVE_S;
    rpc->keepalive_us = (int64_t)MIN(seconds, (uint64_t)KEEPALIVE_MAXIMUM_S) * 1000 * 1000;
    if (read_user(rpc) == 0)
        return 0;
    rpc_fail(rpc, CONNECT_UNAUTHENTICATED, "invalid username in the Authorization header");
    return -1;
}

static const struct rpc_method *find_method(const struct request *request,
                                            const struct rpc_method *methods)
{
    while (methods->service && (!str_equal(methods->service, request->segments[0]) ||
                                !str_equal(methods->name, request->segments[1])))
        methods++;
    return methods->service ? methods : NULL;
}

static void fail_type(struct request *request)
{
    http_respond_header(request->exchange, "Accept-Post",
                        "application/json, application/proto, application/connect+json, "
                        "application/connect+proto");
    e2b_fail_status(request, 415,
                    "the Content-Type is not one of the Connect protocol for this "
                    "method");
}

void rpc_handle(struct request *request, const struct rpc_method *methods)
{
    const struct rpc_method *method = find_method(request, methods);
    struct connect_type type;
    struct rpc *rpc;

    assert(method);
    if (connect_type_parse(request_header(request, "content-type"), &type) < 0 ||
        type.is_stream != (method->kind != RPC_CALL)) {
        fail_type(request);
        return;
    }
    rpc = xnew(struct rpc);
    rpc->request = request;
    rpc->method = method;
    rpc->type = type;
    request->state = rpc;
    request->on_gone = on_gone;
    rpc->state_of_answer = RPC_OPEN;
    if (read_headers(rpc) < 0)
        return;
    arm_deadline(rpc);
    if (method->kind == RPC_TAKES_STREAM) {
        begin_stream(rpc);
        return;
    }
    rpc->state_of_answer = RPC_READING;
    request_read_body(request, MESSAGE_MAXIMUM, on_body);
}

struct session *rpc_session(struct rpc *rpc)
{
    struct session *session = e2b_session(rpc->request);

    if (!session)
        rpc_fail(rpc, CONNECT_UNAVAILABLE, "the sandbox was not found");
    return session;
}
