#pragma once

/* What a launcher is told before it serves: the settings, templates and mounts of the operator. */

#include "backend/launcher.h"

/* Waits for its answers. Afterwards it is sealed. */
int launcher_set_up(int socket, const struct launcher_options *options,
                    struct launch_host *out_host, struct error *err);
