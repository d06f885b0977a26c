/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Paths given from outside, resolved with the rights of the caller. No function here follows the
 * links of /proc that lead out of where they are; all results are descriptors or -errno.
 */

#include <stdbool.h>
#include <sys/un.h>

enum { PATH_NAME_SIZE = 256 };

/* The directory that the last component is in, and that component. With `make` missing directories
 * are made. */
int path_open_parent(const char *path, bool make, char out_name[PATH_NAME_SIZE]);

/* The directory itself, made with its parents. EEXIST when something else has the name, and, with
 * `exclusive`, when the directory exists. 0 or -errno. */
int path_make_directory(const char *path, unsigned mode, bool exclusive);

/* A path into /proc is not to lead through init's own links, as long as the caller is still half init:
 * 0, or -errno. Anything else can be reached just as well by the program itself. */
long path_check(const char *path);
long path_change_directory(const char *path); /* 0 or -errno */

/* The address of the unix socket at this path. Its length, or -ENAMETOOLONG. */
int path_to_address(const char *path, struct sockaddr_un *out_address);
