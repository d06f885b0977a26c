/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* The directory of a sandbox for scripts and other internal files. Init names it, because only init
 * knows which directories are writable inside. */

#include "base/error.h"

struct agent;

/* The path of a file of that name there, allocated; NULL when there is no such directory. */
char *agent_scratch_path(const struct agent *agent, const char *name, struct error *err);
