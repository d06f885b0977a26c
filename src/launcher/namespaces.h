/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* The namespaces of a process, by descriptor and by inode. */

#include <stdint.h>
#include <sys/types.h>

enum { NAMESPACES = 7 };

/* Inodes of the host's namespaces, to compare those of sandboxes with. */
struct namespaces {
    uint64_t host[NAMESPACES];
};

/* `mounts` is the host's mount namespace, which the launcher itself has left; -1 when it has not. */
void namespaces_open(struct namespaces *namespaces, int proc, int mounts);

/* A namespace of a process that the caller holds a pidfd of: the pid cannot become another's. `bit`
 * is one of enum launch_namespace. -1 with errno. */
int namespace_of_process(int proc, pid_t pid, int pidfd, uint32_t bit);

/* Bits of the namespaces that are not the host's, read back from the kernel. */
uint32_t namespaces_of_process(const struct namespaces *namespaces, int proc, pid_t pid, int pidfd);

/* Bits of all namespaces. */
uint32_t namespaces_all(void);
