/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Small steps with mounts, all by descriptor and by fixed paths. Safe in a child that shares our
 * memory. */

#include <stdint.h>

struct mount_option {
    const char *key;
    const char *value; /* NULL for a flag */
};

/* A new file system, detached. The list of options ends with a zero key. */
int mount_make(const char *type, const struct mount_option *options, uint64_t attributes);

/* A new procfs where that is allowed, otherwise a copy of the given one; the caller closes it.
 * Names under sys/net and sys/user exist once for each namespace, and a procfs keeps all that
 * were ever looked up in one chain: with thousands of sandboxes each further look-up takes
 * longer. */
int mount_procfs(int shared);

/* A new file system, attached to a path. No value has a comma in it. */
int mount_at(const char *type, const struct mount_option *options, uint64_t attributes,
             const char *path);

/* Binds `from` to `to` and adds attributes. A user namespace (not -1) maps the owners of the files:
 * 1 when the file system does not support that. */
int mount_bind(const char *from, const char *to, uint64_t attributes, unsigned flags, int userns);
