#pragma once

/*
 * At start, records meet reality:
 *
 *     record says         the backend says      what happens
 *     ready or frozen     alive                 adopted, with its running executions
 *     ready or frozen     dead                  crashed: the session stays, the next use makes a
 * new one ready or frozen     cannot tell           kept and asked again with back-off creating
 * anything              half made: destroyed crashed, destroying anything              destroying
 * goes on a pool member       anything              destroyed: the settings may have changed
 *     nothing             exists                an orphan of this instance: destroyed
 *
 * Everything is asked at once; nothing waits for anything else. Sessions that were ending go on
 * ending, and clocks go on where they were.
 */

#include "core/core.h"

struct recovery;

void recovery_start(struct core *core, core_done_fn *done, void *user);
void recovery_free(struct recovery *recovery); /* NULL is fine */
