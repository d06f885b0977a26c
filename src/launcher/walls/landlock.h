/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Landlock: limits a child to parts of the file system and, if the kernel supports it, keeps
 * abstract sockets and signals inside.
 */

#include <stdbool.h>
#include <stdint.h>

/* The version that the kernel has; 0 without Landlock. */
uint32_t landlock_abi(void);

/* A native sandbox: everything below its root except making devices. */
int landlock_native(uint32_t abi);

/* For a direct sandbox: it may read and execute the system, and write to the workspace (the current
 * directory), to the directory for temporary files beside it and, with a uid of its own, to
 * /dev/shm. */
int landlock_direct(uint32_t abi, bool has_own_id);
