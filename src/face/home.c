/* SPDX-License-Identifier: Apache-2.0 */
/* The way of a request to the node that serves it. */

#include "face/home.h"

#include "base/alloc.h"
#include "base/str.h"
#include "cluster/cluster.h"
#include "cluster/home_cache.h"
#include "cluster/placement.h"
#include "cluster/relay.h"
#include "config/config.h"
#include "core/core.h"
#include "core/money/approvals.h"
#include "core/session/idempotency.h"
#include "face/gather.h"
#include "service/home.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

enum {
    TRIES_MAXIMUM = 6,
    AGAIN_US = 10 * 1000, /* before the second try, more before the next ones */
    READ_MAXIMUM = 256 *
                   1024, /* a body of at most this is read first, so that it can be repeated */
};

/* The way to find the node of a request. */
enum lead {
    LEAD_SESSION,  /* `reference` */
    LEAD_DOCUMENT, /* `kind` and `reference` of a document that names a session */
    LEAD_NODE,     /* `node` */
    LEAD_NONE,     /* nothing: a new session is placed */
};

/* One request on its way; request->state while it is. */
struct homing {
    struct request *request; /* NULL when the client has left */
    request_fn *here;
    enum lead lead;
    char *reference;      /* owned; NULL with LEAD_NODE and LEAD_NONE */
    const char *kind;     /* with LEAD_DOCUMENT */
    bool is_placed;       /* without a live session a new one is placed */
    bool reaches_all;     /* every session is found: the home checks the caller's rights */
    bool is_unidentified; /* the home finds out who asks */
    struct session_home search;
    bool is_searching;
    struct relayed *relayed;                 /* NULL while it is not */
    const struct buffer *body;               /* borrowed: that was read; NULL without */
    char *node;                              /* owned: the last one that was tried */
    const char *excluded[TRIES_MAXIMUM + 1]; /* owned texts: nodes that could not be reached */
    unsigned tries, excluded_count;
    struct timer again;
};

static struct cluster *cluster_of(const struct request *request)
{
    return request->faces->parts.cluster;
}

/* --- life ------------------------------------------------------------------------------------ */

static void homing_free(struct homing *homing)
{
    timer_stop(&homing->again);
    session_home_fini(&homing->search);
    for (unsigned i = 0; i < homing->excluded_count; i++)
        free((char *)homing->excluded[i]);
    free(homing->reference);
    free(homing->node);
    free(homing);
}

static void on_gone(struct request *request)
{
    struct homing *homing = request->state;

    homing->request = NULL;
    timer_stop(&homing->again);
    if (homing->relayed)
        relayed_close(homing->relayed);
    homing->relayed = NULL;
    if (!homing->is_searching)
        homing_free(homing);
}

static void on_again(struct timer *timer);

static struct homing *homing_new(struct request *request, request_fn *here)
{
    struct homing *homing = xnew(struct homing);

    homing->request = request;
    homing->here = here;
    timer_init(&homing->again, request->faces->parts.loop, on_again);
    request->state = homing;
    request->on_gone = on_gone;
    return homing;
}

/* The way ends here. */
static struct request *leave(struct homing *homing)
{
    struct request *request = homing->request;

    assert(!homing->is_searching && !homing->relayed);
    request->state = NULL;
    request->on_gone = NULL;
    homing_free(homing);
    return request;
}

static void fail(struct homing *homing, const struct error *err)
{
    struct error copy = *err;

    request_fail(leave(homing), &copy);
}

/* A body that was read cannot be streamed to a handler any more. */
static void serve_here(struct homing *homing)
{
    request_fn *here = homing->here;
    struct request *request = homing->request;
    struct error err = { 0 };

    if (homing->body && request->route->body == ROUTE_BYTES_BODY) {
        error_named(&err, ERR_UNAVAILABLE, "home_moved", "the session has moved to another node");
        err.retryable = true;
        fail(homing, &err);
        return;
    }
    request->raw_body = homing->body;
    here(leave(homing));
}

/* --- a request that another node has relayed ---------------------------------------------------- */

