/* SPDX-License-Identifier: Apache-2.0 */
/* Downloads: GET /files. */

#include "e2b/envd/files.h"

#include "base/alloc.h"
#include "base/str.h"
#include "core/core.h"
#include "core/metrics.h"
#include "e2b/envd/envd.h"
#include "e2b/envd/path.h"
#include "service/file_call.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <zlib.h>

enum { PIECE = 64 * 1024, GZIP_WINDOW = 15 + 16 };

/* --- for uploads, too ------------------------------------------------------------------------- */

const char *files_user(const struct request *request)
{
    const char *user = request_parameter(request, "username");

    return !user || str_equal(user, "user") ? "" : user;
}

const char *files_path(struct request *request)
{
    const char *path = request_parameter(request, "path");
    const char *for_init = envd_path_for_init(path ? path : "");

    if (strlen(files_user(request)) >= PROTOCOL_MAX_USER)
        e2b_fail_status(request, 401, "invalid username");
    else if (!for_init)
        e2b_fail_status(request, 400, "the path names the home of another user");
    else if (strlen(for_init) >= PROTOCOL_MAX_PATH)
        e2b_fail_status(request, 400, "the path is too long");
    else
        return for_init;
    return NULL;
}

static void fail_about(struct request *request, int status, const char *format, const char *what)
{
    scoped(free) char *message = xasprintf(format, what);

    e2b_fail_status(request, status, message);
}

void files_fail_errno(struct request *request, int number, const char *path)
{
    const char *asked = request_parameter(request, "path");
    struct error err = { 0 };

    if (str_is_empty(asked))
        asked = path;
    if (number == ENOENT)
        fail_about(request, 404, "path '%.400s' does not exist", asked);
    else if (number == EISDIR)
        fail_about(request, 400, "path '%.400s' is a directory", asked);
    else if (number == ENOTDIR)
        fail_about(request, 400, "a part of the path '%.400s' is not a directory", asked);
    else if (number == EINVAL && *files_user(request))
        fail_about(request, 401, "invalid username: '%.60s'", files_user(request));
    else {
        file_error(&err, number, asked);
        e2b_fail(request, &err);
    }
}

void envd_fail_gone(struct request *request)
{
    char id[ID_SIZE];

    e2b_id_write(request->session_id, id);
    e2b_fail_gone(request, id);
}

void files_fail(struct request *request, int number, const struct error *err, const char *path)
{
    if (number)
        files_fail_errno(request, number, path);
    else
        e2b_fail(request, err);
}

/* --- out -------------------------------------------------------------------------------------- */

struct download {
    struct file_call call;
    struct request *request;
    struct file_source source;
    int range; /* 1: a part was asked for, -1: one outside of the file */
    bool is_compressed;
    z_stream zlib; /* with is_compressed */
};

static void on_gone(struct request *request)
{
    struct download *download = request->state;

    request->on_gone = NULL;
    if (download->is_compressed)
        (void)deflateEnd(&download->zlib);
    file_source_fini(&download->source);
    file_call_fini(&download->call);
    free(download);
}

static void on_error(struct file_call *call, const struct error *err)
{
    e2b_fail(container_of(call, struct download, call)->request, err);
}

/* An answer that is on its way is cut off. */
static void on_lost(struct file_call *call, const struct error *err UNUSED)
{
    struct request *request = container_of(call, struct download, call)->request;

    if (http_exchange_status(request->exchange))
        http_exchange_abort(request->exchange);
    else
        envd_fail_gone(request);
}

/* --- compressed ------------------------------------------------------------------------------- */

/* Only for clients that want nothing else: most name gzip among others, and copy faster than
 * this. */
static bool wants_gzip(const struct request *request)
{
    const char *accepted = request_header(request, "accept-encoding");

    return accepted && strcasecmp(accepted, "gzip") == 0 && !request->is_head &&
           !request_header(request, "range");
}

static void send_compressed(struct download *download, const uint8_t *bytes, size_t length,
                            int flush)
{
    static uint8_t piece[PIECE];

    download->zlib.next_in = (uint8_t *)(uintptr_t)bytes;
    download->zlib.avail_in = (unsigned)length;
    do {
        download->zlib.next_out = piece;
        download->zlib.avail_out = sizeof(piece);
        (void)deflate(&download->zlib, flush);
        http_respond_write(download->request->exchange, piece,
                           sizeof(piece) - download->zlib.avail_out);
    } while (download->zlib.avail_out == 0);
}

static void pump(struct download *download);

static void on_ready(struct file_source *source)
{
    pump(container_of(source, struct download, source));
}

/* One piece in a turn: compressing takes time, and others wait. */
static void pump(struct download *download)
{
    static uint8_t bytes[PIECE];
    struct http_exchange *exchange = download->request->exchange;
    ssize_t count;

    if (http_respond_pending(exchange) >= HTTP_HIGH_WATER)
        return; /* on_drain comes */
    count = file_source_read(&download->source, bytes, sizeof(bytes));
    if (count < 0 && errno != EAGAIN) {
        http_exchange_abort(exchange);
    } else if (count == 0) {
        send_compressed(download, bytes, 0, Z_FINISH);
        http_respond_end(exchange);
    } else {
        if (count > 0)
            send_compressed(download, bytes, (size_t)count, Z_NO_FLUSH);
        file_source_wait(&download->source, on_ready);
    }
}

