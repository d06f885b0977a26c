/* Files of a sandbox: out, in, and what is where. */

#include "api/files.h"

#include "base/alloc.h"
#include "base/str.h"
#include "core/metrics.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* --- out ------------------------------------------------------------------------------------- */

static void put_range_header(struct api_request *request, uint64_t start, uint64_t end,
                             uint64_t size)
{
    char text[80];

    snprintf(text, sizeof(text), "bytes %llu-%llu/%llu", (unsigned long long)start,
             (unsigned long long)end - 1, (unsigned long long)size);
    http_respond_header(request->exchange, "Content-Range", text);
}

static void fail_range(struct file_call *call, uint64_t size)
{
    struct error err = { 0 };
    char text[48];

    snprintf(text, sizeof(text), "bytes */%llu", (unsigned long long)size);
    http_respond_header(call->request->exchange, "Content-Range", text);
    error_named(&err, ERR_INVALID, "range_not_satisfiable",
                "the range lies outside of the file, which has %llu bytes",
                (unsigned long long)size);
    api_fail(call->request, &err);
}

static void send_file(struct file_call *call, int status, uint64_t start, uint64_t end)
{
    struct http_exchange *exchange = call->request->exchange;

    metrics_add(call->request->core->metrics, METRIC_HTTP_REQUESTS, 2, 1);
    http_respond_start(exchange, status, "application/octet-stream", (int64_t)(end - start));
    if (end > start)
        http_respond_write_file(exchange, call->fd, (int64_t)start, (size_t)(end - start));
    http_respond_end(exchange);
}

static void on_opened_for_reading(struct file_call *call)
{
    const struct protocol_stat *stat = &call->operation.result.file.stat;
    struct api_request *request = call->request;
    const char *known = api_header(request, "if-none-match");
    uint64_t start = 0, end = stat->size;
    char etag[ETAG_SIZE];
    int range;

    call->fd = call->operation.result.file.fd;
    if (call->fd < 0) {
        file_call_fail(call, ENXIO, call->path);
        return;
    }
    file_etag(stat, etag);
    http_respond_header(request->exchange, "ETag", etag);
    http_respond_header(request->exchange, "Accept-Ranges", "bytes");
    if (known && (str_equal(known, etag) || str_equal(known, "*"))) {
        http_respond(request->exchange, 304, NULL, NULL, 0);
        return;
    }
    range = file_range(api_header(request, "range"), stat->size, &start, &end);
    if (range < 0) {
        fail_range(call, stat->size);
        return;
    }
    if (range > 0)
        put_range_header(request, start, end, stat->size);
    send_file(call, range > 0 ? 206 : 200, start, end);
}

static void start_get(struct file_call *call)
{
    file_call_do(call,
                 &(struct agent_file){ .kind = FILE_OPEN_READ, .user = "", .path = call->path },
                 on_opened_for_reading);
}

static void get_file(struct api_request *request)
{
    struct error err = { 0 };
    const char *path = file_path(request, &err);

    if (path)
        file_call_begin(request, path, NULL, start_get);
    else
        api_fail(request, &err);
}

/* --- in -------------------------------------------------------------------------------------- */

static void on_committed(struct file_call *call)
{
    scoped(buffer_fini) struct buffer text = BUFFER_INIT(64 * 1024);
    struct json_writer json = JSON_WRITER(&text);

    free(steal_ptr(&call->temporary));
    file_write_json(&json, NULL, call->path, strlen(call->path), &call->operation.result.file.stat);
    json_end_object(&json);
    api_reply(call->request, 201, &text);
}

static void on_upload_data(struct http_exchange *exchange, const uint8_t *data, size_t length)
{
    struct api_request *request = http_exchange_user(exchange);
    struct file_call *call = request->state;
    struct agent_file commit = { .kind = FILE_COMMIT,
                                 .user = "",
                                 .path = call->path,
                                 .second = call->temporary,
                                 .flags = call->flags };

    if (length == 0) {
        fd_close(steal_fd(&call->fd));
        if (!call->in_use || !call->use.agent)
            file_call_fail(call, EIO, call->path);
        else
            file_call_do(call, &commit, on_committed);
        return;
    }
    while (length && call->fd >= 0) {
        ssize_t count = write(call->fd, data, length);

        if (count < 0 && errno == EINTR)
            continue;
        if (count < 0) {
            fd_close(steal_fd(&call->fd));
            file_call_fail(call, errno, call->path);
            return;
        }
        data += count;
        length -= (size_t)count;
        call->size += (uint64_t)count;
    }
}