static void put_refusal(struct request *request, const char *refusal)
{
    http_respond_header(request->exchange, RELAY_REFUSED_HEADER, refusal);
}

void request_turn_away(struct request *request, const struct error *err)
{
    if (request->relay)
        put_refusal(request, "isolated");
    request_fail(request, err);
}

int request_accept_relay(struct request *request, struct error *err)
{
    const struct http_head *head = http_exchange_head(request->exchange);
    const struct cluster *cluster = cluster_of(request);
    const char *id = http_head_header(head, "x-request-id");
    struct relay_identity identity;
    struct relay_node self;
    const char *refusal;

    if (!cluster || !http_head_header(head, RELAY_HEADER_LOWER))
        return 0;
    self = (struct relay_node){ cluster_self(cluster)->id, cluster_self(cluster)->epoch, NULL };
    if (relay_accept(request->faces->parts.relay, &self, head, &identity, &refusal, err) < 0) {
        if (refusal)
            put_refusal(request, refusal);
        return -1;
    }
    request->relay = xnew(struct relay_identity);
    *request->relay = identity;
    if (id && id_is_valid(id, ID_REQUEST))
        http_exchange_set_id(request->exchange, id);
    return 0;
}

struct relay_identity request_relay_identity(const struct request *request)
{
    return (struct relay_identity){
        .owner = request->owner,
        .principal = request->principal,
        .on_behalf_of = request->on_behalf_of,
        .peer = http_exchange_peer(request->exchange)->address,
        .roles = request->roles,
        .flags = (request->is_operator ? (unsigned)RELAY_OPERATOR : 0U) |
                 (request->any_owner ? (unsigned)RELAY_ANY_OWNER : 0U),
    };
}

/* --- relaying -------------------------------------------------------------------------------- */

static void start_search(struct homing *homing);

static bool may_repeat(const struct homing *homing)
{
    return homing->body || !http_exchange_head(homing->request->exchange)->has_body;
}

static void try_again(struct homing *homing, const struct error *err)
{
    if (homing->tries < TRIES_MAXIMUM && may_repeat(homing))
        timer_arm_in(&homing->again, (int64_t)homing->tries * homing->tries * AGAIN_US);
    else
        fail(homing, err);
}

static void on_again(struct timer *timer)
{
    start_search(container_of(timer, struct homing, again));
}

static void on_relay_failed(void *user, enum relay_failure failure, const struct error *err)
{
    struct homing *homing = user;

    homing->relayed = NULL;
    homing->request->is_relayed = false;
    if (homing->reference)
        home_cache_forget(homing->request->faces->homes, homing->reference);
    if (failure == RELAY_UNREACHED && homing->is_placed && homing->excluded_count < TRIES_MAXIMUM) {
        homing->excluded[homing->excluded_count++] = steal_ptr(&homing->node);
        try_again(homing, err);
    } else if (failure == RELAY_MOVED) {
        try_again(homing, err);
    } else {
        fail(homing, err);
    }
}

static struct homing *homing_of(const struct http_exchange *exchange)
{
    const struct request *request = http_exchange_user(exchange);

    return request->on_gone == on_gone ? request->state : NULL;
}

static void on_data(struct http_exchange *exchange, const uint8_t *data, size_t length)
{
    const struct homing *homing = homing_of(exchange);

    if (homing && homing->relayed)
        relayed_data(homing->relayed, data, length);
}

static void on_drain(struct http_exchange *exchange)
{
    const struct homing *homing = homing_of(exchange);

    if (homing && homing->relayed)
        relayed_drained(homing->relayed);
}

