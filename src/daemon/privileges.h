#pragma once

/*
 * Giving up power. Started as root, the daemon keeps nothing but its state directory: the launcher,
 * its only child with power, was started before.
 */

#include "base/error.h"

#include <stdbool.h>
#include <sys/types.h>

struct identity {
    uid_t uid;
    gid_t gid;
};

/* Who the daemon will be: the named user as root (a fixed unused id where there is no such user),
 * else ourselves. */
void identity_find(const char *user, struct identity *out_identity);

/* Settings of the process that protect what it knows: no core dumps, not traceable by its own user,
 * strict umask, no inherited descriptors but those of `keep`, as many open files as the host
 * allows. */
void process_harden(const int *keep, size_t count);

/* Becomes that identity for good and verifies that there is no way back. */
int identity_assume(const struct identity *identity, struct error *err);

/* A directory of the daemon's: made if missing, owned by the identity. The mode is that of its last
 * component. */
int directory_prepare(const char *path, unsigned mode, const struct identity *identity,
                      struct error *err);
