/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Destroying: kill, wait without blocking other requests, remove the cgroups, discard the files. It can
 * be started any number of times, from any state that a crash has left, and ends within a bounded time: a
 * process that cannot die makes the answer EBUSY, and a later request goes on from there.
 */

#include "launcher/ahead/spares.h"
#include "launcher/mark_cache.h"
#include "launcher/teardown/teardown_process.h"
#include "launcher/teardown/trash.h"

struct destroy;
struct host;

/* All destroys under way. The parts are borrowed. */
struct destroys {
    const struct context *context;
    struct cgroups *cgroups;
    struct uid_ranges *uid_ranges;
    struct spares *spares;
    struct teardown_process *process;
    struct mark_cache *marks;
    struct trash *trash;
    const struct host *host;
    const struct disks *disks;
    int epoll; /* where deaths are watched; the data of an event is the destroy */
    void (*reply)(void *user, struct launch_reply *reply);
    void (*reap)(void *user); /* all children that have died, orphans of sandboxes included */
    void *user;

    struct destroy *first;   /* owned list */
    struct destroy *retries; /* the ones of the list to retry soon */
    int64_t next_deadline_check_ms;
    unsigned discarded;    /* cgroups, for their names */
    uint64_t trash_number; /* of the next directory in the trash */
};

/* `request` asks for an answer; NULL undoes a creation that failed. */
void destroy_start(struct destroys *destroys, const char *id, const struct launch_header *request);

/* A watched process has died. */
void destroy_on_death(struct destroys *destroys, struct destroy *destroy);

/* Retries busy sandboxes; returns how long the loop may wait, in ms, -1 without a limit. */
int destroys_turn(struct destroys *destroys);

/* Destroys sandboxes that an earlier launcher was making when it was killed, or had reported as
 * gone and not yet removed. The directory is ours alone, and so are the cgroups with the names that
 * are in it. */
void destroys_resume(struct destroys *destroys);

/* Marks the slots of dying sandboxes without a mark on disk as taken. */
void destroys_mark(const struct destroys *destroys);

/* The launcher ends: cgroups of sandboxes that are still dying get their id as the name again, by
 * which the next launcher finds them. */
void destroys_close(struct destroys *destroys);

/* In a child of the launcher: closes their descriptors. */
void destroys_close_fds(struct destroys *destroys);
