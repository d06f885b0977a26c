/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/file_snapshot.h"

#include "base/alloc.h"

#include <stdlib.h>
#include <string.h>

enum { FILES_MAXIMUM = 4096 }; /* more that are changed at the end of a run may be shown twice */

struct file_state {
    uint64_t inode;
    uint64_t size;
    int64_t modified_us;
    int64_t changed_us;
};

struct file_snapshot {
    size_t count;
    struct file_state files[]; /* sorted */
};

static struct file_state state_of(const struct protocol_stat *stat)
{
    return (struct file_state){ .inode = stat->inode,
                                .size = stat->size,
                                .modified_us = stat->modified_us,
                                .changed_us = stat->changed_us };
}

static int compare(const void *a, const void *b)
{
    return memcmp(a, b, sizeof(struct file_state));
}

/* Without an array to write them to, entries are only counted. */
static size_t collect(const struct listing *listing, int64_t since_us, struct file_state *out)
{
    struct protocol_entry_view entry;
    size_t count = 0;

    for (size_t at = 0; count < FILES_MAXIMUM && listing_next(listing, &at, &entry);) {
        if (entry.fixed.stat.changed_us < since_us)
            continue;
        if (out)
            out[count] = state_of(&entry.fixed.stat);
        count++;
    }
    return count;
}

struct file_snapshot *file_snapshot_new(const struct listing *listing, int64_t since_us)
{
    size_t count = collect(listing, since_us, NULL);
    struct file_snapshot *snapshot =
        xmalloc(sizeof(*snapshot) + count * sizeof(snapshot->files[0]));

    snapshot->count = collect(listing, since_us, snapshot->files);
    qsort(snapshot->files, snapshot->count, sizeof(snapshot->files[0]), compare);
    return snapshot;
}

void file_snapshot_free(struct file_snapshot *snapshot)
{
    free(snapshot);
}

bool file_snapshot_has(const struct file_snapshot *snapshot, const struct protocol_stat *stat)
{
    struct file_state state = state_of(stat);

    return snapshot &&
           bsearch(&state, snapshot->files, snapshot->count, sizeof(state), compare) != NULL;
}
