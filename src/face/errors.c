/* SPDX-License-Identifier: Apache-2.0 */
#include "auth/auth.h"
#include "base/str.h"
#include "core/core.h"
#include "core/sandbox/capacity.h"
#include "face/home.h"
#include "face/request.h"

#include <stdio.h>

static const int statuses[ERR_CODES] = {
    [ERR_NONE] = 500,      [ERR_INVALID] = 400,  [ERR_UNAUTHORIZED] = 401, [ERR_FORBIDDEN] = 403,
    [ERR_NOT_FOUND] = 404, [ERR_CONFLICT] = 409, [ERR_GONE] = 410,         [ERR_TOO_LARGE] = 413,
    [ERR_LIMIT] = 429,     [ERR_INTERNAL] = 500, [ERR_BACKEND] = 502,      [ERR_UNAVAILABLE] = 503,
    [ERR_TIMEOUT] = 504,   [ERR_NO_SPACE] = 507,
};

/* Where the name says more than the code. */
static const struct {
    const char *name;
    int status;
} special[] = {
    { "method_not_allowed", 405 },     { "precondition_failed", 412 },
    { "unsupported_media_type", 415 }, { "range_not_satisfiable", 416 },
    { "offset_beyond_end", 416 },
};

int request_status_of(const struct error *err)
{
    for (size_t i = 0; i < ARRAY_LENGTH(special); i++) {
        if (str_equal(special[i].name, err->name))
            return special[i].status;
    }
    return statuses[err->code];
}

enum surface request_surface(const struct request *request)
{
    return request->exchange ? surface_from_name(request_header(request, "x-sandglass-surface"))
                             : SURFACE_HTTP;
}

void request_write_error(const struct request *request, struct json_writer *json, const char *key,
                         const struct error *err)
{
    json_begin_object(json, key);
    json_put_text(json, "code", *err->name ? err->name : error_code_name(err->code));
    json_put_text(json, "message", err->message);
    json_put_text(json, "hint", error_hint_for(err, request_surface(request)));
    json_put_bool(json, "retryable", err->retryable);
}

static bool door_refused(const struct error *err)
{
    return str_equal(err->name, "rate_limited") || str_equal(err->name, "too_many_failures") ||
           str_equal(err->name, "issuer_unavailable") || str_equal(err->name, "keys_unreadable");
}

void request_put_retry_after(struct request *request, const struct error *err)
{
    char seconds[24];
    long long after = 1;

    if (err->code != ERR_LIMIT && err->code != ERR_UNAVAILABLE)
        return;
    if (str_equal(err->name, "capacity"))
        after = capacity_retry_after_s(request->core->capacity);
    else if (door_refused(err))
        after = auth_retry_after_s(request->faces->parts.auth);
    snprintf(seconds, sizeof(seconds), "%lld", after);
    http_respond_header(request->exchange, "Retry-After", seconds);
}

void request_fail_json(struct request *request, const struct error *err)
{
    scoped(buffer_fini) struct buffer text = BUFFER_INIT(64 * 1024);
    struct json_writer json = JSON_WRITER(&text);

    request_put_retry_after(request, err);
    json_begin_object(&json, NULL);
    request_write_error(request, &json, "error", err);
    json_end_object(&json);
    json_end_object(&json);
    request_reply(request, request_status_of(err), &text);
}

void request_fail(struct request *request, const struct error *err)
{
    if (request->faces->parts.cluster && request->exchange && request_try_again(request, err))
        return;
    if (request->exchange)
        request->face->fail(request, err);
}
