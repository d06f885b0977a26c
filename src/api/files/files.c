/* SPDX-License-Identifier: Apache-2.0 */
/* Files of a sandbox: out, in, and what is where. */

#include "api/files/files.h"

#include "base/str.h"
#include "core/metrics.h"
#include "wire/http/http.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/* --- out ------------------------------------------------------------------------------------- */

static void put_range_header(struct request *request, uint64_t start, uint64_t end, uint64_t size)
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
    http_respond_header(file_request_of(call)->request->exchange, "Content-Range", text);
    error_named(&err, ERR_INVALID, "range_not_satisfiable",
                "the range lies outside of the file, which has %llu bytes",
                (unsigned long long)size);
    request_fail(file_request_of(call)->request, &err);
}

static void send_file(struct file_call *call)
{
    struct http_exchange *exchange = file_request_of(call)->request->exchange;
    const struct file_source *source = &file_request_of(call)->source;
    int status = file_request_of(call)->range > 0 ? 206 : 200;

    metrics_add(file_request_of(call)->request->core->metrics, METRIC_HTTP_REQUESTS, 2, 1);
    http_respond_start(exchange, status, "application/octet-stream", (int64_t)source->length);
    http_respond_content(exchange, source->fd, (int64_t)source->offset, (size_t)source->length);
}

/* With If-Range the range is for one version only. */
static bool range_applies(const struct request *request, const char *etag)
{
    const char *version = request_header(request, "if-range");

    return !version || str_equal(version, etag);
}

static bool is_known(const struct request *request, const char *etag)
{
    const char *known = request_header(request, "if-none-match");

    return known && file_etag_is_in(known, etag);
}

static bool choose_bytes(struct file_source *source)
{
    struct file_request *files = container_of(source, struct file_request, source);
    const char *header = request_header(files->request, "range");
    uint64_t end = source->stat.size;
    char etag[ETAG_SIZE];

    file_etag(&source->stat, etag);
    files->range = range_applies(files->request, etag)
                       ? http_range(header, source->stat.size, &source->offset, &end)
                       : 0;
    source->length = end - source->offset;
    return files->range >= 0 && !files->request->is_head && !is_known(files->request, etag);
}

static void on_opened_for_reading(struct file_source *source)
{
    struct file_request *files = container_of(source, struct file_request, source);
    struct request *request = files->request;
    char etag[ETAG_SIZE];

    if (source->err.code) {
        request_fail(request, &source->err);
        return;
    }
    file_etag(&source->stat, etag);
    http_respond_header(request->exchange, "ETag", etag);
    http_respond_header(request->exchange, "Accept-Ranges", "bytes");
    if (is_known(request, etag)) {
        http_respond(request->exchange, 304, NULL, NULL, 0);
        return;
    }
    if (files->range < 0) {
        fail_range(&files->call, source->stat.size);
        return;
    }
    if (files->range > 0)
        put_range_header(request, source->offset, source->offset + source->length,
                         source->stat.size);
    send_file(&files->call);
}

/* Without such a header there is nothing to choose, and the file can be opened at once. */
static bool may_want_a_part(const struct request *request)
{
    return request->is_head || request_header(request, "range") ||
           request_header(request, "if-none-match");
}

static void start_get(struct file_call *call)
{
    struct file_request *files = file_request_of(call);

    file_source_open(&files->source, call->hold.agent, call->path,
                     may_want_a_part(files->request) ? choose_bytes : NULL, on_opened_for_reading);
}

static void get_file(struct request *request)
{
    struct error err = { 0 };
    const char *path = file_path(request, &err);

    if (path)
        file_request_begin(request, path, NULL, start_get);
    else
        request_fail(request, &err);
}

/* --- in -------------------------------------------------------------------------------------- */

