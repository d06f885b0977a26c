#pragma once

/*
 * Giving up power. Started as root, the daemon keeps nothing but its state directory: the launcher,
 * its only child with power, was started before.
 */

#include "base/error.h"

#include <stdbool.h>
#include <sys/types.h>

enum {
    /* Outside the ranges that distributions give to people and to packages. */
    IDENTITY_FALLBACK_ID = 62420,
};

enum identity_kind {
    IDENTITY_SELF,     /* no power to give up: an ordinary user, or root of a container */
    IDENTITY_NAMED,    /* the user of the settings */
    IDENTITY_FALLBACK, /* root with power, and no such user: IDENTITY_FALLBACK_ID */
};

struct identity {
    enum identity_kind kind;
    uid_t uid;
    gid_t gid;
    const char *name; /* borrowed: the user of the settings */
};

/* Who the daemon will be; `user` has to outlive it. Fails where power that was not given up would
 * be kept by mistake. */
int identity_find(const char *user, struct identity *out_identity, struct error *err);

/* Settings of the process that protect what it knows: no core dumps, not traceable by its own user,
 * strict umask, no inherited descriptors but those of `keep`, as many open files as the host
 * allows. */
void process_harden(const int *keep, size_t count);

/* Becomes that identity for good and verifies that there is no way back. */
int identity_assume(const struct identity *identity, struct error *err);
