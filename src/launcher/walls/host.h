/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * The base of native sandboxes: the launcher's own mount namespace with an empty root and a few
 * fixed directories for the files that all sandboxes share: the templates, the skeleton of the host
 * template, the device nodes. The paths below are of that namespace and lead to nothing of the
 * host, so a child that mounts its new root over "/" leaves nothing of the host below it.
 *
 * A second namespace keeps the host's files, for templates that come later and for direct
 * sandboxes.
 */

#include "launcher/context.h"
#include "launcher/fail.h"

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

enum { HOST_MASKS = 48 };

#define HOST_TEMPLATES "/templates"
#define HOST_MOUNTS "/mounts"
#define HOST_SKELETON "/skeleton"
#define HOST_DEVICES "/devices"
#define HOST_BLOCKS "/blocks"
#define HOST_PROC "/proc"
#define HOST_MASKS_DIRECTORY "/masks"
#define HOST_MASK_FILE "/masks/file"
#define HOST_MASK_DIRECTORY "/masks/directory"
#define HOST_CACHE "/cache"
#define HOST_BUILD "/build"
#define HOST_LOWER HOST_BUILD "/lower"
#define HOST_LOWER_USR HOST_BUILD "/lower-usr"
#define HOST_STORE HOST_BUILD "/store"
#define HOST_ROOT HOST_BUILD "/root"

/* The part of a sandbox's root that a template provides. All kinds but the first provide /usr only;
 * the rest is the skeleton. */
enum template_kind {
    TEMPLATE_WHOLE,
    TEMPLATE_USR,        /* below an overlay of its own */
    TEMPLATE_USR_JOINED, /* below the same overlay as the skeleton, which leads to it */
    TEMPLATE_USR_FIXED,  /* read-only: no overlay may cover mounts that are locked below it */
};

struct template
{
    char name[LAUNCH_NAME_SIZE];
    char path[32]; /* where it is mounted */
    enum template_kind kind;
    bool imported;
    uint64_t inode; /* of an imported template: another may have replaced it */
};

/* A file or directory of the host that the operator mounts into every sandbox. */
struct host_mount {
    char source[32]; /* where we have it */
    char path[LAUNCH_PATH_SIZE];
    bool read_only;
    bool is_directory;
};

/* A directory of the host that single sandboxes may have. By its path, so that the host can unmount
 * it, and mount it again, meanwhile. */
struct host_allowed {
    char path[LAUNCH_PATH_SIZE];
    bool read_only;
};

struct host {
    int mounts;   /* owned: the namespace with the host's files; -1 outside of native */
    int own;      /* owned: ours */
    int clone_ns; /* owned: see clone_ns.h; -1 without one */
    int state;    /* owned: the state directory, as the host's namespace has it */
    int network;  /* owned: the network namespace that we were started in */
    bool native;
    struct template templates[LAUNCH_MAX_TEMPLATES];
    unsigned template_count;
    struct host_mount shared[LAUNCH_MAX_MOUNTS];
    unsigned shared_count;
    struct host_allowed allowed[LAUNCH_MAX_ALLOWED];
    unsigned allowed_count;
    const char *masks[HOST_MASKS]; /* in /proc: files that all users could read */
    bool mask_is_directory[HOST_MASKS];
    unsigned mask_count;
};

/* Initialises the struct; nothing is open yet. */
void host_init(struct host *host);

/* The first half of preparing native sandboxes: enters a user namespace without root, and copies the
 * host's mount namespace. The host's files are still visible afterwards. Fails with the step that this
 * host refuses. */
int host_enter(struct host *host, struct context *context, struct fail *fail);

/* The second half: everything that sandboxes share is mounted in an empty root, where the launcher
 * lives from then on. `with_disks`: sandboxes may have disks of their own. */
int host_build(struct host *host, const struct context *context, bool with_disks,
               struct fail *fail);

/* For templates.c: a detached tree becomes a template. */
struct template *host_mount_template(struct host *host, const char *name, int tree,
                                     struct fail *fail);

/* A directory as the mount namespace of the caller has it, by its path: a new descriptor. */
int host_reopen(int fd);

/* A directory that the operator named. */
int host_add_template(struct host *host, const char *name, int dir, struct fail *fail);

/* A file or directory of the host that the operator named. */
int host_add_mount(struct host *host, const struct launch_mount *mount, int fd, struct fail *fail);

/* A directory of the host that single sandboxes may have; and one of those, or a directory below one
 * of them, as a detached mount: -1 when the way to it leads out. */
int host_allow(struct host *host, const struct launch_allow *allow, struct fail *fail);
int host_open_bind(struct host *host, const struct launch_bind *bind, struct fail *fail);

/* NULL with a failure when there is none of that name. Imported ones are found when they are asked
 * for. */
const struct template *host_template(struct host *host, const char *name, struct fail *fail);

/* Notes that a sandbox holds an imported template, or no longer does. */
int host_use_template(const struct host *host, const struct mark *mark, struct fail *fail);
void host_leave_template(const struct host *host, const struct mark *mark);