static void on_committed(struct file_writer *writer)
{
    struct file_request *files = container_of(writer, struct file_request, writer);
    const char *path = files->call.path;
    scoped(buffer_fini) struct buffer text = BUFFER_INIT(64 * 1024);
    struct json_writer json = JSON_WRITER(&text);

    if (writer->err.code) {
        request_fail(files->request, &writer->err);
        return;
    }
    file_write_json(&json, NULL, path, strlen(path), &writer->stat);
    json_end_object(&json);
    request_reply(files->request, 201, &text);
}

/* An upload that is larger than the sandbox's disk is refused before it is sent. */
static uint64_t largest_upload(const struct file_call *call)
{
    uint64_t disk = call->in_use ? session_limits(call->hold.session)->disk_bytes : 0;

    return disk ? disk : INT64_MAX;
}

static void fail_upload(struct file_request *files, const struct error *err)
{
    files->is_refused = true;
    request_fail(files->request, err);
}

static void add_to_upload(struct file_request *files, const uint8_t *data, size_t length)
{
    struct error err = { 0 };

    files->size += length;
    if (files->size > largest_upload(&files->call)) {
        file_error(&err, EFBIG, files->call.path);
        fail_upload(files, &err);
    } else if (file_writer_add(&files->writer, data, length) < 0) {
        fail_upload(files, &files->writer.err);
    } else if (file_writer_is_full(&files->writer)) {
        http_exchange_pause_body(files->request->exchange);
    }
}

static void on_upload_data(struct http_exchange *exchange, const uint8_t *data, size_t length)
{
    struct request *request = http_exchange_user(exchange);
    struct file_request *files = file_request_of(file_request_call(request));

    if (files->is_refused)
        return;
    if (length == 0)
        file_writer_commit(&files->writer, files->call.in_use ? files->call.hold.agent : NULL,
                           files->flags, &files->expected, on_committed);
    else
        add_to_upload(files, data, length);
}

static void on_upload_room(struct file_writer *writer)
{
    struct file_request *files = container_of(writer, struct file_request, writer);

    if (files->is_refused)
        return;
    if (writer->err.code)
        fail_upload(files, &writer->err);
    else
        http_exchange_resume_body(files->request->exchange);
}

static void on_opened_for_writing(struct file_writer *writer)
{
    struct file_request *files = container_of(writer, struct file_request, writer);

    if (writer->err.code) {
        request_fail(files->request, &writer->err);
        return;
    }
    writer->on_room = on_upload_room;
    http_exchange_stream_body(files->request->exchange, on_upload_data);
}

static int read_mode(const struct request *request, uint32_t *out_mode, struct error *err)
{
    const char *text = request_parameter(request, "mode");
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
    struct file_request *files = file_request_of(call);
    uint32_t mode = 0;

    (void)read_mode(files->request, &mode, NULL);
    file_writer_open(&files->writer, call->hold.agent, call->path, mode, on_opened_for_writing);
}

static void fail_precondition(struct file_call *call, const char *why)
{
    struct error err = { 0 };

    error_named(&err, ERR_CONFLICT, "precondition_failed", "%.200s %s", call->path, why);
    request_fail(file_request_of(call)->request, &err);
}

/* If-Match: what is replaced is looked at now, and again when it is. */
static void on_stat_for_match(struct file_call *call)
{
    const struct protocol_stat *stat = &call->operation.result.file.stat;
    char etag[ETAG_SIZE];

    file_etag(stat, etag);
    if (!file_etag_is_in(request_header(file_request_of(call)->request, "if-match"), etag)) {
        fail_precondition(call, "has changed");
        return;
    }
    file_request_of(call)->flags |= FILE_EXPECT;
    file_request_of(call)->expected = file_version(stat);
    open_for_writing(call);
}

static bool on_nothing_to_match(struct file_call *call, int number)
{
    if (number != ENOENT && number != ENOTDIR)
        return false;
    fail_precondition(call, "does not exist");
    return true;
}

/* If-None-Match: * */
static void on_stat_for_absence(struct file_call *call)
{
    fail_precondition(call, "exists already");
}

