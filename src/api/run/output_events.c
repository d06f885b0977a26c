/* SPDX-License-Identifier: Apache-2.0 */
/*
 * An execution as Server-Sent Events, a writer of service/cursor.h:
 *
 *     started          the execution, once it runs
 *     stdout, stderr   in the order they came: {"offset", "text"}, or {"offset", "base64"} for bytes
 *                      that are not UTF-8
 *     gap              {"stream", "start", "end"}: bytes that were dropped before they were sent
 *     exit             the execution as it has ended
 *
 * A comment every few seconds keeps the connection warm. A client that does not read is not waited
 * for longer than any other follower of the output.
 */

#include "api/run/executions.h"
#include "base/alloc.h"
#include "base/str.h"
#include "core/core.h"
#include "face/events.h"
#include "service/cursor.h"
#include "wire/base64.h"

#include <string.h>

enum { PIECE_BYTES = 32 * 1024 };

static const char *const stream_names[STREAM_COUNT] = { "stdout", "stderr" };

struct event_stream {
    struct request *request;
    struct cursor cursor;
    struct event_answer answer;
    bool started;
    bool cancels;
};

static void stream_free(struct event_stream *events, bool vanished)
{
    event_answer_fini(&events->answer);
    cursor_close(&events->cursor, vanished);
    free(events);
}

static void on_gone(struct request *request)
{
    struct event_stream *events = request->state;

    if (events->cancels)
        execution_abandon(events->cursor.execution);
    stream_free(events, true);
}

static void send_execution(struct event_stream *events, const char *name)
{
    scoped(buffer_fini) struct buffer data = BUFFER_INIT(REQUEST_REPLY_MAXIMUM);
    struct json_writer json = JSON_WRITER(&data);

    execution_write_json(events->cursor.execution, &json, NULL, false);
    event_answer_send(&events->answer, name, data.data, data.length);
}

/* --- bytes ----------------------------------------------------------------------------------- */

static void put_base64(struct json_writer *json, const uint8_t *bytes, size_t length)
{
    scoped(free) char *text = base64_encode(bytes, length);

    json_put_text(json, "base64", text);
}

static void send_bytes(struct event_stream *events, unsigned stream, const uint8_t *bytes,
                       size_t length)
{
    scoped(buffer_fini) struct buffer data = BUFFER_INIT(REQUEST_REPLY_MAXIMUM);
    struct json_writer json = JSON_WRITER(&data);

    json_begin_object(&json, NULL);
    json_put_int(&json, "offset", (int64_t)events->cursor.offsets[stream]);
    if (str_is_utf8((const char *)bytes, length))
        json_put_bytes(&json, "text", bytes, length);
    else
        put_base64(&json, bytes, length);
    json_end_object(&json);
    event_answer_send(&events->answer, stream_names[stream], data.data, data.length);
}

/* The stream goes on at `end`. */
static void send_gap(struct event_stream *events, unsigned stream, uint64_t end)
{
    scoped(buffer_fini) struct buffer data = BUFFER_INIT(1024);
    struct json_writer json = JSON_WRITER(&data);

    json_begin_object(&json, NULL);
    json_put_text(&json, "stream", stream_names[stream]);
    json_put_int(&json, "start", (int64_t)events->cursor.offsets[stream]);
    json_put_int(&json, "end", (int64_t)end);
    json_end_object(&json);
    event_answer_send(&events->answer, "gap", data.data, data.length);
    events->cursor.offsets[stream] = end;
}

/* One piece of a stream, at most so many bytes; false when there is nothing to send now. */
static bool send_piece(struct event_stream *events, unsigned stream, uint64_t limit)
{
    static uint8_t bytes[PIECE_BYTES];
    struct spool *spool = events->cursor.output.streams[stream];
    uint64_t *offset = &events->cursor.offsets[stream];
    uint64_t start, end;
    ssize_t count;

    if (!spool || !spool_extent(spool, *offset, &start, &end))
        return false;
    if (start > *offset)
        send_gap(events, stream, start);
    limit = MIN(limit, end - start);
    count = spool_read(spool, start, bytes, (size_t)MIN(limit, sizeof(bytes)));
    if (count < 0) {
        send_gap(events, stream, start + limit);
        return true;
    }
    /* A character that is cut at a hole never becomes whole. */
    if ((cursor_is_live(&events->cursor) && end == spool_length(spool)) ||
        start + (uint64_t)count < end)
        count -= (ssize_t)str_utf8_unfinished(bytes, (size_t)count);
    if (count == 0)
        return false;
    send_bytes(events, stream, bytes, (size_t)count);
    *offset += (uint64_t)count;
    return true;
}

/* In the order in which the bytes came. A character that is cut in two by the other stream, and
 * anything after a gap, does not wait for its turn. */
