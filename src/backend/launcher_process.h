#pragma once

/* Starting the launcher's process: what has to be done while the daemon is still who started it. */

#include "backend/launcher.h"

/* Executes the launcher with its three descriptors and an empty environment. Returns our end of its
 * socket. */
int launcher_process_start(const char *state_path, pid_t *out_pid, struct error *err);

/* It ends by itself once its socket is closed; this reaps it. 0 does nothing. */
void launcher_process_end(pid_t pid);

/* One message with a descriptor beside it, -1 for none. */
int launcher_process_send(int socket, const void *message, size_t length, int fd);

/* From the settings. */
void launcher_process_describe(const struct launcher_options *options, struct launch_setup *out);
int launcher_process_filter(const struct config *config, struct error *err);
