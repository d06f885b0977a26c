/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Shared parts of `sandglass sweep`: each leftover that is found goes through sweep_may_remove(),
 * which decides whether it is removed, and is reported once.
 *
 * Only what carries our mark is ever touched, and only a mark that no user but the one who sweeps
 * can have written: a daemon that has been taken over must not choose what root kills. Sandboxes
 * with their mark file in a state directory whose lock is free, cgroups
 * `sandglass.<instance>/sbx_…` of an instance without a living launcher, temporary directories
 * of private daemons that are gone, and containers whose labels name a state directory of this host
 * that no daemon serves.
 *
 * Killing and removing is the launcher's work here as elsewhere (backend/launcher_sweep.h), and the
 * engine's for containers: what is here finds what is left, decides and reports.
 */

#include "cli/cli.h"

#include <stdint.h>
#include <sys/types.h>

struct config;

struct sweep_item {
    const char *kind; /* "sandbox", "cgroup", "directory", "container", "engine" */
    const char *id;
    const char *instance; /* "" where there is none */
    const char *where;    /* the path */
};

enum sweep_outcome { SWEEP_REMOVED, SWEEP_WOULD_REMOVE, SWEEP_SKIPPED, SWEEP_FAILED };

struct sweep {
    struct cli *cli;
    bool dry_run;
    int64_t older_than_s;
    uint64_t maximum;           /* how many may be removed */
    struct text_list instances; /* only these; empty: all. Borrowed texts */
    struct text_list states;    /* the same of state directories */
    unsigned counts[SWEEP_FAILED + 1];
    struct buffer text; /* the report */
    struct buffer seen; /* ids of sandboxes that were reported, each between line feeds */
};

/* False for what is not to be removed, which is reported then. */
bool sweep_may_remove(struct sweep *sweep, const struct sweep_item *item, int64_t age_s);

void sweep_report(struct sweep *sweep, const struct sweep_item *item, enum sweep_outcome outcome,
                  const char *detail);

bool sweep_has_seen(const struct sweep *sweep, const char *id);

/* Removed, or failed with this error. */
void sweep_report_result(struct sweep *sweep, const struct sweep_item *item, int result,
                         const struct error *err);

/* --- state directories ---------------------------------------------------------------------- */

/* Sandboxes in a state directory whose daemon is dead; nothing where there is no such directory. */
void sweep_state(struct sweep *sweep, const char *path);

/* The same; when it is that of a private daemon, its directory goes with it. */
void sweep_named_state(struct sweep *sweep, const char *path);

/* Directories of private daemons in `base`, and what is in them. */
void sweep_private(struct sweep *sweep, const char *base);

/* State directories that own blocks of user ids on this host, for sweep_state(). */
void sweep_leased(struct sweep *sweep);

enum state_condition {
    STATE_GONE,    /* there is no such directory, or no daemon's lock in it */
    STATE_DEAD,    /* no daemon serves it */
    STATE_SERVED,  /* by a daemon or its launcher */
    STATE_UNKNOWN, /* this user may not look */
};

/* Whether a daemon serves a state directory. If none does, no daemon can take the directory until
 * the caller closes *out_lock, and *out_age_s is the time since the last daemon died. */
enum state_condition sweep_find_state(const char *path, int *out_lock, int64_t *out_age_s);

/* Removes a directory and everything below it; never follows a link or leaves the file system. */
int sweep_remove_tree(int parent, const char *name);

/* --- cgroups -------------------------------------------------------------------------------- */

/* Cgroups of instances without a living launcher whose state directory is not known. */
void sweep_cgroups(struct sweep *sweep);

/* --- containers ----------------------------------------------------------------------------- */

/* Containers of this host's daemons whose state directory is gone or not served, on the engine of the
 * settings. Without an engine there are none. */
void sweep_containers(struct sweep *sweep, const struct config *config);

/* --- processes ------------------------------------------------------------------------------ */

/* Whether a process started then and is no sandbox of ours: a mark from before a reboot may name any. */
bool process_is_stranger(pid_t pid, uint64_t start_time);

/* Calls `visit` for each process until it returns false. */
void processes_each(bool (*visit)(void *user, pid_t pid), void *user);

/* Whether the process has this name; at most 15 characters of it are known. */
bool process_is_named(pid_t pid, const char *name);
