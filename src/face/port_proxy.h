/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * A request that goes on to a port inside of a sandbox: HTTP with bodies that stream both ways,
 * WebSocket, or the bytes of one TCP connection (Upgrade: tcp). service/ports.h makes the
 * connection and says what counts as use; port_rules.h says what passes.
 *
 * Every request has a connection of its own. At most HTTP_HIGH_WATER bytes and one read wait in the
 * daemon in each direction: a side that does not read holds the other back. The end of the sandbox
 * ends the exchange.
 */

#include "face/port_rules.h"

#include <stdint.h>

struct request;
struct session;

/* Everything is borrowed for the call. */
struct port_target {
    unsigned port;       /* 1 to 65535 */
    uint64_t generation; /* of the sandbox; 0: any */
    enum port_door door;
    const char *target;           /* path and query for the server inside; begins with '/' */
    const char *prefix;           /* the path before that, "" without one: for redirects */
    const char *host;             /* that the server is told; NULL: localhost:PORT */
    bool is_shared;               /* the URL is the permission: pages of any origin may read */
    bool keeps_authorization;     /* the client's Authorization is for the server inside */
    const char *const *withholds; /* further headers that do not go in, lower case; NULL: none */
};

/* Answers the request, now or later. The calling function has checked the access to the port; the
 * face's on_gone and state of the request are taken. */
void port_proxy_start(struct request *request, struct session *session,
                      const struct port_target *target);

/* Whether the client asks for the bytes of a TCP connection. */
bool port_wants_tunnel(const struct http_head *head);
