/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A node is lost: the others get its parts of the caps.
 *
 * Of its money stays what it had recorded as spent. The nodes that take its sessions over hold the
 * slots of sandboxes that they can reach, and charge the rest of their windows, whether their own parts
 * cover that or not. So the parts of the lost node go when the others have had the time for that. A node
 * that is back by then has taken its parts over: those that a later life of it has written stay.
 */

#include "base/alloc.h"
#include "base/log.h"
#include "base/str.h"
#include "core/grants_private.h"
#include "wire/json.h"

#include <stdlib.h>
#include <string.h>

enum {
    DOCUMENT_MAXIMUM = 1024 * 1024,
    PAGE = 200,
    TRIES = 20,
    PASSES = 60,
    REST_US = 1 * 1000 * 1000,
    TAKING_US = 5 * 1000 * 1000,
    CHARGING_US = 10 * 1000 * 1000,
};

/* Successors: lives → slots → sums → money, each again after a failure. */
enum drop_stage { DROP_LIVES, DROP_SLOTS, DROP_SUMS, DROP_MONEY };

struct drop {
    struct list node;      /* grants->drops */
    struct grants *grants; /* borrowed */
    char *lost;            /* owned: the node */
    enum drop_stage stage;
    struct map spent; /* by owner; struct drop_number */
    struct map lives; /* by id of the document; struct drop_number: who has written the part */
    struct store_query query;
    uint64_t last;      /* the position of the last record of the page */
    unsigned claims;    /* that are not answered yet */
    bool is_asking;     /* the query is not answered yet */
    bool is_incomplete; /* the stage has to be repeated */
    bool is_lost_again; /* the node came back meanwhile: all of it has to be repeated */
    unsigned passes;
    struct timer timer;
    struct list documents; /* struct drop_document */
};

struct drop_number {
    int64_t value;
    char key[];
};

/* A claim that writes a document without the part of the node. */
struct drop_document {
    struct list node;
    struct store_claim claim;
    struct drop *drop; /* borrowed */
    char *id;          /* owned */
    unsigned tries;
};

/* --- memory ---------------------------------------------------------------------------------- */

static void document_free(struct drop_document *document)
{
    list_remove(&document->node);
    free(document->id);
    free(document);
}

static void numbers_fini(struct map *numbers)
{
    struct map_slot *slot;

    map_for_each (slot, numbers)
        free(slot->value);
    map_fini(numbers);
}

static void number_put(struct map *numbers, const char *key, int64_t value)
{
    size_t size = strlen(key) + 1;
    struct drop_number *number = xmalloc(sizeof(*number) + size);

    number->value = value;
    memcpy(number->key, key, size);
    free(map_remove(numbers, key));
    map_put(numbers, number->key, number);
}

static void drop_free(struct drop *drop)
{
    struct drop_document *document;

    while ((document = list_first(&drop->documents, struct drop_document, node)))
        document_free(document);
    numbers_fini(&drop->spent);
    numbers_fini(&drop->lives);
    timer_stop(&drop->timer);
    list_remove(&drop->node);
    free(drop->lost);
    free(drop);
}

void grant_drops_free(struct grants *grants)
{
    struct drop *drop;

    while ((drop = list_first(&grants->drops, struct drop, node)))
        drop_free(drop);
}

static const struct grant_rules *rules_of(const struct drop *drop)
{
    return drop->grants->rules[drop->stage == DROP_SLOTS ? GRANT_SLOTS : GRANT_MONEY];
}

static struct store *store_of(const struct drop *drop)
{
    return drop->grants->core->parts.store;
}

/* --- one document ---------------------------------------------------------------------------- */

/* The money that the node has spent for an owner and for all owners under the same cap. */
static int64_t spent_below(const struct drop *drop, const char *owner)
{
    const struct map_slot *slot;
    int64_t sum = 0;

    map_for_each (slot, &drop->spent) {
        const struct drop_number *spent = slot->value;

        if (rules_of(drop)->covers(owner, spent->key))
            sum += spent->value;
    }
    return sum;
}

/* False when the node has nothing to give up any more. */
static bool take_part_away(const struct drop *drop, const char *id, struct grant_document *written)
{
    struct grant_share *share = grant_document_find(written, drop->lost);
    const struct drop_number *life = map_get(&drop->lives, id);
    int64_t spent;

    if (!share || !life || life->value != share->life)
        return false;
    if (!rules_of(drop)->is_account) {
        grant_document_remove(written, drop->lost);
        return true;
    }
    spent = spent_below(drop, id + strlen(rules_of(drop)->prefix));
    if (share->granted == spent && share->spent == spent && !share->lack)
        return false;
    share->granted = share->spent = spent;
    share->lack = 0;
    return true;
}

static void on_written(struct store_claim *claim);

static bool is_empty(const struct drop *drop, const struct grant_document *written)
{
    return !written->count && written->cap == GRANT_CAP_UNSET && !rules_of(drop)->is_account;
}

/* False when nothing is to be written. */
static bool write_without(struct drop_document *document, const char *text, uint64_t version)
{
    const struct drop *drop = document->drop;
    scoped(buffer_fini) struct buffer json = BUFFER_INIT(DOCUMENT_MAXIMUM);
    struct grant_document written;
    bool has_part;

    if (grant_document_read(&written, text, NULL) < 0)
        return false;
    has_part = take_part_away(drop, document->id, &written);
    if (has_part && is_empty(drop, &written)) {
        store_release(store_of(drop), &document->claim, version, GRANT_KIND, document->id,
                      on_written);
    } else if (has_part) {
        grant_document_write(&written, &json);
        store_claim(
            store_of(drop), &document->claim, version,
            &(struct document_record){ .kind = GRANT_KIND,
                                       .id = document->id,
                                       .owner = document->id + strlen(rules_of(drop)->prefix),
                                       .json = buffer_text(&json) },
            on_written);
    }
    grant_document_fini(&written);
    return has_part;
}

