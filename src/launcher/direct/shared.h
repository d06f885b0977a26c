#pragma once

/*
 * What a direct sandbox shares with the host by name: System V objects and files in /dev/shm. Where
 * a sandbox has an id of its own, what it leaves there is known by its owner and removed with it;
 * where it has not, it gets none of them.
 */

#include <sys/types.h>

/* Removes what belongs to that id, of which no process is left. `mounts` is the host's mount
 * namespace, -1 when the launcher is in it. */
void shared_remove(int mounts, uid_t uid);

/* In the child: from now on System V objects and message queues cannot be made. */
int shared_forbid(void);
