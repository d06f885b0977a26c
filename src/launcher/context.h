/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * The context of all parts of the launcher: the daemon's settings, the state directory, and the
 * powers of this process. The setup fills it in once; afterwards it is only read.
 */

#include "launcher/state.h"
#include "wire/launch.h"

#include <stdbool.h>

/* Whose ids a native sandbox has, see walls/ids.h. */
enum ids_kind { IDS_SINGLE, IDS_RANGE, IDS_OWN };

struct context {
    struct launch_setup setup;
    struct state state;
    enum ids_kind ids;
    bool root;        /* has power over the host's user namespace */
    bool changes_ids; /* can give direct sandboxes an id; root in a container too */
    int pid;          /* the launcher's own, also in its children */
};
