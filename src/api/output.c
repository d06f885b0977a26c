/*
 * The output of an execution as raw bytes, by offset: of one stream, or of both as they came.
 *
 * Bytes go from the spool to the socket by sendfile where that is safe. The reader is a follower of
 * the spool: the program is held back rather than a byte dropped, until the reader stalls; then the
 * connection is cut, so that nobody takes what is missing for the end.
 */

#include "api/executions.h"
#include "base/alloc.h"
#include "base/str.h"
#include "core/metrics.h"
#include "core/output/combined_output.h"
#include "core/output/spool.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum {
    PIECE_BYTES = 512 * 1024,
    COPY_BYTES = 64 * 1024,
    SENDFILE_BYTES = 4096, /* less is copied: many short runs of two streams are one write */
};

struct reader {
    struct api_request *request;
    struct execution *execution;      /* a reference; NULL when it is not in memory */
    struct combined_output merged;    /* what is read */
    struct spool *owned[2];           /* owned: the spools of one that is not in memory */
    struct stream_order *owned_order; /* owned: the same */
    struct reader_place {
        struct reader *reader;
        struct spool *spool; /* borrowed; NULL for one stream alone */
        struct spool_follower follower;
    } places[STREAM_COUNT];
    struct execution_watcher watcher;
    uint64_t offset;             /* of the next byte to send */
    uint64_t end;                /* of what was asked for */
    uint64_t gap_start, gap_end; /* announced as missing */
    bool follows;
};

static void reader_free(struct reader *reader)
{
    for (size_t i = 0; i < STREAM_COUNT; i++) {
        struct reader_place *place = &reader->places[i];

        if (place->spool && list_is_linked(&place->follower.node))
            spool_unfollow(place->spool, &place->follower);
    }
    execution_unwatch(&reader->watcher);
    if (reader->execution)
        execution_unref(reader->execution);
    stream_order_free(reader->owned_order);
    spool_free(reader->owned[0]);
    spool_free(reader->owned[1]);
    free(reader);
}

