/*
 * The output of an execution as raw bytes, by offset.
 *
 * Bytes go from the spool to the socket by sendfile where that is safe. The reader is a follower of
 * the spool: the program is held back rather than a byte dropped, until the reader stalls; then the
 * connection is cut, so that nobody takes what is missing for the end.
 */

#include "core/output.h"
#include "api/executions.h"
#include "base/alloc.h"
#include "base/str.h"
#include "core/metrics.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { PIECE_BYTES = 512 * 1024, COPY_BYTES = 64 * 1024 };

struct reader {
    struct api_request *request;
    struct execution *execution; /* a reference; NULL when it is not in memory */
    struct output *owned;        /* owned: the spool of one that is not in memory */
    struct output *output;       /* borrowed: the one that is read */
    struct output_follower follower;
    struct execution_watcher watcher;
    uint64_t offset;             /* of the next byte to send */
    uint64_t end;                /* of what was asked for */
    uint64_t gap_start, gap_end; /* announced as missing */
    bool follows;
};

static void reader_free(struct reader *reader)
{
    if (reader->output && list_is_linked(&reader->follower.node))
        output_unfollow(reader->output, &reader->follower);
    execution_unwatch(&reader->watcher);
    if (reader->execution)
        execution_unref(reader->execution);
    output_free(reader->owned);
    free(reader);
}

static void on_gone(struct api_request *request)
{
    struct reader *reader = request->state;

    if (reader->follows)
        output_follower_vanished(reader->output, &reader->follower);
    reader_free(reader);
}

static void finish(struct reader *reader, bool complete)
{
    struct api_request *request = reader->request;

    if (complete)
        http_respond_end(request->exchange);
    else
        http_exchange_abort(request->exchange);
    request->on_gone = NULL;
    reader_free(reader);
}

/* How far the client has really taken it. */
static uint64_t taken_offset(const struct reader *reader)
{
    uint64_t pending = http_respond_pending(reader->request->exchange);

    return reader->offset > pending ? reader->offset - pending : 0;
}

/* A slow client has taken something since; one that takes nothing is cut off. */
static void on_stalled(struct output_follower *follower)
{
    struct reader *reader = container_of(follower, struct reader, follower);
    uint64_t taken = taken_offset(reader);

    if (taken > follower->offset)
        output_follow(reader->output, follower, taken);
    else
        finish(reader, false);
}

/* The next piece to send; false when there is none now. Bytes dropped since the answer began are
 * told by *out_is_lost. */
static bool next_piece(struct reader *reader, uint64_t *out_end, bool *out_is_lost)
{
    uint64_t start;

    *out_is_lost = false;
    if (reader->offset >= reader->gap_start && reader->offset < reader->gap_end)
        reader->offset = reader->gap_end;
    if (reader->offset >= reader->end ||
        !output_extent(reader->output, reader->offset, &start, out_end))
        return false;
    *out_is_lost = start != reader->offset;
    *out_end = MIN(*out_end, reader->end);
    if (reader->offset < reader->gap_start)
        *out_end = MIN(*out_end, reader->gap_start);
    return true;
}

/* Everything was sent and nothing more will come. */
static bool is_complete(const struct reader *reader)
{
    if (reader->offset >= reader->end || !reader->follows)
        return true;
    return !reader->execution || execution_state_is_final(reader->execution->state);
}

/* How much was sent: 0 when the spool cannot be read. */
static size_t send_piece(struct reader *reader, size_t length)
{
    static uint8_t bytes[COPY_BYTES];
    int fd = output_fd(reader->output);
    ssize_t count;

    if (output_may_be_sent(reader->output)) {
        http_respond_write_file(reader->request->exchange, fd, (int64_t)reader->offset, length);
        return length;
    }
    count = pread(fd, bytes, MIN(length, sizeof(bytes)), (off_t)reader->offset);
    if (count <= 0)
        return 0;
    http_respond_write(reader->request->exchange, bytes, (size_t)count);
    return (size_t)count;
}

static void pump(struct reader *reader)
{
    struct http_exchange *exchange = reader->request->exchange;
    uint64_t end;
    bool is_lost = false;

    while (http_respond_pending(exchange) < HTTP_HIGH_WATER && next_piece(reader, &end, &is_lost)) {
        size_t length = (size_t)MIN(end - reader->offset, (uint64_t)PIECE_BYTES);

        if (is_lost) {
            finish(reader, false);
            return;
        }
        length = send_piece(reader, length);
        if (!length) {
            finish(reader, false);
            return;
        }
        reader->offset += length;
    }
    output_follower_moved(reader->output, &reader->follower, taken_offset(reader));
    if (http_respond_pending(exchange) < HTTP_HIGH_WATER && is_complete(reader))
        finish(reader, true);
}

static void on_change(struct execution_watcher *watcher)
{
    pump(container_of(watcher, struct reader, watcher));
}

static void on_drain(struct http_exchange *exchange)
{
    struct api_request *request = http_exchange_user(exchange);

    if (request->on_gone)
        pump(request->state);
}

/* --- beginning ------------------------------------------------------------------------------- */

static void put_number_header(struct api_request *request, const char *name, uint64_t number)
{
    char text[24];

    snprintf(text, sizeof(text), "%llu", (unsigned long long)number);
    http_respond_header(request->exchange, name, text);
}

