#include "core/stamp.h"

#include "base/clock.h"
#include "core/core.h"

struct stamp stamp_now(const struct core *core)
{
    const struct clock *clock = loop_clock(core->loop);

    return (struct stamp){ .wall_us = clock_wall_us(clock), .boot_us = clock_now_us(clock) };
}
