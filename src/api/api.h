#pragma once

/*
 * The HTTP API: what callers of the daemon see, under /api/v1.
 *
 *     api.c         one request from its head to its handler
 *     door.c        the front door: from where, who, and how often
 *     audit.c       what was asked for and what ended, for the audit log
 *     routes.c      all routes; each resource has its own table, beside its handlers
 *     request.h     one request on its way through a handler
 *     errors.c      failures as status and JSON
 *     mcp.c         the door of the MCP server, which is in src/mcp
 *     storage.c     stored files: for programs in a sandbox, for owners, for whoever has a URL
 *     lookup.c      the session of a route, live or ended
 *     openapi.c     the document that the tables of routes make
 *
 * Handlers answer now or later; whatever they wait for is dropped when the client leaves.
 */

#include "loop/loop.h"

#include <stdbool.h>
#include <stdint.h>

struct api;
struct audit;
struct auth;
struct config;
struct core;
struct http_exchange;

/* The daemon's own walls, for /healthz. */
struct api_confinement {
    const char *mode; /* borrowed; NULL: nothing is known */
    bool seccomp;
    unsigned landlock;   /* its version; 0 without */
    const char *missing; /* borrowed; "" when nothing is */
};

struct api_parts {
    struct loop *loop; /* all borrowed; all outlive the API */
    const struct config *config;
    struct core *core;
    struct auth *auth;   /* NULL: nobody has to prove who he is */
    struct audit *audit; /* NULL: nothing is written */
    struct api_confinement confinement;
    int64_t started_at; /* wall clock, for /healthz */
};

struct api *api_new(const struct api_parts *parts);
void api_free(struct api *api); /* NULL is fine; after the server, so that no request is open */

/* Tells everybody who listens to events that the daemon ends, and what becomes of sessions. */
void api_tell_shutdown(struct api *api, bool destroys);

/* An http_request_fn; the context is the api. */
void api_handle(void *api, struct http_exchange *exchange);
