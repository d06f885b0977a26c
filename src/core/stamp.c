/* SPDX-License-Identifier: Apache-2.0 */
#include "core/stamp.h"

#include "base/clock.h"
#include "core/core.h"

#include <stdlib.h>

struct stamp stamp_now(const struct core *core)
{
    const struct clock *clock = loop_clock(core->loop);

    return (struct stamp){ .wall_us = clock_wall_us(clock), .boot_us = clock_now_us(clock) };
}

/* The recorded wall time is shown as long as the wall clock has not been set meanwhile. */
int64_t stamp_wall_us(const struct core *core, const struct stamp *stamp)
{
    struct stamp now = stamp_now(core);
    int64_t wall_us = now.wall_us + (stamp->boot_us - now.boot_us);

    if (!stamp->wall_us && !stamp->boot_us)
        return 0;
    return llabs(wall_us - stamp->wall_us) < 1000000 ? stamp->wall_us : wall_us;
}
