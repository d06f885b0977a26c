/* SPDX-License-Identifier: Apache-2.0 */
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

    /* With fewer open files not even one sandbox can be made. */
    LEAST_OPEN_FILES = 128,
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
    bool keeps_group; /* besides gid it has this one, see identity_keep_group() */
    gid_t group;
};

/* Finds the user that the daemon will run as; `user` has to outlive it. Fails where power that was
 * not given up would be kept by mistake. */
int identity_find(const char *user, struct identity *out_identity, struct error *err);

/* Lets a named user keep one group of theirs: the one through which they may connect to the socket at
 * this path. That is how operators give the socket of a container engine to a user. A socket that is
 * not there yet is taken for one of the group "docker". Root's group is never kept. */
void identity_keep_group(struct identity *identity, const char *socket_path);

/* Settings of the process that protect what it knows: no core dumps, not traceable by its own user,
 * strict umask, no inherited descriptors but those of `keep`, as many open files as the host
 * allows. */
void process_harden(const int *keep, size_t count);

/* The limit of open files, which process_harden() has raised as far as it may, is enough for a few
 * sandboxes. */
int process_check_files(struct error *err);

/* Becomes that identity for good and verifies that there is no way back. */
int identity_assume(const struct identity *identity, struct error *err);
