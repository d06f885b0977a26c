/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * A route: a row of a table of a face. It says which requests it is for, what their body and their
 * query may hold, what is answered, and who handles them. Requests are checked and the OpenAPI
 * document is made from the same rows.
 */

#include "wire/http/http.h"
#include "wire/json.h"

#include <stdbool.h>
#include <stddef.h>

struct request;
typedef void request_fn(struct request *request);

enum route_body {
    ROUTE_NO_BODY,
    ROUTE_JSON_BODY,
    ROUTE_BYTES_BODY,
    ROUTE_MESSAGE_BODY, /* JSON that the handler reads itself */
    ROUTE_ANY_BODY,     /* of any type: the handler looks at it, and reads the body itself */
};

/* The state that the {session} of the path has to be in. */
enum route_session { ROUTE_NO_SESSION, ROUTE_LIVE_SESSION, ROUTE_ANY_SESSION };

/* The callers that may use a route. */
enum route_access {
    ROUTE_CALLERS,  /* every caller who is known */
    ROUTE_ANYBODY,  /* without credentials too; there is no owner then */
    ROUTE_ADMINS,   /* where there is authentication */
    ROUTE_PROGRAMS, /* programs in a sandbox, over its storage socket, and no other caller */
};

/* Which node serves it, where there are several; a route with {session}: the home of that. */
enum route_home {
    ROUTE_HERE,        /* the one that was asked */
    ROUTE_PLACED,      /* the home of the session that the body names, or where a new one is made */
    ROUTE_OF_APPROVAL, /* the home of the session that {approval} is about */
    ROUTE_OF_URL,      /* the home of the session that {token} or {id} begins with */
    ROUTE_OF_NODE,     /* {node} */
    ROUTE_OF_MESSAGE,  /* the handler finds out */
};

/* A field that json_field cannot describe, because it has more than one type. */
struct route_extra {
    const char *name;
    const char *schema; /* JSON schema */
};

struct route_parameter {
    const char *name; /* in the query */
    const char *type; /* of its schema: "string", "integer", "number", "boolean" */
    const char *help;
    bool required;
};

struct route_answer {
    int status;
    const char *help;
};

struct route {
    enum http_method method;
    const char *path; /* "/api/v1/sessions/{session}" */
    request_fn *handle;
    const char *summary;
    enum route_body body;
    enum route_session session;
    const struct json_field *fields;
    size_t field_count;
    const struct route_extra *extras;         /* ends with a row without a name; may be NULL */
    const struct route_parameter *parameters; /* as extras */
    const struct route_answer *answers;       /* ends with status 0 */
    enum route_access access;
    enum route_home home;
    request_fn *gather; /* of the whole cluster, unless ?node= names one: face/gather.h; or NULL */
    bool unrecorded;    /* it changes something, and nothing of that has to be recorded */
    bool approvers;     /* an approver finds the sessions of every owner here */
    /* For every method. {path} at its end is the rest of the target, as it came (request->rest):
     * nothing of the query and the body is checked. */
    bool is_proxy;
    bool idempotent; /* it takes the header Idempotency-Key */
    bool any_origin; /* the URL itself is the permission: any web page may use it that has it */
    /* For the OpenAPI document, where src/api/document/operations.c has no row for the route. */
    const char *operation; /* operationId; NULL: derived from method and path */
    const char *schema;    /* type of a good answer, as in api/document/schema.h; NULL: unknown */
};
