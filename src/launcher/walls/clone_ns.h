/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * The mount namespace that children are cloned in when their root was made ahead. It has nothing
 * but an empty root and the masks: each mount in it is copied for the child, stays below the
 * sandbox's own root for as long as that lives, and has to be taken apart after it.
 */

#include <stdbool.h>

struct context;
struct host;

/* After everything else is mounted. Without one children are cloned where the launcher is. */
void clone_ns_open(struct host *host, const struct context *context);

/* The launcher goes there and back. */
bool clone_ns_enter(const struct host *host);
void clone_ns_leave(const struct host *host);