static void start_relay(struct homing *homing)
{
    struct request *request = homing->request;
    const struct cluster *cluster = cluster_of(request);
    const struct cluster_node *self = cluster_self(cluster);
    const struct cluster_node *node = cluster_find(cluster, homing->node);
    struct relay_identity caller = request_relay_identity(request);
    struct error err = { 0 };

    if (homing->is_unidentified)
        caller = (struct relay_identity){ .peer = caller.peer, .flags = RELAY_UNIDENTIFIED };
    if (!node || node->state == NODE_LOST) {
        error_named(&err, ERR_UNAVAILABLE, "home_lost",
                    "node %.64s, which has this session, is lost", homing->node);
        error_hint(&err, "try again: another node takes its sessions over");
        err.retryable = true;
        fail(homing, &err);
        return;
    }
    homing->tries++;
    request->is_relayed = true;
    homing->relayed =
        relay_start(request->faces->parts.relay, &(struct relay_request){
                                                     .exchange = request->exchange,
                                                     .from = { self->id, self->epoch, NULL },
                                                     .to = { node->id, node->epoch, node->address },
                                                     .caller = &caller,
                                                     .body = homing->body,
                                                     .on_failed = on_relay_failed,
                                                     .user = homing,
                                                     .on_data = on_data,
                                                     .on_drain = on_drain,
                                                 });
}

static void on_body(struct http_exchange *exchange, struct buffer *body)
{
    struct homing *homing = homing_of(exchange);

    homing->body = body;
    start_relay(homing);
}

/* A small body is read first: the request can then be repeated when the session has moved. */
static void relay_to(struct homing *homing, const char *node)
{
    struct http_exchange *exchange = homing->request->exchange;
    const struct http_head *head = http_exchange_head(exchange);

    free(homing->node);
    homing->node = xstrdup(node);
    if (!homing->body && head->has_body && !head->chunked && head->content_length <= READ_MAXIMUM &&
        !homing->is_unidentified)
        http_exchange_read_body(exchange, READ_MAXIMUM, on_body);
    else
        start_relay(homing);
}

/* --- placing --------------------------------------------------------------------------------- */

static uint64_t random_number(void)
{
    uint64_t number = 0;

    (void)!getrandom(&number, sizeof(number), 0);
    return number;
}

static const char *body_text(const struct request *request, const char *name)
{
    const char *text = json_string_value(json_object_get(request->body, name));

    return str_is_empty(text) ? NULL : text;
}

/* A flavor may be bound to a backend. */
static const char *wanted_backend(const struct request *request)
{
    const char *backend = body_text(request, "backend");
    const char *flavor = body_text(request, "flavor");
    const struct config_flavor *row =
        flavor ? config_flavor_find(request->faces->parts.config, flavor) : NULL;

    return backend ? backend : row && !str_is_empty(row->backend) ? row->backend : NULL;
}

static int refuse_node(const struct cluster *cluster, const char *id, struct error *err)
{
    const struct cluster_node *node = cluster_find(cluster, id);

    if (!node) {
        error_named(err, ERR_NOT_FOUND, "node_not_found", "node \"%.64s\" is not known", id);
        return error_hint_known(err, HINT_NODES);
    }
    error_named(err, ERR_UNAVAILABLE, "node_unavailable", "node \"%.64s\" is %s", id,
                node->state == NODE_UP ? "not fit for this session" : node_state_name(node->state));
    err->retryable = node->state != NODE_UP;
    return -1;
}

static void refuse_placement(struct homing *homing, const struct placement_wish *wish)
{
    struct error err = { 0 };

    if (wish->node) {
        (void)refuse_node(cluster_of(homing->request), wish->node, &err);
    } else if (wish->labels) {
        error_named(&err, ERR_UNAVAILABLE, "node_unavailable",
                    "no node that is up has all labels of node_labels");
        error_hint_known(&err, HINT_NODE_LABELS);
    } else {
        error_named(&err, ERR_UNAVAILABLE, "node_unavailable", "no node takes new sessions");
        err.retryable = true;
    }
    fail(homing, &err);
}

/* Relays to the chosen node. If no node fits, this node serves the request, and refuses it with its
 * own message; if it takes no sessions, or the caller named a node or labels, the placement
 * fails. */
