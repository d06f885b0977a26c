#pragma once

/* What the daemon asks for, one message at a time. */

#include <stdbool.h>
#include <stddef.h>

struct job;

/* The message is in the job. Descriptors that are taken over become -1; the others stay the
 * caller's. -1 for a message that no daemon sends: the connection is over then. */
int request_handle(struct job *job, size_t length, int *fds, unsigned fd_count);

/* SHUTDOWN: everything is being killed and init ends when nothing is left. */
bool request_is_shutdown(void);
void request_begin_shutdown(unsigned long long request);
unsigned long long request_shutdown_number(void);