static bool send_next(struct event_stream *events)
{
    unsigned stream;
    uint64_t bytes;
    bool is_sent = false;

    if (cursor_turn(&events->cursor, &stream, &bytes) && send_piece(events, stream, bytes))
        return true;
    for (unsigned i = 0; i < STREAM_COUNT; i++)
        is_sent = send_piece(events, i, UINT64_MAX) || is_sent;
    return is_sent;
}

/* Output at the end that could not be kept. */
static void send_last_gaps(struct event_stream *events)
{
    for (unsigned i = 0; i < STREAM_COUNT; i++) {
        const struct spool *spool = events->cursor.output.streams[i];

        if (spool && events->cursor.offsets[i] < spool_length(spool))
            send_gap(events, i, spool_length(spool));
    }
}

static void pump(struct event_stream *events)
{
    const struct execution_facts *facts = execution_facts(events->cursor.execution);
    bool progress = true;

    if (!events->started && facts->state != EXECUTION_QUEUED) {
        events->started = true;
        send_execution(events, "started");
    }
    while (progress && event_answer_has_room(&events->answer))
        progress = send_next(events);
    cursor_advance(&events->cursor);
    if (progress || cursor_is_live(&events->cursor))
        return;
    send_last_gaps(events);
    send_execution(events, "exit");
    http_respond_end(events->request->exchange);
    events->request->on_gone = NULL;
    stream_free(events, false);
}

static void on_change(struct cursor *cursor)
{
    pump(container_of(cursor, struct event_stream, cursor));
}

static void on_drain(struct http_exchange *exchange)
{
    struct request *request = http_exchange_user(exchange);

    if (request->on_gone)
        pump(request->state);
}

static void stream_from(struct request *request, struct execution *execution, bool cancels,
                        const uint64_t offsets[STREAM_COUNT])
{
    struct event_stream *events = xnew(struct event_stream);

    events->request = request;
    events->cancels = cancels;
    events->cursor.on_change = on_change;
    cursor_open(&events->cursor,
                &(struct found_execution){ .core = request->core, .live = execution }, CURSOR_BOTH);
    memcpy(events->cursor.offsets, offsets, sizeof(events->cursor.offsets));
    cursor_follow(&events->cursor);
    request->state = events;
    request->on_gone = on_gone;

    http_respond_header(request->exchange, "X-Sandglass-Execution-Id",
                        execution_facts(execution)->id);
    http_respond_on_drain(request->exchange, on_drain);
    event_answer_init(&events->answer, request);
    event_answer_start(&events->answer);
    pump(events);
}

void execution_stream(struct request *request, struct execution *execution, bool cancels)
{
    stream_from(request, execution, cancels, (const uint64_t[STREAM_COUNT]){ 0 });
}

/* --- attached later -------------------------------------------------------------------------- */

static int read_offset(struct request *request, struct spool *spool, const char *name,
                       uint64_t *out_offset, struct error *err)
{
    uint64_t length = spool ? spool_length(spool) : 0;

    if (request_parameter_u64(request, name, INT64_MAX, out_offset, err) < 0)
        return -1;
    if (*out_offset > length)
        return error_named(err, ERR_INVALID, "offset_beyond_end",
                           "parameter %s is %llu, beyond the end of the output, which has %llu "
                           "bytes",
                           name, (unsigned long long)*out_offset, (unsigned long long)length);
    return 0;
}

static void on_found(struct request *request, const struct found_execution *found)
{
    uint64_t offsets[STREAM_COUNT] = { 0 };
    struct cursor look = { 0 };
    struct error err = { 0 };

    if (!found->live) {
        error_named(&err, ERR_CONFLICT, "execution_not_running", "execution %s is %s",
                    found_execution_id(found), found_execution_state(found));
        error_hint(&err, "read what it has written with GET .../output");
        request_fail(request, &err);
        return;
    }
    cursor_open(&look, found, CURSOR_BOTH);
    for (unsigned i = 0; i < STREAM_COUNT && !err.code; i++)
        (void)read_offset(request, look.output.streams[i], stream_names[i], &offsets[i], &err);
    cursor_close(&look, false);
    if (err.code)
        request_fail(request, &err);
    else
        stream_from(request, found->live, false, offsets);
}

static void get_stream(struct request *request)
{
    api_find_execution(request, on_found);
}

static const struct route_parameter parameters[] = {
    { "stdout", "integer", "byte of stdout to begin with, 0 by default" },
    { "stderr", "integer", "byte of stderr to begin with, 0 by default" },
    { 0 },
};

static const struct route_answer answers[] = {
    { 200, "text/event-stream: started, stdout, stderr, gap and exit, as the answer that starts an "
           "execution" },
    { 404, "session_not_found, execution_not_found" },
    { 409, "execution_not_running: it ended a while ago" },
    { 416, "offset_beyond_end" },
    { 0 },
};

const struct route api_stream_routes[] = {
    { HTTP_GET, "/api/v1/sessions/{session}/executions/{execution}/stream", get_stream,
      "Follow an execution as events; leaving does not cancel it", .session = ROUTE_ANY_SESSION,
      .parameters = parameters, .answers = answers },
    { 0 },
};
