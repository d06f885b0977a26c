#pragma once

/*
 * The core: sessions, their sandboxes and executions, and the rules of their lives.
 * Single-threaded, on the loop; it knows backends and stores only by their interfaces.
 *
 *     session.h    what a caller owns: open, find, use, extend, pause, end
 *     sandbox.h    one incarnation behind a session: its states and what moves it between them
 *     flavor.h     the kinds of sandboxes that there are
 *     ceiling.h    the most that a caller may ask for
 *     flavor_change.h     a session asks for another flavor: nothing changes, it is made, or somebody
 * decides approvals.h  what somebody has to decide, and what he did budget.h     money: caps, what
 * is held, what is spent clocks.h     lease, idle, lifetime, retention: which deadline is next, and
 * what it does capacity.h   slots: reserved before the first side effect, released exactly once
 *     shares.h     what one owner may hold of what all share
 *     pool.h       ready sandboxes that belong to nobody yet
 *     retention.h  when the record of an ended session goes
 *     scopes.h     owners whose sessions end with whoever holds a lease on them
 *     context.h    an interpreter that keeps its state between runs of code
 *     execute.h    code in one call, with the session made on demand
 *     execution.h  one run of a program: its states, streams and end
 *     spool.h     the spool of one stream, readable by offset while it grows
 *     agent.h      the protocol with a sandbox's init
 *     files.h      reading and writing files of a sandbox
 *     listing.h    what init tells of many files
 *     events.h     what happened, numbered, persisted, replayed
 *     workspace_archive.h       files that outlive the sandbox they were made in
 *     secrets.h    variables whose values nobody is shown
 *     vault.h      the key of this instance, for sealing and signing
 *     recovery.h   at start: records meet reality
 *     metrics.h    counters
 *     usage.h      what sandboxes use, when somebody asks
 */

#include "base/error.h"
#include "base/list.h"
#include "base/map.h"
#include "loop/loop.h"

#include <stdbool.h>
#include <stdint.h>

struct approvals;
struct backend;
struct budgets;
struct builds;
struct capacity;
struct ceiling;
struct config;
struct core;
struct events;
struct flows;
struct idempotency;
struct keep;
struct metrics;
struct pool;
struct orphan_search;
struct recovery;
struct retention;
struct rules;
struct scopes;
struct spool_shares;
struct shares;
struct store;
struct vault;
struct worker;

struct core_parts {
    struct loop *loop; /* all borrowed; all outlive the core */
    const struct config *config;
    struct store *store;
    struct backend *backend;
    struct worker *worker; /* for what blocks */
    int state_dir;
    const char *state_path;

    /* Serves a connection that a program of the execution made to its storage socket; NULL without
     * storage. The descriptor is the callee's. */
    void (*on_storage)(void *context, const char *session_id, const char *execution_id, int fd);
    void *storage_context; /* borrowed */
};

struct core_shutdown;

struct core {
    struct core_parts parts;
    struct loop *loop; /* borrowed, as in parts: used everywhere */

    struct map sessions_by_id;  /* live ones (not ended); struct session */
    struct map sessions_by_key; /* "owner\nkey"; those that are neither ending nor ended */
    struct list sessions;       /* in order of creation */
    uint64_t last_session_number;
    struct list sandboxes; /* all that exist or may exist, in any state; struct sandbox */
    struct map sandboxes_by_id;
    struct map executions_by_id; /* known in memory: running, or recently ended */

    struct approvals *approvals;     /* owned */
    struct budgets *budgets;         /* owned */
    struct capacity *capacity;       /* owned */
    struct builds *builds;           /* owned */
    struct ceiling *ceiling;         /* owned */
    struct events *events;           /* owned */
    struct flows *flows;             /* owned: one for each session's output */
    struct idempotency *idempotency; /* owned */
    struct keep *keep;               /* owned */
    struct metrics *metrics;         /* owned */
    struct pool *pool;               /* owned */
    struct recovery *recovery;       /* owned; NULL once it is done */
    struct orphan_search *orphans;   /* owned; NULL once the backend has answered */
    struct retention *retention;     /* owned */
    struct rules *rules;
    struct scopes *scopes;             /* owned */
    struct spool_shares *spool_shares; /* owned */
    struct shares *shares;             /* owned */
    struct storage *storage;           /* owned */
    struct vault *vault;               /* owned */
    struct core_shutdown *shutdown;    /* owned; NULL until core_stop() */
    struct list leftovers;             /* private: records that the store did not forget */
    struct timer repair;               /* puts again what a failed transaction has lost */
    bool stopping;                     /* no more work is taken */
};

struct core *core_new(const struct core_parts *parts);

/* Does not touch sandboxes. At any moment, but after store_drain(), worker_drain() and
 * loop_run_deferred(): what these still have to do is done to the core. Answers of the backend are
 * not waited for, so that is closed next. */
void core_free(struct core *core);

/* Reconciles records with reality, then calls done: only then may requests be served. */
typedef void core_done_fn(struct core *core, const struct error *err, void *user);
void core_start(struct core *core, core_done_fn *done, void *user);

/* Once. Takes no more work. With `destroy` everything is ended with reason "shutdown", all at once;
 * without, sandboxes are left running for the next daemon. `done` comes with ERR_TIMEOUT when that
 * took longer than the timeout: the next daemon finishes it. */
void core_stop(struct core *core, bool destroy, int64_t timeout_ms, core_done_fn *done, void *user);
