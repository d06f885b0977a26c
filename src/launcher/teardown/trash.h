/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * The trash: files of discarded sandboxes. The sweeper, a child at low priority, empties it: the
 * files of a sandbox may be many, and belong to ids that only the launcher has power over.
 */

#include <stdbool.h>

struct trash {
    int dir;       /* borrowed */
    int sweeper;   /* pid of the process that empties it; 0: none */
    bool has_more; /* something was discarded while it was at work */
};

/* Starts the sweeper, unless there is one already: then another follows it. */
void trash_start(struct trash *trash);

/* The sweeper has ended. */
void trash_on_exit(struct trash *trash);
