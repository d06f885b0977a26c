#pragma once

/*
 * Buffers of sockets that the limit of a sandbox does not hold back. Those of TCP are counted apart
 * on version 1 of cgroups, and the kernel gives each socket a first one whatever the limit says.
 * What a netlink socket holds for its reader is counted by nothing; the namespace of a native
 * sandbox tells how much it is. (What other sockets hold counts as memory of the cgroup.) A sandbox
 * whose memory and buffers together are above its limit is ended, as one that is out of memory.
 *
 * All sandboxes are looked at in rounds, a few at a time, so that many of them do not keep requests
 * waiting, and one that has next to no sockets costs one small file. For TCP one number of the host
 * tells whether there is anything to look for.
 */

#include "launcher/cgroup/cgroup.h"
#include "launcher/state.h"

#include <dirent.h>
#include <stdbool.h>
#include <stdint.h>

enum { MEMORY_WATCH_ENDED = 64 };

/* This sandbox is over its limit: end it. The pidfd is borrowed. */
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

/* Looks when it is time; how long the loop may wait, in ms, -1 without a limit. */
int memory_watch_turn(struct memory_watch *watch);

/* Whether this sandbox was ended here. */
bool memory_watch_has_ended(const struct memory_watch *watch, const char *id);
