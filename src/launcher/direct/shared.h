#pragma once

/*
 * What a direct sandbox shares with the host by name: System V objects and files in /dev/shm. Where
 * a sandbox has an id of its own, what it leaves there is known by its owner and removed with it;
 * where it has not, it gets none of them.
 */

#include "launcher/launcher.h"

/* Removes what belongs to that id. Nothing of it runs any more. */
void shared_remove(const struct launcher *launcher, uid_t uid);

/* In the child: from now on System V objects and message queues cannot be made. */
int shared_forbid(void);
