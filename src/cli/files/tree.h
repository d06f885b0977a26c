/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Directories of this machine as tar archives. An archive from a sandbox is hostile: nothing is
 * written outside of the directory, through a link, or as anything but files, directories and links
 * that stay inside.
 */

#include "base/error.h"

#include <stdint.h>
#include <sys/types.h>

/* About how long the archive of a directory is: for a line of progress. */
uint64_t tree_size(const char *path);

/* Each is a child process, so that the caller can wait for the daemon meanwhile; the descriptor is
 * the other end of its pipe and the caller's to close. */
struct tree_child {
    pid_t pid;
    int fd;
};

int tree_pack_start(struct tree_child *child, const char *path, struct error *err);
int tree_unpack_start(struct tree_child *child, const char *path, struct error *err);

/* Closes the descriptor and waits. -1 when the child has failed; it has said why on stderr. */
int tree_child_wait(struct tree_child *child, struct error *err);