static void place(struct homing *homing)
{
    const struct cluster *cluster = cluster_of(homing->request);
    const json_t *labels = json_object_get(homing->request->body, "node_labels");
    struct placement_wish wish = { .node = body_text(homing->request, "node"),
                                   .backend = wanted_backend(homing->request),
                                   .labels = json_object_size(labels) ? labels : NULL,
                                   .excluded = homing->excluded };
    const struct cluster_node *node = placement_choose(cluster, &wish, random_number());

    if (node && node != cluster_self(cluster))
        relay_to(homing, node->id);
    else if (node || (!wish.node && !wish.labels && cluster_self(cluster)->state == NODE_UP))
        serve_here(homing);
    else
        refuse_placement(homing, &wish);
}

/* --- looking --------------------------------------------------------------------------------- */

static struct caller_identity identity_of(const struct homing *homing)
{
    struct caller_identity identity = request_identity(homing->request);

    if (homing->reaches_all)
        return (struct caller_identity){ .owner = "", .on_behalf_of = "", .any_owner = true };
    identity.any_owner = request_reaches_all(homing->request);
    return identity;
}

static bool is_live_here(const struct homing *homing, const char *reference)
{
    struct caller_identity identity = identity_of(homing);

    return find_live_session(homing->request->core, &identity, reference, NULL) != NULL;
}

/* Its record is this node's, and it is not in memory yet. */
static void fail_arriving(struct homing *homing)
{
    struct error err = { 0 };

    error_named(&err, ERR_UNAVAILABLE, "home_moving", "this node is taking session %s over",
                homing->search.id);
    err.retryable = true;
    fail(homing, &err);
}

/* The record says that another node has it. A node that relayed the request looks again. */
static void go_to(struct homing *homing, const char *node)
{
    struct request *request = homing->request;
    struct error err = { 0 };

    if (!request->relay) {
        relay_to(homing, node);
        return;
    }
    put_refusal(request, RELAY_REFUSED_MOVED);
    error_named(&err, ERR_UNAVAILABLE, "home_moved", "this session has another home by now");
    err.retryable = true;
    fail(homing, &err);
}

/* Output and files of an ended session are on the disk of its last home; its record is everywhere. */
static bool needs_last_home(const struct homing *homing)
{
    const struct request *request = homing->request;
    const struct cluster *cluster = cluster_of(request);
    const struct cluster_node *node = cluster_find(cluster, homing->search.node);

    return node && node->state != NODE_LOST && node != cluster_self(cluster) && !request->relay &&
           !str_equal(request->route->path, "/api/v1/sessions/{session}") && !homing->is_placed;
}

static void take_live(struct homing *homing)
{
    const struct cluster_node *self = cluster_self(cluster_of(homing->request));

    if (!str_equal(homing->search.node, self->id)) {
        home_cache_put(homing->request->faces->homes, homing->search.id, homing->search.owner_of,
                       homing->search.node);
        go_to(homing, homing->search.node);
    } else if (is_live_here(homing, homing->search.id)) {
        serve_here(homing);
    } else {
        fail_arriving(homing);
    }
}

static void on_found(struct session_home *search)
{
    struct homing *homing = container_of(search, struct homing, search);

    homing->is_searching = false;
    if (!homing->request) {
        homing_free(homing);
        return;
    }
    if (search->err.code)
        fail(homing, &search->err);
    else if (search->found == HOME_LIVE)
        take_live(homing);
    else if (search->found == HOME_ENDED && needs_last_home(homing))
        relay_to(homing, search->node);
    else if (homing->is_placed && homing->request->relay == NULL)
        place(homing);
    else
        serve_here(homing);
}

/* The home as it was a while ago, if the node is there; NULL otherwise. */
static const char *remembered(const struct homing *homing, const struct caller_identity *identity)
{
    const struct request *request = homing->request;
    const char *id = homing->lead == LEAD_SESSION && !request->relay
                         ? home_cache_get(request->faces->homes, homing->reference,
                                          identity->any_owner ? NULL : identity->owner)
                         : NULL;
    const struct cluster_node *node = id ? cluster_find(cluster_of(request), id) : NULL;

    return node && node->state != NODE_LOST && node != cluster_self(cluster_of(request)) ? id
                                                                                         : NULL;
}

