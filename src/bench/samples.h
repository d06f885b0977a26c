/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Measured values and what is told of them: counts and percentiles. Values are kept, not binned:
 * a benchmark has thousands of them, not millions.
 */

#include "wire/json.h"

#include <stddef.h>

struct samples {
    double *values; /* owned */
    size_t count;
    size_t room;
    bool sorted;
};

void samples_add(struct samples *samples, double value);
void samples_fini(struct samples *samples);

static inline void scoped_samples_fini(struct samples *samples)
{
    samples_fini(samples);
}

/* The value below which this share of all lies: 0.5 is the median. 0 when there are none. */
double samples_at(struct samples *samples, double share);

/* count, min, p50, p95, p99 and max, as members of the object that is open. */
void samples_write_json(struct samples *samples, struct json_writer *json);

/* A clock for what takes microseconds. */
double bench_now_us(void);
