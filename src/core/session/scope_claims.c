/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Scopes where several nodes share the store: who holds the lease on an owner is a claimed
 * document.
 *
 *     held     by a connection to this node
 *     grace    its node was lost or replaced: a client can take the lease again, on any node;
 *              otherwise the node in the document ends it
 *     over     each node ends the sessions of the owner that it is home to
 *
 * Nodes hear of an end by a watch. A node that missed it finds out by looking at the scopes of its
 * sessions now and then.
 */

#include "base/alloc.h"
#include "base/log.h"
#include "base/str.h"
#include "core/session/scopes_private.h"
#include "core/session/session_private.h"
#include "wire/json.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    TRIES = 8,
    RETRY_US = 1 * 1000 * 1000,
    LOOK_US = 30 * 1000 * 1000,
};

#define OVER_US (3600 * 1000000LL)

/* The state of this node's claim on the document of an owner. Successors: taking → held | ending,
 * held → ending, gracing → grace → ending; each of them ends the claim when another has it. */
enum claim_state { TAKING, HELD, GRACING, GRACE, ENDING };

struct scope_claim {
    struct list node;
    struct scope_claims *claims; /* borrowed */
    enum claim_state state;
    char *owner;               /* owned */
    struct scope_lease *lease; /* borrowed; NULL: it is gone */
    uint64_t version;          /* of the document */
    unsigned tries;
    bool is_asking; /* the claim is not answered yet */
    bool has_ended; /* that claim says so */
    struct store_claim claim;
    struct timer timer;
};

/* A look at one document, or at all of them. */
struct look {
    struct list node;
    struct scope_claims *claims; /* borrowed */
    struct store_query query;
    char *owner;    /* owned; NULL: all */
    char *of_node;  /* owned: claims of this node are taken over; NULL: none */
    bool is_found;  /* with an owner: its scope is not over */
    bool is_upkeep; /* with an owner: its sessions end when it has none */
};

struct scope_claims {
    struct scopes *scopes; /* borrowed */
    struct list all;       /* struct scope_claim */
    struct list looks;     /* struct look */
    struct map missing;    /* owner to owner, owned: had no scope at the last look */
    struct store_watch watch;
    struct timer upkeep;
};

/* --- documents ------------------------------------------------------------------------------- */

struct scope_document {
    char node[128];
    char state[16];
    int64_t released_wall_us;
};

static bool read_document(const char *text, struct scope_document *out)
{
    scoped(json_decref) json_t *json = json_read(text, strlen(text), NULL);
    const char *node = json_string_value(json_object_get(json, "node"));
    const char *state = json_string_value(json_object_get(json, "state"));

    if (!node || !state)
        return false;
    snprintf(out->node, sizeof(out->node), "%s", node);
    snprintf(out->state, sizeof(out->state), "%s", state);
    out->released_wall_us = json_integer_value(json_object_get(json, "released_wall_us"));
    return true;
}

bool scope_document_is_live(const char *text)
{
    struct scope_document document;

    return read_document(text, &document) && !str_equal(document.state, "over");
}

static const char *node_of(const struct scope_claims *claims)
{
    return claims->scopes->core->parts.node;
}

/* --- one claim ------------------------------------------------------------------------------- */

static void claim_free(struct scope_claim *claim)
{
    list_remove(&claim->node);
    timer_stop(&claim->timer);
    if (claim->lease)
        claim->lease->claim = NULL;
    free(claim->owner);
    free(claim);
}

static void on_claimed(struct store_claim *done);

