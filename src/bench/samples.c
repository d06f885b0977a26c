/* SPDX-License-Identifier: Apache-2.0 */
#include "bench/samples.h"

#include "base/alloc.h"

#include <math.h>
#include <stdlib.h>
#include <time.h>

void samples_add(struct samples *samples, double value)
{
    if (samples->count == samples->room) {
        samples->room = samples->room ? samples->room * 2 : 64;
        samples->values = xrealloc(samples->values, samples->room, sizeof(double));
    }
    samples->values[samples->count++] = value;
    samples->sorted = false;
}

void samples_fini(struct samples *samples)
{
    free(samples->values);
    *samples = (struct samples){ 0 };
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a;
    double y = *(const double *)b;

    return (x > y) - (x < y);
}

double samples_at(struct samples *samples, double share)
{
    size_t rank;

    if (samples->count == 0)
        return 0;
    if (!samples->sorted)
        qsort(samples->values, samples->count, sizeof(double), by_value);
    samples->sorted = true;
    rank = (size_t)ceil(share * (double)samples->count);
    return samples->values[rank > 0 ? MIN(rank, samples->count) - 1 : 0];
}

void samples_write_json(struct samples *samples, struct json_writer *json)
{
    static const struct {
        const char *name;
        double share;
    } rows[] = { { "min", 0 }, { "p50", 0.5 }, { "p95", 0.95 }, { "p99", 0.99 }, { "max", 1 } };

    json_put_int(json, "count", (int64_t)samples->count);
    for (size_t i = 0; i < ARRAY_LENGTH(rows); i++)
        json_put_double(json, rows[i].name, samples_at(samples, rows[i].share));
}

double bench_now_us(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec * 1e6 + (double)now.tv_nsec / 1e3;
}
