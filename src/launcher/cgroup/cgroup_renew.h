/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Cgroups of dead sandboxes, reused. A few files show whether a cgroup is as good as new; they take
 * longer to open than to read, so they stay open as long as the cgroup may be reused.
 */

#include "launcher/cgroup/cgroup.h"

enum { CGROUP_WATCH_FILES = 5 };

struct cgroup_watch {
    bool is_open;
    struct cgroup_entry entry;     /* owned */
    int files[CGROUP_WATCH_FILES]; /* owned; -1 where there is no such cgroup */
};

/* Nothing is open yet; closing is fine then. */
void cgroup_watch_init(struct cgroup_watch *watch);
void cgroup_watch_close(struct cgroup_watch *watch);

/* Makes the cgroups of a dead sandbox, renamed, as good as new ones. -1 when a trace of it cannot
 * be removed: a member, memory that is not free yet, an OOM kill. The watch is of these cgroups,
 * under any name, or not open yet. */
int cgroups_renew(struct cgroups *cgroups, const char *id, const struct launch_limits *before,
                  const struct launch_limits *limits, struct cgroup_watch *watch,
                  struct cgroup_entry *out_entry);
