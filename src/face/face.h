/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * The faces of the daemon: what callers see, each a directory and a table.
 *
 *     face.h       struct face, and all of them behind one server
 *     route.h      a row of a face's routes
 *     request.h    one request on its way through a handler
 *     faces.c      one request from its head to its handler
 *     match.c      the target of a request, and the route that it is for
 *     door.c       from where a request comes, who makes it, and whether they may
 *     cookie.h     the login of a browser
 *     lookup.c     the session of a route, live or ended
 *     errors.c     failures as status and JSON, as most faces write them
 *     events.h     answers of Server-Sent Events
 *     trail.h      what was asked for and what ended, for the audit log
 *     port_proxy.h requests that go on to a port inside of a sandbox
 *     port_access.h  who may do that; the face of host names for ports
 *
 * The daemon lists its faces in one array. A request belongs to the first whose host and prefix
 * fit; it is checked and identified before its handler is called. Handlers answer now or later;
 * work that they wait for is dropped when the client leaves.
 */

#include "face/route.h"

#include "base/id.h"
#include "base/list.h"
#include "loop/loop.h"

#include <stdbool.h>
#include <stddef.h>

struct audit;
struct audit_trail;
struct auth;
struct cluster;
struct config;
struct core;
struct error;
struct home_cache;
struct http_exchange;
struct parsing;
struct relay;
struct http_head;

/* How a request belongs to a face that looks at more than the prefix and the host. */
enum face_claim {
    FACE_CLAIM_NONE,
    FACE_CLAIM_PATH, /* by its path or its headers */
    FACE_CLAIM_HOST, /* by a host name that is the face's own, and therefore accepted */
};

struct face {
    const char *name;
    const char *prefix; /* of its paths, "/mcp"; NULL: every path that no face before it has */
    const char *host;   /* that requests are sent to; NULL: any that the daemon answers to */

    /* Decides instead of prefix and host, from the head alone; NULL: those two decide. */
    enum face_claim (*claim)(void *context, const struct http_head *head);
    bool is_foreign; /* the API of another product: unknown parameters are ignored, and OpenAPI
                        does not list it */

    const struct route *route; /* of every request; NULL: the tables say */

    /* Finds out who asks and whether they may, then calls `then`, now or later; answers otherwise.
     * Usually request_identify(). */
    void (*identify)(struct request *request, request_fn *then);

    /* The session that a request is about, from its head, for faces whose routes have no {session}:
     * where there are several nodes, its home serves it. False: none. NULL: no request names one so.
     */
    bool (*session_of)(void *context, const struct http_head *head, char out_id[ID_SIZE]);
    bool identifies_at_home; /* only the home of that session can check the caller */

    /* Answers with an error. Usually request_fail_json(). */
    void (*fail)(struct request *request, const struct error *err);

    const struct rename *renames; /* old names of fields and parameters; may be NULL */

    const struct route *const
        *tables; /* of its routes; NULL at the end, each ends with a row without
                                          a path */
};

/* A face and the object behind it, which its handlers find as request->context. */
struct face_entry {
    const struct face *face; /* NULL at the end of the array */
    void *context;
};

struct faces_parts {
    struct loop *loop; /* all borrowed; all outlive the faces */
    const struct config *config;
    struct core *core;
    struct auth *auth;              /* NULL: authentication is off */
    struct audit *audit;            /* NULL: there is no audit log */
    struct cluster *cluster;        /* NULL: this daemon is alone */
    struct relay *relay;            /* to its other nodes; NULL likewise */
    const struct face_entry *faces; /* copied */
};

struct faces {
    struct faces_parts parts;
    struct face_entry *entries; /* owned */
    size_t entry_count;
    const struct route **routes; /* owned: of all faces, one face behind the other */
    size_t route_count;
    struct audit_trail *trail; /* owned; NULL without an audit log */
    struct list streams;       /* struct request: answers that are Server-Sent Events */
    struct list requests;      /* struct request: all that are open */
    struct home_cache *homes;  /* owned; NULL without a cluster */
    struct worker *parser;     /* owned; of large bodies, NULL before the first */
    struct parsing *parsing;   /* owned: the body that it parses, or NULL */
    struct list parsings;      /* struct parsing: the bodies that wait for it */
};

struct faces *faces_new(const struct faces_parts *parts);
void faces_free(
    struct faces *faces); /* NULL is fine; after the server, so that no request is open */

/* Tells every reader of events that the daemon ends, and what becomes of sessions. */
void faces_tell_shutdown(struct faces *faces, bool destroys);

/* Answers all open requests with this error; those whose answer has begun are cut. */
void faces_refuse_open(struct faces *faces, const struct error *err);

/* An http_request_fn; the context is the faces. */
void faces_handle(void *context, struct http_exchange *exchange);
