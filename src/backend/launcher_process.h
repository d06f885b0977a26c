/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Starting the launcher's process, while the daemon still has the rights that it was started
 * with. */

#include "backend/launcher.h"

/* Executes the launcher with its three descriptors and an empty environment. Returns our end of its
 * socket. */
int launcher_process_start(const char *state_path, pid_t *out_pid, struct error *err);

/* One message with a descriptor beside it, -1 for none. */
int launcher_process_send(int socket, const void *message, size_t length, int fd);

/* 1 with a message of `least` bytes or more, the rest zeroed, and the descriptor beside it or -1; 0
 * without one yet; -1 when the other end is gone. Does not wait. */
int launcher_process_receive(int socket, void *message, size_t length, size_t least, int *out_fd);
int launcher_receive(int socket, struct launch_reply *reply, int *out_pidfd);

/* From the settings. */
void launcher_process_describe(const struct launcher_options *options, struct launch_setup *out);
int launcher_process_filter(const struct config *config, struct error *err);
