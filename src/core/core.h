/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * The core: sessions, their sandboxes and executions, and the rules of their lives. It is
 * single-threaded, on the loop, and knows backends and stores only by their interfaces. README.md
 * says which file answers which question, where the borders of the rooms are, and what our words
 * mean.
 *
 *     core root            what all rooms share
 *     events.h             what happened, numbered, persisted, replayed
 *     metrics.h            counters
 *     shares.h             the part of a shared resource that one owner may hold
 *     grants.h             the part of an owner's cap that this node may use
 *     ceiling.h            the most that a caller may ask for
 *     vault.h              the key of this instance, for sealing and signing
 *     secrets.h            variables whose values are never shown
 *     teardown_token.h     a signed URL that tears one sandbox down
 *     port_token.h         a signed URL that opens one port of a session
 *     session_view.h       a session as other rooms see it
 *     backend_choice.h     which backend the next sandbox of a session gets
 *     end_reason.h         why a session or a sandbox ended
 *     stamp.h              an instant, by the wall clock and by the boot clock
 *
 *     core root, above all rooms: no room includes these
 *     metrics_text.c       the counters of all rooms, as text for Prometheus
 *     assemble.c           makes every part and sets the tables between rooms
 *     recovery.h           at start: records meet reality
 *     rehome.h             sessions that come from another node, or go to one
 *     repair.h             writes records again that a failed transaction has lost
 *     shutdown.h           core_stop(): work that is under way ends first
 *
 *     money/
 *     flavor.h             the kinds of sandboxes, their limits and prices
 *     approvals.h          questions to an approver, and the decisions
 *     budget.h             caps, amounts that are reserved, amounts that are spent
 *     budget_account.h     the account of one session or owner
 *
 *     sandbox/
 *     sandbox.h            one incarnation behind a session: its states and their transitions
 *     capacity.h           slots: reserved before the first side effect, released exactly once
 *     pool.h               ready sandboxes that are not assigned to a session yet
 *     builds.h             how many sandboxes are built at once, and whose turn is next
 *     demand.h             how many sandboxes the near future needs: the size of the pool
 *     templates.h          which templates a session may name
 *     workspace_archive.h  files that outlive the sandbox they were made in
 *     usage.h              measures what sandboxes use, on request
 *     usage_history.h      the same over time: samples of each live sandbox
 *
 *     session/
 *     session.h            what a caller owns: open, find, hold, extend, pause, end
 *     source_question.h    a request whose template only a registry knows: it is asked first
 *     open_question.h      a request that other nodes may know something about: the store is asked
 *     flavor_change.h      a request for another flavor: unchanged, changed, or an approver is asked
 *     clocks.h             lease, idle, lifetime: which deadline is next, and what it does
 *     background.h         keeps the idle clock from ending a session whose programs still work
 *     retention.h          when the record of an ended session goes
 *     scopes.h             owners whose sessions end when the lease on the owner is released
 *     idempotency.h        one session for one Idempotency-Key
 *     storage.h            files that programs store in their session; they outlive the sandbox
 *
 *     output/
 *     spool.h              the spool of one stream, readable by offset while it grows
 *     spool_files.h        the names of its files
 *     spool_shares.h       quotas of the spool: per session, per owner, in all
 *     stream_order.h       the order in which bytes of two streams came
 *     combined_output.h    both streams as one
 *
 *     run/
 *     execution.h          one run of a program: its states, streams and end
 *     execution_prepare.h  what init is asked to run: arguments, environment, script
 *     environment.h        the variables of a program: the allowlist, then settings and requests
 *     language.h           the languages of code: interpreter, suffix, driver
 *     rules.h              patterns that commands are compared with: pass, warn, block
 *     python_zygote.h      a Python that forks instead of starting
 *     execute.h            code in one call, with the session made on demand
 *     programs.h           what the rooms below report to programs, and ask of them
 *     context/context.h    an interpreter that keeps its state between runs of code
 *     context/driver.h     reads what that interpreter writes: output and frames
 */

