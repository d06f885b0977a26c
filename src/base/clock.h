/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Time. Deadlines use boot time, which counts through a suspend and cannot be set; wall time
 * is only for showing and for records that have to survive a reboot. Tests replace both by a
 * simulated clock that stands still until it is moved.
 */

#include <stddef.h>
#include <stdint.h>

enum { CLOCK_TEXT_SIZE = 32 };

struct clock {
    int64_t (*boot_us)(const struct clock *clock);
    int64_t (*wall_us)(const struct clock *clock);
};

struct simulated_clock {
    struct clock clock;
    int64_t boot_us;
    int64_t wall_us;
};

extern const struct clock clock_system;

void simulated_clock_init(struct simulated_clock *clock, int64_t boot_us, int64_t wall_us);
void simulated_clock_advance(struct simulated_clock *clock, int64_t us);

static inline int64_t clock_now_us(const struct clock *clock)
{
    return clock->boot_us(clock);
}

static inline int64_t clock_wall_us(const struct clock *clock)
{
    return clock->wall_us(clock);
}

/* The first whole second of the wall clock at which a duration that begins now is over. */
static inline int64_t clock_wall_s_after(const struct clock *clock, int64_t duration_ms)
{
    return (clock_wall_us(clock) + duration_ms * 1000 + 999999) / 1000000;
}

/* RFC 3339 in UTC with milliseconds: 2026-03-01T12:00:00.000Z, from 1970 to 9999. */
void clock_format(int64_t wall_us, char text[CLOCK_TEXT_SIZE]);
int clock_parse(const char *text, int64_t *out_wall_us); /* 0 or -1 */
