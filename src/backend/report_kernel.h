/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Isolation of one process as /proc and its cgroups show it. Zero is "not in force". */

#include "backend/backend.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

enum { KERNEL_SECCOMP_FILTER = 2 };

struct kernel_view {
    unsigned seccomp;
    bool no_new_privs;
    uint64_t capabilities; /* effective */
    uint64_t bounding;
    uint32_t uid_first; /* the host's uid of uid 0 inside, or of the lowest one */
    uint32_t uid_count;
    unsigned cgroup_version;
    uint64_t memory_bytes;
    uint32_t cpu_millis;
    uint32_t pids;
    uint64_t disk_bytes;
    bool disk_is_image;      /* else it is memory */
    uint64_t io_bytes_per_s; /* of the disk with the least number, reading */
    uint64_t io_operations_per_s;
    bool freezer;
};

/* Fields that cannot be read stay zero. Only a cgroup with `mark` in its path limits the sandbox;
 * its initial cgroup may be the daemon's. */
void kernel_view_read(pid_t pid, const char *mark, struct kernel_view *out_view);

/* Usage of the cgroup whose path contains `mark`; false when it cannot be read. */
bool kernel_usage_read(pid_t pid, const char *mark, struct sandbox_usage *out_usage);

/* Where the hierarchy of version 1 with this controller is mounted, alone or with others
 * (`cpu,cpuacct`), by a text like /proc/self/mounts; with "" as the controller, that of version 2.
 * False when there is none, or its path is too long. */
bool kernel_find_hierarchy(const char *mounts, const char *controller, char *out_path, size_t size);