/* An end is remembered for an hour, for nodes that were away. */
static void write_claim(struct scope_claim *claim, uint64_t expected)
{
    static const char *const states[] = { "held", "held", "grace", "grace", "over" };
    struct core *core = claim->claims->scopes->core;
    int64_t now_wall_us = clock_wall_us(loop_clock(core->loop));
    bool is_over = claim->state == ENDING;
    scoped(buffer_fini) struct buffer text = BUFFER_INIT(4096);
    struct json_writer json = JSON_WRITER(&text);

    json_begin_object(&json, NULL);
    json_put_text(&json, "node", core->parts.node);
    json_put_text(&json, "state", states[claim->state]);
    if (is_over)
        json_put_int(&json, "released_wall_us", now_wall_us);
    json_end_object(&json);
    claim->is_asking = true;
    claim->has_ended = is_over;
    store_claim(core->parts.store, &claim->claim, expected,
                &(struct document_record){ .kind = SCOPE_KIND,
                                           .id = claim->owner,
                                           .owner = claim->owner,
                                           .json = buffer_text(&text),
                                           .expires_wall_us = is_over ? now_wall_us + OVER_US : 0 },
                on_claimed);
    claim->version = claim->claim.version;
}

static void answer(struct scope_claim *claim, const struct error *err)
{
    struct scope_lease *lease = claim->lease;

    if (lease && lease->taken)
        lease->taken(lease, err);
}

static void refuse_taken(struct scope_claim *claim)
{
    struct error err = { 0 };

    scope_taken_error(claim->owner, &err);
    answer(claim, &err);
    claim_free(claim);
}

static void won(struct scope_claim *claim)
{
    claim->tries = 0;
    switch (claim->state) {
    case TAKING:
        claim->state = HELD;
        if (claim->lease) {
            log_info("scope opened", kv("owner", claim->owner));
            answer(claim, NULL);
        } else {
            claim->state = ENDING;
            write_claim(claim, claim->version);
        }
        break;
    case HELD:
        break;
    case GRACING:
        claim->state = GRACE;
        timer_arm_in(&claim->timer, SCOPE_GRACE_US);
        break;
    case GRACE:
        break;
    case ENDING:
        if (claim->has_ended)
            claim_free(claim);
        else
            write_claim(claim, claim->version);
        break;
    }
}

/* A later connection to this node has taken the lease again. */
static bool is_replaced(const struct scope_claim *claim)
{
    const struct scope_claim *other;

    list_for_each (other, &claim->claims->all, node)
        if (other != claim && str_equal(other->owner, claim->owner))
            return true;
    return false;
}

/* Whether this claim may replace what is there. */
static bool may_replace(const struct scope_claim *claim, const struct document_record *current)
{
    struct scope_document document;

    if (claim->state != TAKING && is_replaced(claim))
        return false;
    if (!current || !read_document(current->json, &document))
        return true;
    if (str_equal(document.state, "over"))
        return claim->state == TAKING;
    return str_equal(document.node, node_of(claim->claims)) ||
           (claim->state == TAKING && str_equal(document.state, "grace"));
}

static void lost(struct scope_claim *claim, const struct document_record *current)
{
    if (may_replace(claim, current) && ++claim->tries < TRIES) {
        write_claim(claim, current ? current->version : 0);
        return;
    }
    if (claim->state == TAKING) {
        refuse_taken(claim);
        return;
    }
    if (claim->state == HELD)
        log_warn("the lease on an owner belongs to another node now", kv("owner", claim->owner));
    claim_free(claim);
}

static void on_timer(struct timer *timer)
{
    struct scope_claim *claim = container_of(timer, struct scope_claim, timer);

    if (claim->is_asking)
        return;
    if (claim->state == GRACE)
        claim->state = ENDING;
    write_claim(claim, claim->version);
}

static void failed(struct scope_claim *claim, const struct error *err, uint64_t before)
{
    struct error unconfirmed = *err;

    if (claim->state != TAKING) {
        claim->version = before;
        timer_arm_in(&claim->timer, RETRY_US);
        return;
    }
    error_wrap(&unconfirmed, "the scope could not be recorded");
    unconfirmed.retryable = true;
    answer(claim, &unconfirmed);
    claim_free(claim);
}

