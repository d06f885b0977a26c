#pragma once

/*
 * What every part of the launcher may know: the settings that the daemon sent, the state directory,
 * and the powers of this process. It is filled in once, by the setup, and only read afterwards.
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
