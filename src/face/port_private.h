/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Inside of the port proxy: one exchange with a port. */

#include "face/port_proxy.h"
#include "face/request.h"
#include "net/http_client.h"
#include "net/send_queue.h"
#include "service/ports.h"

enum port_proxy_kind {
    PORT_PROXY_HTTP,
    PORT_PROXY_WEBSOCKET, /* HTTP that asks for a stream, and may get an ordinary answer */
    PORT_PROXY_TUNNEL,
};

/* Of a tunnel, each direction for itself. */
enum port_half {
    PORT_HALF_OPEN,
    PORT_HALF_ENDING, /* the end has come; what waits is still to be sent */
    PORT_HALF_ENDED,
};

struct port_proxy {
    struct request *request; /* borrowed */
    enum port_proxy_kind kind;
    struct port_stream stream;
    unsigned port;
    enum port_door door;
    bool is_shared, keeps_authorization;
    char *target, *prefix, *host; /* owned */
    char **withholds;             /* owned; NULL at the end */

    struct http_client *client; /* owned; NULL before the connection */
    struct http_call *call;     /* borrowed; NULL before and after it */

    struct io_watch socket; /* of a tunnel; its fd is owned */
    struct send_queue queue;
    enum port_half inward, outward;
};

/* --- port_tunnel.c --------------------------------------------------------------------------- */

/* The connection is made: takes the descriptor. */
void port_tunnel_begin(struct port_proxy *proxy, int fd);
void port_tunnel_fini(struct port_proxy *proxy);
