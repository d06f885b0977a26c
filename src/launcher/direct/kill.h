/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Killing the process tree of a direct sandbox, which no pid namespace holds together: by its
 * cgroup, which its programs cannot leave; without one by its user id; or, with neither, by walking
 * the descendants of its init, which is the reaper of everything below it.
 *
 * A user id is the weaker of the first two: a daemon in a container has a /run of its own and gives
 * the same ids to its sandboxes, which are processes of this host too.
 */

#include "launcher/cgroup/cgroup.h"
#include "launcher/context.h"

/* Whether a direct sandbox has a user id of its own. */
bool kill_has_own_uid(const struct context *context, const struct mark *mark);

/* Kills PID 1 of a native sandbox. */
void kill_init(const struct context *context, int pidfd);

/* `pidfd` of init, -1 when it is dead already. */
void kill_tree(const struct context *context, struct cgroups *cgroups, const struct mark *mark,
               int pidfd, const char *id);

/* After init has died: kills the remaining processes and returns their number. */
int kill_stragglers(const struct context *context, struct cgroups *cgroups, const struct mark *mark,
                    const char *id);