#include "base/error.h"
#include "base/list.h"
#include "base/map.h"
#include "loop/loop.h"

#include <stdbool.h>
#include <stdint.h>

struct approvals;
struct backends;
struct budgets;
struct builds;
struct capacity;
struct ceiling;
struct config;
struct core;
struct events;
struct flows;
struct grants;
struct idempotency;
struct workspace_archive;
struct metrics;
struct money_observer;
struct pool;
struct orphan_search;
struct recovery;
struct repair;
struct retention;
struct rules;
struct sandbox_observer;
struct sandbox_programs;
struct session_programs;
struct scopes;
struct spool_shares;
struct shares;
struct store;
struct usage_sampler;
struct vault;
struct worker;

struct core_parts {
    struct loop *loop; /* all borrowed; all outlive the core */
    const struct config *config;
    struct store *store;
    struct backends *backends;
    struct worker *worker; /* for work that blocks */
    int state_dir;
    const char *state_path;

    /* The name of this daemon among the nodes that share the store; NULL: it is alone. */
    const char *node;
    /* Whether this node may act for its sessions at this moment; NULL: always. See core_may_act(). */
    bool (*may_act)(void *context);
    void *may_act_context;   /* borrowed */
    const uint8_t *node_key; /* CORE_KEY_SIZE bytes that all nodes have; NULL when it is alone */

    /* Serves a connection that a program of the execution made to its storage socket; NULL without
     * storage. The descriptor is the callee's. */
    void (*on_storage)(void *context, const char *session_id, const char *execution_id, int fd);
    void *storage_context; /* borrowed */
};

enum { CORE_KEY_SIZE = 32 };

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
    struct map executions_by_id;  /* known in memory: running, or recently ended */
    struct list strays;           /* owned: struct stray, while it is being killed */
    struct list source_questions; /* owned: struct source_question */
    struct list open_questions;   /* owned: struct open_question */

    const struct money_observer *money;              /* of budgets: core/money/observer.h */
    const struct sandbox_observer *observer;         /* of sandboxes: core/sandbox/observer.h */
    const struct sandbox_programs *programs;         /* in sandboxes: the same */
    const struct session_programs *session_programs; /* core/session/programs.h */

    struct approvals *approvals;        /* owned */
    struct budgets *budgets;            /* owned */
    struct capacity *capacity;          /* owned */
    struct builds *builds;              /* owned */
    struct ceiling *ceiling;            /* owned */
    struct events *events;              /* owned */
    struct flows *flows;                /* owned: one for each session's output */
    struct grants *grants;              /* owned; NULL where no other daemon shares the store */
    struct idempotency *idempotency;    /* owned */
    struct workspace_archive *archives; /* owned */
    struct metrics *metrics;            /* owned */
    struct pool *pool;                  /* owned */
    struct recovery *recovery;          /* owned; NULL once it is done */
    struct orphan_search *orphans;      /* owned; NULL once the backend has answered */
    struct retention *retention;        /* owned */
    struct rules *rules;
    struct scopes *scopes;             /* owned */
    struct spool_shares *spool_shares; /* owned */
    struct shares *shares;             /* owned */
    struct storage *storage;           /* owned */
    struct vault *vault;               /* owned */
    struct core_shutdown *shutdown;    /* owned; NULL until core_stop() */
    struct repair *repair;             /* owned */
    struct list rehomings;             /* owned: struct rehoming */
    struct usage_sampler *sampler;     /* owned */
    bool stopping;                     /* no more work is taken */
};

/* Whether other daemons share the store: what belongs to an owner is claimed there then. */
static inline bool core_is_clustered(const struct core *core)
{
    return core->parts.node && *core->parts.node;
}

/* False, with the reason, while other nodes may have taken over the sessions of this one: nothing may
 * begin or end in their sandboxes. A node that was stopped for longer than its lease asks this before it
 * knows more. */
bool core_may_act(const struct core *core, struct error *err);

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
