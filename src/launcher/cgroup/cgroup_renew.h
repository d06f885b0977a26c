#pragma once

/*
 * Cgroups of dead sandboxes, used again. Whether they are as good as new is told by a few files,
 * which take longer to open than to read: they stay open for as long as the cgroups may come back.
 */

#include "launcher/cgroup/cgroup.h"

enum { CGROUP_WATCH_FILES = 5 };

struct cgroup_watch {
    bool is_open;
    struct cgroup_entry entry;     /* owned */
    int files[CGROUP_WATCH_FILES]; /* owned; -1 where there is no such cgroup */
};

/* Nothing is open yet; giving up is fine then. */
void cgroup_watch_init(struct cgroup_watch *watch);
void cgroup_watch_close(struct cgroup_watch *watch);

/* Makes the cgroups of a dead sandbox, renamed, as good as new ones. -1 when something of it is left
 * that cannot be taken away: a member, memory that is not free yet, somebody who was killed for
 * memory. The watch is of these cgroups, whatever they were called, or not open yet. */
int cgroups_renew(struct cgroups *cgroups, const char *id, const struct launch_limits *before,
                  const struct launch_limits *limits, struct cgroup_watch *watch,
                  struct cgroup_entry *out_entry);
