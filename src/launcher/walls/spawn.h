/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Starting init in its walls. The child shares the launcher's memory until it executes init (the
 * launcher is suspended meanwhile), so it reports a failure by writing it where the launcher looks.
 */

#include "launcher/cgroup/cgroup.h"
#include "launcher/cgroup/oom.h"
#include "launcher/context.h"
#include "launcher/fail.h"
#include "launcher/sys.h"

#include <sys/types.h>

struct layers;
struct template;
struct walls;

#define SPAWN_KEY_NAME "SANDGLASS_KEY"

enum {
    SPAWN_KEY_SIZE = sizeof(SPAWN_KEY_NAME "=") + 2 * LAUNCH_KEY_SIZE,
    SPAWN_FD_SOCKET = 3,                   /* init's listening socket, as init knows it */
    SPAWN_FD_PASSED = LAUNCH_FD_STATE + 1, /* the same in the launcher, which keeps it */
};

/* Settings common to all children. */
struct spawner {
    const struct context *context; /* borrowed */
    struct oom_score oom_score;
    struct sys_filter filter[LAUNCH_MAX_FILTER];
    uint16_t filter_length; /* 0: no seccomp */
    uint32_t landlock_abi;  /* 0: no Landlock */
    uint64_t most_files;    /* hard limits, which cannot be raised again */
    uint64_t most_processes;
    int init;            /* borrowed: the bytes of sandglass-init */
    int mounts;          /* borrowed: the host's mount namespace, for direct sandboxes; or -1 */
    bool has_groups;     /* supplementary ones, for children to give up */
    bool stays_dumpable; /* children share our memory and change their ids, which clears the flag */
};

/* The start of one sandbox. */
struct spawn {
    const struct spawner *spawner; /* borrowed */
    struct walls *walls;           /* borrowed; native only */
    struct mark mark;
    const struct template *template; /* borrowed; native only */
    struct cgroup_entry cgroup;      /* owned */
    int dir;                         /* owned: the sandbox's directory */
    int mark_fd;                     /* owned: the mark, for the pid */
    int socket;                      /* owned: where init listens */
    int userns;                      /* owned; native only */
    int netns;                       /* owned; native only */
    int disk;                        /* owned: a mount for its files; -1: they are in memory */
    int root;                        /* owned: its files, made ahead; or -1 */
    const struct launch_bind *binds; /* borrowed: directories of the host; NULL without */
    unsigned bind_count;
    int trees[LAUNCH_MAX_BINDS]; /* owned: these directories, as detached mounts */
    const struct layers *layers; /* borrowed: mounted layers of its root; or NULL */
    int pidfd;                   /* owned by the receiver of the answer */
    int64_t cloned_after;        /* boot time */
    char key[SPAWN_KEY_SIZE];    /* a line of the environment; "": init has no relay */
    struct fail fail;
};

/* Once, before anything else is opened: descriptors 0 to 2 and SPAWN_FD_PASSED are /dev/null, and
 * all other low numbers are taken. */
int spawn_open(void);

/* Clones with these namespaces and runs `child` there, which returns only on failure. Until it
 * executes init, it shares the launcher's descriptors and has to close its own. */
int spawn_run(struct spawn *spawn, uint64_t namespaces, int (*child)(struct spawn *spawn));

/* The first and the last steps of every child. */
int spawn_enter(struct spawn *spawn);
int spawn_exec(struct spawn *spawn, const char *const argv[]);

/* The last argument of init, which every argv ends in: "--relay", or NULL without a relay. */
static inline const char *spawn_relay_argument(const struct spawn *spawn)
{
    return *spawn->key ? "--relay" : NULL;
}

/* Resets the attributes that init and the payload must not inherit: priority and umask. */
void spawn_reset(void);

/* Once: sets the launcher's own limits, which all children inherit. `dumps_are_piped`: the host
 * pipes core dumps to a program, which only a limit of 1 prevents. */
int spawner_lower_limits(struct spawner *spawner, bool dumps_are_piped);

/* The seccomp program, from a file. */
int spawner_load_filter(struct spawner *spawner, int fd);

/* In the child: the remaining limits. */
int spawn_limit(const struct spawner *spawner, const struct launch_limits *limits);

void spawn_init(struct spawn *spawn, const struct spawner *spawner, struct walls *walls);
void spawn_fini(struct spawn *spawn); /* leaves the pidfd */

/* Gives init a relay whose peer must know this key. */
void spawn_set_key(struct spawn *spawn, const uint8_t key[LAUNCH_KEY_SIZE]);
