/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Back-off: how long to wait before work that has failed is tried again. The first failure in a row
 * costs the first delay, and each further one doubles it, up to a maximum.
 *
 * The caller counts the failures, chooses the unit and arms its own timer; nothing is kept here. The
 * launcher, which does not link the library of base, includes this header too.
 */

#include <stdint.h>

struct backoff {
    int64_t first;
    int64_t most; /* not less than the first */
};

/* After that many failures in a row, in the unit of the struct; 0 when there was none. */
static inline int64_t backoff_delay(const struct backoff *backoff, unsigned failures)
{
    unsigned doublings = failures - 1;

    if (failures == 0)
        return 0;
    if (doublings >= 63 || backoff->first > backoff->most >> doublings)
        return backoff->most;
    return backoff->first << doublings;
}
