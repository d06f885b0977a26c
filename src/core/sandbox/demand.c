/* SPDX-License-Identifier: Apache-2.0 */
#include "core/sandbox/demand.h"

#include "base/macros.h"

enum {
    WINDOW_US = 50 * 1000,
    EACH_US = 6 * 1000, /* of processor time, with its first program */
    MANY = 16,
    FORGET_US = 5 * 60 * 1000 * 1000,
};

void demand_init(struct demand *demand, unsigned processors)
{
    *demand = (struct demand){ .each_us = EACH_US / MAX(processors, 1U), .window_us = -WINDOW_US };
}

size_t demand_peak(const struct demand *demand, int64_t now_us)
{
    int64_t halvings = (now_us - demand->peak_us) / FORGET_US;

    return halvings < 32 ? demand->peak >> halvings : 0;
}

void demand_note(struct demand *demand, int64_t now_us)
{
    int64_t work_us;

    if (now_us - demand->window_us >= WINDOW_US) {
        demand->window_us = now_us;
        demand->asked = 0;
    }
    demand->asked++;
    if (demand->asked > MANY && demand->asked >= demand_peak(demand, now_us)) {
        demand->peak = demand->asked;
        demand->peak_us = now_us;
    }
    /* More than can be done in the time in which it was asked for. */
    work_us = (int64_t)demand->asked * demand->each_us;
    if (work_us > WINDOW_US)
        demand->busy_us = MAX(demand->busy_us, now_us + work_us);
}

int64_t demand_busy_us(const struct demand *demand, int64_t now_us)
{
    return MAX(demand->busy_us - now_us, (int64_t)0);
}
