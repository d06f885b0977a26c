/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Results of code that the history refers to: pictures and other contents that are too large for an
 * event.
 *
 * The bytes are untrusted and the origin is the dashboard's, so that only images that run nothing
 * get their own type.
 */

#include "core/output/displays.h"
#include "api/run/executions.h"
#include "base/fd.h"
#include "base/str.h"
#include "core/core.h"
#include "core/metrics.h"

static const char *safe_type(const char *type)
{
    static const char *const images[] = { "image/png", "image/jpeg", "image/gif", "image/webp" };

    for (size_t i = 0; i < ARRAY_LENGTH(images); i++)
        if (str_equal(type, images[i]))
            return images[i];
    return "application/octet-stream";
}

static void on_found(struct request *request, const struct found_execution *found)
{
    struct display_place place;
    scoped(fd_close) int file = display_open(request->core->parts.state_dir,
                                             found_execution_id(found),
                                             request_path(request, "display"), &place);
    struct error err = { 0 };

    if (file < 0) {
        error_named(
            &err, ERR_NOT_FOUND, "display_not_found",
            "execution %s has no display with this hash, or its output is not kept any more",
            found_execution_id(found));
        request_fail(request, &err);
        return;
    }
    metrics_add(request->core->metrics, METRIC_HTTP_REQUESTS, 2, 1);
    http_respond_header(request->exchange, "Content-Security-Policy", "sandbox");
    http_respond_start(request->exchange, 200, safe_type(place.type), (int64_t)place.length);
    http_respond_content(request->exchange, file, (int64_t)place.offset, (size_t)place.length);
}

static void get_display(struct request *request)
{
    api_find_execution(request, on_found);
}

static const struct route_answer answers[] = {
    { 200, "raw bytes; images have their media type" },
    { 404, "session_not_found, execution_not_found, display_not_found" },
    { 0 },
};

const struct route api_display_routes[] = {
    { HTTP_GET, "/api/v1/sessions/{session}/executions/{execution}/displays/{display}", get_display,
      "Read what code in a context has shown, by its SHA-256", .session = ROUTE_ANY_SESSION,
      .answers = answers },
    { 0 },
};