static void start_search(struct homing *homing)
{
    struct request *request = homing->request;
    struct caller_identity identity = identity_of(homing);
    const char *node;

    if (homing->lead == LEAD_NONE) {
        place(homing);
        return;
    }
    if (homing->lead == LEAD_NODE) {
        start_relay(homing);
        return;
    }
    if (homing->lead == LEAD_SESSION &&
        (!find_may_exist(homing->reference) || is_live_here(homing, homing->reference))) {
        serve_here(homing);
        return;
    }
    node = remembered(homing, &identity);
    if (node) {
        relay_to(homing, node);
        return;
    }
    session_home_fini(&homing->search);
    homing->is_searching = true;
    if (homing->lead == LEAD_SESSION)
        session_home_find(&homing->search, request->core, &identity, homing->reference, on_found);
    else
        session_home_find_by(&homing->search, request->core, homing->kind, homing->reference,
                             on_found);
}

/* --- by the route ---------------------------------------------------------------------------- */

static void find_by(struct request *request, enum lead lead, char *reference, request_fn *here)
{
    struct homing *homing;

    homing = homing_new(request, here);
    homing->lead = lead;
    homing->reference = reference;
    start_search(homing);
}

static void find_by_approval(struct request *request, request_fn *here)
{
    struct homing *homing = homing_new(request, here);

    homing->lead = LEAD_DOCUMENT;
    homing->kind = APPROVAL_KIND;
    homing->reference = xstrdup(request_path(request, "approval"));
    homing->reaches_all = true;
    start_search(homing);
}

/* A URL that is a permission, for a session whose id stands in it; its home checks the signature. */
static void find_by_url(struct request *request, const char *text, request_fn *here)
{
    char *id = xstrndup(text, strcspn(text, "."));
    struct homing *homing = homing_new(request, here);

    homing->lead = LEAD_SESSION;
    homing->reference = id;
    homing->reaches_all = true;
    start_search(homing);
}

/* The usual case needs no object: the session is live, and here. */
static void find_by_session(struct request *request, request_fn *here)
{
    const char *reference = request_path(request, "session");
    struct caller_identity identity = request_identity(request);

    identity.any_owner = request_reaches_all(request);
    if (!find_may_exist(reference) || find_live_session(request->core, &identity, reference, NULL))
        here(request);
    else
        find_by(request, LEAD_SESSION, xstrdup(reference), here);
}

/* A face that finds its sessions in its own way. */
static bool names_session(const struct request *request, char out_id[ID_SIZE])
{
    return request->face->session_of && request->route &&
           request->face->session_of(request->context, http_exchange_head(request->exchange),
                                     out_id);
}

void request_find_home_first(struct request *request, request_fn *here)
{
    struct homing *homing;
    char id[ID_SIZE];

    if (!cluster_of(request) || !names_session(request, id)) {
        here(request);
        return;
    }
    homing = homing_new(request, here);
    homing->lead = LEAD_SESSION;
    homing->reference = xstrdup(id);
    homing->reaches_all = homing->is_unidentified = true;
    start_search(homing);
}

void request_find_home(struct request *request, request_fn *here)
{
    char id[ID_SIZE];

    const struct route *route = request->route;

    switch (route->home) {
    case ROUTE_OF_APPROVAL:
        find_by_approval(request, here);
        return;
    case ROUTE_OF_URL:
        find_by_url(request, request_path(request, strstr(route->path, "{token}") ? "token" : "id"),
                    here);
        return;
    case ROUTE_OF_NODE:
        request_go_to_node(request, request_path(request, "node"), NULL, NULL, here);
        return;
    case ROUTE_HERE:
    case ROUTE_PLACED: /* the body says more */
    case ROUTE_OF_MESSAGE:
        break;
    }
    if (route->session != ROUTE_NO_SESSION)
        find_by_session(request, here);
    else if (!request->face->identifies_at_home && names_session(request, id))
        find_by(request, LEAD_SESSION, xstrdup(id), here);
    else if (route->gather && request_parameter(request, "node"))
        request_go_to_node(request, request_parameter(request, "node"), NULL, NULL, here);
    else if (route->gather && gather_is_needed(request))
        route->gather(request);
    else
        here(request);
}

