/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * A launcher for `sandglass sweep`: it serves the state directory of a dead daemon, makes nothing, and
 * destroys the sandboxes that it is asked to, in the same way as the daemon's own would. Calls wait for
 * its answers.
 */

#include "base/error.h"
#include "wire/launch.h"

#include <sys/types.h>

struct launcher_sweep {
    int socket; /* owned; -1: not started */
    pid_t pid;
    char instance[LAUNCH_NAME_SIZE]; /* whose marks and cgroups it takes as its own */
};

#define LAUNCHER_SWEEP_INIT \
    {                       \
        .socket = -1        \
    }

/* The daemon of this directory is dead, and cannot start as long as the caller holds its lock. */
int launcher_sweep_start(struct launcher_sweep *sweep, const char *state_path, const char *instance,
                         struct error *err);

/* Kills the sandbox and removes its cgroups and its directory; one of them is enough to begin with. -1
 * when something is left. */
int launcher_sweep_destroy(struct launcher_sweep *sweep, const char *id, struct error *err);

/* Waits until the launcher has exited: the files of destroyed sandboxes are removed by then. */
void launcher_sweep_stop(struct launcher_sweep *sweep);
