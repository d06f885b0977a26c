/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* The directories of the host that one sandbox has, as the launcher knows them: the number of a
 * directory that the operator allows, and the way from there. */

#include "backend/backend.h"
#include "wire/launch.h"

int launched_binds_fill(const struct config *config, const struct sandbox_spec *spec,
                        struct launch_create_bound *message, struct error *err);

/* The answer of a launcher that did not open one of them, as an error for people: -1. */
int launched_binds_refused(const struct launch_reply *reply, struct error *err);
