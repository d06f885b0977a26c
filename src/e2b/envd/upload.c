/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Uploads: POST /files, one file as it is, or any number as parts of a form.
 *
 * Each file is written beside the one that it replaces, and takes its place when it is complete. A
 * file is opened and committed by init, and the client waits meanwhile: what has come of the form
 * and was not taken yet is kept, and nothing more is read.
 */

#include "base/alloc.h"
#include "base/str.h"
#include "core/core.h"
#include "e2b/envd/envd.h"
#include "e2b/envd/files.h"
#include "e2b/envd/path.h"
#include "service/file_call.h"
#include "wire/http/gzip.h"
#include "wire/http/multipart.h"

#include <ctype.h>
#include <errno.h>
#include <string.h>
#include <strings.h>

enum {
    HELD_MAXIMUM = 2 * 1024 * 1024, /* of a form, more than comes before the client is stopped */
    FILES_MAXIMUM = 4096,
    METADATA_KEY = 246,
    METADATA_MAXIMUM = 4096,
};

struct upload {
    struct file_call call;
    struct request *request;
    struct describe describe; /* the directory that relative paths begin in */
    char *directory;          /* owned */
    struct buffer attributes; /* of every file */
    uint64_t size;            /* of all files together */

    enum upload_state {
        UPLOAD_PREPARING,
        UPLOAD_READING, /* between files, or in a part that is none */
        UPLOAD_OPENING,
        UPLOAD_WRITING,
        UPLOAD_WAITING, /* for room */
        UPLOAD_COMMITTING,
        UPLOAD_OVER, /* answered */
    } state;
    struct file_writer writer;
    char *path;      /* owned: for init, of the file that is being written */
    json_t *written; /* owned: [{path,name,type}] */

    /* one file */
    struct gunzip *gunzip; /* owned; NULL when it comes as it is */
    bool is_read;          /* its bytes come, now or after a pause */

    /* a form */
    bool is_form;
    bool has_all; /* the client has sent everything */
    struct multipart form;
    struct buffer held;
};

/* --- life ------------------------------------------------------------------------------------- */

static void on_gone(struct request *request)
{
    struct upload *upload = request->state;

    request->on_gone = NULL;
    describe_fini(&upload->describe);
    file_writer_fini(&upload->writer, upload->call.in_use ? upload->call.hold.agent : NULL);
    file_call_fini(&upload->call);
    gunzip_free(upload->gunzip);
    buffer_fini(&upload->attributes);
    buffer_fini(&upload->held);
    json_decref(upload->written);
    free(upload->directory);
    free(upload->path);
    free(upload);
}

static void fail_status(struct upload *upload, int status, const char *message)
{
    if (upload->state == UPLOAD_OVER)
        return;
    upload->state = UPLOAD_OVER;
    e2b_fail_status(upload->request, status, message);
}

static void fail(struct upload *upload, int number, const struct error *err)
{
    if (upload->state == UPLOAD_OVER)
        return;
    upload->state = UPLOAD_OVER;
    files_fail(upload->request, number, err, upload->path ? upload->path : "");
}

static void on_error(struct file_call *call, const struct error *err)
{
    fail(container_of(call, struct upload, call), 0, err);
}

static void on_lost(struct file_call *call, const struct error *err UNUSED)
{
    struct upload *upload = container_of(call, struct upload, call);

    if (upload->state == UPLOAD_OVER)
        return;
    upload->state = UPLOAD_OVER;
    envd_fail_gone(upload->request);
}

/* --- metadata --------------------------------------------------------------------------------- */

static bool is_printable(const char *text)
{
    while (*text >= ' ' && *text <= '~')
        text++;
    return !*text;
}

/* X-Metadata-KEY: VALUE becomes an extended attribute of every file. */
static int read_metadata(struct upload *upload)
{
    static const char prefix[] = "x-metadata-";
    const struct http_head *head = http_exchange_head(upload->request->exchange);
    size_t total = 0;

    for (size_t i = 0; i < head->header_count; i++) {
        const char *key = head->headers[i].name;
        const char *value = head->headers[i].value;

        if (!str_starts_with(key, prefix))
            continue;
        key += sizeof(prefix) - 1;
        total += strlen(key) + strlen(value);
        if (!*key || strlen(key) > METADATA_KEY || !is_printable(value) ||
            total > METADATA_MAXIMUM || strchr(key, '=') ||
            buffer_appendf(&upload->attributes, ENVD_ATTRIBUTES "%s=%s\n", key, value) < 0)
            return -1;
    }
    return 0;
}

