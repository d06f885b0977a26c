/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * The session that a caller names, by its id or as "key:KEY".
 *
 *     live         find_live_session(), at once: it is in memory
 *     ended        find_ended_session(): the store has its final record until retention
 *     a stranger's and an unknown one: the same error, ERR_NOT_FOUND "session_not_found"
 *
 * The rule that a stranger learns nothing is here and nowhere else. Both failures have one message,
 * and come the same time after the request: the store needs a little longer for a session that
 * exists, so that the answer of either waits until 2 ms have passed.
 */

#include "base/buffer.h"
#include "base/error.h"
#include "base/id.h"
#include "loop/loop.h"
#include "service/identity.h"
#include "store/store.h"

#include <stdbool.h>
#include <stdint.h>

struct core;
struct session;

/* NULL with the error of a session that is not there; `err` may be NULL. */
struct session *find_live_session(struct core *core, const struct caller_identity *identity,
                                  const char *reference, struct error *err);

/* Whether a text can be the name of a session at all. */
bool find_may_exist(const char *reference);

/* Fills in that error; always -1. */
int find_refuse(const char *reference, struct error *err);

struct ended_session;
typedef void find_ended_fn(struct ended_session *ended);

/* An ended session that is being looked for; embedded by the caller, who calls ended_session_fini()
 * in or after `done`, not before. */
struct ended_session {
    find_ended_fn *done; /* once, from the loop */
    struct error err;    /* ERR_NOT_FOUND, or the failure of the store; else what follows is set */
    char id[ID_SIZE];
    char *end_reason;     /* owned */
    struct buffer record; /* its final record as JSON */

    struct store_query query; /* private, here and below */
    struct timer timer;
    int64_t began_us, began_wall_us;
    char *reference, *owner; /* owned; borrowed by the query */
};

/* `began_us` is when the request came, by the clock of the loop. */
void find_ended_session(struct ended_session *ended, struct core *core,
                        const struct caller_identity *identity, const char *reference,
                        int64_t began_us, find_ended_fn *done);

void ended_session_fini(struct ended_session *ended);
