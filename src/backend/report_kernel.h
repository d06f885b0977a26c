#pragma once

/* What /proc and the control groups say about one process. Zero is "not in force". */

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
    uint32_t uid_first; /* what uid 0 inside, or the lowest one, is outside */
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

/* Fields that cannot be read stay zero. Only a cgroup with `mark` in its path limits the sandbox; the
 * one that it was started in may be the daemon's. */
void kernel_view_read(pid_t pid, const char *mark, struct kernel_view *out_view);

/* What the cgroup of that mark has used; false when it cannot be read. */
bool kernel_usage_read(pid_t pid, const char *mark, struct sandbox_usage *out_usage);

/* Where the hierarchy of version 1 with this controller is mounted, alone or with others
 * (`cpu,cpuacct`), by a text like /proc/self/mounts; with "" as the controller, that of version 2.
 * False when there is none, or its path is too long. */
bool kernel_find_hierarchy(const char *mounts, const char *controller, char *out_path, size_t size);
