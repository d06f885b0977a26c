/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The usage of a sandbox over time. The samples are those of core/sandbox/usage_history.h; a
 * sandbox that has none yet is measured when it is asked for.
 */

#include "base/clock.h"
#include "core/core.h"
#include "core/sandbox/sandbox.h"
#include "core/sandbox/usage.h"
#include "core/sandbox/usage_history.h"
#include "core/session/session.h"
#include "e2b/private.h"

#include <string.h>

/* --- points ---------------------------------------------------------------------------------- */

struct points {
    struct json_writer json;
    const struct session *session;
    int64_t until_us;
    size_t count;
    struct usage_sample last;
};

static void write_point(struct json_writer *json, const char *key, const struct session *session,
                        const struct usage_sample *sample)
{
    const struct sandbox_limits *limits = session_limits(session);

    json_begin_object(json, key);
    json_put_time(json, "timestamp", sample->wall_us);
    json_put_int(json, "timestampUnix", sample->wall_us / 1000000);
    json_put_int(json, "cpuCount", MAX((limits->cpu_millis + 999) / 1000, 1U));
    json_put_double(json, "cpuUsedPct", sample->cpu_permille / 10.0);
    json_put_int(json, "memUsed", (int64_t)sample->memory_bytes);
    json_put_int(json, "memTotal", (int64_t)limits->memory_bytes);
    json_put_int(json, "memCache", 0);
    json_put_int(json, "diskUsed", (int64_t)sample->disk_bytes);
    json_put_int(json, "diskTotal", (int64_t)limits->disk_bytes);
    json_end_object(json);
}

static void on_sample(void *user, const struct usage_sample *sample)
{
    struct points *points = user;

    points->count++;
    if (sample->wall_us <= points->until_us)
        write_point(&points->json, NULL, points->session, sample);
}

static void keep_sample(void *user, const struct usage_sample *sample)
{
    struct points *points = user;

    points->count++;
    points->last = *sample;
}

/* The newest, or what was measured just now; false without either. */
static bool newest_point(const struct session *session, struct usage_sample *out)
{
    const struct sandbox *sandbox = session ? session_sandbox(session) : NULL;
    const struct sandbox_usage *usage = sandbox ? sandbox_usage(sandbox) : NULL;
    struct points points = { 0 };

    if (sandbox && usage_history_read(sandbox, 0, keep_sample, &points)) {
        *out = points.last;
        return true;
    }
    if (!usage)
        return false;
    *out = (struct usage_sample){ .wall_us = clock_wall_us(loop_clock(session_core(session)->loop)),
                                  .cpu_us = usage->cpu_us,
                                  .memory_bytes = usage->memory_bytes,
                                  .disk_bytes = usage->disk_bytes,
                                  .pids = usage->pids };
    return true;
}

/* --- of one ---------------------------------------------------------------------------------- */

/* Whole seconds, which are before and behind all points of that second. */
static int read_range(const struct request *request, int64_t *out_since_us, int64_t *out_until_us,
                      struct error *err)
{
    uint64_t start_s = 0, end_s = (uint64_t)INT64_MAX / 2000000;

    if (request_parameter_u64(request, "start", end_s, &start_s, err) < 0 ||
        request_parameter_u64(request, "end", end_s, &end_s, err) < 0)
        return -1;
    *out_since_us = (int64_t)start_s * 1000000 - 1;
    *out_until_us = (int64_t)end_s * 1000000 + 999999;
    return 0;
}

static void reply_points(struct request *request, const struct session *session)
{
    scoped(buffer_fini) struct buffer text = BUFFER_INIT(REQUEST_REPLY_MAXIMUM);
    const struct sandbox *sandbox = session ? session_sandbox(session) : NULL;
    struct points points = { .json = JSON_WRITER(&text), .session = session };
    struct usage_sample now;
    int64_t since_us;
    struct error err = { 0 };

    if (read_range(request, &since_us, &points.until_us, &err) < 0) {
        request_fail(request, &err);
        return;
    }
    json_begin_array(&points.json, NULL);
    if (sandbox && usage_history_read(sandbox, since_us, on_sample, &points) == 0 &&
        newest_point(session, &now) && now.wall_us > since_us && now.wall_us <= points.until_us)
        write_point(&points.json, NULL, session, &now);
    json_end_array(&points.json);
    request_reply(request, 200, &text);
}

static void on_measured(void *user)
{
    struct request *request = user;

    if (!request_finish(request))
        reply_points(request, e2b_session(request));
}

static void measure(struct request *request)
{
    struct sandbox *sandbox = session_sandbox(request->session);
    struct points points = { 0 };
    struct usage_round *round;

    if (sandbox && usage_history_read(sandbox, 0, keep_sample, &points)) {
        reply_points(request, request->session);
        return;
    }
    round = usage_begin(request->core);
    usage_add(round, sandbox);
    request_begin(request);
    usage_end(round, on_measured, request);
}

static void get_metrics(struct request *request)
{
    e2b_find(request, measure);
}

/* --- of many --------------------------------------------------------------------------------- */

/* The live session of the caller that the next id of a comma list names; NULL for others. */
static struct session *next_named(const struct request *request, const char **list)
{
    struct caller_identity identity = request_identity(request);
    size_t length = strcspn(*list, ",");
    char id[ID_SIZE];
    bool is_id = e2b_id_read(*list, length, id);

    *list += length + ((*list)[length] == ',');
    return is_id ? find_live_session(request->core, &identity, id, NULL) : NULL;
}

static void on_all_measured(void *user)
{
    struct request *request = user;
    scoped(buffer_fini) struct buffer text = BUFFER_INIT(REQUEST_REPLY_MAXIMUM);
    struct json_writer json = JSON_WRITER(&text);
    const char *list;

    if (request_finish(request))
        return;
    list = request_parameter(request, "sandbox_ids");
    json_begin_object(&json, NULL);
    json_begin_object(&json, "sandboxes");
    while (list && *list) {
        const struct session *session = next_named(request, &list);
        struct usage_sample point;
        char id[ID_SIZE];

        if (!newest_point(session, &point))
            continue;
        e2b_id_write(session_id(session), id);
        write_point(&json, id, session, &point);
    }
    json_end_object(&json);
    json_end_object(&json);
    request_reply(request, 200, &text);
}

static void get_all_metrics(struct request *request)
{
    const char *list = request_parameter(request, "sandbox_ids");
    struct usage_round *round = usage_begin(request->core);

    while (list && *list) {
        struct session *session = next_named(request, &list);

        if (session)
            usage_add(round, session_sandbox(session));
    }
    request_begin(request);
    usage_end(round, on_all_measured, request);
}

const struct route e2b_metric_routes[] = {
    { HTTP_GET, "/sandboxes/metrics", get_all_metrics, "Usage of sandboxes",
      .answers = e2b_any_answers },
    { HTTP_GET, "/sandboxes/{id}/metrics", get_metrics, "Usage of a sandbox",
      .answers = e2b_any_answers },
    { 0 },
};
