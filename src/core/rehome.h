/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Sessions that change their home, where several nodes share the store.
 *
 *     a session comes      its record names this node, since its node was lost or has given it up:
 *                          it is restored with its key, its budget and its approval. A sandbox that
 *                          this node can reach (backend capability `shared`) is adopted with the
 *                          programs in it. Else it is on the lost machine ("node lost"), and its
 *                          programs have ended with it ("crashed: node lost"): the next use gets a
 *                          new sandbox, one generation later, and is told so.
 *     a session goes       this node drains: a session of which nothing is on this machine (no
 *                          sandbox, files or output) is put without a home, and another node takes
 *                          it.
 */

#include "core/core.h"

/* The record of this session names this node now. `from`: the lost node; NULL: it was given up. It is
 * fine if it is in memory already. */
void core_take_session(struct core *core, const char *session_id, const char *from);

/* Takes every live session whose record names this node and which is not in memory. */
void core_take_sessions(struct core *core);

/* Removes the sandboxes of a lost node that belong to no session, where this node can reach them. */
void core_take_pool(struct core *core, const char *from);

/* Gives up every session that can go at this moment. Returns how many stay. */
unsigned core_give_up_sessions(struct core *core);

/* The node is lost, and its sessions get new homes: what owners had there becomes free (grants.h), and
 * its leases on owners can be taken again (session/scopes.h). */
void core_drop_node(struct core *core, const char *node);

void rehomings_free(struct core *core);
