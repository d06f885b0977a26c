/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Token buckets by name: each fills with `per_second` tokens up to `burst`, and a request
 * takes one if there is one. The number of buckets is bounded: the one that was touched longest ago
 * is forgotten, which fills it.
 */

#include "base/scoped.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct clock;
struct rate_limit;

/* The clock is borrowed. A rate of 0 limits nothing. */
struct rate_limit *rate_limit_new(const struct clock *clock, double per_second, double burst,
                                  size_t maximum_buckets);
void rate_limit_free(struct rate_limit *limit); /* NULL is fine */
SCOPED_DEFINE(rate_limit_free, struct rate_limit);

/* Whether there is a token; if not, *out_wait_ms says when there is. */
bool rate_limit_allows(struct rate_limit *limit, const char *name, int64_t *out_wait_ms);

/* The same, and takes it. */
bool rate_limit_take(struct rate_limit *limit, const char *name, int64_t *out_wait_ms);
