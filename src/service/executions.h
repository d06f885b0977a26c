/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Executions of a session: one by its id or by the caller's key, a page of them, starting one, and
 * waiting for its end.
 *
 * An execution is in memory while it runs and while it is watched; afterwards its record is in the
 * store. struct found_execution is either, so that faces need not know which.
 */

#include "base/error.h"
#include "base/id.h"
#include "core/run/execution.h"
#include "loop/loop.h"
#include "store/store.h"

#include <stdbool.h>
#include <stdint.h>

struct core;
struct json_writer;

/* At least one of `live` and `record` is set; what is in memory is newer. The record is valid only
 * during the callback. */
struct found_execution {
    struct core *core;
    struct execution *live;
    const struct execution_record *record;
};

void found_execution_write_json(const struct found_execution *found, struct json_writer *json,
                                const char *key, bool with_output);
const char *found_execution_id(const struct found_execution *found);
const char *found_execution_state(const struct found_execution *found);
bool found_execution_is_background(const struct found_execution *found);

/* --- one ------------------------------------------------------------------------------------- */

/* Successors: first → outdated → last. */
enum search_round {
    SEARCH_FIRST,
    SEARCH_OUTDATED, /* its record was read before its end was written, and it has left memory since */
    SEARCH_LAST,
};

/* A search for an execution in the store; embedded by the caller, kept until `done`. */
struct execution_search {
    void (*on_found)(struct execution_search *search, const struct found_execution *found); /* at
                           most once, before `done`; found->live is set when it is in memory */
    void (*done)(struct execution_search *search); /* once, from the loop */
    struct error err;                              /* of the store */
    bool was_found;

    struct core *core; /* private, here and below */
    struct store_query query;
    enum search_round round;
    char session_id[ID_SIZE], id[ID_SIZE];
    char *key; /* owned */
};

/* By id or by key; the other is NULL. on_found and done are set before. */
void execution_search_start(struct execution_search *search, struct core *core,
                            const char *session_id, const char *id, const char *key);
void execution_search_fini(struct execution_search *search);

/* --- a page, the newest first ---------------------------------------------------------------- */

struct execution_page {
    const char *state;    /* borrowed until `done`; NULL: any */
    uint64_t behind;      /* the cursor: 0 from the start */
    uint64_t limit;       /* set by the caller, as all above */
    uint32_t limit_bytes; /* about so much is read from the store at once */
    bool (*on_execution)(struct execution_page *page, const struct found_execution *found);
    void (*done)(struct execution_page *page); /* once, from the loop */

    struct error err;
    bool has_more;
    uint64_t next; /* with that: the cursor of the next page */

    struct core *core; /* private, here and below */
    struct store_query query;
    char session_id[ID_SIZE];
};

/* on_execution returns false when there is no room: the page ends before it. Nothing can stop it:
 * the caller keeps the page until `done`. */
void execution_page_start(struct execution_page *page, struct core *core, const char *session_id);

/* --- start and wait -------------------------------------------------------------------------- */

/* Starts it in the session with this id, which may have ended since it was found (ERR_GONE). A key
 * that the session knows gives the same execution again; *out_is_repeated says so. */
struct execution *start_execution(struct core *core, const char *session_id,
                                  const struct execution_request *request, bool *out_is_repeated,
                                  struct error *err);

struct execution_wait;
typedef void execution_wait_fn(struct execution_wait *wait);

/* Waits for the end of an execution; embedded by the caller. */
struct execution_wait {
    struct execution *execution; /* a reference */
    execution_wait_fn *done;     /* private, here and below */
    struct execution_watcher watcher;
    struct timer timer;
};

/* `done` comes once, from the loop, when it has ended or the time is over; a negative time never is.
 * execution_wait_stop() in or before it. */
void execution_wait_start(struct execution_wait *wait, struct core *core,
                          struct execution *execution, int64_t timeout_ms, execution_wait_fn *done);
void execution_wait_stop(struct execution_wait *wait);
