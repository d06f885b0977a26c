/* SPDX-License-Identifier: Apache-2.0 */
#include "cluster/relay.h"

#include "base/alloc.h"
#include "base/list.h"
#include "base/map.h"
#include "base/str.h"
#include "net/tls.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

enum {
    IDLE_CONNECTIONS = 64,        /* to one node */
    SENDERS_MAXIMUM = 4096,       /* whose counters are remembered */
    PENDING_MAXIMUM = 512 * 1024, /* bytes of a request that the node has not taken */
    WATCH_US = 500 * 1000,        /* how often leases are looked at while exchanges are open */
    SIGN_AGAIN_MAXIMUM = 3,
    HEADERS_MAXIMUM = 128,
};

struct relay_peer {
    char *address;              /* owned */
    struct http_client *client; /* owned */
};

struct relay_sender {
    char *id; /* owned */
    struct relay_window window;
};

struct relay {
    struct loop *loop;
    struct relay_secret secret;
    char *ca; /* owned */
    bool (*is_alive)(void *context, const char *node, uint64_t epoch);
    void *context;
    uint64_t counter;   /* of the last request */
    struct map peers;   /* by address; struct relay_peer, owned */
    struct map senders; /* by node; struct relay_sender, owned */
    struct list open;   /* struct relayed */
    struct timer watch;
};

/* --- life ------------------------------------------------------------------------------------ */

static void on_watch(struct timer *timer);

struct relay *relay_new(const struct relay_parts *parts)
{
    struct relay *relay = xnew(struct relay);

    relay->loop = parts->loop;
    relay->secret = *parts->secret;
    relay->ca = xstrdup(parts->ca ? parts->ca : "");
    relay->is_alive = parts->is_alive;
    relay->context = parts->context;
    list_init(&relay->open);
    timer_init(&relay->watch, relay->loop, on_watch);
    return relay;
}

static void sender_free(struct relay_sender *sender)
{
    free(sender->id);
    free(sender);
}

static void peer_free(struct relay_peer *peer)
{
    http_client_free(peer->client);
    free(peer->address);
    free(peer);
}

void relay_free(struct relay *relay)
{
    struct map_slot *slot;

    if (!relay)
        return;
    assert(list_is_empty(&relay->open));
    timer_stop(&relay->watch);
    map_for_each (slot, &relay->peers)
        peer_free(slot->value);
    map_for_each (slot, &relay->senders)
        sender_free(slot->value);
    map_fini(&relay->peers);
    map_fini(&relay->senders);
    explicit_bzero(&relay->secret, sizeof(relay->secret));
    free(relay->ca);
    free(relay);
}

/* --- a request of another node ---------------------------------------------------------------- */

static struct relay_sender *sender_of(struct relay *relay, const char *id)
{
    struct relay_sender *sender = map_get(&relay->senders, id);

    if (sender || relay->senders.count == SENDERS_MAXIMUM)
        return sender;
    sender = xnew(struct relay_sender);
    sender->id = xstrdup(id);
    map_put(&relay->senders, sender->id, sender);
    return sender;
}

static int refuse(struct error *err, const char **out_refusal, const char *refusal,
                  const char *message)
{
    *out_refusal = refusal;
    error_named(err, ERR_UNAVAILABLE, "relay_refused", "%s", message);
    err->retryable = true;
    return -1;
}

static int check_counter(struct relay *relay, const struct relay_identity *identity,
                         const char **out_refusal, struct error *err)
{
    struct relay_sender *sender = sender_of(relay, identity->from);

    if (!sender)
        return refuse(err, out_refusal, "senders", "too many nodes have sent requests");
    switch (relay_window_take(&sender->window, identity->from_epoch, identity->counter)) {
    case RELAY_NEW:
        return 0;
    case RELAY_USED:
        return refuse(err, out_refusal, "used", "this relayed request has come before");
    case RELAY_OLD:
        return refuse(err, out_refusal, "old", "this relayed request comes too late");
    case RELAY_STALE:
        break;
    }
    return refuse(err, out_refusal, "stale",
                  "another daemon has taken the name of the node that sent this request");
}

int relay_accept(struct relay *relay, const struct relay_node *self, const struct http_head *head,
                 struct relay_identity *out_identity, const char **out_refusal, struct error *err)
{
    scoped(relay_identity_fini) struct relay_identity identity = { 0 };

