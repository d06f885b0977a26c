/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * The system's clock without the time in which this process stood still: a busy machine may not give it the
 * processor for longer than a timeout of a test. For loops with short turns: while a turn waits, no timer
 * of such a clock wakes it.
 */

#include "base/clock.h"

enum { STEADY_MOST_US = 25 * 1000 }; /* between two looks at it */

static inline int64_t steady_boot_us(const struct clock *clock)
{
    static int64_t seen_us, left_out_us;
    int64_t now_us = clock_now_us(&clock_system);

    (void)clock;
    if (seen_us && now_us - seen_us > STEADY_MOST_US)
        left_out_us += now_us - seen_us - STEADY_MOST_US;
    seen_us = now_us;
    return now_us - left_out_us;
}

static inline int64_t steady_wall_us(const struct clock *clock)
{
    (void)clock;
    return clock_wall_us(&clock_system);
}

static const struct clock steady_clock = { .boot_us = steady_boot_us, .wall_us = steady_wall_us };