static void on_claimed(struct store_claim *done)
{
    struct scope_claim *claim = container_of(done, struct scope_claim, claim);

    claim->is_asking = false;
    switch (done->outcome) {
    case CLAIM_WON:
        won(claim);
        break;
    case CLAIM_LOST:
        lost(claim, done->current);
        break;
    case CLAIM_FAILED:
        failed(claim, done->err, done->private.expected);
        break;
    case CLAIM_PENDING:
        break;
    }
}

static struct scope_claim *claim_new(struct scope_claims *claims, const char *owner,
                                     enum claim_state state)
{
    struct scope_claim *claim = xnew(struct scope_claim);

    claim->claims = claims;
    claim->owner = xstrdup(owner);
    claim->state = state;
    timer_init(&claim->timer, claims->scopes->core->loop, on_timer);
    list_append(&claims->all, &claim->node);
    return claim;
}

void scope_claim_take(struct scope_claims *claims, struct scope_lease *lease)
{
    struct scope_claim *claim = claim_new(claims, lease->owner, TAKING);

    claim->lease = lease;
    lease->claim = claim;
    write_claim(claim, 0);
}

bool scope_claim_is_held(const struct scope_lease *lease)
{
    return lease->claim && lease->claim->state == HELD;
}

/* A claim without an answer ends when it is won. Claims of a daemon that stops are left to the next
 * daemon. */
bool scope_claim_end(struct scope_lease *lease)
{
    struct scope_claim *claim = lease->claim;

    if (!claim)
        return false;
    claim->lease = NULL;
    lease->claim = NULL;
    if (claim->state != HELD || claim->claims->scopes->core->stopping)
        return claim->state == HELD;
    claim->state = ENDING;
    if (!claim->is_asking)
        write_claim(claim, claim->version);
    return true;
}

static struct scope_claim *find_claim(const struct scope_claims *claims, const char *owner)
{
    struct scope_claim *claim;

    list_for_each (claim, &claims->all, node)
        if (str_equal(claim->owner, owner))
            return claim;
    return NULL;
}

/* --- looking --------------------------------------------------------------------------------- */

static void look_free(struct look *look)
{
    list_remove(&look->node);
    free(look->owner);
    free(look->of_node);
    free(look);
}

/* A lease of a node that is gone: the grace begins, for all nodes to see. */
static void begin_grace(struct scope_claims *claims, const struct document_record *record)
{
    struct scope_claim *claim;

    if (find_claim(claims, record->id))
        return;
    claim = claim_new(claims, record->id, GRACING);
    write_claim(claim, record->version);
}

static void on_document(struct store_query *query, const struct document_record *record)
{
    struct look *look = container_of(query, struct look, query);
    struct core *core = look->claims->scopes->core;
    struct scope_document document;

    if (!read_document(record->json, &document) || !record->version)
        return;
    if (str_equal(document.state, "over")) {
        scopes_end_sessions(core, record->id,
                            owner_is_minted(record->id) ? INT64_MAX : document.released_wall_us);
        return;
    }
    look->is_found = true;
    if (look->of_node && str_equal(document.node, look->of_node))
        begin_grace(look->claims, record);
}

/* An owner that was minted and has no scope at two looks in a row: what it has, ends. */
static void note_missing(struct look *look)
{
    struct scope_claims *claims = look->claims;
    scoped(free) char *known = map_remove(&claims->missing, look->owner);
    char *owner;

    if (look->is_found)
        return;
    if (known) {
        scopes_end_sessions(claims->scopes->core, look->owner, INT64_MAX);
        return;
    }
    owner = xstrdup(look->owner);
    map_put(&claims->missing, owner, owner);
}

static void on_looked(struct store_query *query)
{
    struct look *look = container_of(query, struct look, query);

    if (query->err.code == ERR_NONE && look->is_upkeep)
        note_missing(look);
    else if (query->err.code != ERR_NONE && look->of_node)
        log_error("the scopes of a node could not be read", kv("node", look->of_node),
                  kv("error", query->err.message));
    look_free(look);
}

