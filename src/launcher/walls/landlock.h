#pragma once

/*
 * Landlock: what remains of the file system for a child, and, where the kernel can, no way out by
 * abstract sockets or signals.
 */

#include <stdbool.h>
#include <stdint.h>

/* The version that the kernel has; 0 without Landlock. */
uint32_t landlock_abi(void);

/* A native sandbox: everything below its root except making devices. */
int landlock_native(uint32_t abi);

/* A direct one: read and execute the system, write the workspace (the current directory), the
 * directory for temporary files beside it and, where its id tells whose files those are, /dev/shm.
 */
int landlock_direct(uint32_t abi, bool has_own_id);
