/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Carries one exchange to another node and its answer back: method, target, headers, both bodies as
 * they come, upgrades; with backpressure both ways. Connections are kept and used again.
 *
 * The caller's identity travels in a signed header (relay_identity.h), and a request that came with
 * one is served where it is or refused, never relayed again: relay_accept(). A node that refuses says
 * why in the header X-Sandglass-Relay-Refused, and has done nothing then.
 *
 * A request whose body was read before is sent once more with the same header, and so the same
 * counter, when the connection breaks before an answer: the other node does it once at most.
 */

#include "base/error.h"
#include "cluster/relay_identity.h"
#include "loop/loop.h"
#include "net/http_client.h"
#include "net/http_server.h"

#include <stdbool.h>
#include <stdint.h>

#define RELAY_REFUSED_HEADER "X-Sandglass-Relay-Refused"

/* Values of that header, beside those that relay_accept() writes. */
#define RELAY_REFUSED_MOVED "moved" /* the session has another home by now */

struct relay;
struct relayed;

/* All borrowed for the call. */
struct relay_node {
    const char *id;
    uint64_t epoch;
    const char *address; /* "http://HOST:PORT" or "https://HOST:PORT" */
};

struct relay_parts {
    struct loop *loop;                 /* borrowed */
    const struct relay_secret *secret; /* copied */
    const char *ca;                    /* PEM file; "" or NULL: as the system does. Copied */

    /* Whether a node still has its lease. Exchanges with one that has lost it end. NULL: always. */
    bool (*is_alive)(void *context, const char *node, uint64_t epoch);
    void *context; /* borrowed */
};

struct relay *relay_new(const struct relay_parts *parts);
void relay_free(struct relay *relay); /* NULL is fine; when no exchange is relayed any more */
SCOPED_DEFINE(relay_free, struct relay);

/* --- a request of another node ---------------------------------------------------------------- */

/* Checks the header of a request that has one. On failure `out_refusal` says why, for
 * RELAY_REFUSED_HEADER; NULL when the header is not a node's at all. */
int relay_accept(struct relay *relay, const struct relay_node *self, const struct http_head *head,
                 struct relay_identity *out_identity, const char **out_refusal, struct error *err);

/* --- a request to another node ------------------------------------------------------------------ */

/* A request of our own in the name of a caller: of `caller` only owner, principal, on_behalf_of,
 * peer, roles and flags are read. NULL with an error when the node has no usable address. */
struct relay_ask {
    struct relay_node from, to;
    const struct relay_identity *caller;
    enum http_method method;
    const char *target;
    const char *content_type; /* NULL without a body */
    const void *body;
    size_t body_length;
    const char *const *headers; /* name, value, …, NULL; or NULL */
};

struct http_call *relay_call(struct relay *relay, const struct relay_ask *ask,
                             const struct http_call_handler *handler, void *user,
                             struct error *err);

/* --- an exchange that another node answers ------------------------------------------------------ */

enum relay_failure {
    RELAY_UNREACHED, /* the node has done nothing */
    RELAY_MOVED,     /* nor here: the node is not the home, or not any more */
    RELAY_BROKEN,    /* the node may have done it, or not */
};

/* Nothing was answered, and the owner of the exchange has to. The relayed exchange is gone. */
typedef void relay_failed_fn(void *user, enum relay_failure failure, const struct error *err);

struct relay_request {
    struct http_exchange *exchange; /* borrowed until relayed_close() or on_failed */
    struct relay_node from, to;
    const struct relay_identity *caller; /* as in struct relay_ask; its texts live as long as the
                                            exchange */
    const struct buffer *body;  /* that was read already, borrowed as the exchange; NULL: it is
                                  streamed, if there is one */
    relay_failed_fn *on_failed; /* once, from the loop, if at all */
    void *user;

    /* Callbacks of the exchange, which belongs to another object: they call relayed_data() and
     * relayed_drained(), until on_failed. */
    http_data_fn *on_data;
    http_close_fn *on_drain;
};

struct relayed *relay_start(struct relay *relay, const struct relay_request *request);
void relayed_data(struct relayed *relayed, const uint8_t *data, size_t length);
void relayed_drained(struct relayed *relayed);

/* The exchange is over: what the other node still does for it is cancelled. */
void relayed_close(struct relayed *relayed);
