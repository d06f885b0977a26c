/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * The parts of a sandbox's root that depend only on its slot: the layers of its overlay, mapped to
 * its ids, and its devices with the devpts of its terminals. The builder leaves them mounted for
 * slots that are reused.
 */

#include "launcher/walls/spawn.h"

#include <sys/stat.h>

enum { LAYERS_PATH_SIZE = 32 };

struct layers {
    char root[LAYERS_PATH_SIZE];
    char usr[LAYERS_PATH_SIZE]; /* unless the template is whole */
    char devices[LAYERS_PATH_SIZE];
    bool is_mounted;
    bool is_mapped;
    struct stat terminals[2]; /* the directory and the file in it, as they are when unused */
};

/* In a mount namespace of the caller's own, and again whenever all are to be unmounted. */
int layers_reset(void);

/* Mounts the layers of the slot unless they are mounted. A devpts that was used is replaced, so
 * that no timestamp and no number of a terminal remains. */
int layers_cache(struct layers *layers, unsigned number, struct spawn *spawn);

/* Mounts the directories for one sandbox. 1 when their owners cannot be mapped. */
int layers_mount(struct spawn *spawn, const char *root, const char *usr);

/* Mounts the devices and terminals of one sandbox. */
int layers_mount_devices(struct spawn *spawn, const char *path);
