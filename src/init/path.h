#pragma once

/*
 * Paths given from outside, resolved with the rights of the caller. No function here follows the
 * links of /proc that lead out of where they are; all results are descriptors or -errno.
 */

#include <stdbool.h>

enum { PATH_NAME_SIZE = 256 };

/* The directory that the last component is in, and that component. With `make` missing directories
 * are made. */
int path_open_parent(const char *path, bool make, char out_name[PATH_NAME_SIZE]);

/* The directory itself, made with its parents. EEXIST when something else has the name, and, with
 * `exclusive`, when the directory exists. 0 or -errno. */
int path_make_directory(const char *path, unsigned mode, bool exclusive);
