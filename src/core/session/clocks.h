/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * The clocks that end a session. Each is a row of the table in clocks.c: when it runs, and which
 * instant it points at. The session's one timer is armed for the earliest.
 *
 *     lease      at `expires`, set and extended by the caller
 *     idle       idle_timeout after the end of the last hold; stands still during one and while
 *                paused, and work in the background starts it again (background.h). While an
 *                approval is waited for, and with session.on_idle: release, it takes the sandbox
 *                and not the session
 *     lifetime   max_lifetime after creation; work that runs then gets session.grace
 *
 * Deadlines are on the boot clock: setting the wall clock changes nothing.
 */

#include "core/session/session.h"

struct clock_deadline {
    enum end_kind kind; /* END_NONE: no clock is running */
    int64_t at_us;      /* by the loop's clock */
};

struct clock_deadline clocks_next(const struct session *session);

/* Something the clocks depend on has changed: arms the timer again. */
void clocks_arm(struct session *session);

/* The lifetime is over: no new holds, and those that are granted have only the grace left. */
bool clocks_lifetime_is_over(const struct session *session);

/* After loading: a stamp that is missing falls back to the next older one, so that every record
 * expires. The idle clock of one that was held when the daemon died begins anew. */
void clocks_complete_stamps(struct session *session, bool was_held);
