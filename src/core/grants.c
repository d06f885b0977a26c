/* SPDX-License-Identifier: Apache-2.0 */
#include "core/grants.h"

#include "base/alloc.h"
#include "base/log.h"
#include "base/str.h"
#include "core/grants_private.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

enum {
    DOCUMENT_MAXIMUM = 1024 * 1024,
    TRIES_AT_ONCE = 8,
    PAUSE_US = 20 * 1000,
    PAUSE_MAXIMUM_US = 2 * 1000 * 1000,
};

static void advance(struct deferred *deferred);
static void answer_readers(struct grant *grant, const struct error *err);

const char *grants_node(const struct grants *grants)
{
    return grants->core->parts.node;
}

static int64_t now_us(const struct grant *grant)
{
    return loop_now_us(grant->grants->core->loop);
}

struct grant *grants_find(const struct grants *grants, const char *id)
{
    return map_get(&grants->by_id, id);
}

void grant_poke(struct grant *grant)
{
    loop_defer(grant->grants->core->loop, &grant->advance, advance);
}

/* --- memory ---------------------------------------------------------------------------------- */

static void on_timer(struct timer *timer)
{
    grant_poke(container_of(timer, struct grant, timer));
}

static const struct grant_rules *rules_of_id(const struct grants *grants, const char *id)
{
    for (size_t i = 0; i < GRANT_RESOURCES; i++)
        if (grants->rules[i] && str_starts_with(id, grants->rules[i]->prefix))
            return grants->rules[i];
    return NULL;
}

static void forget_document(struct grant *grant)
{
    grant_document_fini(&grant->document);
    grant->document.cap = GRANT_CAP_UNSET;
    grant->rules->complete(grant->grants->core, grant->owner, &grant->document);
    grant->version = 0;
}

static struct grant *grant_new(struct grants *grants, const struct grant_rules *rules, char *id)
{
    struct grant *grant = xnew(struct grant);

    grant->grants = grants;
    grant->rules = rules;
    grant->id = id;
    grant->owner = id + strlen(rules->prefix);
    list_init(&grant->wishes);
    list_init(&grant->visits);
    list_init(&grant->takeovers);
    timer_init(&grant->timer, grants->core->loop, on_timer);
    map_put(&grants->by_id, grant->id, grant);
    forget_document(grant);
    return grant;
}

static void grant_free(struct grant *grant)
{
    struct grant_wish *wish;
    struct grant_visit *visit;

    while ((wish = list_first(&grant->wishes, struct grant_wish, node)))
        grant_wish_end(wish);
    while ((visit = list_first(&grant->visits, struct grant_visit, node)))
        grant_visit_end(visit);
    grant_takeovers_free(grant);
    timer_stop(&grant->timer);
    loop_undefer(grant->grants->core->loop, &grant->advance);
    map_remove(&grant->grants->by_id, grant->id);
    grant_document_fini(&grant->document);
    grant_document_fini(&grant->written);
    free(grant->id);
    free(grant);
}

struct grant *grant_open(struct grants *grants, enum grant_resource resource, const char *owner)
{
    char *id = xasprintf("%s%s", grants->rules[resource]->prefix, owner);
    struct grant *grant = grants_find(grants, id);

    if (!grant)
        return grant_new(grants, grants->rules[resource], id);
    free(id);
    return grant;
}

static struct grant *find_of(const struct grants *grants, enum grant_resource resource,
                             const char *owner)
{
    scoped(free) char *id = xasprintf("%s%s", grants->rules[resource]->prefix, owner);

    return grants_find(grants, id);
}

/* --- sums ------------------------------------------------------------------------------------ */

static struct grant_use use_of(const struct grant *grant)
{
    return grant->rules->use(grant->grants->core, grant->owner);
}

static int64_t cap_of(const struct grant *grant)
{
    int64_t cap = grant->rules->cap(grant->grants->core, grant->owner, grant->document.cap);

    return cap ? cap : INT64_MAX;
}

