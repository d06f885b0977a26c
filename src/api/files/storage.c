/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Stored files (core/session/storage.h). Programs in a sandbox store and read files of their own session
 * over the storage socket: the execution that they belong to is their only credential, and it is
 * good while the execution runs. The owner of the session lists, reads, shares and removes them
 * over the ordinary listeners, also after the sandbox is gone.
 */

#include "core/session/storage.h"
#include "api/pages.h"
#include "api/private.h"
#include "base/alloc.h"
#include "base/str.h"
#include "config/config.h"
#include "core/metrics.h"
#include "core/run/execution.h"
#include "core/vault.h"

#include <string.h>

enum { LIST_MAXIMUM = 16 * 1024 * 1024, VALID_MAXIMUM_S = 366 * 24 * 3600 };

/* --- documents ------------------------------------------------------------------------------- */

static void put_entry(void *user, const struct storage_entry *entry)
{
    struct json_writer *json = user;

    json_begin_object(json, NULL);
    json_put_text(json, "name", entry->name);
    json_put_int(json, "size_bytes", (int64_t)entry->size);
    json_put_int(json, "size", (int64_t)entry->size);
    json_put_time(json, "modified", entry->modified_wall_us);
    if (entry->damage)
        json_put_text(json, "damage", entry->damage);
    json_end_object(json);
}

static void reply_list(struct request *request)
{
    scoped(buffer_fini) struct buffer text = BUFFER_INIT(LIST_MAXIMUM);
    struct json_writer json = JSON_WRITER(&text);
    struct error err = { 0 };

    json_begin_object(&json, NULL);
    json_begin_array(&json, "files");
    if (storage_list(request->core->storage, request->session_id, put_entry, &json, &err) < 0) {
        request_fail(request, &err);
        return;
    }
    json_end_array(&json);
    json_end_object(&json);
    api_reply_page(request, &text, "files", "name");
}

static void fail(struct request *request, struct error *err)
{
    if (err->code == ERR_NOT_FOUND)
        error_hint_known(err, HINT_STORED_FILES);
    request_fail(request, err);
}

/* A browser saves the file instead of showing it: a file of a program must not run as a page of
 * this daemon. */
static void reply_file(struct request *request, const char *session_id, const char *name)
{
    struct error err = { 0 };
    struct storage_entry entry;
    scoped(fd_close) int fd = storage_open(request->core->storage, session_id, name, &entry, &err);

    if (fd < 0) {
        fail(request, &err);
        return;
    }
    metrics_add(request->core->metrics, METRIC_HTTP_REQUESTS, 2, 1);
    http_respond_header(request->exchange, "Content-Disposition", "attachment");
    http_respond_header(request->exchange, "Content-Security-Policy", "sandbox");
    http_respond_start(request->exchange, 200, "application/octet-stream", (int64_t)entry.size);
    if (entry.size > 0 && !request->is_head)
        http_respond_write_file(request->exchange, fd, 0, (size_t)entry.size);
    http_respond_end(request->exchange);
}

/* {name, size, url, expires_at}; size is left out when it is negative. */
static void reply_url(struct request *request, int status, const char *name, int64_t size,
                      int64_t valid_ms)
{
    int64_t expires_wall_s = clock_wall_s_after(loop_clock(request->faces->parts.loop), valid_ms);
    scoped(buffer_fini) struct buffer text = BUFFER_INIT(16 * 1024);
    struct json_writer json = JSON_WRITER(&text);
    scoped(free) char *path =
        storage_sign_url(request->core->storage, request->session_id, name, expires_wall_s);
    scoped(free) char *url = xasprintf("%s%s", request->faces->parts.config->storage.url, path);

    json_begin_object(&json, NULL);
    json_put_text(&json, "name", name);
    if (size >= 0) {
        json_put_int(&json, "size_bytes", size);
        json_put_int(&json, "size", size);
    }
    json_put_text(&json, "url", url);
    json_put_time(&json, "expires_at", expires_wall_s * 1000000);
    json_end_object(&json);
    request_reply(request, status, &text);
}