static struct look *look_at(struct scope_claims *claims, const char *owner, const char *of_node)
{
    struct look *look = xnew(struct look);

    look->claims = claims;
    look->owner = owner ? xstrdup(owner) : NULL;
    look->of_node = of_node ? xstrdup(of_node) : NULL;
    look->query = (struct store_query){
        .on_document = on_document, .done = on_looked, .kind = SCOPE_KIND, .id = look->owner
    };
    list_append(&claims->looks, &look->node);
    store_query(claims->scopes->core->parts.store, STORE_DOCUMENTS, &look->query);
    return look;
}

static bool has_sessions(const struct core *core, const char *owner)
{
    const struct session *session;

    list_for_each (session, &core->sessions, node)
        if (str_equal(session->identity.owner, owner))
            return true;
    return false;
}

static void on_change(struct store_watch *watch, const char *id)
{
    struct scope_claims *claims = container_of(watch, struct scope_claims, watch);

    if (!id || has_sessions(claims->scopes->core, id))
        look_at(claims, id, NULL);
}

static bool is_looked_at(const struct scope_claims *claims, const char *owner)
{
    const struct look *look;

    list_for_each (look, &claims->looks, node)
        if (look->is_upkeep && str_equal(look->owner, owner))
            return true;
    return false;
}

static void on_upkeep(struct timer *timer)
{
    struct scope_claims *claims = container_of(timer, struct scope_claims, upkeep);
    const struct scopes *scopes = claims->scopes;
    const struct session *session;

    timer_arm_in(timer, LOOK_US);
    list_for_each (session, &scopes->core->sessions, node) {
        const char *owner = session->identity.owner;

        if (owner_is_minted(owner) && !scopes_find_lease(scopes, owner) &&
            !is_looked_at(claims, owner))
            look_at(claims, owner, NULL)->is_upkeep = true;
    }
}

/* --- all of them ----------------------------------------------------------------------------- */

struct scope_claims *scope_claims_new(struct scopes *scopes)
{
    struct scope_claims *claims;

    if (!core_is_clustered(scopes->core))
        return NULL;
    claims = xnew(struct scope_claims);
    claims->scopes = scopes;
    list_init(&claims->all);
    list_init(&claims->looks);
    timer_init(&claims->upkeep, scopes->core->loop, on_upkeep);
    store_watch_start(scopes->core->parts.store, &claims->watch, SCOPE_KIND, NULL, on_change);
    return claims;
}

void scope_claims_free(struct scope_claims *claims)
{
    struct scope_claim *claim;
    struct map_slot *slot;
    struct look *look;

    if (!claims)
        return;
    store_watch_stop(&claims->watch);
    timer_stop(&claims->upkeep);
    while ((claim = list_first(&claims->all, struct scope_claim, node)))
        claim_free(claim);
    while ((look = list_first(&claims->looks, struct look, node)))
        look_free(look);
    map_for_each (slot, &claims->missing)
        free(slot->value);
    map_fini(&claims->missing);
    free(claims);
}

/* The leases of an earlier daemon of this node went with its connections. */
void scope_claims_start(struct scope_claims *claims)
{
    look_at(claims, NULL, node_of(claims));
    timer_arm_in(&claims->upkeep, LOOK_US);
}

void scopes_drop_node(struct core *core, const char *node)
{
    struct scope_claims *claims = core->scopes->claims;

    if (claims && !str_equal(node, node_of(claims)))
        look_at(claims, NULL, node);
}

void scopes_assert(struct scopes *scopes)
{
    struct scope_claim *claim;

    if (!scopes->claims)
        return;
    list_for_each (claim, &scopes->claims->all, node)
        if (claim->state == HELD && !claim->is_asking)
            write_claim(claim, claim->version);
}
