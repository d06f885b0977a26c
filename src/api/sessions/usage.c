/* SPDX-License-Identifier: Apache-2.0 */
/* Usage over time: samples of the sandbox that the session has now. */

#include "api/private.h"
#include "base/clock.h"
#include "base/str.h"
#include "config/config.h"
#include "core/sandbox/sandbox.h"
#include "core/sandbox/usage_history.h"

#include <math.h>
#include <stdlib.h>

/* RFC 3339, or seconds since 1970. */
static int read_since(const struct request *request, int64_t *out_wall_us, struct error *err)
{
    const char *text = request_parameter(request, "since");
    double seconds;
    char *end;

    if (!text || clock_parse(text, out_wall_us) == 0)
        return 0;
    seconds = strtod(text, &end);
    if (end != text && !*end && isfinite(seconds) && seconds >= 0 && seconds < 1e11) {
        *out_wall_us = (int64_t)(seconds * 1e6);
        return 0;
    }
    return error_named(err, ERR_INVALID, "invalid_parameter",
                       "parameter since must be a time such as 2026-01-31T12:00:00Z, or seconds "
                       "since 1970");
}

static void put_sample(void *user, const struct usage_sample *sample)
{
    struct json_writer *json = user;

    json_begin_object(json, NULL);
    json_put_time(json, "time", sample->wall_us);
    json_put_double(json, "cpu_seconds", (double)sample->cpu_us / 1e6);
    json_put_double(json, "cpu_percent", sample->cpu_permille / 10.0);
    json_put_int(json, "memory_bytes", (int64_t)sample->memory_bytes);
    json_put_int(json, "disk_bytes", (int64_t)sample->disk_bytes);
    json_put_int(json, "pids", sample->pids);
    json_end_object(json);
}

static void get_usage(struct request *request)
{
    scoped(buffer_fini) struct buffer text = BUFFER_INIT(REQUEST_REPLY_MAXIMUM);
    struct json_writer json = JSON_WRITER(&text);
    const struct session *session = request->session;
    const struct sandbox *sandbox = session ? session_sandbox(session) : NULL;
    double interval_s = (double)request->faces->parts.config->usage.interval_ms / 1000;
    int64_t since_us = 0;
    struct error err = { 0 };

    if (read_since(request, &since_us, &err) < 0) {
        request_fail(request, &err);
        return;
    }
    json_begin_object(&json, NULL);
    json_put_text(&json, "session_id", request->session_id);
    if (sandbox)
        json_put_int(&json, "generation", (int64_t)sandbox_generation(sandbox));
    else
        json_put_null(&json, "generation");
    json_put_double(&json, "interval_seconds", interval_s);
    json_put_double(&json, "interval", interval_s);
    json_begin_array(&json, "samples");
    if (sandbox)
        usage_history_read(sandbox, since_us, put_sample, &json);
    json_end_array(&json);
    json_end_object(&json);
    request_reply(request, 200, &text);
}

static const struct route_parameter parameters[] = {
    { "since", "string", "only samples after this time: RFC 3339, or seconds since 1970" },
    { 0 },
};

static const struct route_answer answers[] = {
    { 200, "{session_id, generation, interval, samples: [{time, cpu_seconds, cpu_percent, "
           "memory_bytes, disk_bytes, pids}]}: of the present sandbox, the oldest first; "
           "cpu_percent is 100 for one core" },
    { 400, "invalid_parameter" },
    { 404, "session_not_found: unknown, or owned by another principal" },
    { 0 },
};

const struct route api_usage_routes[] = {
    { HTTP_GET, "/api/v1/sessions/{session}/usage", get_usage,
      "Read what the sandbox of a session has used over time", .session = ROUTE_ANY_SESSION,
      .parameters = parameters, .answers = answers },
    { 0 },
};
