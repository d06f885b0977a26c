/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * The state of a workspace's files at the end of a run, for the files that are young enough to look
 * like files of the next run: time stamps of files are coarser than the time between two runs.
 */

#include "agent/listing.h"

struct file_snapshot;

/* A snapshot of the files that were changed at `since_us` or later. */
struct file_snapshot *file_snapshot_new(const struct listing *listing, int64_t since_us);
void file_snapshot_free(struct file_snapshot *snapshot); /* NULL is fine */

/* Whether a file was already as it is now; never when there is no snapshot. */
bool file_snapshot_has(const struct file_snapshot *snapshot, const struct protocol_stat *stat);
