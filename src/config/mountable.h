/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Directories of the host that callers may mount in their sandboxes: sandbox.max.mounts, and
 * max.mounts of an owner in its place. An entry is "/srv/data", which is read-only, "/srv/data:rw", or
 * "none".
 *
 * Which directory a request may have is decided three times: here by the text of its path, here again
 * by where its links lead, and by the launcher, which knows the same entries and opens the directory
 * below one of them without leaving it.
 */

#include "config/config.h"

#include <limits.h>

enum { MOUNTABLE_MAXIMUM = 64 }; /* entries of all lists together */

struct config_mountable {
    char path[PATH_MAX];
    bool writable;
};

int config_mountable_parse(const char *entry, struct config_mountable *out, struct error *err);

/* The entries of all lists in one order, without "none"; NULL behind the last. */
const char *config_mountable_entry(const struct config *config, size_t index);

/* Every entry is a directory, and there are not too many. */
int config_mountable_check(const struct config *config, struct error *err);

/* The entry that a directory is below, and the way from there. */
struct config_mount_source {
    size_t index;
    char relative[PATH_MAX]; /* "": the directory of the entry itself */
};

/* ERR_FORBIDDEN "mount_not_allowed" with the name of the setting, or ERR_INVALID for one that is no
 * directory. The answer depends on nothing outside of the entries. */
int config_mount_find(const struct config *config, const char *owner, const char *host_path,
                      bool read_only, struct config_mount_source *out, struct error *err);
