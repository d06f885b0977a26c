/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Where a request is served when this daemon is a node among several (faces->parts.cluster): here, at
 * the home of its session, or where a new session is placed. Requests that another node has relayed
 * are served here or refused.
 *
 * Each of these functions ends in `here`, now or later, or has the request answered elsewhere.
 */

#include "face/request.h"

struct cluster_node;

/* Before the body is read: by the route and its path. */
void request_find_home(struct request *request, request_fn *here);

/* Before the caller is known, for faces that identify at the home of the session. */
void request_find_home_first(struct request *request, request_fn *here);

/* With the body in request->body: a session that it names has a home, a new one is placed. */
void request_place(struct request *request, request_fn *here);

/* By a session that the request names in a way of its own, an id or key:KEY; without one it is served
 * here, and refused there, as ever. `body` is its body, if that was read already, and lives as long
 * as the exchange. */
void request_find_home_of(struct request *request, const char *reference, const struct buffer *body,
                          request_fn *here);

/* Where a new session may be made that the body (JSON, or NULL) describes. */
void request_place_new(struct request *request, const struct buffer *body, request_fn *here);

/* By the name of a node. When it is not there: by the session `otherwise`, or with NULL 404 or 503.
 * The body as above. */
void request_go_to_node(struct request *request, const char *node, const char *otherwise,
                        const struct buffer *body, request_fn *here);

/* Fails a request of which nothing was done: the node that has relayed it may try another one. */
void request_turn_away(struct request *request, const struct error *err);

/* Takes a failure back that another try on another node may mend: a key that was taken meanwhile.
 * False: it is to be answered. */
bool request_try_again(struct request *request, const struct error *err);

/* The header of a request that another node has relayed: 0 when it is a node's and for this one, and
 * when there is none. */
int request_accept_relay(struct request *request, struct error *err);

/* For requests of our own to other nodes. */
struct relay_identity request_relay_identity(const struct request *request);
