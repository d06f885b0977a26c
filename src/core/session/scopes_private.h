/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Private to the files of scopes. */

#include "core/core.h"
#include "core/session/scopes.h"
#include "store/store.h"

struct scope_claims;

struct scopes {
    struct core *core;  /* borrowed */
    struct list leases; /* struct scope_lease */
    struct timer grace;
    bool is_settled;             /* the grace is over */
    struct scope_claims *claims; /* owned; NULL where no other daemon shares the store */
};

const struct scope_lease *scopes_find_lease(const struct scopes *scopes, const char *owner);

/* Ends the sessions of this owner that were created until then. */
void scopes_end_sessions(struct core *core, const char *owner, int64_t created_wall_us);

/* --- scope_claims.c -------------------------------------------------------------------------- */

struct scope_claims *scope_claims_new(struct scopes *scopes);
void scope_claims_free(struct scope_claims *claims); /* NULL is fine */
void scope_claims_start(struct scope_claims *claims);
void scope_claim_take(struct scope_claims *claims, struct scope_lease *lease);

/* The lease is gone: when it was held, the sessions of the owner end on all nodes. */
bool scope_claim_end(struct scope_lease *lease);
bool scope_claim_is_held(const struct scope_lease *lease);
