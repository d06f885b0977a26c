/* SPDX-License-Identifier: Apache-2.0 */
#include "core/sandbox/usage.h"

#include "base/alloc.h"
#include "base/clock.h"
#include "core/core.h"
#include "core/sandbox/sandbox_private.h"

#include <stdlib.h>
#include <string.h>

struct usage_round {
    struct core *core; /* borrowed */
    size_t pending;    /* measurements under way, and one until usage_end() */
    usage_done_fn *done;
    void *user;
    struct deferred finish;
};

/* The sandbox may be gone when the answer comes: it is looked for by its id. */
struct measurement {
    struct backend_op op;
    struct usage_round *round;
    char id[ID_SIZE];
};

static void on_finish(struct deferred *deferred)
{
    struct usage_round *round = container_of(deferred, struct usage_round, finish);

    round->done(round->user);
    free(round);
}

static void release(struct usage_round *round)
{
    if (--round->pending == 0)
        loop_defer(round->core->loop, &round->finish, on_finish);
}

static void on_measured(struct backend_op *op)
{
    struct measurement *measurement = container_of(op, struct measurement, op);
    struct core *core = measurement->round->core;
    struct sandbox *sandbox = map_get(&core->sandboxes_by_id, measurement->id);

    if (sandbox && !op->err.code) {
        sandbox->readings.usage = op->result.usage;
        sandbox->readings.usage_wall_us = clock_wall_us(loop_clock(core->loop));
    }
    release(measurement->round);
    free(measurement);
}

struct usage_round *usage_begin(struct core *core)
{
    struct usage_round *round = xnew(struct usage_round);

    round->core = core;
    round->pending = 1;
    return round;
}

void usage_add(struct usage_round *round, const struct sandbox *sandbox)
{
    struct backend *backend = sandbox ? sandbox->order.backend : NULL;
    struct measurement *measurement;

    if (!sandbox || !backend->ops->capabilities.usage || !sandbox_is_up(sandbox))
        return;
    measurement = xnew(struct measurement);
    measurement->op.done = on_measured;
    measurement->round = round;
    memcpy(measurement->id, sandbox->id, sizeof(measurement->id));
    round->pending++;
    backend_inspect(backend, measurement->id, &measurement->op);
}

void usage_end(struct usage_round *round, usage_done_fn *done, void *user)
{
    round->done = done;
    round->user = user;
    release(round);
}
