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

/* What is at `from` also appears at `to`; attributes are added. With a user namespace (not -1) the
 * owners of its files are those that this namespace maps them to, where the file system can do
 * that: 1 when it cannot. */
int mount_bind(const char *from, const char *to, uint64_t attributes, unsigned flags, int userns);