static bool on_absent(struct file_call *call, int number)
{
    if (number != ENOENT)
        return false;
    open_for_writing(call);
    return true;
}

static void look_before(struct file_call *call, file_call_fn *next,
                        bool (*on_failure)(struct file_call *, int))
{
    struct agent_file file = {
        .kind = FILE_STAT, .user = "", .path = call->path, .flags = FILE_NO_FOLLOW
    };

    call->on_failure = on_failure;
    file_call_do(call, &file, next);
}

static void start_put(struct file_call *call)
{
    const struct http_head *head = http_exchange_head(file_request_of(call)->request->exchange);
    const char *unless = request_header(file_request_of(call)->request, "if-none-match");
    bool sync = false;

    (void)request_parameter_bool(file_request_of(call)->request, "fsync", &sync, NULL);
    file_request_of(call)->flags = sync ? FILE_SYNC : 0;
    if (head->content_length > 0 && (uint64_t)head->content_length > largest_upload(call)) {
        file_call_fail(call, EFBIG, call->path);
    } else if (request_header(file_request_of(call)->request, "if-match")) {
        look_before(call, on_stat_for_match, on_nothing_to_match);
    } else if (unless && str_equal(unless, "*")) {
        file_request_of(call)->flags |= FILE_NO_REPLACE;
        look_before(call, on_stat_for_absence, on_absent);
    } else {
        open_for_writing(call);
    }
}

static void put_file(struct request *request)
{
    struct error err = { 0 };
    const char *path = file_path(request, &err);
    uint32_t mode;
    bool sync;

    if (path && read_mode(request, &mode, &err) == 0 &&
        request_parameter_bool(request, "fsync", &sync, &err) == 0)
        file_request_begin(request, path, NULL, start_put);
    else
        request_fail(request, &err);
}

/* --- remove ---------------------------------------------------------------------------------- */

static void reply_done(struct file_call *call)
{
    request_reply_empty_object(file_request_of(call)->request, 200);
}

static void start_delete(struct file_call *call)
{
    struct agent_file file = { .kind = FILE_REMOVE, .user = "", .path = call->path };
    bool recursive = false;

    (void)request_parameter_bool(file_request_of(call)->request, "recursive", &recursive, NULL);
    if (recursive)
        file.flags = FILE_TREE;
    file_call_do(call, &file, reply_done);
}

static void delete_file(struct request *request)
{
    struct error err = { 0 };
    const char *path = file_path(request, &err);
    bool recursive;

    if (path && request_parameter_bool(request, "recursive", &recursive, &err) == 0)
        file_request_begin(request, path, NULL, start_delete);
    else
        request_fail(request, &err);
}

/* --- stat and list --------------------------------------------------------------------------- */

static void on_stat(struct file_call *call)
{
    scoped(buffer_fini) struct buffer text = BUFFER_INIT(64 * 1024);
    struct json_writer json = JSON_WRITER(&text);

    file_write_json(&json, NULL, call->path, strlen(call->path), &call->operation.result.file.stat);
    json_end_object(&json);
    request_reply(file_request_of(call)->request, 200, &text);
}

static void start_stat(struct file_call *call)
{
    struct agent_file file = { .kind = FILE_STAT, .user = "", .path = call->path };
    bool follow = true;

    (void)request_parameter_bool(file_request_of(call)->request, "follow", &follow, NULL);
    if (!follow)
        file.flags = FILE_NO_FOLLOW;
    file_call_do(call, &file, on_stat);
}

static void get_stat(struct request *request)
{
    struct error err = { 0 };
    const char *path = file_path(request, &err);
    bool follow;

    if (path && request_parameter_bool(request, "follow", &follow, &err) == 0)
        file_request_begin(request, path, NULL, start_stat);
    else
        request_fail(request, &err);
}

enum { LIST_DEFAULT = 10000, LIST_MAXIMUM = 100000 };

