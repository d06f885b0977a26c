/* SPDX-License-Identifier: Apache-2.0 */
#include "base/alloc.h"
#include "base/macros.h"
#include "base/str.h"
#include "core/core.h"
#include "core/metrics.h"
#include "e2b/private.h"
#include "service/recorded.h"

#include <stdio.h>
#include <stdlib.h>

/* Sandboxes that have ended are not there for E2B, and a failure of ours is no gateway's. */
static int status_of(const struct error *err)
{
    if (str_equal(err->name, "template_unknown"))
        return 404;
    switch (request_status_of(err)) {
    case 410:
        return 404;
    case 502:
        return 500;
    default:
        return request_status_of(err);
    }
}

void e2b_fail_status(struct request *request, int status, const char *message)
{
    scoped(buffer_fini) struct buffer text = BUFFER_INIT(64 * 1024);
    struct json_writer json = JSON_WRITER(&text);

    json_begin_object(&json, NULL);
    json_put_int(&json, "code", status);
    json_put_text(&json, "message", message);
    json_end_object(&json);
    request_reply(request, status, &text);
}

void e2b_fail(struct request *request, const struct error *err)
{
    char message[sizeof(err->message) + sizeof(err->hint) + 4];

    snprintf(message, sizeof(message), "%s%s%s", err->message, *err->hint ? "; " : "", err->hint);
    request_put_retry_after(request, err);
    e2b_fail_status(request, status_of(err), message);
}

void e2b_reply_empty(struct request *request, int status)
{
    if (!request->exchange)
        return;
    metrics_add(request->core->metrics, METRIC_HTTP_REQUESTS, (unsigned)status / 100, 1);
    http_respond(request->exchange, status, NULL, NULL, 0);
}

struct promise {
    struct request *request; /* borrowed */
    struct recorded recorded;
    int status;
};

static void on_recorded(struct recorded *recorded)
{
    struct promise *promise = container_of(recorded, struct promise, recorded);

    if (!request_finish(promise->request)) {
        if (recorded->err->code)
            request_fail(promise->request, recorded->err);
        else
            e2b_reply_empty(promise->request, promise->status);
    }
    free(promise);
}

void e2b_reply_empty_recorded(struct request *request, int status)
{
    struct promise *promise = xnew(struct promise);

    promise->request = request;
    promise->status = status;
    request_begin(request);
    recorded_wait(&promise->recorded, request->core, on_recorded);
}