static void get_file(struct request *request)
{
    reply_file(request, request->session_id, request_path(request, "name"));
}

/* --- programs -------------------------------------------------------------------------------- */

struct upload {
    struct request *request;       /* borrowed */
    struct storage_upload *stored; /* owned; NULL once it is being finished */
    char *name;                    /* owned */
};

static void upload_free(struct upload *upload)
{
    storage_upload_abort(upload->stored);
    free(upload->name);
    free(upload);
}

static void on_upload_gone(struct request *request)
{
    struct upload *upload = request->state;

    if (upload && upload->stored)
        upload_free(upload);
    request->state = NULL;
}

static void on_stored(void *user, uint64_t size, const struct error *err)
{
    struct upload *upload = user;
    struct request *request = upload->request;
    int64_t valid_ms = request->faces->parts.config->storage.valid_for_ms;

    if (!request_finish(request)) {
        request->state = NULL;
        if (err)
            request_fail(request, err);
        else
            reply_url(request, 201, upload->name, (int64_t)size, valid_ms);
    }
    upload_free(upload);
}

static void on_upload_data(struct http_exchange *exchange, const uint8_t *data, size_t length)
{
    struct request *request = http_exchange_user(exchange);
    struct upload *upload = request->state;
    struct error err = { 0 };

    if (!upload || !upload->stored)
        return;
    if (length == 0) {
        request_begin(request);
        storage_upload_finish(steal_ptr(&upload->stored), on_stored, upload);
    } else if (storage_upload_write(upload->stored, data, length, &err) < 0) {
        upload_free(upload);
        request->state = NULL;
        request_fail(request, &err);
    }
}

static void put_stored(struct request *request)
{
    const struct execution *execution =
        execution_find_running(request->core, http_exchange_peer(request->exchange)->member);
    const struct http_head *head = http_exchange_head(request->exchange);
    const char *name = request_path(request, "name");
    struct storage_upload *stored = NULL;
    struct upload *upload;
    struct error err = { 0 };

    if (execution && vault_open(request->core->vault, &err) == 0)
        stored = storage_upload_begin(request->core->storage, execution_session(execution), name,
                                      head->content_length > 0 ? (uint64_t)head->content_length : 0,
                                      &err);
    if (!stored) {
        request_fail(request, &err);
        return;
    }
    upload = xnew(struct upload);
    upload->request = request;
    upload->stored = stored;
    upload->name = xstrdup(name);
    request->state = upload;
    request->on_gone = on_upload_gone;
    http_exchange_stream_body(request->exchange, on_upload_data);
}

/* --- owners ---------------------------------------------------------------------------------- */

struct wish {
    int64_t valid_ms;
};

static const struct json_field url_fields[] = {
    { "valid_seconds", JSON_KIND_SECONDS, offsetof(struct wish, valid_ms), .minimum = 1,
      .maximum = VALID_MAXIMUM_S },
};

static void on_removed(void *user, uint64_t size UNUSED, const struct error *err)
{
    struct request *request = user;

    if (request_finish(request))
        return;
    if (err)
        request_fail(request, err);
    else
        request_reply_empty_object(request, 200);
}

static void delete_file(struct request *request)
{
    struct error err = { 0 };

    request_begin(request);
    if (storage_remove(request->core->storage, request->session_id, request_path(request, "name"),
                       on_removed, request, &err) < 0 &&
        !request_finish(request))
        fail(request, &err);
}

static void post_url(struct request *request)
{
    struct wish wish = { .valid_ms = request->faces->parts.config->storage.valid_for_ms };
    const char *name = request_path(request, "name");
    struct storage_entry entry;
    struct error err = { 0 };
    scoped(fd_close) int fd = -1;

    if (request_decode(request, &wish, &err) < 0 || vault_open(request->core->vault, &err) < 0) {
        request_fail(request, &err);
        return;
    }
    fd = storage_open(request->core->storage, request->session_id, name, &entry, &err);
    if (fd < 0)
        fail(request, &err);
    else
        reply_url(request, 201, name, (int64_t)entry.size, wish.valid_ms);
}

/* --- every caller with a URL ----------------------------------------------------------------- */