static const struct grant_share *own_share(const struct grant *grant)
{
    static const struct grant_share none = { 0 };
    const struct grant_share *share =
        grant_document_find(&grant->document, grants_node(grant->grants));

    return share ? share : &none;
}

static int64_t room_of(const struct grant *grant)
{
    int64_t room = grant->granted - use_of(grant).used;

    return grant->is_suspect ? MIN(room, (int64_t)0) : room;
}

static int64_t wished(const struct grant *grant)
{
    const struct grant_wish *wish;
    int64_t sum = 0;

    list_for_each (wish, &grant->wishes, node)
        sum += wish->amount;
    return sum;
}

/* --- reading --------------------------------------------------------------------------------- */

/* A document that cannot be read grants nothing more. */
static void take_document(struct grant *grant, const char *text, uint64_t version)
{
    struct grant_document document;
    struct error err = { 0 };

    if (grant_document_read(&document, text, &err) < 0) {
        log_error("what an owner may have is not known; granting no more", kv("id", grant->id),
                  kv("error", err.message));
        grant->err = err;
        grant->granted = 0;
        grant->state = GRANT_PAUSING;
        grant->retry_us = now_us(grant) + PAUSE_MAXIMUM_US;
        return;
    }
    if (version != grant->version)
        grant->denied_us = 0;
    grant_document_fini(&grant->document);
    grant->document = document;
    grant->version = version;
    grant_takeovers_apply(grant);
    grant->granted = own_share(grant)->granted;
}

static void take_nothing(struct grant *grant)
{
    grant_takeovers_free(grant);
    forget_document(grant);
    grant->granted = 0;
    grant->denied_us = 0;
}

static void on_document(struct store_query *query, const struct document_record *record)
{
    struct grant *grant = container_of(query, struct grant, query);

    if (!record->version)
        return;
    grant->is_found = true;
    take_document(grant, record->json, record->version);
}

/* No claim is made while a query is on its way. */
static void on_read(struct store_query *query)
{
    struct grant *grant = container_of(query, struct grant, query);

    assert(grant->state != GRANT_CLAIMING);
    grant->is_asking = false;
    if (query->err.code == ERR_NONE && !grant->is_found)
        take_nothing(grant);
    answer_readers(grant, &query->err);
    grant_poke(grant);
}

static void read_again(struct grant *grant)
{
    grant->has_changed = false;
    grant->is_found = false;
    grant->is_asking = true;
    grant->query = (struct store_query){
        .on_document = on_document, .done = on_read, .kind = GRANT_KIND, .id = grant->id
    };
    store_query(grant->grants->core->parts.store, STORE_DOCUMENTS, &grant->query);
}

static void on_change(struct store_watch *watch, const char *id)
{
    struct grants *grants = container_of(watch, struct grants, watch);
    struct grant *grant = id ? grants_find(grants, id) : NULL;
    struct map_slot *slot;

    if (grant && grant->expects_echo) {
        grant->expects_echo = false; /* of the claim of this node itself */
    } else if (grant) {
        grant->has_changed = true;
        grant_poke(grant);
    }
    if (id)
        return;
    map_for_each (slot, &grants->by_id) {
        grant = slot->value;
        grant->expects_echo = false;
        grant->has_changed = true;
        grant_poke(grant);
    }
}

/* --- claiming -------------------------------------------------------------------------------- */

static void take_back_off(struct grant *grant)
{
    unsigned times = MIN(grant->tries, 7U);

    grant->state = GRANT_PAUSING;
    grant->retry_us = now_us(grant) + MIN((int64_t)PAUSE_US << times, (int64_t)PAUSE_MAXIMUM_US);
}

