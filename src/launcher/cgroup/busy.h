#pragma once

/*
 * Which processes of a sandbox have used most of the processor: for the question what keeps a
 * session alive. Names are what the programs call themselves.
 */

#include "wire/launch.h"

/* Of the members of this cgroup, the first few dozen; init and its supervisors are not among them.
 */
void busy_find(int proc, int cgroup, struct launch_usage *usage);