/* --- by the body ----------------------------------------------------------------------------- */

void request_find_home_of(struct request *request, const char *reference, const struct buffer *body,
                          request_fn *here)
{
    struct homing *homing = homing_new(request, here);

    homing->lead = LEAD_SESSION;
    homing->reference = xstrdup(reference);
    homing->body = body;
    start_search(homing);
}

void request_place_new(struct request *request, const struct buffer *body, request_fn *here)
{
    struct homing *homing = homing_new(request, here);

    homing->lead = LEAD_NONE;
    homing->is_placed = true;
    homing->body = body;
    start_search(homing);
}

/* A session that is named, by its id or its key; one that an Idempotency-Key has made; or a new
 * one. */
static void choose_lead(struct homing *homing)
{
    const struct request *request = homing->request;
    const char *session = body_text(request, "session_id");
    const char *key = body_text(request, "key");
    const char *idempotency_key = request_header(request, "idempotency-key");

    homing->lead = LEAD_SESSION;
    homing->is_placed = !session;
    if (session) {
        homing->reference = xstrdup(session);
    } else if (key) {
        homing->reference = xasprintf("key:%s", key);
    } else if (!str_is_empty(idempotency_key)) {
        homing->lead = LEAD_DOCUMENT;
        homing->kind = IDEMPOTENCY_KIND;
        homing->reference = xasprintf("%s\n%s", request->owner, idempotency_key);
        homing->reaches_all = true;
    } else {
        homing->lead = LEAD_NONE;
    }
}

void request_place(struct request *request, request_fn *here)
{
    struct homing *homing = homing_new(request, here);

    homing->body = request->raw_body;
    choose_lead(homing);
    start_search(homing);
}

/* --- by the name of a node --------------------------------------------------------------------- */

void request_go_to_node(struct request *request, const char *node, const char *otherwise,
                        const struct buffer *body, request_fn *here)
{
    const struct cluster *cluster = cluster_of(request);
    const struct cluster_node *found = cluster_find(cluster, node);
    bool is_there = found && found->state != NODE_LOST;
    struct homing *homing;
    struct error err = { 0 };

    if (found == cluster_self(cluster) || request->relay) {
        here(request);
    } else if (is_there) {
        homing = homing_new(request, here);
        homing->lead = LEAD_NODE;
        homing->body = body;
        relay_to(homing, node);
    } else if (otherwise) {
        request_find_home_of(request, otherwise, body, here);
    } else {
        (void)refuse_node(cluster, node, &err);
        request_fail(request, &err);
    }
}

/* --- once more ------------------------------------------------------------------------------- */

struct repeat {
    struct request *request;
    struct timer timer;
};

static void on_repeat(struct timer *timer)
{
    struct repeat *repeat = container_of(timer, struct repeat, timer);
    struct request *request = repeat->request;

    free(repeat);
    if (!request_finish(request))
        request_place(request, request->route->handle);
}

/* The handler that fails still has its hands on the request: the next try comes from the loop. */
bool request_try_again(struct request *request, const struct error *err)
{
    bool is_taken =
        (str_equal(err->name, "key_taken") || str_equal(err->name, "idempotency_key_taken")) &&
        request->route && request->route->home == ROUTE_PLACED;
    struct repeat *repeat;

    if (request->relay && is_taken)
        put_refusal(request, "taken"); /* the other node tries again */
    if (request->relay || !is_taken || request->repeats >= TRIES_MAXIMUM)
        return false;
    repeat = xnew(struct repeat);
    repeat->request = request;
    request->repeats++;
    request_begin(request);
    timer_init(&repeat->timer, request->faces->parts.loop, on_repeat);
    timer_arm_in(&repeat->timer, (int64_t)request->repeats * AGAIN_US);
    return true;
}
