/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Everything a test of the core needs: a simulated clock, a loop, a store and a backend that can
 * be told what to do, and a core on top that can be killed and started again.
 */

#include "backend/backends.h"
#include "config/config.h"
#include "core/core.h"
#include "core/session/session.h"
#include "harness/fake_backend.h"
#include "harness/fake_store.h"

struct world {
    struct simulated_clock clock;
    struct loop *loop;
    struct store *store;
    struct backends *backends; /* owned; has the next one, which is the default */
    struct backend *backend;
    struct config config;
    struct core *core;     /* NULL while the daemon is down */
    int state_dir;         /* borrowed; -1 where a test needs none */
    struct worker *worker; /* borrowed; NULL where a test needs none */
    const char *node;      /* its name among several; NULL: it is the only one */
    bool is_guest;         /* the clock and the loop are of another world */
};

/* One more fake backend, of the world too. */
struct backend *world_add_backend(struct world *world, const char *name,
                                  enum backend_access access);

/* The settings are those of the manual, without a pool. Change them before world_start(). */
void world_init(struct world *world);

/* Another node that shares the store, the clock and the loop of the first one, which outlives it. Only
 * the first one is advanced. */
void world_join(struct world *world, struct world *first, const char *node);
void world_fini(struct world *world);

void world_start(struct world *world); /* core_new and core_start; asserts that it works */

/* kill -9: nothing is finished, what was not committed is lost. With `effect` what the backend was
 * asked for happens all the same. */
void world_kill(struct world *world, bool effect);
void world_restart(struct world *world); /* both */

void world_settle(struct world *world); /* until nothing happens any more at this instant */
void world_advance(struct world *world, int64_t ms);

/* --- what tests do again and again ---------------------------------------------------------- */

struct opened {
    struct session_op op;
    bool done;
};

/* Waits for it at this instant; NULL when it failed, then opened->op.err says why. */
struct session *world_open(struct world *world, const struct session_request *request,
                           struct opened *opened);
struct session *world_open_simple(struct world *world, const char *owner, const char *key);

/* NULL when it is not live. */
struct session *world_find(struct world *world, const char *id);

struct tried {
    struct session_hold hold;
    unsigned ready; /* how often on_ready came */
    unsigned lost;
};

void world_use(struct world *world, struct session *session, struct tried *tried);
void world_use_pinned(struct world *world, struct session *session, uint64_t generation,
                      struct tried *tried);

struct ended {
    struct session_op op;
    unsigned done;
};

void world_end(struct world *world, struct session *session, enum end_kind kind,
               struct ended *ended);

/* What the store says about it; false when it has no record. */
struct world_record {
    char state[32];
    char end_reason[END_TEXT_SIZE];
    uint64_t generation;
    struct stamp created, started, last_activity, expires, ended;
};
bool world_record(struct world *world, const char *session_id, struct world_record *out_record);

/* How many events of this type the store has about the session. */
unsigned world_events(struct world *world, const char *session_id, const char *type);
