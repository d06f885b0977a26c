/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Directories as tar archives. Init packs and unpacks, inside the sandbox; here the bytes pass
 * through, and are compressed or the other way round. The slower end decides the pace, and no
 * more than a few pieces are in memory.
 */

#include "api/files/files.h"
#include "base/alloc.h"
#include "base/str.h"
#include "core/metrics.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>
#include <unistd.h>
#include <zlib.h>

enum {
    PIECE = 64 * 1024,
    GZIP_WINDOW = 15 + 16,
    GZIP_LEVEL = 1,
    GZIP_MEMORY = 8,
    TAR_END_BYTES = 1024,
    PIECES_PER_TURN = 16,
    NOTES_MAXIMUM = 128 * 1024,
    BOMB_RATIO = 200,
    BOMB_BYTES = 64 * 1024 * 1024, /* up to here any ratio is fine */
};

struct archive {
    struct file_call *call;
    struct io_watch stream; /* its fd is owned; -1 without */
    bool is_gzip;
    bool has_zlib;
    z_stream zlib;

    /* out */
    uint64_t total;
    size_t zeros; /* at the end of what has come */

    /* in */
    struct buffer input; /* of the body, not yet passed on */
    struct buffer ready; /* to be sent to init */
    struct buffer notes;
    uint64_t received, produced;
    bool is_ended;      /* the body is complete */
    bool gzip_is_ended; /* between two members of it */
    bool is_shut;       /* init knows that it is all */
    bool is_answered;
};

static struct archive *archive_new(struct file_call *call)
{
    struct archive *archive = xnew(struct archive);

    archive->call = call;
    archive->stream.fd = -1;
    archive->input = archive->ready = BUFFER_INIT(4 * PIECE);
    archive->notes = BUFFER_INIT(NOTES_MAXIMUM);
    file_request_of(call)->extra = archive;
    return archive;
}

static void archive_close(struct archive *archive)
{
    io_watch_stop(&archive->stream);
    fd_close(steal_fd(&archive->stream.fd));
}

static void archive_free(struct archive *archive)
{
    archive_close(archive);
    buffer_fini(&archive->input);
    buffer_fini(&archive->ready);
    buffer_fini(&archive->notes);
    free(archive);
}

/* --- out -------------------------------------------------------------------------------------- */

static void release_packing(struct file_call *call)
{
    struct archive *archive = file_request_of(call)->extra;

    if (archive->has_zlib)
        (void)deflateEnd(&archive->zlib);
    archive_free(archive);
}

/* "gzip", unless it is there with a weight of nothing. */
static bool accepts_gzip(const char *header)
{
    while (header && *header) {
        size_t length;

        header += strspn(header, " \t,");
        length = strcspn(header, " \t,;");
        if (length == 4 && strncasecmp(header, "gzip", 4) == 0) {
            const char *weight = header + 4 + strspn(header + 4, " \t");

            if (*weight != ';')
                return true;
            weight += 1 + strspn(weight + 1, " \t");
            return strncasecmp(weight, "q=", 2) != 0 || strtod(weight + 2, NULL) > 0;
        }
        header += strcspn(header, ",");
    }
    return false;
}

static void note_zeros(struct archive *archive, const uint8_t *data, size_t length)
{
    size_t count = 0;

    archive->total += length;
    while (count < length && count < TAR_END_BYTES && !data[length - 1 - count])
        count++;
    archive->zeros = count == length ? archive->zeros + count : count;
}

/* Compresses what is there; with Z_FINISH to the end. */
static void send_compressed(struct archive *archive, const uint8_t *data, size_t length, int flush)
{
    uint8_t piece[PIECE];

    archive->zlib.next_in = (uint8_t *)(uintptr_t)data;
    archive->zlib.avail_in = (uInt)length;
    do {
        archive->zlib.next_out = piece;
        archive->zlib.avail_out = sizeof(piece);
        (void)deflate(&archive->zlib, flush);
        http_respond_write(file_request_of(archive->call)->request->exchange, piece,
                           sizeof(piece) - archive->zlib.avail_out);
    } while (archive->zlib.avail_out == 0);
}

