#pragma once

/*
 * What the root of a sandbox is put together from and what depends on nothing but its slot: the
 * directories that its overlay shows, mapped to its ids, and its devices with the file system of its
 * terminals. For slots that are used again the builder keeps them mounted.
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

/* Mounts what is to be kept for the slot, unless it is. Terminals that were used are made anew: no
 * time and no number is left of them. */
int layers_cache(struct layers *layers, unsigned number, struct spawn *spawn);

/* Mounts the directories for one sandbox. 1 when their owners cannot be mapped. */
int layers_mount(struct spawn *spawn, const char *root, const char *usr);

/* Mounts its devices and terminals. */
int layers_mount_devices(struct spawn *spawn, const char *path);
