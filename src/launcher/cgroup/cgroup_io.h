/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Limits on a sandbox's reads from and writes to the host's disks: the same for every sandbox and
 * every disk. A sandbox writes into its own memory, so the limits concern reads of templates and
 * the operator's mounts.
 */

#include <stdbool.h>
#include <stdint.h>

enum { CGROUP_DISKS = 64 };

struct cgroup_io {
    uint64_t bytes_per_s;      /* 0: no limit, here and in the next */
    uint32_t operations_per_s; /* reading and writing are counted apart */
    unsigned count;
    struct {
        unsigned major, minor;
    } disks[CGROUP_DISKS];
};

static inline bool cgroup_io_is_limited(const struct cgroup_io *io)
{
    return io->bytes_per_s || io->operations_per_s;
}

/* Fills in the disks of the host, when there is a limit for them. */
void cgroup_io_find_disks(struct cgroup_io *io);

/* Writes the limits of one cgroup. */
int cgroup_io_limit_v1(const struct cgroup_io *io, int cgroup);
int cgroup_io_limit_v2(const struct cgroup_io *io, int cgroup);
