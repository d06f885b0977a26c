/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Scopes: an owner whose sessions end when the lease on that owner is released.
 *
 * Releasing a lease ends all sessions of its owner, and of no other. Owners that are minted for
 * a scope (their last part is an id of the kind ID_SCOPE) exist only through their lease: without
 * one no session is opened for them. Leases are not recorded: their holders take them again when
 * the daemon was replaced, and sessions that are not claimed within SCOPE_GRACE_US are ended.
 *
 * Where several nodes share the store, a lease is a claimed document (scope_claims.c): it can be held
 * on one node at a time, and its release ends the sessions of the owner on all nodes.
 */

#include "base/error.h"
#include "base/list.h"

#include <stdbool.h>

struct core;
struct scope_claim;
struct scope_lease;
struct scopes;

#define ID_SCOPE "scp_"
#define SCOPE_KIND "scope"

enum { SCOPE_GRACE_US = 30 * 1000 * 1000 };

/* The core is borrowed. */
struct scopes *scopes_new(struct core *core);

/* After recovery: the grace begins, if there is anything that may be claimed. */
void scopes_start(struct scopes *scopes);
void scopes_free(struct scopes *scopes); /* NULL is fine; no lease is held any more */

/* `err` is NULL when it is held. */
typedef void scope_taken_fn(struct scope_lease *lease, const struct error *err);

struct scope_lease {
    struct list node;
    struct scopes *scopes; /* borrowed; NULL while it is not held */
    char *owner;           /* owned */
    scope_taken_fn *taken;
    struct scope_claim *claim; /* borrowed; NULL in a sole daemon */
};

/* ERR_CONFLICT when another lease on this owner is held. */
int scope_lease_take(struct scope_lease *lease, struct scopes *scopes, const char *owner,
                     struct error *err);

/* The same where several nodes share the store: `taken` comes from the loop, once, unless the lease is
 * released before. After an error the lease is still to be released. */
int scope_lease_ask(struct scope_lease *lease, struct scopes *scopes, const char *owner,
                    scope_taken_fn *taken, struct error *err);

/* Ends the owner's sessions, except when the daemon is stopping: then the next one decides. Safe on
 * one that is not held. */
void scope_lease_release(struct scope_lease *lease);

/* Whether a session may be opened for this owner; ERR_GONE when it was minted for a scope that is
 * over. */
int scopes_check_owner(const struct scopes *scopes, const char *owner, struct error *err);

/* Whether the owner was minted for a scope: "scp_…" or "ann/scp_…". */
bool owner_is_minted(const char *owner);

/* ERR_CONFLICT "scope_taken". */
int scope_taken_error(const char *owner, struct error *err);

/* --- with several nodes ---------------------------------------------------------------------- */

/* Whether the store has to be asked for the lease on this owner before a session is opened, and what
 * its document says then. */
bool scopes_must_ask(const struct scopes *scopes, const char *owner);
bool scope_document_is_live(const char *json);
int scope_ended_error(const char *owner, struct error *err);

/* The node is lost: its leases can be taken again within the grace, on any node. */
void scopes_drop_node(struct core *core, const char *node);

/* The store may have lost what it had acknowledged: claims the leases of this node again. */
void scopes_assert(struct scopes *scopes);
