/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Sessions at the two ends of the daemon: what recovery.c and the assembly of the core call. */

#include "core/session/session.h"

/* Now, without touching its sandbox. */
void session_free(struct session *session);

/* From its record, into the maps; its sandbox and its executions follow. */
struct session *session_restore(struct core *core, const struct session_record *record);

/* A record of its sandbox shows another incarnation: the next execution reports that, if it is not
 * the first. */
void session_set_generation(struct session *session, uint64_t generation);

/* Goes on with an end that was recorded: as session_end() without changing the reason. */
void session_end_resume(struct session *session);

/* Goes on with a teardown or replacement that had begun. */
void session_teardown_resume(struct session *session);

/* Its sandbox is not known yet, and its init has to pack the files before that goes. */
bool session_waits_for_files(const struct session *session);

/* Decides again about waiting holds, at the end of this turn. */
void session_serve_soon(struct session *session);

/* The sandbox of its record is in memory again. */
void session_adopt_sandbox(struct session *session, struct sandbox *sandbox);

/* The sandbox that its restored holds are of is not there to be adopted: they are lost. */
void session_lose_restored_holds(struct session *session, const struct end_reason *reason);

/* Its creation is committed. */
bool session_is_recorded(const struct session *session);