static void on_opened_for_writing(struct file_call *call)
{
    call->fd = call->operation.result.file.fd;
    call->temporary = xstrdup(call->operation.result.file.temporary);
    if (call->fd < 0)
        file_call_fail(call, ENXIO, call->path);
    else
        http_exchange_stream_body(call->request->exchange, on_upload_data);
}

static int read_mode(const struct api_request *request, uint32_t *out_mode, struct error *err)
{
    const char *text = api_parameter(request, "mode");
    unsigned mode = 0;
    int used = 0;

    if (!text)
        return 0;
    if (strlen(text) > 5 || sscanf(text, "%o%n", &mode, &used) != 1 || text[used] || mode > 07777 ||
        *text == '-' || *text == '+' || *text == ' ')
        return error_named(err, ERR_INVALID, "invalid_parameter",
                           "parameter mode must be octal permissions such as 0644");
    *out_mode = mode;
    return 0;
}

static void open_for_writing(struct file_call *call)
{
    struct agent_file file = { .kind = FILE_OPEN_WRITE, .user = "", .path = call->path };

    (void)read_mode(call->request, &file.mode, NULL);
    file_call_do(call, &file, on_opened_for_writing);
}

static void on_stat_before(struct file_call *call)
{
    const char *wanted = api_header(call->request, "if-match");
    char etag[ETAG_SIZE];
    struct error err = { 0 };

    file_etag(&call->operation.result.file.stat, etag);
    if (str_equal(wanted, etag) || str_equal(wanted, "*")) {
        open_for_writing(call);
        return;
    }
    error_named(&err, ERR_CONFLICT, "precondition_failed", "%.200s has changed: it is %s now",
                call->path, etag);
    api_fail(call->request, &err);
}

static void start_put(struct file_call *call)
{
    const char *unless = api_header(call->request, "if-none-match");

    if (unless && str_equal(unless, "*"))
        call->flags = FILE_NO_REPLACE;
    if (api_header(call->request, "if-match"))
        file_call_do(call,
                     &(struct agent_file){ .kind = FILE_STAT, .user = "", .path = call->path },
                     on_stat_before);
    else
        open_for_writing(call);
}

static void put_file(struct api_request *request)
{
    struct error err = { 0 };
    const char *path = file_path(request, &err);
    uint32_t mode;

    if (path && read_mode(request, &mode, &err) == 0)
        file_call_begin(request, path, NULL, start_put);
    else
        api_fail(request, &err);
}

/* --- remove ---------------------------------------------------------------------------------- */

static void reply_done(struct file_call *call)
{
    api_reply_empty_object(call->request, 200);
}

static void start_delete(struct file_call *call)
{
    struct agent_file file = { .kind = FILE_REMOVE, .user = "", .path = call->path };
    bool recursive = false;

    (void)api_parameter_bool(call->request, "recursive", &recursive, NULL);
    if (recursive)
        file.flags = FILE_TREE;
    file_call_do(call, &file, reply_done);
}

static void delete_file(struct api_request *request)
{
    struct error err = { 0 };
    const char *path = file_path(request, &err);
    bool recursive;

    if (path && api_parameter_bool(request, "recursive", &recursive, &err) == 0)
        file_call_begin(request, path, NULL, start_delete);
    else
        api_fail(request, &err);
}

/* --- stat and list --------------------------------------------------------------------------- */

static void on_stat(struct file_call *call)
{
    scoped(buffer_fini) struct buffer text = BUFFER_INIT(64 * 1024);
    struct json_writer json = JSON_WRITER(&text);

    file_write_json(&json, NULL, call->path, strlen(call->path), &call->operation.result.file.stat);
    json_end_object(&json);
    api_reply(call->request, 200, &text);
}

static void start_stat(struct file_call *call)
{
    struct agent_file file = { .kind = FILE_STAT, .user = "", .path = call->path };
    bool follow = true;

    (void)api_parameter_bool(call->request, "follow", &follow, NULL);
    if (!follow)
        file.flags = FILE_NO_FOLLOW;
    file_call_do(call, &file, on_stat);
}

static void get_stat(struct api_request *request)
{
    struct error err = { 0 };
    const char *path = file_path(request, &err);
    bool follow;

    if (path && api_parameter_bool(request, "follow", &follow, &err) == 0)
        file_call_begin(request, path, NULL, start_stat);
    else
        api_fail(request, &err);
}