static void on_drain(struct http_exchange *exchange)
{
    struct request *request = http_exchange_user(exchange);

    if (request->on_gone)
        pump(request->state);
}

static void start_compressed(struct download *download)
{
    struct http_exchange *exchange = download->request->exchange;

    if (deflateInit2(&download->zlib, Z_BEST_SPEED, Z_DEFLATED, GZIP_WINDOW, 8,
                     Z_DEFAULT_STRATEGY) != Z_OK) {
        e2b_fail_status(download->request, 500, "the answer cannot be compressed");
        return;
    }
    download->is_compressed = true;
    http_respond_header(exchange, "Content-Encoding", "gzip");
    http_respond_on_drain(exchange, on_drain);
    http_respond_start(exchange, 200, "application/octet-stream", -1);
    pump(download);
}

/* --- as it is --------------------------------------------------------------------------------- */

static bool choose_bytes(struct file_source *source)
{
    struct download *download = container_of(source, struct download, source);
    uint64_t end = source->stat.size;

    download->range = http_range(request_header(download->request, "range"), source->stat.size,
                                 &source->offset, &end);
    source->length = end - source->offset;
    return download->range >= 0 && !download->request->is_head;
}

static void put_range(const struct download *download)
{
    const struct file_source *source = &download->source;
    char text[96];

    if (download->range > 0)
        snprintf(text, sizeof(text), "bytes %llu-%llu/%llu", (unsigned long long)source->offset,
                 (unsigned long long)(source->offset + source->length) - 1,
                 (unsigned long long)source->stat.size);
    else
        snprintf(text, sizeof(text), "bytes */%llu", (unsigned long long)source->stat.size);
    http_respond_header(download->request->exchange, "Content-Range", text);
}

static void send_plain(struct download *download)
{
    struct http_exchange *exchange = download->request->exchange;
    const struct file_source *source = &download->source;

    http_respond_header(exchange, "Accept-Ranges", "bytes");
    if (download->range > 0)
        put_range(download);
    http_respond_start(exchange, download->range > 0 ? 206 : 200, "application/octet-stream",
                       (int64_t)source->length);
    if (source->length && !download->request->is_head)
        http_respond_content(exchange, source->fd, (int64_t)source->offset, (size_t)source->length);
    else
        http_respond_end(exchange);
}

static void on_opened(struct file_source *source)
{
    struct download *download = container_of(source, struct download, source);
    struct request *request = download->request;

    if (source->err.code) {
        files_fail(request, source->sys_errno, &source->err, download->call.path);
        return;
    }
    if (download->range < 0) {
        put_range(download);
        e2b_fail_status(request, 416, "the range lies outside of the file");
        return;
    }
    metrics_add(request->core->metrics, METRIC_HTTP_REQUESTS, 2, 1);
    if (wants_gzip(request))
        start_compressed(download);
    else
        send_plain(download);
}

static void start(struct file_call *call)
{
    struct download *download = container_of(call, struct download, call);
    const struct request *request = download->request;
    bool chooses = request->is_head || request_header(request, "range");

    struct file_actor actor = { files_user(request), FILE_BY_ROOT };

    if (envd_is_known(call->hold.agent))
        file_source_open_as(&download->source, call->hold.agent, &actor, call->path,
                            chooses ? choose_bytes : NULL, on_opened);
    else
        e2b_fail_status(download->request, 503, ENVD_UNKNOWN);
}

static void get_file(struct request *request)
{
    const char *path = files_path(request);
    struct session *session = path ? e2b_session(request) : NULL;
    struct download *download;

    if (!path)
        return;
    if (!session) {
        envd_fail_gone(request);
        return;
    }
    download = xnew(struct download);
    download->request = request;
    download->call.path = path;
    download->call.on_error = on_error;
    download->call.on_lost = on_lost;
    request->state = download;
    request->on_gone = on_gone;
    file_call_begin(&download->call, session, start);
}

static const struct route_answer get_answers[] = {
    { 200, "the file" },
    { 206, "a range of it" },
    { 400, "a directory" },
    { 404, "no such file" },
    { 0 },
};

static const struct route_answer post_answers[] = {
    { 200, "the files that were written" },
    { 400, "no path, or a body that is neither multipart/form-data nor application/octet-stream" },
    { 507, "no space is left" },
    { 0 },
};

const struct route e2b_envd_files[] = {
    { HTTP_GET, "/files", get_file, "Download a file", .answers = get_answers },
    { HTTP_POST, "/files", files_upload, "Upload files", .body = ROUTE_ANY_BODY,
      .answers = post_answers },
    { 0 },
};
