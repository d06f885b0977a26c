/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Shares: the part that one owner may hold of what all owners share: sessions, executions,
 * terminals, open requests, memory for the bodies of requests. Each has a cap for every owner, in
 * the settings capacity.* (a fixed one for bodies); a row in `owners` gives an owner another one,
 * which holds for it and all below it together. At most one
 * owner that holds nothing is remembered, so callers that make up names of owners cost no memory.
 *
 * Slots for sandboxes are the business of capacity.h.
 */

#include "base/error.h"
#include "config/config.h"

struct core;
struct share_account;
struct shares;

/* Embedded by the object that is counted; zeroed before. */
struct share {
    struct shares *shares;             /* NULL: nothing is held */
    struct share_account *accounts[2]; /* of the owner, of the row that it fits */
    enum config_share kind;
    size_t amount;
};

struct shares *shares_new(struct core *core);
void shares_free(struct shares *shares); /* NULL is fine; what is still held is forgotten */

/* ERR_LIMIT "too_many_sessions" and the like when a cap is reached, with how many of how many. */
int share_take(struct share *share, struct shares *shares, const char *owner,
               enum config_share kind, struct error *err);

/* The same for something that is counted in bytes. */
int share_take_bytes(struct share *share, struct shares *shares, const char *owner,
                     enum config_share kind, size_t bytes, struct error *err);

/* Of what is held only so many bytes are needed. */
void share_shrink(struct share *share, size_t bytes);

/* So many bytes are needed, more than before; -1 when its owner cannot have them. */
int share_grow(struct share *share, size_t bytes, struct error *err);
size_t share_amount(const struct share *share);

/* Without asking: it exists already. For recovery. */
void share_hold(struct share *share, struct shares *shares, const char *owner,
                enum config_share kind);

void share_give(struct share *share); /* does nothing when nothing is held */

/* The cap of this owner; 0 without one. */
int64_t shares_cap(const struct shares *shares, const char *owner, enum config_share kind);
