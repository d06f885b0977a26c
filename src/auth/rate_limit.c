/* SPDX-License-Identifier: Apache-2.0 */
#include "auth/rate_limit.h"

#include "base/alloc.h"
#include "base/clock.h"
#include "base/list.h"
#include "base/map.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>

struct bucket {
    struct list node; /* in limit->buckets */
    char *name;       /* owned */
    double tokens;
    int64_t filled_us; /* when that was so */
};

struct rate_limit {
    const struct clock *clock; /* borrowed */
    double per_second;
    double burst;
    size_t maximum;
    struct map by_name;
    struct list buckets; /* the one that was touched longest ago is first */
};

struct rate_limit *rate_limit_new(const struct clock *clock, double per_second, double burst,
                                  size_t maximum_buckets)
{
    struct rate_limit *limit = xnew(struct rate_limit);

    limit->clock = clock;
    limit->per_second = per_second;
    limit->burst = MAX(burst, 1.0);
    limit->maximum = maximum_buckets;
    list_init(&limit->buckets);
    return limit;
}

static void bucket_forget(struct rate_limit *limit, struct bucket *bucket)
{
    assert(bucket);
    map_remove(&limit->by_name, bucket->name);
    list_remove(&bucket->node);
    free(bucket->name);
    free(bucket);
}

void rate_limit_free(struct rate_limit *limit)
{
    if (!limit)
        return;
    while (!list_is_empty(&limit->buckets))
        bucket_forget(limit, list_first(&limit->buckets, struct bucket, node));
    map_fini(&limit->by_name);
    free(limit);
}

static struct bucket *bucket_make(struct rate_limit *limit, const char *name)
{
    struct bucket *bucket = xnew(struct bucket);

    if (limit->by_name.count >= limit->maximum)
        bucket_forget(limit, list_first(&limit->buckets, struct bucket, node));
    bucket->name = xstrdup(name);
    bucket->tokens = limit->burst;
    bucket->filled_us = clock_now_us(limit->clock);
    list_init(&bucket->node);
    map_put(&limit->by_name, bucket->name, bucket);
    return bucket;
}

static struct bucket *bucket_find(struct rate_limit *limit, const char *name)
{
    struct bucket *bucket = map_get(&limit->by_name, name);
    int64_t now_us = clock_now_us(limit->clock);

    if (!bucket)
        bucket = bucket_make(limit, name);
    list_remove(&bucket->node);
    list_append(&limit->buckets, &bucket->node);
    bucket->tokens += (double)(now_us - bucket->filled_us) / 1e6 * limit->per_second;
    bucket->tokens = MIN(bucket->tokens, limit->burst);
    bucket->filled_us = now_us;
    return bucket;
}

static bool check(struct rate_limit *limit, const char *name, double taken, int64_t *out_wait_ms)
{
    struct bucket *bucket;

    if (limit->per_second <= 0)
        return true;
    bucket = bucket_find(limit, name);
    if (bucket->tokens < 1.0) {
        *out_wait_ms = (int64_t)ceil((1.0 - bucket->tokens) / limit->per_second * 1000);
        return false;
    }
    bucket->tokens -= taken;
    return true;
}

bool rate_limit_allows(struct rate_limit *limit, const char *name, int64_t *out_wait_ms)
{
    return check(limit, name, 0, out_wait_ms);
}

bool rate_limit_take(struct rate_limit *limit, const char *name, int64_t *out_wait_ms)
{
    return check(limit, name, 1, out_wait_ms);
}