static void put_entry(struct json_writer *json, const struct protocol_entry_view *entry)
{
    file_write_json(json, NULL, entry->path, entry->fixed.path_length, &entry->fixed.stat);
    if (entry->fixed.target_length)
        json_put_bytes(json, "target", entry->target, entry->fixed.target_length);
    if (entry->fixed.error)
        json_put_text(json, "error", strerror(entry->fixed.error));
    json_end_object(json);
}

static void on_list(struct listing *listing)
{
    struct file_call *call = container_of(listing, struct file_call, listing);
    scoped(buffer_fini) struct buffer text = BUFFER_INIT(API_REPLY_MAXIMUM);
    struct json_writer json = JSON_WRITER(&text);
    struct protocol_entry_view entry;
    uint64_t limit = 10000, skip = 0, count = 0;
    size_t at = 0;

    if (listing->err.code) {
        if (listing->sys_errno)
            file_call_fail(call, listing->sys_errno, call->path);
        else
            api_fail(call->request, &listing->err);
        return;
    }
    (void)api_parameter_u64(call->request, "limit", 100000, &limit, NULL);
    (void)api_parameter_u64(call->request, "cursor", INT64_MAX, &skip, NULL);
    json_begin_object(&json, NULL);
    json_begin_array(&json, "entries");
    for (; listing_next(listing, &at, &entry); count++) {
        if (count >= skip && count - skip < limit)
            put_entry(&json, &entry);
    }
    json_end_array(&json);
    json_put_int(&json, "total", (int64_t)count);
    if (count > skip + limit)
        json_put_int(&json, "next_cursor", (int64_t)(skip + limit));
    else
        json_put_null(&json, "next_cursor");
    json_put_bool(&json, "truncated", listing_cut(listing) != 0);
    json_end_object(&json);
    api_reply(call->request, 200, &text);
}

static void start_list(struct file_call *call)
{
    uint64_t depth = 1;

    (void)api_parameter_u64(call->request, "depth", PROTOCOL_MAX_DEPTH, &depth, NULL);
    listing_start(&call->listing, call->request->core->loop, call->use.agent, "", call->path,
                  (unsigned)depth, on_list);
}

static void get_list(struct api_request *request)
{
    const char *path = api_parameter(request, "path");
    uint64_t number;
    struct error err = { 0 };

    if ((path && !file_path(request, &err)) ||
        api_parameter_u64(request, "depth", PROTOCOL_MAX_DEPTH, &number, &err) < 0 ||
        api_parameter_u64(request, "limit", 100000, &number, &err) < 0 ||
        api_parameter_u64(request, "cursor", INT64_MAX, &number, &err) < 0)
        api_fail(request, &err);
    else
        file_call_begin(request, path ? path : ".", NULL, start_list);
}

/* --- mkdir and move -------------------------------------------------------------------------- */

struct path_body {
    const char *path, *from, *to;
    bool replace;
};

#define BODY(name) offsetof(struct path_body, name)

static const struct json_field mkdir_fields[] = {
    { "path", JSON_KIND_TEXT, BODY(path), .required = true, .max_length = PROTOCOL_MAX_PATH - 1 },
};

static const struct json_field move_fields[] = {
    { "from", JSON_KIND_TEXT, BODY(from), .required = true, .max_length = PROTOCOL_MAX_PATH - 1 },
    { "to", JSON_KIND_TEXT, BODY(to), .required = true, .max_length = PROTOCOL_MAX_PATH - 1 },
    { "replace", JSON_KIND_BOOL, BODY(replace) },
};

static void start_mkdir(struct file_call *call)
{
    file_call_do(
        call,
        &(struct agent_file){ .kind = FILE_MKDIR, .user = "", .path = call->path, .mode = 0755 },
        reply_done);
}

static int check_path(const char *field, const char *path, struct error *err)
{
    if (*path)
        return 0;
    return error_named(err, ERR_INVALID, "invalid_field", "%s must not be empty", field);
}

static void post_mkdir(struct api_request *request)
{
    struct path_body body = { 0 };
    struct error err = { 0 };

    if (api_decode(request, &body, &err) < 0 || check_path("path", body.path, &err) < 0)
        api_fail(request, &err);
    else
        file_call_begin(request, body.path, NULL, start_mkdir);
}