static void take_won(struct grant *grant)
{
    int64_t warning = grant->document.warning;

    grant_document_fini(&grant->document);
    grant->document = grant->written;
    grant->written = (struct grant_document){ 0 };
    grant_takeovers_done(grant);
    if (grant->document.warning != warning)
        grant->rules->warn(grant->grants->core, grant->owner, warning, &grant->document);
    grant->version = grant->claim.version;
    grant->granted = own_share(grant)->granted;
    grant->is_suspect = false;
    grant->tries = 0;
}

static void take_lost(struct grant *grant, const struct document_record *current)
{
    if (current)
        take_document(grant, current->json, current->version);
    else
        take_nothing(grant);
    if (++grant->tries >= TRIES_AT_ONCE && grant->state == GRANT_KNOWN)
        take_back_off(grant);
}

/* The claim failed: this node's part has not changed. */
static void take_failed(struct grant *grant, const struct error *err)
{
    grant->granted = own_share(grant)->granted;
    grant->err = *err;
    grant->tries++;
    take_back_off(grant);
}

static void answer_some_visits(struct grant *grant, int64_t cap, const struct error *err);

static void on_claimed(struct store_claim *claim)
{
    struct grant *grant = container_of(claim, struct grant, claim);

    assert(grant->state == GRANT_CLAIMING);
    grant->state = GRANT_KNOWN;
    if (claim->outcome != CLAIM_FAILED)
        grant->err = (struct error){ 0 };
    if (claim->outcome != CLAIM_WON) {
        grant->expects_echo = false;
        grant_takeovers_retry(grant);
    }
    if (claim->outcome == CLAIM_WON) {
        take_won(grant);
        answer_some_visits(grant, grant->document.cap, &(struct error){ 0 });
    } else if (claim->outcome == CLAIM_LOST) {
        take_lost(grant, claim->current);
    } else {
        take_failed(grant, claim->err);
    }
    grant_document_fini(&grant->written);
    grant_poke(grant);
}

static bool is_worth_keeping(const struct grant *grant, const struct grant_document *document)
{
    return document->count || document->cap != GRANT_CAP_UNSET || document->base ||
           grant->rules->is_account;
}

/* Writes `grant->written`. An amount that is given back is not used from now on. */
static void claim(struct grant *grant)
{
    const struct grant_share *share =
        grant_document_find(&grant->written, grants_node(grant->grants));
    struct store *store = grant->grants->core->parts.store;
    scoped(buffer_fini) struct buffer text = BUFFER_INIT(DOCUMENT_MAXIMUM);

    grant->granted = MIN(grant->granted, share ? share->granted : 0);
    grant->state = GRANT_CLAIMING;
    grant->claimed_us = now_us(grant);
    grant->expects_echo = true;
    grant_takeovers_begin(grant);
    if (!is_worth_keeping(grant, &grant->written)) {
        store_release(store, &grant->claim, grant->version, GRANT_KIND, grant->id, on_claimed);
        return;
    }
    grant_document_write(&grant->written, &text);
    store_claim(store, &grant->claim, grant->version,
                &(struct document_record){ .kind = GRANT_KIND,
                                           .id = grant->id,
                                           .owner = grant->owner,
                                           .json = buffer_text(&text) },
                on_claimed);
}

/* --- planning -------------------------------------------------------------------------------- */

struct plan {
    int64_t granted, lack, spent;
};

static bool others_lack(const struct grant *grant)
{
    return grant_document_lack_of_others(&grant->document, grants_node(grant->grants)) > 0;
}

/* The part of the cap that other nodes do not have; the part of this node is included. */
static int64_t free_for_us(const struct grant *grant)
{
    int64_t others = grant_document_others(&grant->document, grants_node(grant->grants));

    return cap_of(grant) - others;
}

static struct plan plan_more(const struct grant *grant, const struct grant_use *use, int64_t needed)
{
    int64_t free = free_for_us(grant);
    int64_t ahead = 0;
    struct plan plan = { .spent = use->spent };

