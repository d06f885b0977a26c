/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Socket buffers that escape the memory limit of a sandbox. Version 1 of cgroups counts TCP buffers
 * apart, and the kernel gives each socket its first buffer regardless of the limit. No limit counts
 * the receive queue of a netlink socket; /proc shows its size in the namespace of a native sandbox.
 * (Buffers of other sockets count as memory of the cgroup.) A sandbox whose memory and buffers
 * together exceed its limit is ended as out of memory.
 *
 * All sandboxes are checked in rounds, a few at a time, so that requests do not wait; a sandbox
 * with few sockets costs one read of a small file. One counter of the host shows whether TCP needs
 * a check at all.
 */

#include "launcher/cgroup/cgroup.h"
#include "launcher/state.h"

#include <dirent.h>
#include <stdbool.h>
#include <stdint.h>

enum { MEMORY_WATCH_ENDED = 64 };

/* The sandbox is over its limit and has to be ended. The pidfd is borrowed. */
typedef void memory_watch_end_fn(void *user, const struct mark *mark, int pidfd);

struct memory_watch {
    const struct state *state; /* borrowed */
    struct cgroups *cgroups;   /* borrowed */
    memory_watch_end_fn *on_over;
    void *user;
    int64_t due_ms;
    DIR *round; /* owned: the sandboxes that are yet to be looked at; NULL between two rounds */
    unsigned next;
    char ended[MEMORY_WATCH_ENDED][LAUNCH_ID_SIZE]; /* the latest ones */
};

/* Checks sandboxes when a round is due; returns how long the loop may wait, in ms, -1 without a
 * limit. */
int memory_watch_turn(struct memory_watch *watch);

/* Whether this sandbox was ended here. */
bool memory_watch_has_ended(const struct memory_watch *watch, const char *id);
