/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* The programs in a cgroup of this kernel that have used the most CPU time, by the launcher's rules
 * for its own sandboxes: they show why a session is not idle. */

#include "backend/backend.h"

/* Of the members of the cgroup at this path, the first few dozen; init and its supervisors are not
 * among them. */
void busiest_read(const char *cgroup, struct sandbox_usage *usage);