static void get_shared(struct request *request)
{
    const char *session_id = request_path(request, "id");
    const char *name = request_path(request, "name");
    const char *signature = request_parameter(request, "signature");
    struct error err = { 0 };
    uint64_t expires_s = 0;

    if (signature && request_parameter_u64(request, "expires", INT64_MAX, &expires_s, &err) == 0 &&
        vault_open(request->core->vault, &err) == 0 &&
        storage_url_is_signed(request->core->storage, session_id, name, (int64_t)expires_s,
                              signature)) {
        reply_file(request, session_id, name);
        return;
    }
    err = (struct error){ 0 };
    error_named(&err, ERR_NOT_FOUND, "url_not_found", "this URL is unknown or has expired");
    error_hint_known(&err, HINT_STORED_URL);
    request_fail(request, &err);
}

/* --- tables ---------------------------------------------------------------------------------- */

static const struct route_answer put_answers[] = {
    { 201, "{name, size, url, expires_at}: the file is on disk" },
    { 400, "invalid_name" },
    { 403, "execution_ended, or not a program in a sandbox" },
    { 413, "file_too_large" },
    { 429, "storage_full: names the setting" },
    { 0 },
};

static const struct route_parameter list_parameters[] = { API_PAGE_PARAMETERS, { 0 } };

static const struct route_answer list_answers[] = {
    { 200, "{files: [{name, size, modified}]}" },
    { 0 },
};

static const struct route_answer file_answers[] = {
    { 200, "its bytes" },
    { 404, "file_not_found" },
    { 0 },
};

static const struct route_answer delete_answers[] = {
    { 200, "{}" },
    { 404, "file_not_found" },
    { 0 },
};

static const struct route_answer url_answers[] = {
    { 201,
      "{name, size, url, expires_at}: the url gives read access to the file until expires_at" },
    { 404, "file_not_found" },
    { 0 },
};

static const struct route_answer shared_answers[] = {
    { 200, "its bytes" },
    { 404, "url_not_found: unknown or expired; file_not_found: removed in the meantime" },
    { 0 },
};

static const struct route_parameter shared_parameters[] = {
    { "expires", "integer", "seconds since 1970" },
    { "signature", "string", "signature of session, name and expires" },
    { 0 },
};

#define STORED "/api/v1/sessions/{session}/storage"

const struct route api_storage_routes[] = {
    { HTTP_PUT, "/storage/{name}", put_stored,
      "Inside a sandbox, over its storage socket: store a file in the session",
      .body = ROUTE_BYTES_BODY, .access = ROUTE_PROGRAMS, .answers = put_answers },
    { HTTP_GET, "/storage/{name}", get_file, "Inside a sandbox: read a stored file of the session",
      .access = ROUTE_PROGRAMS, .answers = file_answers },
    { HTTP_GET, "/storage", reply_list, "Inside a sandbox: list the stored files of the session",
      .access = ROUTE_PROGRAMS, .parameters = list_parameters, .answers = list_answers },
    { HTTP_GET, STORED, reply_list, "List the stored files of a session",
      .session = ROUTE_ANY_SESSION, .parameters = list_parameters, .answers = list_answers },
    { HTTP_GET, STORED "/{name}", get_file, "One of them", .session = ROUTE_ANY_SESSION,
      .answers = file_answers },
    { HTTP_DELETE, STORED "/{name}", delete_file, "Remove one of them",
      .session = ROUTE_ANY_SESSION, .answers = delete_answers },
    { HTTP_POST, STORED "/{name}/url", post_url,
      "Create a URL that gives read access to a stored file", .body = ROUTE_JSON_BODY,
      .session = ROUTE_ANY_SESSION, .fields = url_fields, .field_count = ARRAY_LENGTH(url_fields),
      .answers = url_answers },
    { HTTP_GET, "/api/v1/shared/{id}/{name}", get_shared, "Read a stored file by its URL",
      .access = ROUTE_ANYBODY, .any_origin = true, .parameters = shared_parameters,
      .answers = shared_answers, .home = ROUTE_OF_URL },
    { 0 },
};
