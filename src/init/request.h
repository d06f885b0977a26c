/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Requests of the daemon, one message at a time. */

#include <stddef.h>

struct job;

/* The message is in the job. Descriptors that are taken over become -1; the others stay the
 * caller's. -1 for a message that no daemon sends: the connection is over then. */
int request_handle(struct job *job, size_t length, int *fds, unsigned fd_count);
