/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The output of an execution as raw bytes, by offset: of one stream, or of both as they came.
 *
 * A writer of service/cursor.h. Bytes go from the spool to the socket by sendfile where that is
 * safe. A client that stalls is disconnected without a clean end, so that it does not take what is
 * missing for the end of the output.
 */

#include "api/run/executions.h"
#include "base/alloc.h"
#include "base/str.h"
#include "core/core.h"
#include "core/metrics.h"
#include "service/cursor.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum {
    PIECE_BYTES = 512 * 1024,
    COPY_BYTES = 64 * 1024,
    SENDFILE_BYTES = 4096, /* less is copied: many short runs of two streams are one write */
};

struct reader {
    struct request *request;
    struct cursor cursor;
    bool follows;
};

static void on_gone(struct request *request)
{
    struct reader *reader = request->state;

    cursor_close(&reader->cursor, reader->follows);
    free(reader);
}

static void finish(struct reader *reader, bool complete)
{
    struct request *request = reader->request;

    if (complete)
        http_respond_end(request->exchange);
    else
        http_exchange_abort(request->exchange);
    request->on_gone = NULL;
    cursor_close(&reader->cursor, false);
    free(reader);
}

static uint64_t taken_offset(const struct cursor *cursor)
{
    const struct reader *reader = container_of(cursor, struct reader, cursor);
    uint64_t pending = http_respond_pending(reader->request->exchange);

    return cursor->offset > pending ? cursor->offset - pending : 0;
}

static void on_stalled(struct cursor *cursor)
{
    finish(container_of(cursor, struct reader, cursor), false);
}

/* Everything was sent and nothing more will come. */
static bool is_complete(const struct reader *reader)
{
    return reader->cursor.offset >= reader->cursor.end || !reader->follows ||
           !cursor_is_live(&reader->cursor);
}

/* How much was sent: 0 when the spool cannot be read. */
static size_t send_piece(struct reader *reader, const struct combined_output_piece *piece)
{
    static uint8_t bytes[COPY_BYTES];
    size_t length = (size_t)MIN(piece->end - piece->start, (uint64_t)PIECE_BYTES);
    int fd = spool_fd(piece->spool);
    ssize_t count;

    if (length >= SENDFILE_BYTES && spool_may_be_sent(piece->spool)) {
        http_respond_write_file(reader->request->exchange, fd, (int64_t)piece->place, length);
        return length;
    }
    count = pread(fd, bytes, MIN(length, sizeof(bytes)), (off_t)piece->place);
    if (count <= 0)
        return 0;
    http_respond_write(reader->request->exchange, bytes, (size_t)count);
    return (size_t)count;
}

static void pump(struct reader *reader)
{
    struct http_exchange *exchange = reader->request->exchange;
    struct cursor *cursor = &reader->cursor;
    struct combined_output_piece piece;
    bool is_lost = false;

    while (http_respond_pending(exchange) < HTTP_HIGH_WATER &&
           cursor_read(cursor, &piece, &is_lost)) {
        size_t length = is_lost ? 0 : send_piece(reader, &piece);

        if (!length) {
            finish(reader, false);
            return;
        }
        cursor->offset += length;
    }
    cursor_moved(cursor, taken_offset(cursor));
    if (http_respond_pending(exchange) < HTTP_HIGH_WATER && is_complete(reader))
        finish(reader, !cursor_is_short(cursor));
}

static void on_change(struct cursor *cursor)
{
    pump(container_of(cursor, struct reader, cursor));
}

static void on_drain(struct http_exchange *exchange)
{
    struct request *request = http_exchange_user(exchange);

    if (request->on_gone)
        pump(request->state);
}

/* --- beginning ------------------------------------------------------------------------------- */

static void put_number_header(struct request *request, const char *name, uint64_t number)
{
    char text[24];

    snprintf(text, sizeof(text), "%llu", (unsigned long long)number);
    http_respond_header(request->exchange, name, text);
}

static void note_gap(struct reader *reader)
{
    struct cursor *cursor = &reader->cursor;
    uint64_t start, end;
    char text[48];

    if (!combined_output_has_gap(&cursor->output, &start, &end) || end <= cursor->offset ||
        start >= cursor->end)
        return;
    cursor->gap_start = start;
    cursor->gap_end = end;
    snprintf(text, sizeof(text), "%llu-%llu", (unsigned long long)start, (unsigned long long)end);
    http_respond_header(reader->request->exchange, "X-Sandglass-Gap", text);
}

