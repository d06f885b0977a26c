#pragma once

/*
 * A route: a row of a table of a face. It says which requests it is for, what their body and their
 * query may hold, what is answered, and who handles them. Requests are checked and the OpenAPI
 * document is made from the same rows.
 */

#include "wire/http.h"
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
};

/* What {session} in the path has to be. */
enum route_session { ROUTE_NO_SESSION, ROUTE_LIVE_SESSION, ROUTE_ANY_SESSION };

/* Who may use a route. */
enum route_access {
    ROUTE_CALLERS,  /* every caller who is known */
    ROUTE_ANYBODY,  /* without credentials too; there is no owner then */
    ROUTE_ADMINS,   /* where there is authentication */
    ROUTE_PROGRAMS, /* programs in a sandbox, over its storage socket, and no other caller */
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
    bool approvers;  /* an approver finds the sessions of every owner here */
    bool any_origin; /* the URL itself is the permission: any web page may use it that has it */
};
