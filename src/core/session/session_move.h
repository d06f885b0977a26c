/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* A session that comes from another node, or goes to one; for core/rehome.c. */

#include "core/session/session.h"

/* Its sandbox of this generation was on a machine that is lost: the next use gets a new one, and is told
 * that the files are reset. `generation` 0: that sandbox had not become ready. */
void session_lose_elsewhere(struct session *session, uint64_t generation);

/* Its archive of files may be on the disk of another node: then it has none. */
void session_check_archive(struct session *session);

/* Whether nothing of it is on this machine, so that it can go to another one: no sandbox, no work, no
 * files and no output. */
bool session_can_go(const struct session *session);

/* Records that it has no home, and forgets it. Only if session_can_go(). */
void session_give_up(struct session *session);
