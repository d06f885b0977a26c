#pragma once

/*
 * The mount namespace that children are cloned in when their root was made ahead. It has nothing
 * but an empty root and the masks: each mount in it is copied for the child, stays below the
 * sandbox's own root for as long as that lives, and has to be taken apart after it.
 */

#include <stdbool.h>

struct launcher;

/* After everything else is mounted. Without one children are cloned where the launcher is. */
void clone_ns_open(struct launcher *launcher);

/* The launcher goes there and back. */
bool clone_ns_enter(const struct launcher *launcher);
void clone_ns_leave(const struct launcher *launcher);