static void start_move(struct file_call *call)
{
    const json_t *replace = json_object_get(call->request->body, "replace");

    file_call_do(call,
                 &(struct agent_file){ .kind = FILE_MOVE,
                                       .user = "",
                                       .path = call->path,
                                       .second = call->second,
                                       .flags = json_is_true(replace) ? 0 : FILE_NO_REPLACE },
                 reply_done);
}

static void post_move(struct api_request *request)
{
    struct path_body body = { 0 };
    struct error err = { 0 };

    if (api_decode(request, &body, &err) < 0 || check_path("from", body.from, &err) < 0 ||
        check_path("to", body.to, &err) < 0)
        api_fail(request, &err);
    else
        file_call_begin(request, body.from, body.to, start_move);
}

/* --- the table ------------------------------------------------------------------------------- */

static const struct api_parameter get_parameters[] = {
    { "path", "string", "of the file; relative ones begin in the workspace" },
    { 0 },
};

static const struct api_parameter put_parameters[] = {
    { "path", "string", "of the file; relative ones begin in the workspace" },
    { "mode", "string", "octal permissions; by default those of the file it replaces, or 0644" },
    { 0 },
};

static const struct api_parameter delete_parameters[] = {
    { "path", "string", "of the file; relative ones begin in the workspace" },
    { "recursive", "boolean", "a directory with all that is in it" },
    { 0 },
};

static const struct api_parameter stat_parameters[] = {
    { "path", "string", "of the file; relative ones begin in the workspace" },
    { "follow", "boolean", "0: of a symbolic link itself" },
    { 0 },
};

static const struct api_parameter list_parameters[] = {
    { "path", "string", "of the directory; the workspace by default" },
    { "depth", "integer", "1 (default) is the directory's own entries" },
    { "limit", "integer", "at most this many entries, 10000 by default" },
    { "cursor", "integer", "next_cursor of the page before" },
    { 0 },
};

static const struct api_answer get_answers[] = {
    { 200, "the bytes of the file, with its ETag" },
    { 206, "the Range that was asked for" },
    { 304, "If-None-Match names what it is" },
    { 404, "session_not_found, file_not_found" },
    { 409, "is_a_directory, not_a_file" },
    { 416, "range_not_satisfiable" },
    { 0 },
};

static const struct api_answer put_answers[] = {
    { 201, "the file is there, whole" },
    { 404, "session_not_found, not_a_directory" },
    { 409, "is_a_directory, file_exists (If-None-Match: *)" },
    { 412, "precondition_failed (If-Match)" },
    { 507, "no_space" },
    { 0 },
};

static const struct api_answer answers[] = {
    { 200, "done, or what it says" },
    { 403, "permission_denied" },
    { 404, "session_not_found, file_not_found" },
    { 409, "file_exists, directory_not_empty, is_a_directory" },
    { 0 },
};

#define FILES "/api/v1/sessions/{session}/files"

const struct api_route api_file_routes[] = {
    { HTTP_GET, FILES, get_file, "A file", .session = API_LIVE_SESSION,
      .parameters = get_parameters, .answers = get_answers },
    { HTTP_PUT, FILES, put_file, "Write a file: parents are made, and it is replaced at once",
      .body = API_BYTES_BODY, .session = API_LIVE_SESSION, .parameters = put_parameters,
      .answers = put_answers },
    { HTTP_DELETE, FILES, delete_file, "Remove a file", .session = API_LIVE_SESSION,
      .parameters = delete_parameters, .answers = answers },
    { HTTP_GET, FILES "/stat", get_stat, "What a path is", .session = API_LIVE_SESSION,
      .parameters = stat_parameters, .answers = answers },
    { HTTP_GET, FILES "/list", get_list, "What is in a directory", .session = API_LIVE_SESSION,
      .parameters = list_parameters, .answers = answers },
    { HTTP_POST, FILES "/mkdir", post_mkdir, "Make a directory and its parents",
      .body = API_JSON_BODY, .session = API_LIVE_SESSION, .fields = mkdir_fields,
      .field_count = ARRAY_LENGTH(mkdir_fields), .answers = answers },
    { HTTP_POST, FILES "/move", post_move, "Move a file or directory", .body = API_JSON_BODY,
      .session = API_LIVE_SESSION, .fields = move_fields, .field_count = ARRAY_LENGTH(move_fields),
      .answers = answers },
    { 0 },
};
