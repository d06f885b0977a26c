/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * The upper border of core/money: what budgets and approvals report to the session that they belong
 * to, and the one thing that they have to ask. The assembly of the core sets the table; nothing in
 * this directory includes a header of the room that implements it.
 */

#include "core/session_view.h"

/* The sandbox that a meter runs for, as far as its state is known. */
enum metered_sandbox {
    METERED_GONE,
    METERED_UNKNOWN, /* whether it still runs is being asked: budget_resume() follows */
    METERED_UP,
};

/* Implemented by core/session; no member is NULL. */
struct money_observer {
    void (*on_asked)(struct session *session);   /* it waits for an approval from now on */
    void (*on_decided)(struct session *session); /* it does not wait any more, and is alive */

    /* The flavor was approved. ERR_CONFLICT when it cannot be now: nothing has changed then. */
    int (*on_approved)(struct session *session, const char *flavor, enum session_choice choice,
                       struct error *err);

    /* Nothing is left for another window: the sandbox has to go. */
    void (*on_exhausted)(struct session *session);

    enum metered_sandbox (*metered_sandbox)(const struct session *session, const char *sandbox_id);
};
