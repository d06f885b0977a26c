/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Counters and gauges, shown at /metrics in the Prometheus text format. One row each, in
 * metrics_text.c. */

#include <stdint.h>

struct buffer;
struct core;

enum metric {
    METRIC_SESSIONS_CREATED,
    METRIC_SESSIONS_ENDED, /* by reason */
    METRIC_SANDBOXES_CREATED,
    METRIC_SANDBOX_CREATE_FAILURES,
    METRIC_SANDBOX_RESTARTS,
    METRIC_SANDBOX_EVICTIONS,
    METRIC_POOL_HITS,
    METRIC_POOL_MISSES,
    METRIC_POOL_SHRUNK,
    METRIC_DESTROY_FAILURES,
    METRIC_SWEEP_REMOVED,
    METRIC_EXECUTIONS_STARTED,
    METRIC_EXECUTIONS_ENDED, /* by state */
    METRIC_OUTPUT_BYTES,
    METRIC_HTTP_REQUESTS, /* by status class */
    METRICS
};

enum { METRIC_LABELS = 16 };

struct metrics {
    uint64_t values[METRICS][METRIC_LABELS];
};

/* `label` is the row's own enum (end_kind, execution_state, status class), 0 where it has none. */
void metrics_add(struct metrics *metrics, enum metric metric, unsigned label, uint64_t amount);
void metrics_write(struct core *core, struct buffer *text);