static void go_on(struct drop *drop);

static void document_done(struct drop_document *document)
{
    struct drop *drop = document->drop;

    document_free(document);
    drop->claims--;
    go_on(drop);
}

static void on_written(struct store_claim *claim)
{
    struct drop_document *document = container_of(claim, struct drop_document, claim);

    if (claim->outcome == CLAIM_LOST && claim->current && ++document->tries < TRIES &&
        write_without(document, claim->current->json, claim->current->version))
        return;
    if (claim->outcome == CLAIM_FAILED || document->tries == TRIES)
        document->drop->is_incomplete = true;
    document_done(document);
}

/* --- all documents --------------------------------------------------------------------------- */

static void on_grant(struct store_query *query, const struct document_record *record)
{
    struct drop *drop = container_of(query, struct drop, query);
    struct drop_document *document;

    drop->last = query->position;
    if (!str_starts_with(record->id, rules_of(drop)->prefix) || !record->version)
        return;
    document = xnew(struct drop_document);
    document->drop = drop;
    document->id = xstrdup(record->id);
    list_append(&drop->documents, &document->node);
    drop->claims++;
    if (write_without(document, record->json, record->version))
        return;
    drop->claims--;
    document_free(document);
}

static void on_life(struct store_query *query, const struct document_record *record)
{
    struct drop *drop = container_of(query, struct drop, query);
    struct grant_document document;
    const struct grant_share *share;

    drop->last = query->position;
    if (grant_document_read(&document, record->json, NULL) < 0)
        return;
    share = grant_document_find(&document, drop->lost);
    if (share)
        number_put(&drop->lives, record->id, share->life);
    grant_document_fini(&document);
}

static void on_sum(struct store_query *query, const struct document_record *record)
{
    struct drop *drop = container_of(query, struct drop, query);
    scoped(json_decref) json_t *json = json_read(record->json, strlen(record->json), NULL);

    drop->last = query->position;
    if (str_equal(json_string_value(json_object_get(json, "node")), drop->lost))
        number_put(&drop->spent, record->owner, json_integer_value(json_object_get(json, "spent")));
}

static void ask(struct drop *drop);

static void on_page(struct store_query *query)
{
    struct drop *drop = container_of(query, struct drop, query);

    drop->is_asking = false;
    if (query->err.code != ERR_NONE)
        drop->is_incomplete = true;
    else if (query->is_cut)
        ask(drop);
    go_on(drop);
}

static void ask(struct drop *drop)
{
    static void (*const takers[])(struct store_query *, const struct document_record *) = {
        [DROP_LIVES] = on_life,
        [DROP_SLOTS] = on_grant,
        [DROP_SUMS] = on_sum,
        [DROP_MONEY] = on_grant,
    };

    drop->is_asking = true;
    drop->query = (struct store_query){ .on_document = takers[drop->stage],
                                        .done = on_page,
                                        .kind = drop->stage == DROP_SUMS
                                                    ? rules_of(drop)->spent_kind
                                                    : GRANT_KIND,
                                        .limit = PAGE,
                                        .behind = drop->last };
    store_query(store_of(drop), STORE_DOCUMENTS, &drop->query);
}

static void begin(struct drop *drop)
{
    drop->last = 0;
    drop->is_incomplete = false;
    ask(drop);
}

static void on_timer(struct timer *timer)
{
    struct drop *drop = container_of(timer, struct drop, timer);

    if (drop->stage == DROP_LIVES || list_is_empty(&drop->grants->core->rehomings) ||
        ++drop->passes >= PASSES)
        begin(drop);
    else
        timer_arm_in(timer, REST_US);
}

/* The stage is over when all its answers have come. */
static void go_on(struct drop *drop)
{
    if (drop->is_asking || drop->claims)
        return;
    if (drop->is_incomplete && ++drop->passes < PASSES) {
        timer_arm_in(&drop->timer, REST_US);
    } else if (drop->is_incomplete) {
        log_error("the parts of a lost node could not be given to the others; its owners have less",
                  kv("node", drop->lost));
        drop_free(drop);
    } else if (drop->stage == DROP_LIVES) {
        drop->stage = DROP_SLOTS;
        timer_arm_in(&drop->timer, TAKING_US);
    } else if (drop->stage == DROP_SLOTS) {
        drop->stage = DROP_SUMS;
        timer_arm_in(&drop->timer, CHARGING_US);
    } else if (drop->stage == DROP_SUMS) {
        drop->stage = DROP_MONEY;
        begin(drop);
    } else if (drop->is_lost_again) {
        drop->is_lost_again = false;
        drop->stage = DROP_LIVES;
        begin(drop);
    } else {
        log_info("what owners had on a lost node is free again", kv("node", drop->lost));
        drop_free(drop);
    }
}

void grants_drop_node(struct core *core, const char *node)
{
    struct grants *grants = core->grants;
    struct drop *drop;

    if (!grants || str_equal(node, grants_node(grants)))
        return;
    list_for_each (drop, &grants->drops, node) {
        if (!str_equal(drop->lost, node))
            continue;
        drop->is_lost_again = true;
        return;
    }
    drop = xnew(struct drop);
    drop->grants = grants;
    drop->lost = xstrdup(node);
    list_init(&drop->documents);
    timer_init(&drop->timer, core->loop, on_timer);
    list_append(&grants->drops, &drop->node);
    begin(drop);
}
