/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Programs of the host that the launcher runs: mkfs, nft. Each with a fixed name. */

#include <sys/types.h>

/* Runs a program in this mount namespace, which is the host's, with a descriptor of ours as
 * descriptor `target` and no environment. -1 when there is no child. */
pid_t program_spawn(int mounts, const char *const argv[], int fd, int target);

/* 0 when the program exited with status 0. */
int program_wait(pid_t child);
