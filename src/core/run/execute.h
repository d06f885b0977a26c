/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Code in one call: the session is made on demand, the code runs as an execution of its own, and
 * afterwards the workspace is searched for files that the run has made or changed.
 *
 *     opening → running → listing → removing → over
 *
 * A session that was made for the call is removed again when the call is ephemeral, and when the
 * code could not be run to its end: the call is over when the sandbox is confirmed gone.
 */

#include "agent/file_snapshot.h"
#include "agent/listing.h"
#include "core/run/execution.h"
#include "core/session/session.h"

/* Borrowed until the execution exists. */
struct execute_request {
    struct session *session; /* live; NULL: a session is opened */
    /* That session, borrowed during the call; NULL: with the fields below and the defaults */
    const struct session_request *options;
    const char *owner, *on_behalf_of;
    const char *key;           /* NULL: a new session */
    const char *execution_key; /* the caller's own id; a live execution with it is joined */
    const char *code, *language, *cwd;
    const char *env_json, *secrets_json;
    int64_t timeout_ms;
    bool session_is_new; /* `session` was opened for this call */
    bool is_ephemeral;   /* the session is removed after the run; without `session` and `key` */
    bool goes_on;        /* after the caller has left, in a session that existed before */
};

enum execute_state {
    EXECUTE_NEW,
    EXECUTE_OPENING,
    EXECUTE_SETTLING, /* waits for a tick of the clock that files are stamped with */
    EXECUTE_RUNNING,
    EXECUTE_LISTING, /* `hold` keeps the sandbox */
    EXECUTE_REMOVING,
    EXECUTE_OVER,
};

struct execute;
typedef void execute_done_fn(struct execute *execute);

/* Embedded by the caller, zeroed before, and kept until execute_fini(). */
struct execute {
    struct error err;            /* it could not be run; ERR_NONE otherwise */
    struct execution *execution; /* a reference: the finished one; NULL without one */
    char session_id[ID_SIZE];
    bool made_session;

    /* private */
    struct core *core;
    struct execute_request request;
    execute_done_fn *done;
    enum execute_state state;
    struct session_op op; /* opens the session, later ends it */
    struct execution_watcher watcher;
    struct session_hold hold;
    struct timer tick;
    unsigned ticks;   /* that were waited for */
    int64_t since_us; /* a file that changed at this time or later was changed by the run */
    struct listing listing;
    struct file_snapshot *before; /* owned: files that the run before has left; NULL without one */
};

/* The timeout of a request that gives none: exec.timeout, or a minute where that is off. */
int64_t execute_default_timeout_ms(const struct core *core);

/* -1 with an error and nothing happens; otherwise `done` comes once, from the loop. */
int execute_start(struct execute *execute, struct core *core, const struct execute_request *request,
                  execute_done_fn *done, struct error *err);

/* When it is over, and at any time when the caller no longer waits: then a session that was made
 * for it ends, and code in another session is cancelled unless the request says `goes_on`. With an
 * execution_key both stay: the caller comes back. */
void execute_fini(struct execute *execute);

/* NULL when it has ended. */
struct session *execute_session(const struct execute *execute);

/* The files of the workspace after the run, hidden ones left out; with `of_the_run` only those that
 * it has made or changed. Start with *at = 0. There are no files unless the code has ended by
 * itself. */
bool execute_next_file(const struct execute *execute, bool of_the_run, size_t *at,
                       struct protocol_entry_view *out_entry);
