/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * A sandbox that this daemon has made or adopted through the launcher: the pidfd of its init, the
 * watch that waits for its end, and the way to its init, which is a socket or a bridge.
 */

#include "backend/backend.h"
#include "loop/process.h"
#include "wire/launch.h"

struct bridge;
struct launched_backend;

struct launched_sandbox {
    char id[ID_SIZE];
    struct launched_backend *backend; /* borrowed */
    struct launch_made made;
    struct sandbox_limits limits; /* as requested; zero after adoption */

    /* Of init; owned, or -1. `process` owns it while init is watched. It stays open until the
     * sandbox is gone: closing it earlier would wake a dying init. */
    int pidfd;
    struct process process;
    struct backend_watch *watch; /* borrowed; NULL: its end is not watched */
    struct deferred late;        /* reports the end to a watch that was added later */
    struct bridge *bridge;       /* owned; NULL: init itself is connected to */
};

struct launched_sandbox *launched_sandbox_new(struct launched_backend *backend, const char *id);
void launched_sandbox_free(struct launched_sandbox *sandbox); /* NULL is fine */

/* Takes over the pidfd. A sandbox that is adopted again keeps its first one, which may be
 * watched. */
void launched_sandbox_keep_pidfd(struct launched_sandbox *sandbox, int pidfd);

/* Asks the kernel: a zombie is dead, whether the launcher has reaped it or not. NULL is dead. */
bool launched_sandbox_is_dead(const struct launched_sandbox *sandbox);

/* Drops the watch for NULL, and where there is no pidfd. */
void launched_sandbox_watch(struct launched_sandbox *sandbox, struct backend_watch *watch);
void launched_sandbox_unwatch(struct launched_sandbox *sandbox);

/* From now on the sandbox is reached over a bridge: its init has a relay. */
int launched_sandbox_open_bridge(struct launched_sandbox *sandbox, struct error *err);

/* A socket that speaks the protocol of init; does not wait. */
int launched_sandbox_connect(const struct launched_sandbox *sandbox, struct error *err);
