/* SPDX-License-Identifier: Apache-2.0 */
/* The text of /metrics: it counts in all rooms of the core, so it stands above them. */

#include "core/metrics.h"

#include "base/buffer.h"
#include "core/core.h"
#include "core/execution_state.h"
#include "core/sandbox/capacity.h"
#include "core/sandbox/pool.h"
#include "core/sandbox/sandbox.h"
#include "core/session/session.h"

#include <stdio.h>
#include <unistd.h>

/* --- counters: one row each ---------------------------------------------------------------- */

static const char *end_label(unsigned label)
{
    return label < END_KINDS ? end_kind_name(label) : "";
}

static const char *execution_label(unsigned label)
{
    return label < EXECUTION_STATES ? execution_state_name(label) : "";
}

static const char *status_label(unsigned label)
{
    static const char *const classes[] = { "", "1xx", "2xx", "3xx", "4xx", "5xx" };

    return label < ARRAY_LENGTH(classes) ? classes[label] : "";
}

static const struct metric_row {
    const char *name;
    const char *help;
    const char *label;                         /* NULL: one value */
    const char *(*label_text)(unsigned label); /* "" for one that is not used */
} rows[METRICS] = {
    [METRIC_SESSIONS_CREATED] = { "sandglass_sessions_created_total", "Sessions created.", NULL,
                                  NULL },
    [METRIC_SESSIONS_ENDED] = { "sandglass_sessions_ended_total", "Sessions ended, by reason.",
                                "reason", end_label },
    [METRIC_SANDBOXES_CREATED] = { "sandglass_sandboxes_created_total", "Sandboxes built.", NULL,
                                   NULL },
    [METRIC_SANDBOX_CREATE_FAILURES] = { "sandglass_sandbox_create_failures_total",
                                         "Sandboxes that could not be created.", NULL, NULL },
    [METRIC_SANDBOX_RESTARTS] = { "sandglass_sandbox_restarts_total",
                                  "Sandboxes that replaced an earlier one of their session.", NULL,
                                  NULL },
    [METRIC_SANDBOX_EVICTIONS] = { "sandglass_sandbox_evictions_total",
                                   "Idle sandboxes evicted to make room for others.", NULL, NULL },
    [METRIC_POOL_HITS] = { "sandglass_pool_hits_total", "Sandboxes taken from the pool.", NULL,
                           NULL },
    [METRIC_POOL_MISSES] = { "sandglass_pool_misses_total", "Requests that found the pool empty.",
                             NULL, NULL },
    [METRIC_POOL_SHRUNK] = { "sandglass_pool_shrunk_total",
                             "Sandboxes of the pool that were released for lack of memory.", NULL,
                             NULL },
    [METRIC_DESTROY_FAILURES] = { "sandglass_destroy_failures_total",
                                  "Attempts to destroy a sandbox that failed.", NULL, NULL },
    [METRIC_SWEEP_REMOVED] = { "sandglass_sweep_removed_total",
                               "Sandboxes without a record that were removed at start.", NULL,
                               NULL },
    [METRIC_EXECUTIONS_STARTED] = { "sandglass_executions_started_total", "Executions started.",
                                    NULL, NULL },
    [METRIC_EXECUTIONS_ENDED] = { "sandglass_executions_ended_total", "Executions ended, by state.",
                                  "state", execution_label },
    [METRIC_OUTPUT_BYTES] = { "sandglass_output_bytes_total", "Bytes written by programs.", NULL,
                              NULL },
    [METRIC_HTTP_REQUESTS] = { "sandglass_http_requests_total",
                               "Requests answered, by class of status.", "status", status_label },
};

static void write_head(struct buffer *text, const char *name, const char *help, const char *type)
{
    buffer_appendf(text, "# HELP %s %s\n# TYPE %s %s\n", name, help, name, type);
}

static void write_counter(const struct metrics *metrics, enum metric metric, struct buffer *text)
{
    const struct metric_row *row = &rows[metric];

    write_head(text, row->name, row->help, "counter");
    if (!row->label) {
        buffer_appendf(text, "%s %llu\n", row->name,
                       (unsigned long long)metrics->values[metric][0]);
        return;
    }
    for (unsigned label = 0; label < METRIC_LABELS; label++)
        if (*row->label_text(label))
            buffer_appendf(text, "%s{%s=\"%s\"} %llu\n", row->name, row->label,
                           row->label_text(label),
                           (unsigned long long)metrics->values[metric][label]);
}

/* --- gauges: counted when asked ------------------------------------------------------------ */

static void write_gauge(struct buffer *text, const char *name, const char *help, uint64_t value)
{
    write_head(text, name, help, "gauge");
    buffer_appendf(text, "%s %llu\n", name, (unsigned long long)value);
}

static void write_sandboxes(struct core *core, struct buffer *text)
{
    size_t counts[SANDBOX_STATES] = { 0 };
    struct sandbox *sandbox;

    for (sandbox = sandbox_next(core, NULL); sandbox; sandbox = sandbox_next(core, sandbox))
        counts[sandbox_state(sandbox)]++;
    write_head(text, "sandglass_sandboxes", "Sandboxes that exist, by state.", "gauge");
    for (unsigned state = SANDBOX_CREATING; state < SANDBOX_STATES; state++)
        buffer_appendf(text, "sandglass_sandboxes{state=\"%s\"} %zu\n", sandbox_state_name(state),
                       counts[state]);
}

static void write_sessions(struct core *core, struct buffer *text)
{
    size_t counts[SESSION_STATES] = { 0 };
    struct session *session;

    session_for_each (session, core)
        counts[session_state(session)]++;
    write_head(text, "sandglass_sessions", "Live sessions, by state.", "gauge");
    for (unsigned state = SESSION_OPEN; state < SESSION_ENDED; state++)
        buffer_appendf(text, "sandglass_sessions{state=\"%s\"} %zu\n", session_state_name(state),
                       counts[state]);
}

static uint64_t resident_bytes(void)
{
    FILE *file = fopen("/proc/self/statm", "re");
    unsigned long long size = 0;
    unsigned long long resident = 0;

    if (!file)
        return 0;
    if (fscanf(file, "%llu %llu", &size, &resident) != 2)
        resident = 0;
    fclose(file);
    return resident * (uint64_t)sysconf(_SC_PAGESIZE);
}

void metrics_write(struct core *core, struct buffer *text)
{
    for (unsigned metric = 0; metric < METRICS; metric++)
        write_counter(core->metrics, metric, text);
    write_sessions(core, text);
    write_sandboxes(core, text);
    write_gauge(text, "sandglass_pool_ready", "Sandboxes that wait in the pool.",
                pool_ready(core->pool));
    write_gauge(text, "sandglass_capacity_waiting", "Sandboxes that wait for a slot.",
                capacity_waiting(core->capacity));
    write_gauge(text, "process_resident_memory_bytes", "Resident memory of the daemon.",
                resident_bytes());
}
