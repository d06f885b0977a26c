/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * A disk of its own for a sandbox whose files do not fit into its memory: an image in its directory,
 * with a file system of just that size. The image has no name any more once it is mounted, so
 * everything of it goes with the last mount. It costs some milliseconds and a loop device of the
 * host.
 */

#include "launcher/fail.h"

#include <stdbool.h>
#include <stdint.h>

struct launch_limits;

/* Opened before the launcher leaves the host's root. */
struct disks {
    int control; /* owned: of the loop devices; -1: there are none for us */
    int mounts;  /* borrowed: the host's mount namespace, for mkfs */
};

void disks_open(struct disks *disks, bool root, int mounts);

/* Whether a sandbox with these limits gets one. */
bool disk_is_wanted(const struct disks *disks, const struct launch_limits *limits);

/* A detached mount of a new one; `dir` is the directory of the sandbox. */
int disk_make(const struct disks *disks, int dir, uint64_t bytes, uint64_t inodes,
              struct fail *fail);

/* Drops unwritten data, which no process can read any more: otherwise the end of the sandbox would
 * wait for it. `store` is any file of the disk; a store in memory is left alone. */
void disk_abandon(int store);
bool disk_is_one(int store);