static void write_page(struct file_call *call, struct json_writer *json, const size_t *places,
                       size_t count)
{
    uint64_t limit = LIST_DEFAULT, skip = 0;
    struct protocol_entry_view entry;
    char next[24];

    (void)request_parameter_limit(file_request_of(call)->request, LIST_MAXIMUM, &limit, NULL);
    (void)request_parameter_u64(file_request_of(call)->request, "cursor", INT64_MAX, &skip, NULL);
    json_begin_array(json, "entries");
    for (size_t i = skip < count ? (size_t)skip : count; i < count && i - skip < limit; i++) {
        size_t at = places[i];

        if (listing_next(&file_request_of(call)->listing, &at, &entry))
            file_write_entry(json, &entry);
    }
    json_end_array(json);
    json_put_int(json, "total", (int64_t)count);
    snprintf(next, sizeof(next), "%" PRIu64, skip + limit);
    json_put_text(json, "next_cursor", skip < count && count - skip > limit ? next : NULL);
}

static void on_list(struct listing *listing)
{
    struct file_call *call = &container_of(listing, struct file_request, listing)->call;
    scoped(buffer_fini) struct buffer text = BUFFER_INIT(REQUEST_REPLY_MAXIMUM);
    scoped(free) size_t *places = NULL;
    struct json_writer json = JSON_WRITER(&text);
    size_t count;

    if (listing->err.code) {
        if (listing->sys_errno)
            file_call_fail(call, listing->sys_errno, call->path);
        else
            request_fail(file_request_of(call)->request, &listing->err);
        return;
    }
    places = listing_sort(listing, &count);
    json_begin_object(&json, NULL);
    write_page(call, &json, places, count);
    json_put_bool(&json, "truncated", listing_cut(listing) != 0);
    json_end_object(&json);
    request_reply(file_request_of(call)->request, 200, &text);
}

static void start_list(struct file_call *call)
{
    uint64_t depth = 1;

    (void)request_parameter_u64(file_request_of(call)->request, "depth", PROTOCOL_MAX_DEPTH, &depth,
                                NULL);
    listing_start(&file_request_of(call)->listing, file_request_of(call)->request->core->loop,
                  call->hold.agent, "", call->path, (unsigned)depth, on_list);
}

