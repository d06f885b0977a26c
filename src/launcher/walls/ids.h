/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * The user ids of native sandboxes. Root gives each sandbox 65536 of the host's; a user to whom
 * /etc/subuid and /etc/subgid give at least as many has one range for all sandboxes, mapped into
 * the launcher's user namespace by newuidmap and newgidmap; any other user has a single id.
 */

#include "launcher/context.h"
#include "launcher/fail.h"

#include <stdbool.h>
#include <stdint.h>

enum { IDS_USER = 1000 /* the default user inside, and the only one with a single id */ };

/* A helper that stays in the user namespace which the launcher leaves next: its socket, -1 without
 * one. */
int ids_prepare(void);

/* Maps the ids of the user namespace that the launcher has just entered; closes the socket. */
int ids_map(struct context *context, int helper, unsigned uid, unsigned gid, struct fail *fail);

/* The first id of a sandbox in that slot, as the launcher sees it. */
uint32_t ids_first(const struct context *context, uint32_t slot);

/* Whether a sandbox has several ids, so that files can be given to its users. */
bool ids_are_many(const struct context *context);