static void note_gap(struct reader *reader)
{
    uint64_t start, end;
    char text[48];

    if (!output_has_hole(reader->output, &start, &end) || end <= reader->offset ||
        start >= reader->end)
        return;
    reader->gap_start = start;
    reader->gap_end = end;
    snprintf(text, sizeof(text), "%llu-%llu", (unsigned long long)start, (unsigned long long)end);
    http_respond_header(reader->request->exchange, "X-Sandglass-Gap", text);
}

/* Bytes from the offset on that are there now. */
static uint64_t count_bytes(const struct reader *reader)
{
    uint64_t at = reader->offset, start, end, count = 0;

    while (at < reader->end && output_extent(reader->output, at, &start, &end)) {
        if (start >= reader->end)
            break;
        end = MIN(end, reader->end);
        count += end - start;
        at = end;
    }
    return count;
}

static int read_range(struct reader *reader, struct error *err)
{
    const struct api_request *request = reader->request;
    uint64_t length = output_length(reader->output), limit = UINT64_MAX;

    if (api_parameter_u64(request, "offset", INT64_MAX, &reader->offset, err) < 0 ||
        api_parameter_u64(request, "limit", INT64_MAX, &limit, err) < 0 ||
        api_parameter_bool(request, "follow", &reader->follows, err) < 0)
        return -1;
    if (request->is_head || !reader->execution ||
        execution_state_is_final(reader->execution->state))
        reader->follows = false;
    if (!reader->follows && reader->offset > length)
        return error_named(err, ERR_INVALID, "offset_beyond_end",
                           "offset %llu is behind the end of the output, which has %llu bytes",
                           (unsigned long long)reader->offset, (unsigned long long)length);
    reader->end = limit > UINT64_MAX - reader->offset ? UINT64_MAX : reader->offset + limit;
    if (!reader->follows)
        reader->end = MIN(reader->end, length);
    return 0;
}

static void begin(struct reader *reader)
{
    struct api_request *request = reader->request;

    metrics_add(request->core->metrics, METRIC_HTTP_REQUESTS, 2, 1);
    reader->follower.on_stalled = on_stalled;
    note_gap(reader);
    put_number_header(request, "X-Sandglass-Length", output_length(reader->output));
    put_number_header(request, "X-Sandglass-Offset",
                      reader->offset >= reader->gap_start && reader->offset < reader->gap_end
                          ? reader->gap_end
                          : reader->offset);
    output_follow(reader->output, &reader->follower, reader->offset);
    http_respond_on_drain(request->exchange, on_drain);
    http_respond_start(request->exchange, 200, "application/octet-stream",
                       reader->follows ? -1 : (int64_t)count_bytes(reader));
    pump(reader);
}

/* With a terminal there is no stderr: nothing is there to read. */
static void begin_empty(struct api_request *request, struct reader *reader)
{
    reader_free(reader);
    http_respond(request->exchange, 200, "application/octet-stream", "", 0);
}

static int read_stream(struct api_request *request, bool *out_is_stderr, struct error *err)
{
    const char *stream = api_parameter(request, "stream");

    *out_is_stderr = stream && str_equal(stream, "stderr");
    if (stream && !*out_is_stderr && !str_equal(stream, "stdout"))
        return error_named(err, ERR_INVALID, "invalid_parameter",
                           "parameter stream must be stdout or stderr");
    return 0;
}

static void open_reader(struct api_request *request, struct execution *execution, const char *id)
{
    struct reader *reader;
    bool is_stderr;
    struct error err = { 0 };

    if (read_stream(request, &is_stderr, &err) < 0) {
        api_fail(request, &err);
        return;
    }
    reader = xnew(struct reader);
    reader->request = request;
    if (execution) {
        reader->execution = execution;
        execution_ref(execution);
        reader->output = is_stderr ? execution->err : execution->out;
        execution_watch(execution, &reader->watcher, on_change);
    } else {
        reader->output = reader->owned = execution_open_output(request->core, id, is_stderr);
    }
    if (!reader->output) {
        begin_empty(request, reader);
        return;
    }
    if (read_range(reader, &err) < 0) {
        put_number_header(request, "X-Sandglass-Length", output_length(reader->output));
        api_fail(request, &err);
        reader_free(reader);
        return;
    }
    request->state = reader;
    request->on_gone = on_gone;
    begin(reader);
}

static void on_live(struct api_request *request, struct execution *execution)
{
    open_reader(request, execution, execution->id);
}

static void on_record(struct api_request *request, const struct execution_record *record)
{
    open_reader(request, NULL, record->id);
}

static void get_output(struct api_request *request)
{
    api_find_execution(request, on_live, on_record);
}

static const struct api_parameter parameters[] = {
    { "stream", "string", "stdout (default) or stderr" },
    { "offset", "integer", "from this byte on, counted from the first one the program wrote" },
    { "limit", "integer", "at most this many bytes" },
    { "follow", "boolean", "go on until the program has ended" },
    { 0 },
};

static const struct api_answer answers[] = {
    { 200, "raw bytes; X-Sandglass-Gap: START-END names bytes of the middle that were dropped and "
           "are left out" },
    { 404, "session_not_found, execution_not_found" },
    { 416, "offset_beyond_end" },
    { 0 },
};

const struct api_route api_output_routes[] = {
    { HTTP_GET, "/api/v1/sessions/{session}/executions/{execution}/output", get_output,
      "What the program wrote, as raw bytes", .session = API_ANY_SESSION, .parameters = parameters,
      .answers = answers },
    { 0 },
};