    if (free > needed && !others_lack(grant))
        ahead = MIN(grant->rules->ahead(wished(grant), free - needed), free - needed);
    plan.granted = MAX(MIN(needed + ahead, free), use->used);
    plan.lack = MAX(needed - plan.granted, (int64_t)0);
    return plan;
}

static struct plan plan_less(struct grant *grant, const struct grant_use *use, int64_t needed)
{
    const struct grant_share *own = own_share(grant);
    struct plan plan = { .granted = own->granted, .spent = use->spent };

    if (own->granted == needed) {
        grant->keep_until_us = 0;
        return plan;
    }
    if (!grant->keep_until_us)
        grant->keep_until_us = now_us(grant) + GRANT_KEEP_US;
    if (others_lack(grant) || free_for_us(grant) < own->granted ||
        grant->keep_until_us <= now_us(grant) || grant->grants->core->stopping)
        plan.granted = needed;
    return plan;
}

static struct plan plan_of(struct grant *grant)
{
    struct grant_use use = use_of(grant);
    int64_t needed = use.used + wished(grant);

    if (needed <= own_share(grant)->granted)
        return plan_less(grant, &use, needed);
    grant->keep_until_us = 0;
    return plan_more(grant, &use, needed);
}

/* A visit that sets the cap goes first. */
static const struct grant_visit *first_setter(const struct grant *grant)
{
    const struct grant_visit *visit;

    list_for_each (visit, &grant->visits, node)
        if (visit->cap != GRANT_CAP_KEEP)
            return visit;
    return NULL;
}

static void write_plan(struct grant *grant)
{
    const char *node = grants_node(grant->grants);
    const struct grant_visit *setter = first_setter(grant);
    struct plan plan = plan_of(grant);
    struct grant_share *share;

    grant_document_fini(&grant->written);
    grant_document_copy(&grant->written, &grant->document);
    if (setter)
        grant->written.cap = setter->cap;
    if (plan.granted || plan.lack || plan.spent) {
        share = grant_document_open(&grant->written, node);
        share->granted = plan.granted;
        share->lack = plan.lack;
        share->spent = plan.spent;
        share->life = grant->grants->life;
    } else {
        grant_document_remove(&grant->written, node);
    }
    grant->rules->complete(grant->grants->core, grant->owner, &grant->written);
}

/* Whether the document has this node's share. A difference in `spent` alone is not written until
 * all of the grant is spent. The share of an earlier daemon of this node is always replaced. */
static bool is_told(const struct grant_share *known, const struct grant_share *share)
{
    return known->granted == share->granted && known->lack == share->lack &&
           known->life == share->life &&
           (known->spent == share->spent || share->spent < share->granted);
}

/* Whether the document says what it should: otherwise `grant->written` is what it should say. */
static bool is_settled(struct grant *grant)
{
    static const struct grant_share none = { 0 };
    const struct grant_share *share;

    write_plan(grant);
    share = grant_document_find(&grant->written, grants_node(grant->grants));
    return is_told(own_share(grant), share ? share : &none) && !first_setter(grant) &&
           !grant->is_suspect && grant->written.warning == grant->document.warning &&
           list_is_empty(&grant->takeovers);
}

/* --- answers --------------------------------------------------------------------------------- */

static void answer(struct grant_wish *wish, const struct error *err)
{
    list_remove(&wish->node);
    wish->grant = NULL;
    wish->err = *err;
    wish->answered(wish);
}

/* Whether a wish was answered: it uses the room before this turn is over. */
static bool answer_fitting(struct grant *grant)
{
    struct grant_wish *wish = list_first(&grant->wishes, struct grant_wish, node);
    int64_t room = room_of(grant);

    if (!wish || wish->amount > room || room <= 0)
        return false;
    answer(wish, &(struct error){ 0 });
    return true;
}

static bool is_unconfirmed(const struct grant *grant)
{
    return grant->state == GRANT_CLAIMING || grant->err.code != ERR_NONE || grant->is_suspect ||
           (grant->state == GRANT_PAUSING && grant->tries);
}

