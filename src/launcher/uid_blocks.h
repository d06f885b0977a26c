/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Blocks of uid ranges: two daemons on one host must not give the same ids to two sandboxes. The
 * ranges are divided into blocks, and a file in /run/sandglass/uids names the state directory that a
 * block belongs to. Its lock is held as long as the launcher of that directory lives; after that the
 * block stays taken while sandboxes are left there.
 */

#include "launcher/fail.h"

#include <stdbool.h>
#include <stdint.h>

enum { UID_BLOCK_RANGES = 128, UID_BLOCKS_MAX = 256, UID_BLOCKS_PATH = 4096 };

struct uid_blocks {
    int dir;                    /* owned; -1 when no other daemon shares the ids */
    int root;                   /* owned: the host's "/" */
    int locks[UID_BLOCKS_MAX];  /* owned: of our blocks, -1 for the others */
    uint32_t count;             /* of blocks */
    char path[UID_BLOCKS_PATH]; /* of our state directory */
};

/* Without `shared`, all blocks are ours: no other daemon sees the ids of a user namespace. */
int uid_blocks_open(struct uid_blocks *blocks, uint32_t ranges, int state, bool shared,
                    struct fail *fail);

/* One more block: its number, or -1 when none is free. */
int uid_blocks_take(struct uid_blocks *blocks);
bool uid_blocks_has(const struct uid_blocks *blocks, uint32_t block);
void uid_blocks_release(struct uid_blocks *blocks, uint32_t block);

/* In a child that must not hold the locks: closes descriptors; the launcher keeps its blocks. */
void uid_blocks_forget(struct uid_blocks *blocks);
