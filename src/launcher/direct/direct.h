/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * A direct sandbox: init as a plain subprocess. There are no walls around it but a clean start, an id
 * of its own where the launcher is root, rlimits, the cgroup, Landlock and seccomp.
 */

#include "launcher/walls/spawn.h"

/* Makes the workspace of a direct sandbox and starts its init. */
int direct_start(struct spawn *spawn);
