/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * The home of a session: the node whose record it is. For requests about sessions that this node
 * does not have in memory, where several daemons share a store.
 *
 * Callers find the same sessions as in find.h: those of other owners are not found.
 */

#include "base/error.h"
#include "base/id.h"
#include "service/identity.h"
#include "store/store.h"

#include <stdbool.h>

struct core;
struct session_home;
typedef void session_home_fn(struct session_home *home);

enum home_found {
    HOME_NONE,  /* no session, or a stranger's */
    HOME_LIVE,  /* `node` acts for it; "": no node does at the moment */
    HOME_ENDED, /* `node` did, and has its output */
};

/* Embedded by the caller, who keeps it until `done` and calls session_home_fini() then. */
struct session_home {
    session_home_fn *done; /* once, from the loop */
    struct error err;      /* of the store; else what follows is set */
    enum home_found found;
    char id[ID_SIZE];
    char *node;     /* owned */
    char *owner_of; /* owned: whose it is */

    struct store_query query; /* private, here and below */
    struct store *store;
    char *reference, *owner, *document; /* owned */
    bool any_owner;
};

/* By an id or "key:KEY". */
void session_home_find(struct session_home *home, struct core *core,
                       const struct caller_identity *identity, const char *reference,
                       session_home_fn *done);

/* By a document whose JSON names the session: that of an approval, or of an Idempotency-Key. */
void session_home_find_by(struct session_home *home, struct core *core, const char *kind,
                          const char *document, session_home_fn *done);

void session_home_fini(struct session_home *home);