static void describe_unconfirmed(const struct grant *grant, struct error *err)
{
    const char *why = grant->err.code != ERR_NONE ? grant->err.message
                                                  : "the store does not answer";

    error_named(err, ERR_UNAVAILABLE, "cap_unconfirmed",
                "what \"%.100s\" has on other nodes cannot be confirmed: %.200s", grant->owner,
                why);
    error_hint(err, "try again in a few seconds");
    err->retryable = true;
}

static void describe_denial(struct grant *grant, struct error *err)
{
    if (is_unconfirmed(grant)) {
        describe_unconfirmed(grant, err);
        return;
    }
    error_named(err, ERR_LIMIT, "owner_cap", "\"%.100s\" has all that it may have, over all nodes",
                grant->owner);
    err->retryable = true;
    grant->denied_us = now_us(grant);
}

/* No other node can give anything back, or none has just now. */
static bool is_hopeless(const struct grant *grant)
{
    const struct grant_wish *wish = list_first(&grant->wishes, struct grant_wish, node);
    int64_t others = grant_document_others(&grant->document, grants_node(grant->grants));

    if (!wish || is_unconfirmed(grant) || !own_share(grant)->lack || grant->has_changed)
        return false;
    return others == grant->document.base ||
           (grant->denied_us && now_us(grant) - grant->denied_us < GRANT_PATIENCE_US &&
            wish->deadline_us - now_us(grant) <= GRANT_PATIENCE_US);
}

/* A claim that was just made is waited for, whose ever wish it is about. */
static bool is_about_to_know(const struct grant *grant)
{
    return grant->state == GRANT_CLAIMING &&
           now_us(grant) - grant->claimed_us < GRANT_PATIENCE_US / 2;
}

/* Whether a wish was denied. */
static bool deny_one(struct grant *grant)
{
    struct grant_wish *wish;
    struct error err = { 0 };
    bool hopeless = is_hopeless(grant);

    if (is_about_to_know(grant))
        return false;
    list_for_each (wish, &grant->wishes, node) {
        if (!hopeless && wish->deadline_us > now_us(grant))
            continue;
        describe_denial(grant, &err);
        answer(wish, &err);
        return true;
    }
    return false;
}

static void end_visit(struct grant_visit *visit, const struct error *err)
{
    list_remove(&visit->node);
    visit->grant = NULL;
    visit->err = *err;
    visit->done(visit);
}

static void answer_some_visits(struct grant *grant, int64_t cap, const struct error *err)
{
    struct list visits = LIST_INIT(visits);
    struct grant_visit *visit, *following;

    list_for_each_safe (visit, following, &grant->visits, node) {
        if (visit->cap != cap)
            continue;
        list_remove(&visit->node);
        list_append(&visits, &visit->node);
    }
    while ((visit = list_first(&visits, struct grant_visit, node)))
        end_visit(visit, err);
}

static void answer_readers(struct grant *grant, const struct error *err)
{
    answer_some_visits(grant, GRANT_CAP_KEEP, err);
}

static bool fail_late_visit(struct grant *grant)
{
    struct grant_visit *visit;
    struct error err = { 0 };

    list_for_each (visit, &grant->visits, node) {
        if (visit->deadline_us > now_us(grant))
            continue;
        describe_unconfirmed(grant, &err);
        end_visit(visit, &err);
        return true;
    }
    return false;
}

/* --- what is next ---------------------------------------------------------------------------- */

/* Of the nodes that could, the one that has most: the lack of one is not answered by all. */
static bool is_asked_to_yield(const struct grant *grant)
{
    const struct grant_share *own = own_share(grant);

    if (!own->granted || own->lack || !others_lack(grant) ||
        grant->yielded_version == grant->version)
        return false;
    for (size_t i = 0; i < grant->document.count; i++) {
        const struct grant_share *share = &grant->document.shares[i];

        if (share->lack || share == own)
            continue;
        if (share->granted > own->granted ||
            (share->granted == own->granted && strcmp(share->node, own->node) < 0))
            return false;
    }
    return true;
}

