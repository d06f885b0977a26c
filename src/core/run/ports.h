#pragma once

/* The TCP ports that have a listener in the network of a sandbox, as the kernel reports them. */

#include <stdbool.h>
#include <sys/types.h>

/* `pid` is that of any process inside, as the host counts. Without a network of its own a sandbox
 * shares the host's. */
bool ports_is_listening(pid_t pid, unsigned port);