static void put_metadata(const struct upload *upload, json_t *file)
{
    const struct http_head *head = http_exchange_head(upload->request->exchange);
    json_t *metadata = NULL;

    for (size_t i = 0; i < head->header_count; i++) {
        if (!str_starts_with(head->headers[i].name, "x-metadata-"))
            continue;
        metadata = metadata ? metadata : json_object();
        json_object_set_new(metadata, head->headers[i].name + strlen("x-metadata-"),
                            json_string(head->headers[i].value));
    }
    if (metadata)
        json_object_set_new(file, "metadata", metadata);
}

/* --- files ------------------------------------------------------------------------------------ */

static void go_on(struct upload *upload);

static void reply(struct upload *upload)
{
    scoped(free) char *text = json_dumps(upload->written, JSON_COMPACT);
    struct buffer body = BUFFER_INIT(REQUEST_REPLY_MAXIMUM);

    if (json_array_size(upload->written) == 0) {
        fail_status(upload, 400, "the form has no file: name its parts \"file\"");
        return;
    }
    upload->state = UPLOAD_OVER;
    (void)buffer_append_text(&body, text);
    request_reply(upload->request, 200, &body);
    buffer_fini(&body);
}

static void note_written(struct upload *upload)
{
    scoped(free) char *path = envd_path_join(upload->directory, upload->path);
    const char *slash = strrchr(path, '/');
    json_t *file = json_object();

    /* Names of files need not be UTF-8: those are not shown. */
    json_object_set_new(file, "path", json_string(path));
    json_object_set_new(file, "name", json_string(slash ? slash + 1 : path));
    json_object_set_new(file, "type", json_string("file"));
    put_metadata(upload, file);
    json_array_append_new(upload->written, file);
}

static void on_committed(struct file_writer *writer)
{
    struct upload *upload = container_of(writer, struct upload, writer);

    if (writer->err.code) {
        fail(upload, writer->sys_errno, &writer->err);
        return;
    }
    note_written(upload);
    file_writer_fini(writer, upload->call.in_use ? upload->call.hold.agent : NULL);
    upload->state = UPLOAD_READING;
    if (upload->is_form)
        go_on(upload);
    else
        reply(upload);
}

static void commit(struct upload *upload)
{
    upload->state = UPLOAD_COMMITTING;
    upload->writer.attributes = upload->attributes.length ? buffer_text(&upload->attributes) : NULL;
    file_writer_commit(&upload->writer, upload->call.in_use ? upload->call.hold.agent : NULL, 0,
                       NULL, on_committed);
}

static void on_room(struct file_writer *writer)
{
    struct upload *upload = container_of(writer, struct upload, writer);

    if (writer->err.code) {
        fail(upload, writer->sys_errno, &writer->err);
    } else if (upload->state == UPLOAD_WAITING) {
        upload->state = UPLOAD_WRITING;
        go_on(upload);
    }
}

static void on_opened(struct file_writer *writer)
{
    struct upload *upload = container_of(writer, struct upload, writer);

    if (writer->err.code) {
        fail(upload, writer->sys_errno, &writer->err);
        return;
    }
    writer->on_room = on_room;
    upload->state = UPLOAD_WRITING;
    go_on(upload);
}

static void open_file(struct upload *upload)
{
    struct file_actor actor = { files_user(upload->request), FILE_BY_ROOT };

    upload->state = UPLOAD_OPENING;
    file_writer_open_as(&upload->writer, upload->call.hold.agent, &actor, upload->path, 0,
                        on_opened);
}

/* An upload that is larger than the sandbox's disk is refused before it is sent. */
static uint64_t largest_upload(const struct upload *upload)
{
    uint64_t disk = upload->call.in_use ? session_limits(upload->call.hold.session)->disk_bytes : 0;

    return disk ? disk : INT64_MAX;
}

