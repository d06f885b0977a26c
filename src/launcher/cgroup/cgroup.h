/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Cgroups, version 1 and 2 behind one interface. Every sandbox has one cgroup named by its
 * id below `sandglass.<instance>`, in each v1 hierarchy that we use or in the one of v2.
 *
 * Controllers of v1 may share a hierarchy (`cpu,cpuacct`). Each has a part of its own, for its
 * files; of parts that share a hierarchy only the first makes, enters, renames and removes cgroups.
 *
 * A child enters by itself (v1: "0" written to `tasks`; v2: born into it): moving another process
 * from outside stalls every fork on the machine for milliseconds.
 */

#include "launcher/cgroup/cgroup_io.h"
#include "launcher/fail.h"

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

enum cgroup_part {
    CGROUP_MEMORY,
    CGROUP_CPU,
    CGROUP_CPUACCT,
    CGROUP_PIDS,
    CGROUP_FREEZER,
    CGROUP_IO,      /* only when there is a limit */
    CGROUP_UNIFIED, /* the only one in use on v2 */
    CGROUP_PARTS
};

enum { CGROUP_NAME_SIZE = 24 }; /* of cgroups that are no sandbox's */

/* Prefix of the names of cgroups without a sandbox. A launcher finds the leftovers of an earlier
 * one by this prefix, so it must stay that of the first release. */
#define CGROUP_SPARE_PREFIX "kit-"

struct cgroups {
    int base[CGROUP_PARTS]; /* owned: the directory of this instance; -1 where there is none */
    bool is_shared[CGROUP_PARTS]; /* the directory is that of an earlier part as well */
    uint32_t features;            /* enum launch_feature */
    uint32_t own_processes;       /* of each sandbox, which its limit does not count */
    struct cgroup_io io;
};

/* The way into one cgroup. */
struct cgroup_entry {
    int fds[CGROUP_PARTS]; /* owned; -1 without a hierarchy of its own */
};

#define CGROUP_ENTRY_NONE                     \
    {                                         \
        .fds = { -1, -1, -1, -1, -1, -1, -1 } \
    }

/* Finds the cgroup hierarchies of the host. A host without any is not an error: `features` is empty
 * then. Uses the instance and the common limits of the setup. */
void cgroups_open(struct cgroups *cgroups, const struct launch_setup *setup);

/* The same with a text like /proc/self/mounts; NULL for an empty one. */
void cgroups_find(struct cgroups *cgroups, FILE *mounts, const struct launch_setup *setup);

/* Removes the directory of this instance where nothing is left in it. */
void cgroups_close(struct cgroups *cgroups, const char *instance);

/* Cgroups can be made ahead and named later: on v1. */
bool cgroups_can_rename(const struct cgroups *cgroups);
int cgroups_rename(struct cgroups *cgroups, const char *from, const char *to, struct fail *fail);

/* Removes empty cgroups whose names are this prefix and the pid of a process that is gone. */
void cgroups_sweep(struct cgroups *cgroups, const char *prefix);

int cgroups_make(struct cgroups *cgroups, const char *id, const struct launch_limits *limits,
                 struct cgroup_entry *out_entry, struct fail *fail);

/* Whether the cgroup has no members, if the kernel counts them. */
bool cgroups_are_empty(struct cgroups *cgroups, const char *id);

/* Whether cgroups have the same limits. */
bool cgroups_limits_equal(const struct launch_limits *a, const struct launch_limits *b);

int cgroups_limit(struct cgroups *cgroups, const char *id, const struct launch_limits *limits,
                  struct fail *fail);
/* Whether a freeze was requested: its members do not run, or soon will not. */
bool cgroups_is_frozen(const struct cgroups *cgroups, const char *id);
int cgroups_freeze(struct cgroups *cgroups, const char *id, bool frozen, struct fail *fail);
void cgroups_usage(struct cgroups *cgroups, const char *id, struct launch_usage *out_usage);

/* The busiest processes of a sandbox. */
void cgroups_processes(struct cgroups *cgroups, int proc, const char *id,
                       struct launch_usage *out_usage);

/* SIGKILL to every member. 0 when there was none, 1 when some were found, -1 without a cgroup. */
int cgroups_kill(struct cgroups *cgroups, const char *id);

/* 0 when nothing is left; -1 with EBUSY while it has members. */
int cgroups_remove(struct cgroups *cgroups, const char *id);

/* In the child. The v2 entry is for clone3 and does nothing here. */
int cgroup_enter(const struct cgroup_entry *entry);
/* In the child, where clone3 is not to be had. */
int cgroup_enter_unified(const struct cgroup_entry *entry);
void cgroup_entry_close(struct cgroup_entry *entry);

static inline bool cgroups_are_v2(const struct cgroups *cgroups)
{
    return cgroups->base[CGROUP_UNIFIED] >= 0;
}

/* Whether there is a cgroup in this part that is not an earlier part's. */
static inline bool cgroups_has_hierarchy(const struct cgroups *cgroups, enum cgroup_part part)
{
    return cgroups->base[part] >= 0 && !cgroups->is_shared[part];
}
