/* SPDX-License-Identifier: Apache-2.0 */
#include "service/recorded.h"

#include "base/macros.h"
#include "core/core.h"

static void on_durable(struct store_ticket *ticket)
{
    struct recorded *recorded = container_of(ticket, struct recorded, ticket);

    recorded->err = ticket->err;
    recorded->done(recorded);
}

void recorded_wait(struct recorded *recorded, struct core *core, recorded_fn *done)
{
    *recorded = (struct recorded){ .done = done };
    store_commit(core->parts.store, &recorded->ticket, on_durable);
}

void recorded_wait_written(struct recorded *recorded, struct core *core, recorded_fn *done)
{
    *recorded = (struct recorded){ .done = done };
    store_commit_as(core->parts.store, &recorded->ticket, STORE_WRITTEN, on_durable);
}

bool recorded_can_wait(const struct core *core)
{
    return !store_is_written(core->parts.store) && !store_absence(core->parts.store);
}

int recorded_check(const struct core *core, struct error *err)
{
    const struct error *absence = store_absence(core->parts.store);

    if (!absence)
        return 0;
    *err = *absence;
    err->code = ERR_UNAVAILABLE;
    err->retryable = true;
    return -1;
}
