/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Setup of a launcher before it serves: the operator's settings, templates and mounts. */

#include "backend/launcher.h"

/* Sends a request, with a descriptor or -1 beside it, and waits for its answer. Messages of the launcher
 * for a log are dropped meanwhile. */
int launcher_exchange(int socket, enum launch_type type, void *message, size_t length, int fd,
                      struct launch_reply *out_reply, struct error *err);

/* Waits for the launcher's answers. Afterwards the launcher is sealed. */
int launcher_set_up(int socket, const struct launcher_options *options,
                    struct launch_host *out_host, struct error *err);
