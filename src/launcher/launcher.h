/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * The launcher: the small privileged process that builds and removes walls. Single-threaded, one
 * event loop, no step that waits for a payload. It takes requests from the daemon's socket and ends
 * when that closes; the sandboxes go on.
 *
 * Only the files that put the parts together include this: main.c, setup.c and sandbox.c.
 */

#include "launcher/ahead/spares.h"
#include "launcher/cgroup/cgroup.h"
#include "launcher/cgroup/memory_watch.h"
#include "launcher/context.h"
#include "launcher/mark_cache.h"
#include "launcher/namespaces.h"
#include "launcher/teardown/destroy.h"
#include "launcher/teardown/teardown_process.h"
#include "launcher/teardown/trash.h"
#include "launcher/uid_ranges.h"
#include "launcher/walls/walls.h"

#include <stdbool.h>

struct launcher {
    struct context context;
    struct cgroups cgroups;
    struct uid_ranges uid_ranges;
    struct walls walls;
    struct spares spares;
    struct teardown_process teardown;
    struct trash trash;
    struct destroys destroys;
    struct mark_cache mark_cache;
    struct memory_watch memory_watch;
    struct namespaces namespaces;
    bool ready;  /* SETUP was done */
    bool sealed; /* no more templates */
    int socket;
    int epoll;
    unsigned deaths; /* of children, reported by signals */
};

/* --- main.c ---------------------------------------------------------------------------------- */

/* Sends an answer; `pidfd` is borrowed, -1 for none. */
void launcher_reply(struct launcher *self, struct launch_reply *reply, int pidfd);

/* Sends a failure that is going to be retried to the daemon's log. */
void launcher_report(struct launcher *self, const struct fail *fail);

/* All children that have died, orphans of sandboxes included. */
void launcher_reap(struct launcher *self);

/* --- setup.c --------------------------------------------------------------------------------- */

/* The parts before the setup: nothing is open. */
void launcher_init(struct launcher *self);

int launcher_setup(struct launcher *self, const struct launch_setup *setup, int filter,
                   struct launch_host *out_host, struct fail *fail);

/* No more templates: spares are built from here on. */
void launcher_seal(struct launcher *self);

/* The daemon is gone: removes spares, network rules, skeletons and empty cgroups. */
void launcher_close(struct launcher *self);

/* --- sandbox.c: each fills the body of the answer, or fails ---------------------------------- */

/* `bound` is the whole of the message with directories of the host; NULL: there are none. */
int sandbox_create(struct launcher *launcher, const struct launch_create *create,
                   const struct launch_create_bound *bound, struct launch_made *out_made,
                   int *out_pidfd, struct fail *fail);
int sandbox_adopt(struct launcher *launcher, const struct launch_adopt *adopt,
                  struct launch_made *out_made, int *out_pidfd, struct fail *fail);
int sandbox_update(struct launcher *launcher, const struct launch_update *update,
                   struct fail *fail);
int sandbox_freeze(struct launcher *launcher, const struct launch_freeze *freeze,
                   struct fail *fail);
int sandbox_inspect(struct launcher *launcher, const struct launch_inspect *inspect,
                    struct launch_usage *out_usage, struct fail *fail);
