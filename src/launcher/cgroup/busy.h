/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * The processes of a sandbox that have used the most CPU time: they show why a session is not idle.
 * Names are the programs' own (comm).
 */

#include "wire/launch.h"

/* Of the members of this cgroup, the first few dozen; init and its supervisors are not among them.
 */
void busy_find(int proc, int cgroup, struct launch_usage *usage);
