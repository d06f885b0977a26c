/*
 * An execution as Server-Sent Events:
 *
 *     started          the execution, once it runs
 *     stdout, stderr   in the order they came: {"offset", "text"}, or {"offset", "base64"} for
 * bytes that are not UTF-8 gap              {"stream", "start", "end"}: bytes that were dropped
 * before they were sent exit             the execution as it has ended
 *
 * A comment every few seconds keeps the connection warm. A client that does not read is not waited
 * for longer than any other follower of the output.
 */

#include "api/executions.h"
#include "base/alloc.h"
#include "base/str.h"
#include "core/metrics.h"
#include "core/output/spool.h"
#include "wire/sse.h"

#include <string.h>
#include <unistd.h>

enum { PIECE_BYTES = 32 * 1024, HEARTBEAT_US = 15 * 1000 * 1000 };

struct stream {
    const char *name;
    struct spool *spool; /* borrowed; NULL with a terminal */
    struct spool_follower follower;
    uint64_t offset;
};

struct event_stream {
    struct api_request *request;
    struct execution *execution; /* a reference */
    struct execution_watcher watcher;
    struct timer heartbeat;
    struct stream streams[2];
    bool started;
    bool cancels;
};

static void stream_release(struct event_stream *events)
{
    for (size_t i = 0; i < ARRAY_LENGTH(events->streams); i++) {
        if (list_is_linked(&events->streams[i].follower.node))
            spool_unfollow(events->streams[i].spool, &events->streams[i].follower);
    }
    timer_stop(&events->heartbeat);
    execution_unwatch(&events->watcher);
    execution_unref(events->execution);
    free(events);
}

static void on_gone(struct api_request *request)
{
    struct event_stream *events = request->state;

    if (events->cancels)
        execution_abandon(events->execution);
    for (size_t i = 0; i < ARRAY_LENGTH(events->streams); i++) {
        if (events->streams[i].spool)
            spool_follower_vanished(events->streams[i].spool, &events->streams[i].follower);
    }
    stream_release(events);
}

static void send_event(struct event_stream *events, const char *name, struct buffer *data)
{
    scoped(buffer_fini) struct buffer text = BUFFER_INIT(API_REPLY_MAXIMUM);

    if (sse_write(&text, NULL, name, data->data, data->length) == 0)
        http_respond_write(events->request->exchange, text.data, text.length);
}

static void send_execution(struct event_stream *events, const char *name)
{
    scoped(buffer_fini) struct buffer data = BUFFER_INIT(API_REPLY_MAXIMUM);
    struct json_writer json = JSON_WRITER(&data);

    execution_write_json(events->execution, &json, NULL, false);
    send_event(events, name, &data);
}

/* --- bytes ----------------------------------------------------------------------------------- */

static void put_base64(struct json_writer *json, const uint8_t *bytes, size_t length)
{
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    static char text[(PIECE_BYTES + 2) / 3 * 4];
    size_t at = 0;

    for (size_t i = 0; i < length; i += 3) {
        uint32_t group = (uint32_t)bytes[i] << 16;

        if (i + 1 < length)
            group |= (uint32_t)bytes[i + 1] << 8;
        if (i + 2 < length)
            group |= bytes[i + 2];
        text[at++] = digits[group >> 18];
        text[at++] = digits[group >> 12 & 63];
        text[at++] = i + 1 < length ? digits[group >> 6 & 63] : '=';
        text[at++] = i + 2 < length ? digits[group & 63] : '=';
    }
    json_put_bytes(json, "base64", text, at);
}

/* How many bytes at the end may be the beginning of a character. */
static size_t unfinished_bytes(const uint8_t *bytes, size_t length)
{
    for (size_t back = 1; back <= 3 && back <= length; back++) {
        uint8_t byte = bytes[length - back];
        size_t wants = byte >= 0xf0 ? 4 : byte >= 0xe0 ? 3 : byte >= 0xc0 ? 2 : 1;

        if ((byte & 0xc0) != 0x80)
            return wants > back ? back : 0;
    }
    return 0;
}

static void send_bytes(struct event_stream *events, const struct stream *stream,
                       const uint8_t *bytes, size_t length)
{
    scoped(buffer_fini) struct buffer data = BUFFER_INIT(API_REPLY_MAXIMUM);
    struct json_writer json = JSON_WRITER(&data);

    json_begin_object(&json, NULL);
    json_put_int(&json, "offset", (int64_t)stream->offset);
    if (str_is_utf8((const char *)bytes, length))
        json_put_bytes(&json, "text", bytes, length);
    else
        put_base64(&json, bytes, length);
    json_end_object(&json);
    send_event(events, stream->name, &data);
}

static void send_gap(struct event_stream *events, const struct stream *stream, uint64_t end)
{
    scoped(buffer_fini) struct buffer data = BUFFER_INIT(1024);
    struct json_writer json = JSON_WRITER(&data);

    json_begin_object(&json, NULL);
    json_put_text(&json, "stream", stream->name);
    json_put_int(&json, "start", (int64_t)stream->offset);
    json_put_int(&json, "end", (int64_t)end);
    json_end_object(&json);
    send_event(events, "gap", &data);
}