static int read_range(struct reader *reader, struct error *err)
{
    const struct request *request = reader->request;
    struct cursor *cursor = &reader->cursor;
    uint64_t length = combined_output_length(&cursor->output), limit = UINT64_MAX;

    if (request_parameter_u64(request, "offset", INT64_MAX, &cursor->offset, err) < 0 ||
        request_parameter_u64(request, "limit", INT64_MAX, &limit, err) < 0 ||
        request_parameter_bool(request, "follow", &reader->follows, err) < 0)
        return -1;
    if (request->is_head || !cursor_is_live(cursor))
        reader->follows = false;
    if (!reader->follows && cursor->offset > length)
        return error_named(err, ERR_INVALID, "offset_beyond_end",
                           "offset %llu is beyond the end of the output, which has %llu bytes",
                           (unsigned long long)cursor->offset, (unsigned long long)length);
    cursor->end = limit > UINT64_MAX - cursor->offset ? UINT64_MAX : cursor->offset + limit;
    if (!reader->follows)
        cursor->end = MIN(cursor->end, length);
    return 0;
}

static void begin(struct reader *reader)
{
    struct request *request = reader->request;
    struct cursor *cursor = &reader->cursor;
    bool is_in_gap;

    metrics_add(request->core->metrics, METRIC_HTTP_REQUESTS, 2, 1);
    note_gap(reader);
    is_in_gap = cursor->offset >= cursor->gap_start && cursor->offset < cursor->gap_end;
    put_number_header(request, "X-Sandglass-Length", combined_output_length(&cursor->output));
    put_number_header(request, "X-Sandglass-Offset", is_in_gap ? cursor->gap_end : cursor->offset);
    cursor_follow(cursor);
    http_respond_on_drain(request->exchange, on_drain);
    http_respond_start(request->exchange, 200, "application/octet-stream",
                       reader->follows ? -1 : (int64_t)cursor_count(cursor));
    pump(reader);
}

static int read_streams(struct request *request, enum cursor_streams *out_streams,
                        struct error *err)
{
    const char *stream = request_parameter(request, "stream");

    if (!stream || str_equal(stream, "stdout"))
        *out_streams = CURSOR_STDOUT;
    else if (str_equal(stream, "stderr"))
        *out_streams = CURSOR_STDERR;
    else if (str_equal(stream, "merged"))
        *out_streams = CURSOR_BOTH;
    else
        return error_named(err, ERR_INVALID, "invalid_parameter",
                           "parameter stream must be stdout, stderr or merged");
    return 0;
}

/* With a terminal there is no stderr: nothing is there to read. */
static int open_reader(struct reader *reader, const struct found_execution *found,
                       struct error *err)
{
    enum cursor_streams streams = CURSOR_STDOUT;

    if (read_streams(reader->request, &streams, err) < 0)
        return -1;
    cursor_open(&reader->cursor, found, streams);
    if (!reader->cursor.output.streams[0])
        return 0;
    if (read_range(reader, err) == 0)
        return 0;
    put_number_header(reader->request, "X-Sandglass-Length",
                      combined_output_length(&reader->cursor.output));
    return -1;
}

static void on_found(struct request *request, const struct found_execution *found)
{
    struct reader *reader = xnew(struct reader);
    struct error err = { 0 };

    reader->request = request;
    reader->cursor.on_change = on_change;
    reader->cursor.on_stalled = on_stalled;
    reader->cursor.taken = taken_offset;
    if (open_reader(reader, found, &err) == 0 && reader->cursor.output.streams[0]) {
        request->state = reader;
        request->on_gone = on_gone;
        begin(reader);
        return;
    }
    cursor_close(&reader->cursor, false);
    free(reader);
    if (err.code)
        request_fail(request, &err);
    else
        http_respond(request->exchange, 200, "application/octet-stream", "", 0);
}

static void get_output(struct request *request)
{
    api_find_execution(request, on_found);
}

static const struct route_parameter parameters[] = {
    { "stream", "string", "stdout (default), stderr, or merged: both in the order of writing" },
    { "offset", "integer",
      "start at this byte, counted from the first byte that the program wrote" },
    { "limit", "integer", "at most this many bytes" },
    { "follow", "boolean", "follow the output until the program has ended" },
    { 0 },
};

static const struct route_answer answers[] = {
    { 200, "raw bytes; X-Sandglass-Gap: START-END reports bytes that were dropped from the middle "
           "or could not be kept" },
    { 404, "session_not_found, execution_not_found" },
    { 416, "offset_beyond_end" },
    { 0 },
};

const struct route api_output_routes[] = {
    { HTTP_GET, "/api/v1/sessions/{session}/executions/{execution}/output", get_output,
      "Read the output of a program as raw bytes", .session = ROUTE_ANY_SESSION,
      .parameters = parameters, .answers = answers },
    { 0 },
};
