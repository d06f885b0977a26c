/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Named objects that a direct sandbox shares with the host: System V objects and files in /dev/shm.
 * Objects of a sandbox with a uid of its own are found by their owner and removed with it; a
 * sandbox without one cannot make any.
 */

#include <sys/types.h>

/* Removes the objects of a uid that has no process left. `mounts` is the host's mount namespace, -1
 * when the launcher is in it. */
void shared_remove(int mounts, uid_t uid);

/* In the child: from now on System V objects and message queues cannot be made. */
int shared_forbid(void);
