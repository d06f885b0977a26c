#pragma once

/*
 * Limits on what a sandbox reads from the host's disks and writes to them: the same for every
 * sandbox and every disk. A sandbox writes into its own memory, so this is about reading templates,
 * and about what the operator has mounted into it.
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
