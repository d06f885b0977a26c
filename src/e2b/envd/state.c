/* SPDX-License-Identifier: Apache-2.0 */
/* The usage and the environment of a sandbox: /metrics and /envs. */

#include "base/alloc.h"
#include "base/str.h"
#include "config/config.h"
#include "core/core.h"
#include "core/sandbox/sandbox.h"
#include "core/sandbox/usage.h"
#include "core/session/session.h"
#include "e2b/envd/envd.h"
#include "e2b/private.h"

#include <string.h>

enum { MIB = 1024 * 1024 };

/* --- metrics ---------------------------------------------------------------------------------- */

/* The measurement before, so that the use of the processor can be told for the time between. */
struct measuring {
    struct request *request;
    uint64_t cpu_us;
    int64_t measured_us;
};

static struct sandbox *sandbox_of(const struct request *request)
{
    struct session *session = e2b_session(request);

    return session ? session_sandbox(session) : NULL;
}

/* Per cent of one core; since the sandbox was made when there is no earlier measurement. */
static double cpu_percent(const struct measuring *measuring, const struct sandbox *sandbox)
{
    uint64_t used = sandbox_usage(sandbox)->cpu_us;
    int64_t time_us = sandbox_measured_us(sandbox) - measuring->measured_us;

    if (!measuring->measured_us || time_us <= 0 || used < measuring->cpu_us)
        time_us = sandbox_age_us(sandbox);
    else
        used -= measuring->cpu_us;
    return time_us > 0 ? 100.0 * (double)used / (double)time_us : 0;
}

static void reply_metrics(const struct measuring *measuring, const struct sandbox *sandbox)
{
    const struct sandbox_usage *usage = sandbox_usage(sandbox);
    const struct sandbox_limits *limits = session_limits(sandbox_session(sandbox));
    scoped(buffer_fini) struct buffer text = BUFFER_INIT(4096);
    struct json_writer json = JSON_WRITER(&text);

    json_begin_object(&json, NULL);
    json_put_int(&json, "ts", clock_wall_us(loop_clock(measuring->request->core->loop)) / 1000000);
    json_put_int(&json, "cpu_count", (limits->cpu_millis + 999) / 1000);
    json_put_double(&json, "cpu_used_pct", cpu_percent(measuring, sandbox));
    json_put_int(&json, "mem_total", (int64_t)limits->memory_bytes);
    json_put_int(&json, "mem_used", (int64_t)usage->memory_bytes);
    json_put_int(&json, "mem_cache", 0);
    json_put_int(&json, "mem_total_mib", (int64_t)(limits->memory_bytes / MIB));
    json_put_int(&json, "mem_used_mib", (int64_t)(usage->memory_bytes / MIB));
    json_put_int(&json, "disk_used", (int64_t)usage->disk_bytes);
    json_put_int(&json, "disk_total", (int64_t)limits->disk_bytes);
    json_end_object(&json);
    request_reply(measuring->request, 200, &text);
}

static void on_measured(void *user)
{
    scoped(free) struct measuring *measuring = user;
    const struct sandbox *sandbox;

    if (request_finish(measuring->request))
        return;
    sandbox = sandbox_of(measuring->request);
    if (sandbox)
        reply_metrics(measuring, sandbox);
    else
        envd_fail_gone(measuring->request);
}

static void get_metrics(struct request *request)
{
    const struct sandbox *sandbox = sandbox_of(request);
    struct measuring *measuring = xnew(struct measuring);
    struct usage_round *round = usage_begin(request->core);

    measuring->request = request;
    if (sandbox) {
        measuring->cpu_us = sandbox_usage(sandbox)->cpu_us;
        measuring->measured_us = sandbox_measured_us(sandbox);
    }
    usage_add(round, sandbox);
    request_begin(request);
    usage_end(round, on_measured, measuring);
}

/* --- variables -------------------------------------------------------------------------------- */

/* The variables that the sandbox was created with. */
static void get_envs(struct request *request)
{
    const struct session *session = e2b_session(request);
    const char *env = session ? session_env_json(session) : NULL;
    scoped(buffer_fini) struct buffer text = BUFFER_INIT(REQUEST_REPLY_MAXIMUM);

    (void)buffer_append_text(&text, env ? env : "{}");
    request_reply(request, 200, &text);
}

static const struct route_answer metrics_answers[] = { { 200, "what the sandbox uses now" },
                                                       { 0 } };
static const struct route_answer envs_answers[] = { { 200, "an object of texts" }, { 0 } };

const struct route e2b_envd_state[] = {
    { HTTP_GET, "/metrics", get_metrics, "What the sandbox uses", .answers = metrics_answers },
    { HTTP_GET, "/envs", get_envs, "Variables of the sandbox", .answers = envs_answers },
    { 0 },
};