    *out_refusal = NULL;
    if (relay_identity_read(&identity, &relay->secret, head->method, head->target,
                            http_head_header(head, RELAY_HEADER_LOWER), err) < 0)
        return -1;
    if (!str_equal(identity.to, self->id) || identity.to_epoch != self->epoch)
        return refuse(err, out_refusal, "epoch",
                      "this relayed request is for another node, or an earlier run of this one");
    if (check_counter(relay, &identity, out_refusal, err) < 0)
        return -1;
    *out_identity = identity;
    identity.storage = NULL;
    return 0;
}

/* --- a request to another node ------------------------------------------------------------------ */

/* Addresses are looked up when they are first used. */
static struct http_client *client_of(struct relay *relay, const char *address, struct error *err)
{
    struct relay_peer *peer = map_get(&relay->peers, address);
    struct tls_files files = { .ca = relay->ca };
    struct http_client *client;

    if (peer)
        return peer->client;
    client = http_client_new_with(relay->loop, address, &files, err);
    if (!client)
        return NULL;
    http_client_keep_idle(client, IDLE_CONNECTIONS);
    peer = xnew(struct relay_peer);
    peer->address = xstrdup(address);
    peer->client = client;
    map_put(&relay->peers, peer->address, peer);
    return client;
}

static char *sign(struct relay *relay, const struct relay_node *from, const struct relay_node *to,
                  const struct relay_identity *caller, enum http_method method, const char *target,
                  struct error *err)
{
    scoped(buffer_fini) struct buffer text = BUFFER_INIT(RELAY_TEXT_MAXIMUM);
    struct relay_identity identity = *caller;

    identity.from = from->id;
    identity.from_epoch = from->epoch;
    identity.to = to->id;
    identity.to_epoch = to->epoch;
    identity.counter = ++relay->counter;
    if (relay_identity_write(&identity, &relay->secret, method, target, &text) == 0)
        return buffer_steal_text(&text);
    error_named(err, ERR_TOO_LARGE, "relay_refused",
                "the identity of the caller is too long to be relayed");
    return NULL;
}

struct headers {
    const char *items[2 * HEADERS_MAXIMUM + 1]; /* name, value, …, NULL; borrowed */
    size_t count;
};

static void headers_add(struct headers *headers, const char *name, const char *value)
{
    if (headers->count + 2 >= ARRAY_LENGTH(headers->items))
        return;
    headers->items[headers->count++] = name;
    headers->items[headers->count++] = value;
    headers->items[headers->count] = NULL;
}

struct http_call *relay_call(struct relay *relay, const struct relay_ask *ask,
                             const struct http_call_handler *handler, void *user, struct error *err)
{
    struct http_client *client = client_of(relay, ask->to.address, err);
    scoped(free) char *signature = NULL;
    struct headers headers = { 0 };

    if (!client)
        return NULL;
    signature = sign(relay, &ask->from, &ask->to, ask->caller, ask->method, ask->target, err);
    if (!signature)
        return NULL;
    headers_add(&headers, RELAY_HEADER, signature);
    for (const char *const *item = ask->headers; item && *item; item += 2)
        headers_add(&headers, item[0], item[1]);
    return http_client_request(client, ask->method, ask->target, ask->content_type, ask->body,
                               (int64_t)ask->body_length, headers.items, handler, user);
}

/* --- an exchange that another node answers ------------------------------------------------------ */

enum relayed_state {
    RELAYED_ASKING,   /* the head of the answer has not come */
    RELAYED_REFUSED,  /* the node has refused; the rest of its answer is dropped */
    RELAYED_ANSWERED, /* the head is with the client */
    RELAYED_ENDED,    /* so is all of it; or the exchange was cut off */
    RELAYED_FAILED,   /* on_failed is due, from the loop */
};

struct relayed {
    struct relay *relay; /* borrowed */
    struct list link;
    struct relay_request request;
    struct relay_identity caller; /* its texts are borrowed, as long as the exchange */
    char *from;                   /* owned: this node */
    char *node, *address;         /* owned: the other one */
    uint64_t epoch;               /* of the other one */
    struct http_call *call;       /* owned; NULL when it has ended */
    char *signature;              /* owned: the header */
    enum relayed_state state;
    unsigned attempts; /* calls with this signature */
    unsigned signed_again;
    char refusal[16]; /* with RELAYED_REFUSED */
    bool is_upgrade;
    bool is_streamed;
    struct deferred failed;
    enum relay_failure failure;
    struct error err;
};

