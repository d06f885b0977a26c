/* SPDX-License-Identifier: Apache-2.0 */
#include "core/metrics.h"

#include <assert.h>

void metrics_add(struct metrics *metrics, enum metric metric, unsigned label, uint64_t amount)
{
    assert(metric < METRICS && label < METRIC_LABELS);
    metrics->values[metric][label] += amount;
}