static void on_gone(struct api_request *request)
{
    struct reader *reader = request->state;

    for (size_t i = 0; i < STREAM_COUNT && reader->follows; i++) {
        if (reader->places[i].spool)
            spool_follower_vanished(reader->places[i].spool, &reader->places[i].follower);
    }
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
static void on_stalled(struct spool_follower *follower)
{
    struct reader_place *place = container_of(follower, struct reader_place, follower);
    struct reader *reader = place->reader;
    uint64_t taken[STREAM_COUNT];

    combined_output_positions(&reader->merged, taken_offset(reader), taken);
    if (taken[place - reader->places] > follower->offset)
        spool_follow(place->spool, follower, taken[place - reader->places]);
    else
        finish(reader, false);
}

/* The next piece to send; false when there is none now. Bytes dropped since the answer began are
 * told by *out_is_lost. */
static bool next_piece(struct reader *reader, struct combined_output_piece *piece,
                       bool *out_is_lost)
{
    *out_is_lost = false;
    if (reader->offset >= reader->gap_start && reader->offset < reader->gap_end)
        reader->offset = reader->gap_end;
    if (reader->offset >= reader->end ||
        !combined_output_find(&reader->merged, reader->offset, piece))
        return false;
    *out_is_lost = piece->start != reader->offset;
    piece->end = MIN(piece->end, reader->end);
    if (reader->offset < reader->gap_start)
        piece->end = MIN(piece->end, reader->gap_start);
    return true;
}

/* Everything was sent and nothing more will come. */
static bool is_complete(const struct reader *reader)
{
    if (reader->offset >= reader->end || !reader->follows)
        return true;
    return !reader->execution ||
           execution_state_is_final(execution_facts(reader->execution)->state);
}

/* Bytes came that could not be kept, and that the head of the answer did not name. */
static bool is_short(const struct reader *reader)
{
    return reader->offset < MIN(reader->end, combined_output_length(&reader->merged));
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

static void move_followers(struct reader *reader)
{
    uint64_t taken[STREAM_COUNT];

    combined_output_positions(&reader->merged, taken_offset(reader), taken);
    for (size_t i = 0; i < STREAM_COUNT; i++) {
        if (reader->places[i].spool)
            spool_follower_moved(reader->places[i].spool, &reader->places[i].follower, taken[i]);
    }
}

static void pump(struct reader *reader)
{
    struct http_exchange *exchange = reader->request->exchange;
    struct combined_output_piece piece;
    bool is_lost = false;

    while (http_respond_pending(exchange) < HTTP_HIGH_WATER &&
           next_piece(reader, &piece, &is_lost)) {
        size_t length = is_lost ? 0 : send_piece(reader, &piece);

        if (!length) {
            finish(reader, false);
            return;
        }
        reader->offset += length;
    }
    move_followers(reader);
    if (http_respond_pending(exchange) < HTTP_HIGH_WATER && is_complete(reader))
        finish(reader, !is_short(reader));
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

    if (!combined_output_has_gap(&reader->merged, &start, &end) || end <= reader->offset ||
        start >= reader->end)
        return;
    reader->gap_start = start;
    reader->gap_end = end;
    snprintf(text, sizeof(text), "%llu-%llu", (unsigned long long)start, (unsigned long long)end);
    http_respond_header(reader->request->exchange, "X-Sandglass-Gap", text);
}

/* Of both streams: without looking at every run. */
static uint64_t count_merged(const struct reader *reader)
{
    uint64_t begin = reader->offset, end = MAX(reader->end, begin);
    uint64_t gap_start = MAX(reader->gap_start, begin), gap_end = MIN(reader->gap_end, end);

    return end - begin - (gap_end > gap_start ? gap_end - gap_start : 0);
}

/* Bytes from the offset on that are there now. */
static uint64_t count_bytes(const struct reader *reader)
{
    struct combined_output_piece piece;
    uint64_t at = reader->offset, count = 0;

    if (reader->merged.order)
        return count_merged(reader);
    while (at < reader->end && combined_output_find(&reader->merged, at, &piece)) {
        if (piece.start >= reader->end)
            break;
        piece.end = MIN(piece.end, reader->end);
        count += piece.end - piece.start;
        at = piece.end;
    }
    return count;
}

static int read_range(struct reader *reader, struct error *err)
{
    const struct api_request *request = reader->request;
    uint64_t length = combined_output_length(&reader->merged), limit = UINT64_MAX;

    if (api_parameter_u64(request, "offset", INT64_MAX, &reader->offset, err) < 0 ||
        api_parameter_u64(request, "limit", INT64_MAX, &limit, err) < 0 ||
        api_parameter_bool(request, "follow", &reader->follows, err) < 0)
        return -1;
    if (request->is_head || !reader->execution ||
        execution_state_is_final(execution_facts(reader->execution)->state))
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

static void follow(struct reader *reader)
{
    uint64_t offsets[STREAM_COUNT];

    combined_output_positions(&reader->merged, reader->offset, offsets);
    for (size_t i = 0; i < STREAM_COUNT; i++) {
        struct reader_place *place = &reader->places[i];

        place->reader = reader;
        place->spool = reader->merged.streams[i];
        place->follower.on_stalled = on_stalled;
        if (place->spool)
            spool_follow(place->spool, &place->follower, offsets[i]);
    }
}

static void begin(struct reader *reader)
{
    struct api_request *request = reader->request;

    metrics_add(request->core->metrics, METRIC_HTTP_REQUESTS, 2, 1);
    note_gap(reader);
    put_number_header(request, "X-Sandglass-Length", combined_output_length(&reader->merged));
    put_number_header(request, "X-Sandglass-Offset",
                      reader->offset >= reader->gap_start && reader->offset < reader->gap_end
                          ? reader->gap_end
                          : reader->offset);
    follow(reader);
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

enum stream { STREAM_STDOUT, STREAM_STDERR, STREAM_MERGED };

static int read_stream(struct api_request *request, enum stream *out_stream, struct error *err)
{
    const char *stream = api_parameter(request, "stream");

    if (!stream || str_equal(stream, "stdout"))
        *out_stream = STREAM_STDOUT;
    else if (str_equal(stream, "stderr"))
        *out_stream = STREAM_STDERR;
    else if (str_equal(stream, "merged"))
        *out_stream = STREAM_MERGED;
    else
        return error_named(err, ERR_INVALID, "invalid_parameter",
                           "parameter stream must be stdout, stderr or merged");
    return 0;
}

static void use_live(struct reader *reader, struct execution *execution, enum stream stream)
{
    reader->execution = execution;
    execution_ref(execution);
    reader->merged.streams[0] = stream == STREAM_STDERR ? execution_stderr(execution)
                                                        : execution_stdout(execution);
    if (stream == STREAM_MERGED && execution_stderr(execution)) {
        reader->merged.streams[1] = execution_stderr(execution);
        reader->merged.order = execution_stream_order(execution);
    }
    execution_watch(execution, &reader->watcher, on_change);
}

static void use_record(struct reader *reader, const struct execution_record *record,
                       enum stream stream)
{
    struct core *core = reader->request->core;

    for (unsigned i = 0; i < STREAM_COUNT; i++) {
        if (stream == STREAM_MERGED || stream == (i ? STREAM_STDERR : STREAM_STDOUT))
            reader->owned[i] = execution_open_output(core, record, i != 0);
    }
    reader->merged.streams[0] = reader->owned[stream == STREAM_STDERR];
    if (stream != STREAM_MERGED)
        return;
    reader->owned_order =
        execution_open_stream_order(core, record->id, reader->owned[0], reader->owned[1]);
    reader->merged.streams[1] = reader->owned[1];
    reader->merged.order = reader->owned_order;
}

static void open_reader(struct api_request *request, struct execution *execution,
                        const struct execution_record *record)
{
    struct reader *reader;
    enum stream stream = STREAM_STDOUT;
    struct error err = { 0 };

    if (read_stream(request, &stream, &err) < 0) {
        api_fail(request, &err);
        return;
    }
    reader = xnew(struct reader);
    reader->request = request;
    if (execution)
        use_live(reader, execution, stream);
    else
        use_record(reader, record, stream);
    if (!reader->merged.streams[0]) {
        begin_empty(request, reader);
        return;
    }
    if (read_range(reader, &err) < 0) {
        put_number_header(request, "X-Sandglass-Length", combined_output_length(&reader->merged));
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
    open_reader(request, execution, NULL);
}

static void on_record(struct api_request *request, const struct execution_record *record)
{
    open_reader(request, NULL, record);
}

static void get_output(struct api_request *request)
{
    api_find_execution(request, on_live, on_record);
}

static const struct api_parameter parameters[] = {
    { "stream", "string", "stdout (default), stderr, or merged: both in the order they came" },
    { "offset", "integer", "from this byte on, counted from the first one the program wrote" },
    { "limit", "integer", "at most this many bytes" },
    { "follow", "boolean", "go on until the program has ended" },
    { 0 },
};

static const struct api_answer answers[] = {
    { 200, "raw bytes; X-Sandglass-Gap: START-END names bytes that were dropped from the middle, "
           "or could not be kept, and are left out" },
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