/* A gunzip_fn: 0, or -2 when it was answered. */
static int add(void *context, const uint8_t *data, size_t length)
{
    struct upload *upload = context;

    upload->size += length;
    if (upload->size > largest_upload(upload)) {
        files_fail_errno(upload->request, ENOSPC, upload->path);
        upload->state = UPLOAD_OVER;
        return -2;
    }
    if (file_writer_add(&upload->writer, data, length) < 0) {
        fail(upload, upload->writer.sys_errno, &upload->writer.err);
        return -2;
    }
    if (file_writer_is_full(&upload->writer))
        upload->state = UPLOAD_WAITING;
    return 0;
}

/* --- one file --------------------------------------------------------------------------------- */

static void add_body(struct upload *upload, const uint8_t *data, size_t length)
{
    int result = upload->gunzip ? gunzip_add(upload->gunzip, data, length, add, upload)
                                : add(upload, data, length);

    if (result == -1)
        fail_status(upload, 400, "the body is not gzip");
    else if (upload->state == UPLOAD_WAITING)
        http_exchange_pause_body(upload->request->exchange);
}

static void end_body(struct upload *upload)
{
    if (upload->gunzip && !gunzip_is_complete(upload->gunzip))
        fail_status(upload, 400, "the body is incomplete gzip");
    else
        commit(upload);
}

static void on_body(struct http_exchange *exchange, const uint8_t *data, size_t length)
{
    struct request *request = http_exchange_user(exchange);
    struct upload *upload = request->state;

    if (upload->state == UPLOAD_OVER)
        return;
    if (length)
        add_body(upload, data, length);
    else
        end_body(upload);
}

/* --- a form ----------------------------------------------------------------------------------- */

static bool was_written(const struct upload *upload, const char *path)
{
    scoped(free) char *absolute = envd_path_join(upload->directory, path);
    size_t i;
    json_t *file;

    json_array_foreach(upload->written, i,
                       file) if (str_equal(json_string_value(json_object_get(file, "path")),
                                           absolute)) return true;
    return false;
}

/* The path of the query, or the name of the file with all its directories. */
static void begin_part(struct upload *upload)
{
    const char *asked = request_parameter(upload->request, "path");
    const char *path = envd_path_for_init(str_is_empty(asked) ? upload->form.filename : asked);

    if (!str_equal(upload->form.name, "file"))
        return; /* others are passed over */
    if (!path || (str_is_empty(asked) && !*upload->form.filename)) {
        fail_status(upload, 400, "a file of the form has no name that can be used as a path");
    } else if (strlen(path) >= PROTOCOL_MAX_PATH) {
        fail_status(upload, 400, "the path is too long");
    } else if (was_written(upload, path)) {
        fail_status(upload, 400, "two files of the form have the same path");
    } else if (json_array_size(upload->written) >= FILES_MAXIMUM) {
        fail_status(upload, 400, "the form has too many files");
    } else {
        free(upload->path);
        upload->path = xstrdup(path);
        open_file(upload);
    }
}

/* One event of the form; false when there is none now. */
static bool take_part(struct upload *upload)
{
    const uint8_t *data = NULL;
    size_t used, length = 0;
    enum multipart_event event = multipart_next(&upload->form, upload->held.data,
                                                upload->held.length, &used, &data, &length);

    switch (event) {
    case MULTIPART_MORE:
        break;
    case MULTIPART_PART:
        begin_part(upload);
        break;
    case MULTIPART_DATA:
        if (upload->state == UPLOAD_WRITING)
            (void)add(upload, data, length);
        break;
    case MULTIPART_PART_END:
        if (upload->state == UPLOAD_WRITING)
            commit(upload);
        break;
    case MULTIPART_DONE:
        reply(upload);
        break;
    case MULTIPART_BAD:
        fail_status(upload, 400, "the form is malformed");
        break;
    }
    buffer_consume(&upload->held, used);
    return event != MULTIPART_MORE;
}

static bool takes_more(const struct upload *upload)
{
    return upload->state == UPLOAD_READING || upload->state == UPLOAD_WRITING;
}

static void take_parts(struct upload *upload)
{
    while (takes_more(upload) && take_part(upload))
        ;
    if (upload->state == UPLOAD_OVER)
        return;
    if (!takes_more(upload))
        http_exchange_pause_body(upload->request->exchange);
    else if (upload->has_all)
        fail_status(upload, 400, "the form ends too early");
    else
        http_exchange_resume_body(upload->request->exchange);
}

