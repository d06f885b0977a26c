/* SPDX-License-Identifier: Apache-2.0 */
#include "store/claims.h"

#include "base/alloc.h"
#include "base/scoped.h"

#include <assert.h>
#include <stdlib.h>

/* A document as the last claim has written it. */
struct claimed {
    char *id;           /* owned: "kind/id" */
    struct list expiry; /* claims->expiring, while it is in the map and has an expiry */
    alignas(max_align_t) char record[];
};

void claims_init(struct claims *claims)
{
    list_init(&claims->waiting);
    list_init(&claims->decided);
    list_init(&claims->expiring);
}

static struct document_record *document_of(struct claimed *claimed)
{
    return (struct document_record *)(void *)claimed->record;
}

static struct claimed *claimed_new(const struct document_record *document)
{
    struct claimed *claimed =
        record_copy(&record_types[STORE_DOCUMENTS], document, offsetof(struct claimed, record));

    claimed->id = xasprintf("%s/%s", document->kind, document->id);
    claimed->expiry = (struct list){ 0 };
    return claimed;
}

static void claimed_free(struct claimed *claimed)
{
    if (!claimed)
        return;
    free(claimed->id);
    free(claimed);
}

/* --- the map --------------------------------------------------------------------------------- */

/* Inserts in the order of expiry. Most claims have the same time to live, so the search begins at
 * the end. */
static void note_expiry(struct claims *claims, struct claimed *claimed)
{
    int64_t expires_wall_us = document_of(claimed)->expires_wall_us;
    struct list *place = claims->expiring.previous;

    if (!expires_wall_us)
        return;
    while (place != &claims->expiring &&
           document_of(list_entry(place, struct claimed, expiry))->expires_wall_us >
               expires_wall_us)
        place = place->previous;
    list_insert_after(place, &claimed->expiry);
}

static void add(struct claims *claims, struct claimed *claimed)
{
    map_put(&claims->by_id, claimed->id, claimed);
    note_expiry(claims, claimed);
}

static void take_out(struct claims *claims, struct claimed *claimed)
{
    map_remove(&claims->by_id, claimed->id);
    list_remove(&claimed->expiry);
}

void claims_fini(struct claims *claims)
{
    struct map_slot *slot;

    map_for_each (slot, &claims->by_id)
        claimed_free(slot->value);
    map_fini(&claims->by_id);
}

void claims_load(struct claims *claims, const struct document_record *document)
{
    struct claimed *claimed = claimed_new(document);
    struct claimed *before = map_get(&claims->by_id, claimed->id);

    if (before)
        take_out(claims, before);
    claimed_free(before);
    add(claims, claimed);
}

void claims_add(struct claims *claims, struct store_claim *claim)
{
    list_append(&claims->waiting, &claim->node);
}

bool claims_are_waiting(const struct claims *claims)
{
    return !list_is_empty(&claims->waiting);
}

bool claims_have(const struct claims *claims, const struct change *change)
{
    scoped(free) char *id = NULL;

    if (change->table != STORE_DOCUMENTS || !claims->by_id.count)
        return false;
    id = change_id(change);
    return map_get(&claims->by_id, id);
}

/* --- deciding ------------------------------------------------------------------------------- */

static bool has_expired(struct claimed *claimed, int64_t now_wall_us)
{
    int64_t expires_wall_us = document_of(claimed)->expires_wall_us;

    return expires_wall_us && expires_wall_us <= now_wall_us;
}

/* The database forgets expired documents by itself. */
static void sweep(struct claims *claims, int64_t now_wall_us)
{
    struct claimed *claimed;

    while ((claimed = list_first(&claims->expiring, struct claimed, expiry)) &&
           has_expired(claimed, now_wall_us)) {
        take_out(claims, claimed);
        claimed_free(claimed);
    }
}

static void win(struct claims *claims, struct store_claim *claim, struct claimed *before,
                struct change_queue *changes)
{
    claim->outcome = CLAIM_WON;
    claim->private.before = before;
    if (before)
        take_out(claims, before);
    if (!claim->private.change->forget) {
        struct claimed *after = claimed_new((const void *)claim->private.change->record);

        add(claims, after);
        claim->private.after = after;
    }
    change_queue_append(changes, steal_ptr(&claim->private.change));
}

static void take_back(struct claims *claims, struct store_claim *claim)
{
    struct claimed *before = steal_ptr(&claim->private.before);

    if (claim->private.after)
        take_out(claims, claim->private.after);
    claimed_free(steal_ptr(&claim->private.after));
    if (before)
        add(claims, before);
}

static void decide(struct claims *claims, struct store_claim *claim, int64_t now_wall_us,
                   struct change_queue *changes)
{
    scoped(free) char *id = change_id(claim->private.change);
    struct claimed *found = map_get(&claims->by_id, id);
    bool is_there = found && !has_expired(found, now_wall_us);

    if ((is_there ? document_of(found)->version : 0) == claim->private.expected) {
        win(claims, claim, found, changes);
        return;
    }
    claim->outcome = CLAIM_LOST;
    claim->private.before = is_there ? claimed_new(document_of(found)) : NULL;
}

void claims_decide(struct claims *claims, int64_t now_wall_us, struct change_queue *changes)
{
    struct store_claim *claim;

    if (!claims_are_waiting(claims))
        return;
    if (list_is_empty(&claims->decided))
        sweep(claims, now_wall_us);
    while ((claim = list_first(&claims->waiting, struct store_claim, node))) {
        decide(claims, claim, now_wall_us, changes);
        list_remove(&claim->node);
        list_append(&claims->decided, &claim->node);
    }
}

/* --- reporting ------------------------------------------------------------------------------ */

static void report(struct store_claim *claim, const struct error *err)
{
    struct claimed *before = steal_ptr(&claim->private.before);

    if (err->code != ERR_NONE)
        claim->outcome = CLAIM_FAILED;
    claim->err = err;
    claim->current = claim->outcome == CLAIM_LOST && before ? document_of(before) : NULL;
    claim->private.after = NULL; /* the map's */
    free(steal_ptr(&claim->private.change));
    claim->done(claim);
    claimed_free(before);
}

void claims_end(struct claims *claims, const struct error *err)
{
    struct list decided = LIST_INIT(decided);
    struct store_claim *claim;

    list_move_all(&claims->decided, &decided);
    if (err->code != ERR_NONE)
        for (struct list *node = decided.previous; node != &decided; node = node->previous) {
            claim = list_entry(node, struct store_claim, node);
            if (claim->outcome == CLAIM_WON)
                take_back(claims, claim);
        }
    while ((claim = list_first(&decided, struct store_claim, node))) {
        list_remove(&claim->node);
        report(claim, err);
    }
}

void claims_drop(struct claims *claims)
{
    struct store_claim *claim;

    assert(list_is_empty(&claims->decided));
    while ((claim = list_first(&claims->waiting, struct store_claim, node))) {
        list_remove(&claim->node);
        free(steal_ptr(&claim->private.change));
    }
}