static void relayed_free(struct relayed *relayed)
{
    loop_undefer(relayed->relay->loop, &relayed->failed);
    list_remove(&relayed->link);
    free(relayed->from);
    free(relayed->node);
    free(relayed->address);
    free(relayed->signature);
    free(relayed);
}

static void on_failed(struct deferred *deferred)
{
    struct relayed *relayed = container_of(deferred, struct relayed, failed);
    relay_failed_fn *tell = relayed->request.on_failed;
    void *user = relayed->request.user;
    enum relay_failure failure = relayed->failure;
    struct error err = relayed->err;

    relayed_free(relayed);
    tell(user, failure, &err);
}

static void fail(struct relayed *relayed, enum relay_failure failure, const struct error *err)
{
    assert(relayed->state == RELAYED_ASKING || relayed->state == RELAYED_REFUSED);
    relayed->state = RELAYED_FAILED;
    relayed->failure = failure;
    relayed->err = *err;
    loop_defer(relayed->relay->loop, &relayed->failed, on_failed);
}

/* --- headers --------------------------------------------------------------------------------- */

static bool is_among(const char *name, const char *const *names)
{
    for (; *names; names++) {
        if (strcmp(name, *names) == 0)
            return true;
    }
    return false;
}

/* Whether a header is named by Connection, and so not for the next hop. */
static bool is_named_by_connection(const struct http_head *head, const char *name)
{
    const char *list = http_head_header(head, "connection");
    size_t wanted = strlen(name);

    while (list && *list) {
        size_t length;

        list += strspn(list, ", \t");
        length = strcspn(list, ", \t");
        if (length == wanted && strncasecmp(list, name, length) == 0)
            return true;
        list += length;
    }
    return false;
}

/* Of this connection alone (RFC 9110, 7.6.1), or written anew by our client and our server. */
static bool is_of_the_hop(const struct http_head *head, const char *name)
{
    static const char *const names[] = { "connection",
                                         "keep-alive",
                                         "proxy-connection",
                                         "te",
                                         "trailer",
                                         "transfer-encoding",
                                         "upgrade",
                                         "content-length",
                                         "x-request-id",
                                         "proxy-authenticate",
                                         "proxy-authorization",
                                         NULL };

    return is_among(name, names) || is_named_by_connection(head, name);
}

/* Headers that are not relayed. The signed header names the caller in place of the credentials,
 * unless the home checks these itself. */
static bool is_spent(const char *name, unsigned flags)
{
    static const char *const names[] = { "expect", RELAY_HEADER_LOWER, NULL };
    static const char *const credentials[] = { "authorization", "x-api-key",
                                               "x-sandglass-on-behalf-of", NULL };

    return is_among(name, names) || (!(flags & RELAY_UNIDENTIFIED) && is_among(name, credentials));
}

static void put_request_headers(struct relayed *relayed, struct headers *headers)
{
    struct http_exchange *exchange = relayed->request.exchange;
    const struct http_head *head = http_exchange_head(exchange);

    headers_add(headers, RELAY_HEADER, relayed->signature);
    headers_add(headers, "X-Request-Id", http_exchange_id(exchange));
    if (relayed->is_upgrade) {
        headers_add(headers, "Connection", "Upgrade");
        headers_add(headers, "Upgrade", http_head_header(head, "upgrade"));
    }
    for (size_t i = 0; i < head->header_count; i++) {
        const struct http_header *header = &head->headers[i];

        if (!is_of_the_hop(head, header->name) && !is_spent(header->name, relayed->caller.flags))
            headers_add(headers, header->name, header->value);
    }
}

static void put_answer_headers(struct http_exchange *exchange, const struct http_head *head)
{
    http_respond_clear_headers(exchange);
    for (size_t i = 0; i < head->header_count; i++) {
        const struct http_header *header = &head->headers[i];

        if (!is_of_the_hop(head, header->name) && strcmp(header->name, "content-type") != 0)
            http_respond_header(exchange, header->name, header->value);
    }
}

/* --- the answer ------------------------------------------------------------------------------ */

static void begin_stream(struct relayed *relayed, const struct http_head *head)
{
    struct http_exchange *exchange = relayed->request.exchange;
    const char *protocol = http_head_header(head, "upgrade");

    if (!relayed->is_upgrade) {
        http_exchange_abort(exchange);
        return;
    }
    http_respond_upgrade(exchange, protocol ? protocol : "", relayed->request.on_data);
    http_exchange_pause_body(exchange); /* until the call takes bytes: on_writable */
}

