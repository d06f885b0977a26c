/* SPDX-License-Identifier: Apache-2.0 */
/* The lines of the audit log about a session. */

#include "audit/audit.h"
#include "api/private.h"
#include "base/alloc.h"
#include "config/config.h"
#include "core/core.h"
#include "loop/worker.h"

#include <stdlib.h>

enum { LINES_DEFAULT = 200, LINES_MAXIMUM = 1000, ANSWER_MAXIMUM = 16 * 1024 * 1024 };

/* The file is read on a thread. */
struct reading {
    struct job job;
    struct request *request; /* not touched by the thread */
    char session_id[ID_SIZE];
    char *path; /* owned */
    uint64_t limit;
    struct buffer lines;
    struct error err;
};

static void run(struct job *job)
{
    struct reading *reading = container_of(job, struct reading, job);

    (void)audit_tail(reading->path, reading->session_id, reading->limit, &reading->lines,
                     &reading->err);
}

static void reply(struct reading *reading)
{
    scoped(buffer_fini) struct buffer text = BUFFER_INIT(2 * ANSWER_MAXIMUM);
    struct json_writer json = JSON_WRITER(&text);

    json_begin_object(&json, NULL);
    json_put_raw(&json, "entries", buffer_text(&reading->lines));
    json_end_object(&json);
    request_reply(reading->request, 200, &text);
}

static void done(struct job *job)
{
    struct reading *reading = container_of(job, struct reading, job);

    if (!request_finish(reading->request)) {
        if (reading->err.code)
            request_fail(reading->request, &reading->err);
        else
            reply(reading);
    }
    buffer_fini(&reading->lines);
    free(reading->path);
    free(reading);
}

static void get_audit(struct request *request)
{
    const struct config *config = request->faces->parts.config;
    uint64_t limit = LINES_DEFAULT;
    struct reading *reading;
    struct error err = { 0 };

    if (!request->faces->parts.audit)
        error_named(&err, ERR_NOT_FOUND, "audit_disabled",
                    "this daemon writes no audit log (setting audit.enabled)");
    if (err.code || request_parameter_limit(request, LINES_MAXIMUM, &limit, &err) < 0) {
        request_fail(request, &err);
        return;
    }
    reading = xnew(struct reading);
    reading->job = (struct job){ .run = run, .done = done };
    reading->request = request;
    reading->path = xstrdup(config->audit.file);
    reading->limit = MAX(limit, (uint64_t)1);
    reading->lines = BUFFER_INIT(ANSWER_MAXIMUM);
    memcpy(reading->session_id, request->session_id, sizeof(reading->session_id));
    request_begin(request);
    worker_submit(request->core->parts.worker, &reading->job);
}

static const struct route_parameter parameters[] = {
    { "limit", "integer", "the newest lines, 200 by default and 1000 at most" },
    { 0 },
};

static const struct route_answer answers[] = {
    { 200,
      "{entries}: lines of the audit log, oldest first; as far as they are in its last 8 MiB" },
    { 403, "admin_required: where there is authentication" },
    { 404, "session_not_found, or audit_disabled" },
    { 0 },
};

const struct route api_audit_routes[] = {
    { HTTP_GET, "/api/v1/sessions/{session}/audit", get_audit,
      "Lines of the audit log about a session", .session = ROUTE_ANY_SESSION,
      .parameters = parameters, .answers = answers, .access = ROUTE_ADMINS },
    { 0 },
};
