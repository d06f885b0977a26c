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
 *     lookup.c     the session of a route, live or ended
 *     errors.c     failures as status and JSON, as most faces write them
 *     events.h     answers of Server-Sent Events
 *     trail.h      what was asked for and what ended, for the audit log
 *
 * The daemon lists its faces in one array. A request belongs to the first whose host and prefix fit;
 * it is checked and identified before its handler is called. Handlers answer now or later; whatever
 * they wait for is dropped when the client leaves.
 */

#include "face/route.h"

#include "base/list.h"
#include "loop/loop.h"

#include <stdbool.h>
#include <stddef.h>

struct audit;
struct audit_trail;
struct auth;
struct config;
struct core;
struct error;
struct http_exchange;

struct face {
    const char *name;
    const char *prefix; /* of its paths, "/mcp"; NULL: every path that no face before it has */
    const char *host;   /* that requests are sent to; NULL: any that the daemon answers to */

    /* Finds out who asks and whether they may, then calls `then`, now or later; answers otherwise.
     * Usually request_identify(). */
    void (*identify)(struct request *request, request_fn *then);

    /* Answers with an error. Usually request_fail_json(). */
    void (*fail)(struct request *request, const struct error *err);

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
};

struct faces *faces_new(const struct faces_parts *parts);
void faces_free(
    struct faces *faces); /* NULL is fine; after the server, so that no request is open */

/* Tells every reader of events that the daemon ends, and what becomes of sessions. */
void faces_tell_shutdown(struct faces *faces, bool destroys);

/* An http_request_fn; the context is the faces. */
void faces_handle(void *context, struct http_exchange *exchange);
