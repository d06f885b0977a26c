/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Files of a session as resources: sandglass://SESSION/PATH, where PATH is relative to the working
 * directory, or absolute and begins with another slash. The list has what tools have told of; any file
 * can be read by its address.
 */

#include "agent/files.h"
#include "base/alloc.h"
#include "base/str.h"
#include "mcp/private.h"
#include "service/find.h"
#include "wire/base64.h"

#include <stdlib.h>
#include <string.h>

enum { RESOURCE_MAXIMUM = 16 * 1024 * 1024, PATH_BYTES = 4096 };

#define SCHEME "sandglass://"

static void put_resource(struct json_writer *json, const struct mcp_link *link)
{
    json_begin_object(json, NULL);
    json_put_text(json, "uri", link->uri);
    json_put_text(json, "name", link->name);
    json_put_text(json, "mimeType", link->mime);
    json_put_int(json, "size", (int64_t)link->size);
    json_end_object(json);
}

static bool has_cursor(struct mcp_request *request)
{
    if (!json_object_get(request->params, "cursor"))
        return false;
    mcp_request_fail(request, JSONRPC_INVALID_PARAMS, "this cursor is unknown", NULL);
    return true;
}

void mcp_resources_list(struct mcp_request *request)
{
    struct mcp_result result;
    struct mcp_link *link;

    if (has_cursor(request))
        return;
    mcp_result_begin(&result, request);
    mcp_result_put_cache(&result, request, 0, "private");
    json_begin_array(&result.json, "resources");
    if (request->client)
        list_for_each (link, &request->client->links, node)
            put_resource(&result.json, link);
    json_end_array(&result.json);
    mcp_result_send(&result, request);
}

void mcp_resources_templates(struct mcp_request *request)
{
    struct mcp_result result;

    if (has_cursor(request))
        return;
    mcp_result_begin(&result, request);
    mcp_result_put_cache(&result, request, 3600 * 1000, "public");
    json_begin_array(&result.json, "resourceTemplates");
    json_begin_object(&result.json, NULL);
    json_put_text(&result.json, "uriTemplate", SCHEME "{session_id}/{+path}");
    json_put_text(&result.json, "name", "file");
    json_put_text(&result.json, "description",
                  "A file of a session: its path relative to the working directory, or an absolute "
                  "path with its slash.");
    json_end_object(&result.json);
    json_end_array(&result.json);
    mcp_result_send(&result, request);
}

/* --- resources/read -------------------------------------------------------------------------- */

struct reading {
    struct mcp_request *request; /* borrowed: it releases us */
    char *path;                  /* owned */
    struct session_hold hold;
    bool in_use;
    struct file_reader reader;
    bool is_reading;
};

static void reading_release(struct mcp_request *request)
{
    struct reading *reading = request->work;

    if (reading->is_reading)
        file_reader_fini(&reading->reader);
    if (reading->in_use)
        session_hold_end(&reading->hold);
    free(reading->path);
    free(reading);
}

static void fail(struct mcp_request *request, int code, const char *message)
{
    const char *uri = mcp_param_text(request, "uri");
    scoped(buffer_fini) struct buffer data = BUFFER_INIT(64 * 1024);
    struct json_writer json = JSON_WRITER(&data);

    json_begin_object(&json, NULL);
    if (uri)
        json_put_bytes(&json, "uri", uri, strnlen(uri, PATH_BYTES));
    json_end_object(&json);
    mcp_request_fail(request, code, message, buffer_text(&data));
}

static void fail_not_found(struct mcp_request *request, const char *message)
{
    fail(request, request->is_stateless ? JSONRPC_INVALID_PARAMS : MCP_RESOURCE_NOT_FOUND, message);
}

static void fail_error(struct mcp_request *request, const struct error *err)
{
    if (err->code == ERR_NOT_FOUND || err->code == ERR_GONE)
        fail_not_found(request, err->message);
    else
        fail(request, err->code == ERR_INVALID ? JSONRPC_INVALID_PARAMS : JSONRPC_INTERNAL_ERROR,
             err->message);
}

static const char *find_type(const char *path, bool is_text)
{
    static const char *const types[][2] = {
        { ".png", "image/png" },         { ".jpg", "image/jpeg" },      { ".jpeg", "image/jpeg" },
        { ".gif", "image/gif" },         { ".webp", "image/webp" },     { ".svg", "image/svg+xml" },
        { ".json", "application/json" }, { ".csv", "text/csv" },        { ".html", "text/html" },
        { ".md", "text/markdown" },      { ".pdf", "application/pdf" },
    };

    for (size_t i = 0; i < ARRAY_LENGTH(types); i++)
        if (str_ends_with(path, types[i][0]))
            return types[i][1];
    return is_text ? "text/plain" : "application/octet-stream";
}

