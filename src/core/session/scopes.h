#pragma once

/*
 * Scopes: an owner whose sessions end when the lease on that owner is released.
 *
 * Releasing a lease ends all sessions of its owner, and of no other. Owners that are minted for
 * a scope (their last part is an id of the kind ID_SCOPE) exist only through their lease: without
 * one no session is opened for them. Leases are not recorded: their holders take them again when
 * the daemon was replaced, and sessions that are not claimed within SCOPE_GRACE_US are ended.
 */

#include "base/error.h"
#include "base/list.h"

#include <stdbool.h>

struct core;
struct scopes;

#define ID_SCOPE "scp_"

enum { SCOPE_GRACE_US = 30 * 1000 * 1000 };

/* The core is borrowed. */
struct scopes *scopes_new(struct core *core);

/* After recovery: the grace begins, if there is anything that may be claimed. */
void scopes_start(struct scopes *scopes);
void scopes_free(struct scopes *scopes); /* NULL is fine; no lease is held any more */

struct scope_lease {
    struct list node;
    struct scopes *scopes; /* borrowed; NULL while it is not held */
    char *owner;           /* owned */
};

/* ERR_CONFLICT when another lease on this owner is held. */
int scope_lease_take(struct scope_lease *lease, struct scopes *scopes, const char *owner,
                     struct error *err);

/* Ends the owner's sessions, except when the daemon is stopping: then the next one decides. Safe on
 * one that is not held. */
void scope_lease_release(struct scope_lease *lease);

/* Whether a session may be opened for this owner; ERR_GONE when it was minted for a scope that is
 * over. */
int scopes_check_owner(const struct scopes *scopes, const char *owner, struct error *err);

/* Whether the owner was minted for a scope: "scp_…" or "ann/scp_…". */
bool owner_is_minted(const char *owner);
