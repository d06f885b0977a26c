#pragma once

/* The directory of a sandbox for scripts and for files that users do not look for. Init names it,
 * because only init knows what can be written to where it is. */

#include "base/error.h"

struct agent;

/* The path of a file of that name there, allocated; NULL when there is no such directory. */
char *agent_scratch_path(const struct agent *agent, const char *name, struct error *err);