/* One piece of a stream, at most so many bytes; false when there is nothing to send now. */
static bool send_piece(struct event_stream *events, struct stream *stream, uint64_t limit)
{
    static uint8_t bytes[PIECE_BYTES];
    bool may_grow = !execution_state_is_final(execution_facts(events->execution)->state);
    uint64_t start, end;
    ssize_t count;

    if (!stream->spool || !spool_extent(stream->spool, stream->offset, &start, &end))
        return false;
    if (start > stream->offset) {
        send_gap(events, stream, start);
        stream->offset = start;
    }
    limit = MIN(limit, end - start);
    count = spool_read(stream->spool, start, bytes, (size_t)MIN(limit, sizeof(bytes)));
    if (count < 0) {
        send_gap(events, stream, start + limit);
        stream->offset = start + limit;
        return true;
    }
    /* What is cut at a hole never becomes whole. */
    if ((may_grow && end == spool_length(stream->spool)) || start + (uint64_t)count < end)
        count -= (ssize_t)unfinished_bytes(bytes, (size_t)count);
    if (count == 0)
        return false;
    send_bytes(events, stream, bytes, (size_t)count);
    stream->offset += (uint64_t)count;
    return true;
}

/* In the order in which the bytes came. A character that is cut in two by the other stream, and
 * anything after a gap, does not wait for its turn. */
static bool send_next(struct event_stream *events)
{
    const struct stream_order *order = execution_stream_order(events->execution);
    struct stream *streams = events->streams;
    struct stream_order_place place;
    bool is_sent = false;

    if (order && stream_order_find(order, streams[0].offset + streams[1].offset, &place) &&
        send_piece(events, &streams[place.stream], place.run_bytes))
        return true;
    for (size_t i = 0; i < ARRAY_LENGTH(events->streams); i++)
        is_sent = send_piece(events, &streams[i], UINT64_MAX) || is_sent;
    return is_sent;
}

static bool has_room(const struct event_stream *events)
{
    return http_respond_pending(events->request->exchange) < HTTP_HIGH_WATER;
}

/* What came and could not be kept. */
static void send_last_gaps(struct event_stream *events)
{
    for (size_t i = 0; i < ARRAY_LENGTH(events->streams); i++) {
        const struct stream *stream = &events->streams[i];
        uint64_t length = stream->spool ? spool_length(stream->spool) : 0;

        if (stream->offset < length)
            send_gap(events, stream, length);
    }
}

static void pump(struct event_stream *events)
{
    struct execution *execution = events->execution;
    bool progress = true;

    if (!events->started && execution_facts(execution)->state != EXECUTION_QUEUED) {
        events->started = true;
        send_execution(events, "started");
    }
    while (progress && has_room(events))
        progress = send_next(events);
    for (size_t i = 0; i < ARRAY_LENGTH(events->streams); i++) {
        if (events->streams[i].spool)
            spool_follower_moved(events->streams[i].spool, &events->streams[i].follower,
                                 events->streams[i].offset);
    }
    if (progress || !execution_state_is_final(execution_facts(execution)->state))
        return;
    send_last_gaps(events);
    send_execution(events, "exit");
    http_respond_end(events->request->exchange);
    events->request->on_gone = NULL;
    stream_release(events);
}

static void on_change(struct execution_watcher *watcher)
{
    pump(container_of(watcher, struct event_stream, watcher));
}

static void on_drain(struct http_exchange *exchange)
{
    struct api_request *request = http_exchange_user(exchange);

    if (request->on_gone)
        pump(request->state);
}

static void on_heartbeat(struct timer *timer)
{
    struct event_stream *events = container_of(timer, struct event_stream, heartbeat);
    struct http_exchange *exchange = events->request->exchange;

    if (http_respond_pending(exchange) == 0)
        http_respond_write(exchange, ":\n\n", 3);
    timer_arm_in(&events->heartbeat, HEARTBEAT_US);
}

static void stream_init(struct stream *stream, const char *name, struct spool *spool)
{
    stream->name = name;
    stream->spool = spool;
    if (spool)
        spool_follow(spool, &stream->follower, 0);
}

void execution_stream(struct api_request *request, struct execution *execution, bool cancels)
{
    struct event_stream *events = xnew(struct event_stream);

    events->request = request;
    events->execution = execution;
    events->cancels = cancels;
    execution_ref(execution);
    execution_watch(execution, &events->watcher, on_change);
    stream_init(&events->streams[0], "stdout", execution_stdout(execution));
    stream_init(&events->streams[1], "stderr", execution_stderr(execution));
    timer_init(&events->heartbeat, request->core->loop, on_heartbeat);
    timer_arm_in(&events->heartbeat, HEARTBEAT_US);
    request->state = events;
    request->on_gone = on_gone;

    metrics_add(request->core->metrics, METRIC_HTTP_REQUESTS, 2, 1);
    http_respond_header(request->exchange, "X-Sandglass-Execution-Id",
                        execution_facts(execution)->id);
    http_respond_on_drain(request->exchange, on_drain);
    api_stream_start(request);
    pump(events);
}
