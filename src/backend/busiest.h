#pragma once

/* Which programs in a cgroup of this kernel have used most of the processor, as the launcher finds
 * them for its own sandboxes: for the question what keeps a session alive. */

#include "backend/backend.h"

/* Of the members of the cgroup at this path, the first few dozen; init and its supervisors are not
 * among them. */
void busiest_read(const char *cgroup, struct sandbox_usage *usage);
