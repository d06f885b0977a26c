/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Flushes the redo log to the disk, on a thread of its own, while the writer goes on.
 *
 * A commit only hands bytes to the kernel, which survives the end of this process. Tickets of the
 * grade STORE_SYNCED wait here for a flush that begins after their commit; all that come while one
 * is under way share the next. Commits without such tickets are flushed a moment later. No flush
 * follows a failed one: the kernel may have dropped dirty pages.
 */

#include "base/error.h"
#include "base/list.h"
#include "loop/loop.h"
#include "loop/worker.h"
#include "store/journal/redo.h"

struct syncer;
typedef void synced_fn(struct syncer *syncer, struct list *tickets, const struct error *err);

struct syncer {
    struct job job;
    struct loop *loop;     /* borrowed */
    struct worker *worker; /* owned; NULL once it was stopped */
    struct redo *redo;     /* borrowed */
    struct redo_flush flush;
    synced_fn *on_synced;
    struct timer timer;
    struct list waiting; /* tickets for the next flush */
    struct list syncing; /* and of the one under way */
    int64_t began_us;    /* the last flush */
    bool enabled;
    bool running;
    bool dirty;           /* something was written since the last flush began */
    struct error err;     /* of the flush under way */
    struct error failure; /* of a flush, for good */
};

/* Without `enabled`, tickets complete at once. */
void syncer_open(struct syncer *syncer, struct loop *loop, struct redo *redo, bool enabled,
                 synced_fn *on_synced);

/* Ends the thread. Waiting tickets are left to syncer_finish_here(). */
void syncer_stop(struct syncer *syncer);

/* A commit has succeeded; takes over its tickets that wait for a flush. */
void syncer_add(struct syncer *syncer, struct list *tickets);

/* After the thread has ended: flushes for the waiting tickets. */
void syncer_finish_here(struct syncer *syncer);