/* A packing that broke off lacks its end, and so does the answer then. */
static void end_packing(struct archive *archive)
{
    struct http_exchange *exchange = file_request_of(archive->call)->request->exchange;

    archive_close(archive);
    if (archive->zeros < TAR_END_BYTES || archive->total % 512) {
        http_exchange_abort(exchange);
        return;
    }
    if (archive->is_gzip)
        send_compressed(archive, NULL, 0, Z_FINISH);
    http_respond_end(exchange);
}

static void on_packed(struct io_watch *watch, unsigned events UNUSED)
{
    struct archive *archive = container_of(watch, struct archive, stream);
    struct http_exchange *exchange = file_request_of(archive->call)->request->exchange;
    uint8_t piece[PIECE];
    ssize_t count = read(watch->fd, piece, sizeof(piece));

    if (count < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    if (count <= 0) {
        end_packing(archive);
        return;
    }
    note_zeros(archive, piece, (size_t)count);
    if (archive->is_gzip)
        send_compressed(archive, piece, (size_t)count, Z_NO_FLUSH);
    else
        http_respond_write(exchange, piece, (size_t)count);
    if (http_respond_pending(exchange) >= HTTP_HIGH_WATER)
        io_watch_stop(watch);
}

static void on_drain(struct http_exchange *exchange)
{
    struct request *request = http_exchange_user(exchange);
    struct file_call *call = file_request_call(request);
    struct archive *archive = file_request_of(call)->extra;

    if (archive->stream.fd >= 0)
        io_watch_start(&archive->stream, request->core->loop, archive->stream.fd, IO_READ,
                       on_packed);
}

static void begin_compression(struct archive *archive)
{
    struct request *request = file_request_of(archive->call)->request;

    http_respond_header(request->exchange, "Vary", "Accept-Encoding");
    if (!accepts_gzip(request_header(request, "accept-encoding")) ||
        deflateInit2(&archive->zlib, GZIP_LEVEL, Z_DEFLATED, GZIP_WINDOW, GZIP_MEMORY,
                     Z_DEFAULT_STRATEGY) != Z_OK)
        return;
    archive->is_gzip = archive->has_zlib = true;
    http_respond_header(request->exchange, "Content-Encoding", "gzip");
}

static void on_pack_opened(struct file_call *call)
{
    struct request *request = file_request_of(call)->request;
    struct archive *archive = archive_new(call);

    file_request_of(call)->release = release_packing;
    archive->stream.fd = call->operation.result.file.fd;
    begin_compression(archive);
    metrics_add(request->core->metrics, METRIC_HTTP_REQUESTS, 2, 1);
    http_respond_on_drain(request->exchange, on_drain);
    http_respond_start(request->exchange, 200, "application/x-tar", -1);
    if (request->is_head)
        http_respond_end(request->exchange);
    else
        io_watch_start(&archive->stream, request->core->loop, archive->stream.fd, IO_READ,
                       on_packed);
}

static void start_pack(struct file_call *call)
{
    struct agent_file file = { .kind = FILE_PACK, .user = "", .path = call->path };

    file_call_do(call, &file, on_pack_opened);
}

static void get_archive(struct request *request)
{
    struct error err = { 0 };
    const char *path = file_path(request, &err);

    if (path)
        file_request_begin(request, path, NULL, start_pack);
    else
        request_fail(request, &err);
}

/* --- in: the answer --------------------------------------------------------------------------- */

static void release_unpacking(struct file_call *call)
{
    struct archive *archive = file_request_of(call)->extra;

    if (archive->has_zlib)
        (void)inflateEnd(&archive->zlib);
    archive_free(archive);
}

/* The error that init reports for the archive as a whole. */
static void explain_end(struct error *err, const struct protocol_note_view *last, const char *path)
{
    switch (last->fixed.error) {
    case EBADMSG:
        error_named(err, ERR_INVALID, "invalid_archive", "%.*s", (int)last->fixed.text_length,
                    last->text);
        break;
    case EFBIG:
    case E2BIG:
        error_named(err, ERR_TOO_LARGE, "archive_too_large", "%.*s", (int)last->fixed.text_length,
                    last->text);
        break;
    default:
        file_error(err, last->fixed.error, path);
        break;
    }
}

static void write_refused(const struct archive *archive, struct json_writer *json,
                          struct protocol_note_view *out_last)
{
    size_t at = 0;
    long used;

    json_begin_array(json, "refused");
    while ((used = protocol_note_decode(archive->notes.data + at, archive->notes.length - at,
                                        out_last)) > 0) {
        at += (size_t)used;
        if (out_last->fixed.kind == NOTE_LAST)
            break;
        json_begin_object(json, NULL);
        json_put_bytes(json, "path", out_last->path, out_last->fixed.path_length);
        json_put_bytes(json, "reason", out_last->text, out_last->fixed.text_length);
        json_end_object(json);
    }
    json_end_array(json);
}

static bool notes_are_whole(const struct archive *archive)
{
    struct protocol_note_view note;
    size_t at = 0;
    long used;

    while ((used = protocol_note_decode(archive->notes.data + at, archive->notes.length - at,
                                        &note)) > 0) {
        at += (size_t)used;
        if (note.fixed.kind == NOTE_LAST)
            return true;
    }
    return false;
}

static int status_for(const struct error *err)
{
    return err->code ? request_status_of(err) : 200;
}

static void answer(struct archive *archive)
{
    struct file_call *call = archive->call;
    scoped(buffer_fini) struct buffer text = BUFFER_INIT(1024 * 1024);
    struct json_writer json = JSON_WRITER(&text);
    struct protocol_note_view last;
    struct error err = { 0 };

    archive->is_answered = true;
    archive_close(archive);
    json_begin_object(&json, NULL);
    write_refused(archive, &json, &last);
    json_put_bool(&json, "refused_truncated", last.fixed.flags & NOTE_CUT);
    json_put_int(&json, "unpacked", (int64_t)last.fixed.number);
    json_put_int(&json, "unpacked_bytes", (int64_t)last.fixed.amount);
    json_put_int(&json, "bytes", (int64_t)last.fixed.amount);
    if (last.fixed.error) {
        explain_end(&err, &last, call->path);
        request_write_error(file_request_of(call)->request, &json, "error", &err);
        json_end_object(&json);
    }
    json_end_object(&json);
    request_reply(file_request_of(call)->request, status_for(&err), &text);
}

static void fail(struct archive *archive, enum error_code code, const char *name, const char *why)
{
    struct error err = { 0 };

    archive->is_answered = true;
    archive_close(archive);
    error_named(&err, code, name, "%s", why);
    request_fail(file_request_of(archive->call)->request, &err);
}

/* --- in: the bytes ---------------------------------------------------------------------------- */

static void pump(struct archive *archive);

static void read_notes(struct archive *archive)
{
    void *place = buffer_reserve(&archive->notes, 16 * 1024);
    ssize_t count = place ? recv(archive->stream.fd, place, 16 * 1024, MSG_DONTWAIT) : 0;

    if (count < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    if (count > 0)
        buffer_advance(&archive->notes, (size_t)count);
    if (notes_are_whole(archive))
        answer(archive);
    else if (count <= 0)
        fail(archive, ERR_BACKEND, "backend", "the sandbox stopped while unpacking");
}

static void on_stream(struct io_watch *watch, unsigned events)
{
    struct archive *archive = container_of(watch, struct archive, stream);

    if (events & IO_READ)
        read_notes(archive);
    if (events & IO_WRITE && !archive->is_answered)
        pump(archive);
}

static void watch_stream(struct archive *archive, unsigned events)
{
    io_watch_start(&archive->stream, file_request_of(archive->call)->request->core->loop,
                   archive->stream.fd, events, on_stream);
}

/* Sends what is ready: 1 when all of it is sent, 0 when init takes no more now. */
static int send_ready(struct archive *archive)
{
    while (archive->ready.length) {
        ssize_t count = send(archive->stream.fd, archive->ready.data, archive->ready.length,
                             MSG_DONTWAIT | MSG_NOSIGNAL);

        if (count < 0 && errno == EINTR)
            continue;
        if (count < 0 && errno == EAGAIN)
            return 0;
        if (count < 0) { /* it has ended: its last word is still to be read */
            buffer_clear(&archive->ready);
            buffer_clear(&archive->input);
            return 1;
        }
        buffer_consume(&archive->ready, (size_t)count);
    }
    return 1;
}

static bool is_bomb(const struct archive *archive)
{
    return archive->produced > BOMB_BYTES && archive->produced / BOMB_RATIO > archive->received;
}

/* Makes at most one piece ready from the input; false when it has failed. */
static bool inflate_piece(struct archive *archive)
{
    uint8_t *place = buffer_reserve(&archive->ready, PIECE);
    size_t made;
    int result;

    archive->zlib.next_in = archive->input.data;
    archive->zlib.avail_in = (uInt)archive->input.length;
    archive->zlib.next_out = place;
    archive->zlib.avail_out = PIECE;
    if (archive->gzip_is_ended)
        (void)inflateReset(&archive->zlib);
    result = inflate(&archive->zlib, Z_NO_FLUSH);
    if (result != Z_OK && result != Z_STREAM_END && result != Z_BUF_ERROR) {
        fail(archive, ERR_INVALID, "invalid_archive", "the body is not valid gzip");
        return false;
    }
    archive->gzip_is_ended = result == Z_STREAM_END;
    made = PIECE - archive->zlib.avail_out;
    archive->produced += made;
    buffer_advance(&archive->ready, made);
    buffer_consume(&archive->input, archive->input.length - archive->zlib.avail_in);
    if (!is_bomb(archive))
        return true;
    fail(archive, ERR_TOO_LARGE, "archive_too_large",
         "the compression ratio of the body is too high");
    return false;
}

static void end_input(struct archive *archive)
{
    if (archive->is_gzip && !archive->gzip_is_ended && archive->received) {
        fail(archive, ERR_INVALID, "invalid_archive", "the compressed body is not complete");
        return;
    }
    if (!archive->is_shut)
        (void)shutdown(archive->stream.fd, SHUT_WR);
    archive->is_shut = true;
    watch_stream(archive, IO_READ);
}

/* Passes on what there is, as fast as init takes it and never for long. */
static void pump(struct archive *archive)
{
    for (unsigned i = 0; i < PIECES_PER_TURN; i++) {
        if (!send_ready(archive)) {
            watch_stream(archive, IO_READ | IO_WRITE);
            return;
        }
        if (!archive->input.length) {
            if (archive->is_ended) {
                end_input(archive);
                return;
            }
            watch_stream(archive, IO_READ);
            http_exchange_resume_body(file_request_of(archive->call)->request->exchange);
            return;
        }
        if (!inflate_piece(archive))
            return;
    }
    watch_stream(archive, IO_READ | IO_WRITE);
}

static void on_body(struct http_exchange *exchange, const uint8_t *data, size_t length)
{
    struct request *request = http_exchange_user(exchange);
    struct file_call *call = file_request_call(request);
    struct archive *archive = file_request_of(call)->extra;

    if (archive->is_answered)
        return;
    archive->received += length;
    if (length == 0)
        archive->is_ended = true;
    else
        (void)buffer_append(archive->is_gzip ? &archive->input : &archive->ready, data, length);
    if (length)
        http_exchange_pause_body(exchange);
    pump(archive);
}

static bool on_unpack_failure(struct file_call *call, int number)
{
    struct error err = { 0 };

    if (number != EEXIST && number != ENOTDIR)
        return false;
    error_named(&err, ERR_CONFLICT, "not_a_directory", "%.200s: it is not a directory", call->path);
    request_fail(file_request_of(call)->request, &err);
    return true;
}

static void on_unpack_opened(struct file_call *call)
{
    const char *encoding = request_header(file_request_of(call)->request, "content-encoding");
    struct archive *archive = archive_new(call);

    file_request_of(call)->release = release_unpacking;
    archive->stream.fd = call->operation.result.file.fd;
    archive->is_gzip = encoding && strcasecmp(encoding, "identity") != 0;
    if (archive->is_gzip) {
        archive->has_zlib = inflateInit2(&archive->zlib, GZIP_WINDOW) == Z_OK;
        if (!archive->has_zlib) {
            fail(archive, ERR_INTERNAL, "internal", "zlib has no memory");
            return;
        }
    }
    watch_stream(archive, IO_READ);
    http_exchange_stream_body(file_request_of(call)->request->exchange, on_body);
}

static void start_unpack(struct file_call *call)
{
    struct agent_file file = {
        .kind = FILE_UNPACK,
        .user = "",
        .path = call->path,
        .bytes = session_limits(call->hold.session)->disk_bytes,
    };
    const struct http_head *head = http_exchange_head(file_request_of(call)->request->exchange);

    call->on_failure = on_unpack_failure;
    if (file.bytes && head->content_length > 0 && (uint64_t)head->content_length > 2 * file.bytes)
        file_call_fail(call, EFBIG, call->path);
    else
        file_call_do(call, &file, on_unpack_opened);
}

static int check_encoding(const struct request *request, struct error *err)
{
    const char *encoding = request_header(request, "content-encoding");

    if (!encoding || strcasecmp(encoding, "gzip") == 0 || strcasecmp(encoding, "identity") == 0)
        return 0;
    return error_named(err, ERR_INVALID, "unsupported_media_type",
                       "Content-Encoding must be gzip or absent, not %.40s", encoding);
}

static void put_archive(struct request *request)
{
    struct error err = { 0 };
    const char *path = file_path(request, &err);

    if (path && check_encoding(request, &err) == 0)
        file_request_begin(request, path, NULL, start_unpack);
    else
        request_fail(request, &err);
}

/* --- the table -------------------------------------------------------------------------------- */

static const struct route_parameter parameters[] = {
    { "path", "string", "path of the directory; a relative one starts in the workspace" },
    { 0 },
};

static const struct route_answer get_answers[] = {
    { 200, "a tar archive, with Content-Encoding gzip if Accept-Encoding allows it" },
    { 404, "session_not_found, file_not_found, not_a_directory" },
    { 0 },
};

static const struct route_answer put_answers[] = {
    { 200, "{unpacked, bytes, refused:[{path, reason}], refused_truncated}" },
    { 400, "invalid_archive; members before the damage are unpacked completely" },
    { 409, "not_a_directory" },
    { 413, "archive_too_large" },
    { 415, "unsupported_media_type" },
    { 507, "no_space" },
    { 0 },
};

#define ARCHIVE "/api/v1/sessions/{session}/archive"

const struct route api_archive_routes[] = {
    { HTTP_GET, ARCHIVE, get_archive, "Read a directory as a tar archive",
      .session = ROUTE_LIVE_SESSION, .parameters = parameters, .answers = get_answers },
    { HTTP_PUT, ARCHIVE, put_archive, "Unpack a tar archive into a directory",
      .body = ROUTE_BYTES_BODY, .session = ROUTE_LIVE_SESSION, .parameters = parameters,
      .answers = put_answers },
    { 0 },
};