static void get_list(struct request *request)
{
    const char *path = request_parameter(request, "path");
    uint64_t number = 1;
    struct error err = { 0 };

    if ((path && !file_path(request, &err)) ||
        request_parameter_u64(request, "depth", PROTOCOL_MAX_DEPTH, &number, &err) < 0 ||
        request_parameter_limit(request, LIST_MAXIMUM, &number, &err) < 0 ||
        request_parameter_u64(request, "cursor", INT64_MAX, &number, &err) < 0)
        request_fail(request, &err);
    else
        file_request_begin(request, path ? path : ".", NULL, start_list);
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

static void post_mkdir(struct request *request)
{
    struct path_body body = { 0 };
    struct error err = { 0 };

    if (request_decode(request, &body, &err) < 0 || check_path("path", body.path, &err) < 0)
        request_fail(request, &err);
    else
        file_request_begin(request, body.path, NULL, start_mkdir);
}

static void start_move(struct file_call *call)
{
    const json_t *replace = json_object_get(file_request_of(call)->request->body, "replace");

    file_call_do(call,
                 &(struct agent_file){ .kind = FILE_MOVE,
                                       .user = "",
                                       .path = call->path,
                                       .second = file_request_of(call)->second,
                                       .flags = json_is_true(replace) ? 0 : FILE_NO_REPLACE },
                 reply_done);
}

static void post_move(struct request *request)
{
    struct path_body body = { 0 };
    struct error err = { 0 };

    if (request_decode(request, &body, &err) < 0 || check_path("from", body.from, &err) < 0 ||
        check_path("to", body.to, &err) < 0)
        request_fail(request, &err);
    else
        file_request_begin(request, body.from, body.to, start_move);
}

/* --- the table ------------------------------------------------------------------------------- */

static const struct route_parameter get_parameters[] = {
    { "path", "string", "path of the file; a relative one starts in the workspace", true },
    { 0 },
};

static const struct route_parameter put_parameters[] = {
    { "path", "string", "path of the file; a relative one starts in the workspace", true },
    { "mode", "string", "octal permissions; by default those of the file it replaces, or 0644" },
    { "fsync", "boolean", "1: flush the file to disk before the answer" },
    { 0 },
};

static const struct route_parameter delete_parameters[] = {
    { "path", "string", "path of the file; a relative one starts in the workspace", true },
    { "recursive", "boolean", "1: remove a directory with its contents" },
    { 0 },
};

static const struct route_parameter stat_parameters[] = {
    { "path", "string", "path of the file; a relative one starts in the workspace", true },
    { "follow", "boolean", "0: describe a symbolic link itself" },
    { 0 },
};

static const struct route_parameter list_parameters[] = {
    { "path", "string", "path of the directory; the workspace by default" },
    { "depth", "integer",
      "levels of directories; 1 (default): the entries of the directory itself" },
    { "limit", "integer", "at most this many entries, 10000 by default" },
    { "cursor", "string", "next_cursor of the previous page" },
    { 0 },
};

static const struct route_answer get_answers[] = {
    { 200, "the bytes of the file, with its ETag" },
    { 206, "the requested Range" },
    { 304, "not modified: the file matches If-None-Match" },
    { 404, "session_not_found, file_not_found" },
    { 409, "is_a_directory, not_a_file" },
    { 416, "range_not_satisfiable" },
    { 0 },
};

static const struct route_answer put_answers[] = {
    { 201, "the file is written completely" },
    { 404, "session_not_found, not_a_directory" },
    { 409, "is_a_directory, file_exists" },
    { 412, "precondition_failed (If-Match, If-None-Match: *)" },
    { 413, "file_too_large: larger than the sandbox's disk, reported before the body is read" },
    { 507, "no_space" },
    { 0 },
};

static const struct route_answer answers[] = {
    { 200, "done" },
    { 403, "permission_denied" },
    { 404, "session_not_found, file_not_found" },
    { 409, "file_exists, directory_not_empty, is_a_directory" },
    { 0 },
};

#define FILES "/api/v1/sessions/{session}/files"

const struct route api_file_routes[] = {
    { HTTP_GET, FILES, get_file, "A file", .session = ROUTE_LIVE_SESSION,
      .parameters = get_parameters, .answers = get_answers },
    { HTTP_PUT, FILES, put_file,
      "Write a file: creates parent directories and replaces the file atomically",
      .body = ROUTE_BYTES_BODY, .session = ROUTE_LIVE_SESSION, .parameters = put_parameters,
      .answers = put_answers },
    { HTTP_DELETE, FILES, delete_file, "Remove a file", .session = ROUTE_LIVE_SESSION,
      .parameters = delete_parameters, .answers = answers },
    { HTTP_GET, FILES "/stat", get_stat, "Describe a path", .session = ROUTE_LIVE_SESSION,
      .parameters = stat_parameters, .answers = answers },
    { HTTP_GET, FILES "/list", get_list, "List a directory", .session = ROUTE_LIVE_SESSION,
      .parameters = list_parameters, .answers = answers },
    { HTTP_POST, FILES "/mkdir", post_mkdir, "Create a directory and its parents",
      .body = ROUTE_JSON_BODY, .session = ROUTE_LIVE_SESSION, .fields = mkdir_fields,
      .field_count = ARRAY_LENGTH(mkdir_fields), .answers = answers },
    { HTTP_POST, FILES "/move", post_move, "Move a file or directory", .body = ROUTE_JSON_BODY,
      .session = ROUTE_LIVE_SESSION, .fields = move_fields,
      .field_count = ARRAY_LENGTH(move_fields), .answers = answers },
    { 0 },
};
