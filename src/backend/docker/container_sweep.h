/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Containers of daemons that may be dead, for `sandglass sweep`: lists the ones with our labels,
 * and removes them. Calls wait for the engine's answers. Whether a container is a leftover is the
 * caller's to decide.
 */

#include "base/error.h"
#include "base/scoped.h"

#include <stdbool.h>
#include <stdint.h>

struct config;
struct container_sweep;

/* The texts are borrowed for the call, and are the container's labels. */
struct container_found {
    const char *engine_id;
    const char *sandbox;
    const char *instance;
    const char *state; /* path of the daemon's state directory */
    bool is_of_host;   /* made by a daemon of this host */
    int64_t made_s;    /* when, in seconds since 1970 */
};

typedef void container_found_fn(void *user, const struct container_found *found);

/* For the engine of the settings, which are borrowed. NULL: its address or a file of it is unusable. */
struct container_sweep *container_sweep_new(const struct config *config, struct error *err);
void container_sweep_free(struct container_sweep *sweep); /* NULL is fine */
SCOPED_DEFINE(container_sweep_free, struct container_sweep);

/* Calls `found` for each container with the labels of a sandbox, of any daemon; `found` may remove
 * it. -1 when the engine gave no list. */
int container_sweep_list(struct container_sweep *sweep, container_found_fn *found, void *user,
                         struct error *err);

/* Kills and removes the container with its anonymous volumes. A missing container is a success. */
int container_sweep_remove(struct container_sweep *sweep, const char *engine_id, struct error *err);
