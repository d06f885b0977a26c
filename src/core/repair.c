/* SPDX-License-Identifier: Apache-2.0 */
#include "core/repair.h"

#include "base/alloc.h"
#include "core/core.h"
#include "core/grants.h"
#include "core/money/approvals.h"
#include "core/money/budget.h"
#include "core/run/execution.h"
#include "core/sandbox/sandbox.h"
#include "core/session/idempotency.h"
#include "core/session/scopes.h"
#include "core/session/session_key.h"
#include "core/session/session_recover.h"
#include "store/store.h"

#include <stdio.h>
#include <stdlib.h>

enum { REPAIR_DELAY_US = 1000 * 1000 };

struct repair {
    struct core *core;      /* borrowed */
    struct list leftovers;  /* struct leftover */
    struct timer timer;     /* armed since something was lost */
    bool lost_acknowledged; /* so was something that the store had acknowledged */
};

/* The record of a sandbox that is gone, which the store did not forget. */
struct leftover {
    struct list node;
    char id[ID_SIZE];
};

static void forget_leftovers(struct repair *repair, bool again)
{
    struct leftover *leftover;

    while ((leftover = list_first(&repair->leftovers, struct leftover, node))) {
        list_remove(&leftover->node);
        if (again)
            store_forget_sandbox(repair->core->parts.store, leftover->id);
        free(leftover);
    }
}

/* Writes the current state of everything that lives; the content of the lost writes is obsolete. */
static void put_all(struct repair *repair)
{
    struct core *core = repair->core;
    struct session *session;
    struct sandbox *sandbox;

    session_for_each (session, core) {
        if (!session_is_recorded(session))
            continue;
        session_changed(session);
        if (repair->lost_acknowledged)
            session_key_assert(session);
        else
            session_key_repair(session);
    }
    for (sandbox = sandbox_next(core, NULL); sandbox; sandbox = sandbox_next(core, sandbox))
        sandbox_repair(sandbox);
    executions_repair(core);
    budgets_repair(core->budgets);
    approvals_repair(core->approvals);
    if (repair->lost_acknowledged) {
        idempotency_assert(core->idempotency);
        scopes_assert(core->scopes);
    }
    repair->lost_acknowledged = false;
    forget_leftovers(repair, true);
}

static void on_repair(struct timer *timer)
{
    put_all(container_of(timer, struct repair, timer));
}

static void on_lost(struct store *store, enum store_table table, const char *id)
{
    struct repair *repair = store->on_lost_data;

    if (!*id) {
        repair->lost_acknowledged = true;
        grants_suspect(repair->core->grants);
    }
    if (*id && table == STORE_SANDBOXES && !map_get(&repair->core->sandboxes_by_id, id)) {
        struct leftover *leftover = xnew(struct leftover);

        snprintf(leftover->id, sizeof(leftover->id), "%s", id);
        list_append(&repair->leftovers, &leftover->node);
    }
    if (!timer_is_armed(&repair->timer)) /* for any table: a later success shows that it works */
        timer_arm_in(&repair->timer, REPAIR_DELAY_US);
}

struct repair *repair_new(struct core *core)
{
    struct repair *repair = xnew(struct repair);

    repair->core = core;
    list_init(&repair->leftovers);
    timer_init(&repair->timer, core->loop, on_repair);
    core->parts.store->on_lost = on_lost;
    core->parts.store->on_lost_data = repair;
    return repair;
}

void repair_free(struct repair *repair)
{
    if (!repair)
        return;
    repair->core->parts.store->on_lost = NULL;
    timer_stop(&repair->timer);
    forget_leftovers(repair, false);
    free(repair);
}

void repair_hurry(struct repair *repair)
{
    if (!timer_is_armed(&repair->timer))
        return;
    timer_stop(&repair->timer);
    put_all(repair);
}