static void on_form(struct http_exchange *exchange, const uint8_t *data, size_t length)
{
    struct request *request = http_exchange_user(exchange);
    struct upload *upload = request->state;

    if (upload->state == UPLOAD_OVER)
        return;
    if (length == 0)
        upload->has_all = true;
    else if (buffer_append(&upload->held, data, length) < 0) {
        fail_status(upload, 500, "more of the form came than was asked for");
        return;
    }
    take_parts(upload);
}

/* --- all of it -------------------------------------------------------------------------------- */

/* The upload takes more again. */
static void go_on(struct upload *upload)
{
    if (upload->is_form)
        take_parts(upload);
    else if (upload->is_read)
        http_exchange_resume_body(upload->request->exchange);
    else {
        upload->is_read = true;
        http_exchange_stream_body(upload->request->exchange, on_body);
    }
}

static void begin(struct upload *upload)
{
    upload->state = UPLOAD_READING;
    if (upload->is_form)
        http_exchange_stream_body(upload->request->exchange, on_form);
    else
        open_file(upload);
}

static void on_directory(struct describe *describe)
{
    struct upload *upload = container_of(describe, struct upload, describe);

    if (describe->err.code) {
        fail(upload, describe->sys_errno, &describe->err);
        return;
    }
    upload->directory = xstrdup(describe->directory);
    begin(upload);
}

static void start(struct file_call *call)
{
    struct upload *upload = container_of(call, struct upload, call);

    if (!envd_is_known(call->hold.agent)) {
        fail_status(upload, 503, ENVD_UNKNOWN);
        return;
    }
    if (upload->path && *upload->path == '/') {
        upload->directory = xstrdup("/");
        begin(upload);
        return;
    }
    describe_start(&upload->describe, upload->request->core->loop, call->hold.agent,
                   files_user(upload->request), ".", 0, on_directory);
}

static bool is_type(const char *type, const char *wanted)
{
    size_t length = type ? strcspn(type, "; \t") : 0;

    return length == strlen(wanted) && strncasecmp(type, wanted, length) == 0;
}

/* NULL, or what is wrong with the request. */
static const char *read_request(struct upload *upload, const char *path)
{
    const char *type = request_header(upload->request, "content-type");
    const char *encoding = request_header(upload->request, "content-encoding");
    bool is_gzip = encoding && strcasecmp(encoding, "gzip") == 0;

    if (encoding && !is_gzip && strcasecmp(encoding, "identity") != 0)
        return "the Content-Encoding must be gzip, or absent";
    if (read_metadata(upload) < 0)
        return "metadata must be printable ASCII, with keys of at most 246 bytes and 4096 bytes in "
               "all";
    if (is_type(type, "multipart/form-data")) {
        upload->is_form = true;
        if (is_gzip)
            return "a form must not have a Content-Encoding";
        return multipart_init(&upload->form, type) < 0 ? "the form has no boundary" : NULL;
    }
    if (!is_type(type, "application/octet-stream"))
        return "the Content-Type must be multipart/form-data or application/octet-stream";
    if (str_is_empty(request_parameter(upload->request, "path")))
        return "the path is missing";
    upload->path = xstrdup(path);
    upload->gunzip = is_gzip ? gunzip_new() : NULL;
    return NULL;
}

void files_upload(struct request *request)
{
    const char *path = files_path(request);
    struct session *session = path ? e2b_session(request) : NULL;
    struct upload *upload;
    const char *problem;

    if (!path)
        return;
    if (!session) {
        envd_fail_gone(request);
        return;
    }
    upload = xnew(struct upload);
    upload->request = request;
    upload->attributes = BUFFER_INIT(4 * METADATA_MAXIMUM);
    upload->held = BUFFER_INIT(HELD_MAXIMUM);
    upload->written = json_array();
    upload->call.path = ".";
    upload->call.on_error = on_error;
    upload->call.on_lost = on_lost;
    request->state = upload;
    request->on_gone = on_gone;
    problem = read_request(upload, path);
    if (problem)
        fail_status(upload, 400, problem);
    else
        file_call_begin(&upload->call, session, start);
}