static void on_head(struct http_call *call, const struct http_head *head)
{
    struct relayed *relayed = http_call_user(call);
    struct http_exchange *exchange = relayed->request.exchange;
    const char *refusal = http_head_header(head, "x-sandglass-relay-refused");

    if (refusal) {
        relayed->state = RELAYED_REFUSED;
        snprintf(relayed->refusal, sizeof(relayed->refusal), "%s", refusal);
        return;
    }
    relayed->state = RELAYED_ANSWERED;
    http_respond_on_drain(exchange, relayed->request.on_drain);
    put_answer_headers(exchange, head);
    if (head->status == 101)
        begin_stream(relayed, head);
    else
        http_respond_start(exchange, head->status, http_head_header(head, "content-type"),
                           head->content_length);
}

static void on_answer(struct http_call *call, const uint8_t *data, size_t length)
{
    struct relayed *relayed = http_call_user(call);

    if (relayed->state != RELAYED_ANSWERED)
        return;
    http_respond_write(relayed->request.exchange, data, length);
    if (http_respond_pending(relayed->request.exchange) >= HTTP_HIGH_WATER)
        http_call_pause(call);
}

void relayed_drained(struct relayed *relayed)
{
    if (relayed->call)
        http_call_resume(relayed->call);
}

/* --- asking ---------------------------------------------------------------------------------- */

static void ask(struct relayed *relayed);

/* Of the refusals only "old" says nothing about the home. A request that was sent twice may have been
 * done the first time. */
static void take_refusal(struct relayed *relayed)
{
    bool may_be_done = relayed->attempts > 1 || str_equal(relayed->refusal, "used");
    struct error err = { 0 };

    if (str_equal(relayed->refusal, "old") && !may_be_done && !relayed->is_streamed &&
        relayed->signed_again++ < SIGN_AGAIN_MAXIMUM) {
        free(steal_ptr(&relayed->signature));
        relayed->attempts = 0;
        relayed->state = RELAYED_ASKING;
        ask(relayed);
        return;
    }
    error_named(&err, ERR_UNAVAILABLE, "home_moved", "node %s does not serve this session: %s",
                relayed->node, relayed->refusal);
    err.retryable = true;
    fail(relayed, may_be_done ? RELAY_BROKEN : RELAY_MOVED, &err);
}

/* The connection broke before an answer. */
static void take_break(struct relayed *relayed, const struct error *cause)
{
    bool is_unreached = str_equal(cause->name, "unreachable");
    struct error err = { 0 };

    if (!is_unreached && !relayed->is_streamed && relayed->attempts == 1) {
        http_client_close_idle(client_of(relayed->relay, relayed->address, NULL));
        ask(relayed);
        return;
    }
    error_named(&err, is_unreached ? ERR_UNAVAILABLE : ERR_BACKEND, "home_unreachable",
                "node %s, which has this session, does not answer: %.300s", relayed->node,
                cause->message);
    error_hint(&err, "try again: when the node is lost, another one takes its sessions over");
    err.retryable = true;
    fail(relayed, is_unreached && relayed->attempts == 1 ? RELAY_UNREACHED : RELAY_BROKEN, &err);
}

static void on_end(struct http_call *call, const struct error *err)
{
    struct relayed *relayed = http_call_user(call);
    enum relayed_state state = relayed->state;

    relayed->call = NULL;
    switch (state) {
    case RELAYED_ASKING:
        take_break(relayed, err);
        break;
    case RELAYED_REFUSED:
        take_refusal(relayed);
        break;
    case RELAYED_ANSWERED:
        relayed->state = RELAYED_ENDED;
        if (err)
            http_exchange_abort(relayed->request.exchange);
        else
            http_respond_end(relayed->request.exchange);
        break;
    case RELAYED_ENDED:
    case RELAYED_FAILED:
        break;
    }
}

/* --- the request's body ---------------------------------------------------------------------- */

static void on_writable(struct http_call *call)
{
    const struct relayed *relayed = http_call_user(call);

    if (relayed->is_streamed || relayed->is_upgrade)
        http_exchange_resume_body(relayed->request.exchange);
}

