/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * At start, records meet reality:
 *
 *     record says         the backend says      what happens
 *     ready or frozen     alive                 adopted, with its running executions
 *     ready or frozen     frozen                adopted; thawed if its session is not paused
 *     ready               perhaps by others     adopted, and left frozen
 *     ready or frozen     dead                  crashed: the next use makes a new one
 *     ready or frozen     cannot tell           kept, and asked again with back-off
 *     anything            is absent (backends.h) neither used nor removed, until it is there again
 *     ready or frozen     alive, but silent     unknown, until sandbox.silence_timeout
 *     creating            anything              half made: destroyed
 *     crashed             anything              destroyed
 *     destroying          anything              destroying goes on
 *     a pool member       anything              destroyed: the settings may have changed
 *     nothing             exists                an orphan of this instance: destroyed
 *
 * Where nodes share the store, only the records of this node count: those of a session that others
 * have taken over are not there any more, and its sandbox goes as a member of the pool does.
 *
 * Recovery is done when all records are read: it waits for no sandbox and not for the backend. Each
 * sandbox settles on its own. Sessions that were ending go on ending, and clocks go on where they
 * were.
 */

#include "core/core.h"

struct recovery;

struct orphan_search; /* sandboxes without a record; goes on after recovery is done */

void recovery_start(struct core *core, core_done_fn *done, void *user);
/* Goes on with what a session that was restored was doing. */
struct session;
void recovery_resume_session(struct session *session);

/* A sandbox of its record, with its session if that is in memory, and has none; then what the table
 * says. NULL for a record that cannot be. */
struct sandbox;
struct sandbox_record;
struct sandbox *recovery_restore_sandbox(struct core *core, const struct sandbox_record *record);
void recovery_reconcile(struct sandbox *sandbox);

void recovery_free(struct recovery *recovery); /* NULL is fine */
