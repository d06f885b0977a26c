/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * The pumps of a container, one after the other:
 *
 *   - Init's own, which serves the container's input and output (`--attached`). A create attaches the
 *     daemon to it before the container starts, so the first connection costs no program. It cannot be
 *     used again: the two pipes have no mark where one connection ends and the next begins.
 *   - A pump that the engine's exec starts (`--pump`), for each later connection, and where a
 *     create could not attach.
 */

#include "backend/docker/engine.h"
#include "backend/remote/pump.h"

struct container_pump {
    struct pump base;
    struct engine *engine; /* borrowed */
    const char *container; /* borrowed: its id */
    struct engine_exec exec;
};

void container_pump_init(struct container_pump *pump, struct loop *loop, struct engine *engine,
                         const char *container);
