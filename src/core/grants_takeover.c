/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A session comes from a lost node: the amount that it uses leaves the part of that node.
 *
 * The part itself goes later (grants_drop.c), when all sessions have come. Until then it covers the
 * sessions that are still to come, and no longer those that other nodes count already.
 *
 * The first claim is made in the turn that records the session here, so the store has both or
 * neither. If it is lost to a claim of another node, it is repeated; a node that ends in between
 * leaves the amount in both parts until that of the lost node is dropped, never in none.
 */

#include "base/alloc.h"
#include "core/grants_private.h"

#include <stdlib.h>
#include <string.h>

/* Successors: waiting → writing → gone | waiting. */
enum takeover_state {
    TAKEOVER_WAITING,
    TAKEOVER_WRITING, /* by the claim on its way */
};

struct grant_takeover {
    struct list node; /* grant->takeovers */
    enum takeover_state state;
    int64_t amount;
    int64_t life;
    char lost[]; /* the node */
};

static void apply(const struct grant_takeover *takeover, const struct grant_document *document)
{
    struct grant_share *share = grant_document_find(document, takeover->lost);

    if (share && share->life == takeover->life)
        share->granted = MAX(share->granted - takeover->amount, MIN(share->granted, share->spent));
}

static void takeover_free(struct grant_takeover *takeover)
{
    list_remove(&takeover->node);
    free(takeover);
}

void grant_takeovers_apply(struct grant *grant)
{
    const struct grant_takeover *takeover;

    list_for_each (takeover, &grant->takeovers, node)
        apply(takeover, &grant->document);
}

void grant_takeovers_begin(struct grant *grant)
{
    struct grant_takeover *takeover;

    list_for_each (takeover, &grant->takeovers, node)
        takeover->state = TAKEOVER_WRITING;
}

/* Those that have come since are not in the document that was written. */
void grant_takeovers_done(struct grant *grant)
{
    struct grant_takeover *takeover, *following;

    list_for_each_safe (takeover, following, &grant->takeovers, node)
        if (takeover->state == TAKEOVER_WRITING)
            takeover_free(takeover);
    grant_takeovers_apply(grant);
}

void grant_takeovers_retry(struct grant *grant)
{
    struct grant_takeover *takeover;

    list_for_each (takeover, &grant->takeovers, node)
        takeover->state = TAKEOVER_WAITING;
}

void grant_takeovers_free(struct grant *grant)
{
    struct grant_takeover *takeover;

    while ((takeover = list_first(&grant->takeovers, struct grant_takeover, node)))
        takeover_free(takeover);
}

void grant_take_over(struct grants *grants, enum grant_resource resource, const char *owner,
                     const struct grant_share *from)
{
    size_t size = strlen(from->node) + 1;
    struct grant_takeover *takeover;
    struct grant *grant;

    if (!grants || from->granted <= 0)
        return;
    grant = grant_open(grants, resource, owner);
    takeover = xmalloc(sizeof(*takeover) + size);
    takeover->state = TAKEOVER_WAITING;
    takeover->amount = from->granted;
    takeover->life = from->life;
    memcpy(takeover->lost, from->node, size);
    list_append(&grant->takeovers, &takeover->node);
    apply(takeover, &grant->document);
    grant_poke(grant);
}