void relayed_data(struct relayed *relayed, const uint8_t *data, size_t length)
{
    if (!relayed->call)
        return;
    if (!length) {
        http_call_end(relayed->call);
        return;
    }
    http_call_write(relayed->call, data, length);
    if (http_call_pending(relayed->call) >= PENDING_MAXIMUM)
        http_exchange_pause_body(relayed->request.exchange);
}

/* --- all of it ------------------------------------------------------------------------------- */

static int prepare(struct relayed *relayed, struct error *err)
{
    const struct relay_request *request = &relayed->request;
    const struct http_head *head = http_exchange_head(request->exchange);
    struct relay_node from = { relayed->from, request->from.epoch, NULL };
    struct relay_node to = { relayed->node, relayed->epoch, relayed->address };

    if (!client_of(relayed->relay, relayed->address, err))
        return -1;
    if (!relayed->signature)
        relayed->signature =
            sign(relayed->relay, &from, &to, &relayed->caller, head->method, head->target, err);
    return relayed->signature ? 0 : -1;
}

static void ask(struct relayed *relayed)
{
    static const struct http_call_handler handler = {
        .on_head = on_head, .on_data = on_answer, .on_writable = on_writable, .on_end = on_end
    };
    const struct relay_request *request = &relayed->request;
    const struct http_head *head = http_exchange_head(request->exchange);
    size_t length = request->body ? request->body->length : 0;
    struct headers headers = { 0 };
    struct error err = { 0 };

    if (prepare(relayed, &err) < 0) {
        fail(relayed, RELAY_UNREACHED, &err);
        return;
    }
    relayed->attempts++;
    put_request_headers(relayed, &headers);
    relayed->call = http_client_request(
        client_of(relayed->relay, relayed->address, NULL), head->method, head->target, NULL,
        length ? request->body->data : NULL, relayed->is_streamed ? -1 : (int64_t)length,
        headers.items, &handler, relayed);
}

/* Only when the body is streamed by the client it is not known in whole. */
static void begin_body(struct relayed *relayed)
{
    struct http_exchange *exchange = relayed->request.exchange;

    if (!relayed->is_streamed)
        return;
    http_exchange_stream_body(exchange, relayed->request.on_data);
    http_exchange_pause_body(exchange); /* until the call takes bytes: on_writable */
}

struct relayed *relay_start(struct relay *relay, const struct relay_request *request)
{
    const struct http_head *head = http_exchange_head(request->exchange);
    struct relayed *relayed = xnew(struct relayed);

    assert(request->on_failed && request->on_data && request->on_drain);
    relayed->relay = relay;
    relayed->request = *request;
    relayed->from = xstrdup(request->from.id);
    relayed->node = xstrdup(request->to.id);
    relayed->address = xstrdup(request->to.address);
    relayed->epoch = request->to.epoch;
    relayed->caller = *request->caller;
    relayed->is_upgrade = head->upgrade && !head->has_body && http_head_header(head, "upgrade");
    relayed->is_streamed = head->has_body && !request->body;
    list_append(&relay->open, &relayed->link);
    if (relay->is_alive && !timer_is_armed(&relay->watch))
        timer_arm_in(&relay->watch, WATCH_US);
    begin_body(relayed);
    ask(relayed);
    return relayed;
}

void relayed_close(struct relayed *relayed)
{
    if (relayed->call)
        http_call_cancel(relayed->call);
    relayed_free(relayed);
}

/* --- nodes that lose their lease ---------------------------------------------------------------- */

static void give_up(struct relayed *relayed)
{
    struct error err = { 0 };

    http_call_cancel(steal_ptr(&relayed->call));
    if (relayed->state == RELAYED_ANSWERED) {
        relayed->state = RELAYED_ENDED;
        http_exchange_abort(relayed->request.exchange);
        return;
    }
    error_named(&err, ERR_BACKEND, "home_lost", "node %s, which had this session, is lost",
                relayed->node);
    error_hint(&err, "try again: another node takes its sessions over");
    err.retryable = true;
    fail(relayed, RELAY_BROKEN, &err);
}

static void on_watch(struct timer *timer)
{
    struct relay *relay = container_of(timer, struct relay, watch);
    struct relayed *relayed, *following;

    list_for_each_safe (relayed, following, &relay->open, link) {
        if (relayed->call && !relay->is_alive(relay->context, relayed->node, relayed->epoch))
            give_up(relayed);
    }
    if (!list_is_empty(&relay->open))
        timer_arm_in(&relay->watch, WATCH_US);
}
