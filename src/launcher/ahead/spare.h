/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * A spare: the parts of a native sandbox that do not depend on its id, made ahead. A slot with its
 * user namespace, a network namespace, the root of the first template, not yet mounted, and the
 * parts that only have to be renamed: its directory, and on v1 a set of cgroups.
 *
 * A root is used once. The rest is reclaimed when its sandbox is dead, because the kernel takes longer
 * to make and to remove namespaces and cgroups than to run a program, and is used again when nothing of
 * that sandbox is left: see spare_complete().
 */

#include "launcher/ahead/directory.h"
#include "launcher/cgroup/cgroup.h"
#include "launcher/cgroup/cgroup_renew.h"
#include "launcher/context.h"
#include "launcher/fail.h"
#include "launcher/network/netns.h"
#include "launcher/uid_ranges.h"

#include <stdbool.h>
#include <stdint.h>

struct spare {
    int slot;
    int userns;                           /* owned */
    int netns;                            /* owned */
    struct cgroup_entry cgroup;           /* owned */
    struct directory directory;           /* owned */
    char cgroup_name[CGROUP_NAME_SIZE];   /* of its cgroups; "" without */
    int root;                             /* owned: mounts that are attached nowhere; -1 without */
    char template_name[LAUNCH_NAME_SIZE]; /* of the root */
    struct launch_limits limits;          /* of its cgroups, and how large the root is */
    bool is_used;                         /* it has been a sandbox's */
    uint64_t stamp;                       /* by which the builder knows it again; 0: not */
};

/* The resources for making spares; all borrowed. */
struct spare_parts {
    const struct context *context;
    struct cgroups *cgroups;
    struct uid_ranges *uid_ranges;
    struct netns_home home;
};

void spare_init(struct spare *spare);

/* Closes descriptors and leaves names. */
void spare_close(struct spare *spare);

/* Releases all parts of the spare, its slot included. */
void spare_drop(const struct spare_parts *parts, struct spare *spare);

void spare_name_cgroup(const struct spare_parts *parts, struct spare *spare);

/* Makes the missing parts of the spare, except its root. Reclaimed parts are checked first, and
 * replaced if they have a trace of the sandbox: a network namespace that has carried a packet or
 * holds a socket; cgroups with a member, with memory that is not free yet, or with a count that
 * cannot be reset. A user namespace has no trace once all processes are dead and all mounts are
 * gone: no capability and no call that could change it is allowed inside. The traces and the watch
 * are of this spare, or not open yet. */
int spare_complete(const struct spare_parts *parts, struct spare *spare,
                   const struct launch_limits *limits, struct netns_traces *traces,
                   struct cgroup_watch *watch, struct fail *fail);
