/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * The documents that claims have written, in memory, for stores that belong to one process: such a
 * store decides a claim by itself, in the commit that the claim is part of. For the implementations
 * of the store only.
 *
 * A claim waits until its transaction is made: claims_decide() compares, and adds the documents of
 * the won ones to the changes of that transaction. claims_end() reports all decided ones, and takes
 * the won ones back when the transaction has failed. There is one transaction at a time.
 */

#include "base/list.h"
#include "base/map.h"
#include "store/record.h"

struct claims {
    struct map by_id;     /* "kind/id" to struct claimed; owned */
    struct list waiting;  /* struct store_claim */
    struct list decided;  /* struct store_claim, of the transaction that is being made */
    struct list expiring; /* struct claimed: those with an expiry, the first to expire first */
};

void claims_init(struct claims *claims);
void claims_fini(struct claims *claims); /* a zeroed one is fine */

/* At start: a document that an earlier process has claimed. */
void claims_load(struct claims *claims, const struct document_record *document);

void claims_add(struct claims *claims, struct store_claim *claim);
bool claims_are_waiting(const struct claims *claims);

void claims_decide(struct claims *claims, int64_t now_wall_us, struct change_queue *changes);
void claims_end(struct claims *claims, const struct error *err);

/* For tests: drops unanswered claims, as if their process had been killed. */
void claims_drop(struct claims *claims);

/* Whether the changed document was claimed: then it must not be put. */
bool claims_have(const struct claims *claims, const struct change *change);
