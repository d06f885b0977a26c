/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Uid ranges: each live sandbox has one, 65536 user and group ids that no other has. The index of a
 * range is called a slot, in marks and messages too. Which ranges are taken follows from the marks on
 * disk, so nothing is remembered elsewhere.
 */

#include "launcher/state.h"
#include "launcher/uid_blocks.h"

#include <stdint.h>

enum { UID_RANGES_MAX = 32768, UID_RANGE_NONE = -1 };

struct uid_ranges {
    uint64_t taken[UID_RANGES_MAX / 64];
    uint32_t count; /* of ranges */
    uint32_t next;  /* the search begins here: a released range waits as long as possible */
    struct uid_blocks blocks;
};

/* `shared`: the ids are those of the host, where other daemons take some too. */
int uid_ranges_open(struct uid_ranges *ranges, uint32_t count, int state, bool shared,
                    struct fail *fail);

/* Releases the blocks in which no range is taken. */
void uid_ranges_close(struct uid_ranges *ranges);
int uid_ranges_take(struct uid_ranges *ranges); /* a slot; UID_RANGE_NONE with errno */
int uid_ranges_fail(struct fail *fail);         /* the reason, by errno */
void uid_ranges_mark(struct uid_ranges *ranges, uint32_t slot);
void uid_ranges_release(struct uid_ranges *ranges, uint32_t slot);

/* Rebuilds the table from the marks: those of sandboxes, and of files that are still in the
 * trash. */
void uid_ranges_scan(struct uid_ranges *ranges, struct state *state);