static void yield_one(struct grant *grant)
{
    if (!is_asked_to_yield(grant) || room_of(grant) > 0)
        return;
    grant->yielded_version = grant->version;
    grant->rules->yield(grant->grants->core, grant->owner);
}

static bool is_unneeded(const struct grant *grant)
{
    return grant->state == GRANT_KNOWN && !grant->is_asking && list_is_empty(&grant->wishes) &&
           list_is_empty(&grant->visits) && list_is_empty(&grant->takeovers) && !grant->granted &&
           !grant->is_suspect && !own_share(grant)->lack && !use_of(grant).used;
}

static void arm(struct grant *grant)
{
    int64_t next_us = INT64_MAX;
    const struct grant_wish *wish;
    const struct grant_visit *visit;

    list_for_each (wish, &grant->wishes, node)
        next_us = MIN(next_us, wish->deadline_us);
    if (is_about_to_know(grant))
        next_us = MAX(next_us, grant->claimed_us + GRANT_PATIENCE_US / 2);
    list_for_each (visit, &grant->visits, node)
        next_us = MIN(next_us, visit->deadline_us);
    if (grant->state == GRANT_PAUSING)
        next_us = MIN(next_us, grant->retry_us);
    if (grant->keep_until_us > now_us(grant))
        next_us = MIN(next_us, grant->keep_until_us);
    if (next_us == INT64_MAX)
        timer_stop(&grant->timer);
    else
        timer_arm_at(&grant->timer, next_us);
}

static bool has_to_read(const struct grant *grant)
{
    const struct grant_visit *visit;

    if (grant->is_asking || grant->state != GRANT_KNOWN)
        return false;
    list_for_each (visit, &grant->visits, node)
        if (visit->cap == GRANT_CAP_KEEP)
            return true;
    return grant->has_changed;
}

static void advance(struct deferred *deferred)
{
    struct grant *grant = container_of(deferred, struct grant, advance);

    if (grant->state == GRANT_PAUSING && grant->retry_us <= now_us(grant))
        grant->state = GRANT_KNOWN;
    if (answer_fitting(grant) || fail_late_visit(grant)) {
        grant_poke(grant); /* behind what the answer has caused */
        return;
    }
    if (grant->state == GRANT_KNOWN && !grant->is_asking && grant->grants->is_started &&
        !is_settled(grant)) {
        claim(grant);
    } else if (deny_one(grant)) {
        grant_poke(grant);
        return;
    } else if (has_to_read(grant)) {
        read_again(grant);
    } else if (grant->state == GRANT_KNOWN) {
        yield_one(grant);
    }
    if (is_unneeded(grant))
        grant_free(grant);
    else
        arm(grant);
}

/* --- using ----------------------------------------------------------------------------------- */

int64_t grant_room(struct grants *grants, enum grant_resource resource, const char *owner)
{
    const struct grant *grant;

    if (!grants)
        return INT64_MAX;
    grant = find_of(grants, resource, owner);
    return grant ? room_of(grant) : -grants->rules[resource]->use(grants->core, owner).used;
}

int64_t grant_hope(struct grants *grants, enum grant_resource resource, const char *owner)
{
    struct grant *grant;

    if (!grants)
        return INT64_MAX;
    grant = grant_open(grants, resource, owner);
    grant_poke(grant); /* one that is not needed goes */
    if (cap_of(grant) == INT64_MAX)
        return INT64_MAX;
    return MAX(free_for_us(grant) - use_of(grant).used, room_of(grant));
}

void grant_note_use(struct grants *grants, enum grant_resource resource, const char *owner)
{
    if (grants)
        grant_poke(grant_open(grants, resource, owner));
}