static void on_read(struct file_reader *reader)
{
    struct reading *reading = container_of(reader, struct reading, reader);
    struct mcp_request *request = reading->request;
    const struct buffer *content = &reader->content;
    scoped(free) char *blob = NULL;
    struct mcp_result result;
    bool is_text;

    if (reader->err.code) {
        fail_error(request, &reader->err);
        return;
    }
    is_text = str_is_utf8(content->length ? (const char *)content->data : "", content->length);
    mcp_result_begin(&result, request);
    mcp_result_put_cache(&result, request, 0, "private");
    json_begin_array(&result.json, "contents");
    json_begin_object(&result.json, NULL);
    json_put_text(&result.json, "uri", mcp_param_text(request, "uri"));
    json_put_text(&result.json, "mimeType", find_type(reading->path, is_text));
    if (is_text) {
        json_put_bytes(&result.json, "text", content->length ? (const void *)content->data : "",
                       content->length);
    } else {
        blob = base64_encode(content->data, content->length);
        json_put_text(&result.json, "blob", blob);
    }
    json_end_object(&result.json);
    json_end_array(&result.json);
    mcp_result_send(&result, request);
}

static void on_ready(struct session_hold *hold)
{
    struct reading *reading = container_of(hold, struct reading, hold);
    struct error err = hold->err;

    if (!err.code && !hold->agent)
        error_set(&err, ERR_UNAVAILABLE, "the sandbox cannot be reached at the moment");
    if (hold->err.code)
        reading->in_use = false;
    if (err.code) {
        fail_error(reading->request, &err);
        return;
    }
    reading->is_reading = true;
    file_reader_start(&reading->reader, hold->agent, reading->path, RESOURCE_MAXIMUM, false,
                      on_read);
}

static void on_lost(struct session_hold *hold)
{
    struct reading *reading = container_of(hold, struct reading, hold);

    reading->in_use = false;
    fail(reading->request, JSONRPC_INTERNAL_ERROR, "the sandbox ended during the call");
}

static int hex_value(char digit)
{
    const char *digits = "0123456789abcdef0123456789ABCDEF";
    const char *place = digit ? strchr(digits, digit) : NULL;

    return place ? (int)(place - digits) % 16 : -1;
}

/* Percent escapes become what they stand for, except a NUL; -1 when one is malformed. */
static int decode(const char *text, struct buffer *out)
{
    for (; *text; text++) {
        int high = *text == '%' ? hex_value(text[1]) : 0;
        int low = *text == '%' && high >= 0 ? hex_value(text[2]) : 0;
        bool is_escape = *text == '%';

        if (high < 0 || low < 0 || (is_escape && high + low == 0))
            return -1;
        if (buffer_append_byte(out, is_escape ? (uint8_t)(high << 4 | low) : (uint8_t)*text) < 0)
            return -1;
        text += is_escape ? 2 : 0;
    }
    return 0;
}

/* The two parts of an address, allocated; -1 when it is none of ours. */
static int parse_uri(const char *uri, char **out_session, char **out_path)
{
    scoped(buffer_fini) struct buffer path = BUFFER_INIT(PATH_BYTES);
    const char *rest, *slash;

    if (!uri || !str_starts_with(uri, SCHEME))
        return -1;
    rest = uri + strlen(SCHEME);
    slash = strchr(rest, '/');
    if (!slash || slash == rest || !slash[1] || decode(slash + 1, &path) < 0)
        return -1;
    *out_session = xstrndup(rest, (size_t)(slash - rest));
    *out_path = buffer_steal_text(&path);
    return 0;
}

void mcp_resources_read(struct mcp_request *request)
{
    scoped(free) char *id = NULL;
    scoped(free) char *path = NULL;
    struct reading *reading;
    struct session *session;
    struct error err = { 0 };

    if (!mcp_param_text(request, "uri")) {
        mcp_request_fail(request, JSONRPC_INVALID_PARAMS, "uri must be a string", NULL);
        return;
    }
    if (parse_uri(mcp_param_text(request, "uri"), &id, &path) < 0) {
        fail_not_found(request, "unknown resource; resources are " SCHEME "SESSION/PATH");
        return;
    }
    session = find_live_session(request->mcp->parts.core, &request->identity, id, &err);
    if (!session) {
        fail_error(request, &err);
        return;
    }
    reading = xnew(struct reading);
    reading->request = request;
    reading->path = steal_ptr(&path);
    reading->in_use = true;
    request->work = reading;
    request->release = reading_release;
    session_hold_begin(&reading->hold, session, 0, on_ready, on_lost);
}