const struct grant_document *grant_look(struct grants *grants, enum grant_resource resource,
                                        const char *owner)
{
    const struct grant *grant = grants ? find_of(grants, resource, owner) : NULL;

    return grant ? &grant->document : NULL;
}

void grant_wish_begin(struct grant_wish *wish, struct grants *grants, enum grant_resource resource,
                      const char *owner, int64_t amount, int64_t patience_us,
                      grant_wish_fn *answered)
{
    struct grant *grant = grant_open(grants, resource, owner);

    assert(!wish->grant && amount > 0);
    *wish = (struct grant_wish){ .grant = grant,
                                 .amount = amount,
                                 .deadline_us = now_us(grant) + patience_us,
                                 .answered = answered };
    list_append(&grant->wishes, &wish->node);
    grant_poke(grant);
}

void grant_wish_end(struct grant_wish *wish)
{
    if (!wish->grant)
        return;
    list_remove(&wish->node);
    grant_poke(wish->grant);
    wish->grant = NULL;
}

void grant_visit_begin(struct grant_visit *visit, struct grants *grants,
                       enum grant_resource resource, const char *owner, int64_t cap,
                       grant_visit_fn *done)
{
    struct grant *grant = grant_open(grants, resource, owner);

    *visit = (struct grant_visit){ .grant = grant,
                                   .cap = cap,
                                   .deadline_us = now_us(grant) + 5 * GRANT_PATIENCE_US,
                                   .done = done };
    list_append(&grant->visits, &visit->node);
    grant_poke(grant);
}

void grant_visit_end(struct grant_visit *visit)
{
    if (!visit->grant)
        return;
    list_remove(&visit->node);
    grant_poke(visit->grant);
    visit->grant = NULL;
}

/* --- all of them ----------------------------------------------------------------------------- */

struct grants *grants_new(struct core *core)
{
    struct grants *grants;

    if (!core_is_clustered(core))
        return NULL;
    grants = xnew(struct grants);
    grants->core = core;
    grants->life = (int64_t)(++core->parts.store->version & INT64_MAX); /* no other has it */
    list_init(&grants->drops);
    store_watch_start(core->parts.store, &grants->watch, GRANT_KIND, NULL, on_change);
    return grants;
}

int64_t grants_life(const struct grants *grants)
{
    return grants ? grants->life : 0;
}

void grants_free(struct grants *grants)
{
    size_t position;
    const struct map_slot *slot;

    if (!grants)
        return;
    store_watch_stop(&grants->watch);
    grant_drops_free(grants);
    while (position = 0, (slot = map_next(&grants->by_id, &position)))
        grant_free(slot->value);
    map_fini(&grants->by_id);
    free(grants);
}

void grants_set_rules(struct grants *grants, enum grant_resource resource,
                      const struct grant_rules *rules)
{
    if (grants)
        grants->rules[resource] = rules;
}

/* Also one that an earlier daemon of this node has only lacked something in. */
void grants_restore(struct grants *grants, const struct document_record *record)
{
    const struct grant_rules *rules = grants ? rules_of_id(grants, record->id) : NULL;
    struct grant *grant;

    if (!rules || !record->version)
        return;
    grant = grants_find(grants, record->id);
    if (!grant)
        grant = grant_new(grants, rules, xstrdup(record->id));
    if (grant->state == GRANT_KNOWN)
        take_document(grant, record->json, record->version);
    grant->keep_until_us = 1; /* what is not in use is given back at once */
    grant_poke(grant);
}

static void poke_all(struct grants *grants)
{
    struct map_slot *slot;

    map_for_each (slot, &grants->by_id)
        grant_poke(slot->value);
}

void grants_start(struct grants *grants)
{
    if (!grants)
        return;
    grants->is_started = true;
    poke_all(grants);
}

void grants_suspect(struct grants *grants)
{
    struct map_slot *slot;

    if (!grants)
        return;
    map_for_each (slot, &grants->by_id)
        ((struct grant *)slot->value)->is_suspect = true;
    poke_all(grants);
}
