/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Shared by the routes of executions. */

#include "api/private.h"
#include "service/executions.h"

enum { WAIT_MAXIMUM_MS = 3600 * 1000 };

/* Finds the execution of the route; 404 is answered otherwise. */
typedef void api_execution_fn(struct request *request, const struct found_execution *found);
void api_find_execution(struct request *request, api_execution_fn *then);

void execution_reply(struct request *request, int status, const struct found_execution *found);

/* Answers with the execution when it has ended or the time is over (negative: never). */
void execution_reply_when_ended(struct request *request, struct execution *execution, int status,
                                int64_t wait_ms);

/* As live events: see output_events.c. With `cancels`, the client's leaving cancels it. */
void execution_stream(struct request *request, struct execution *execution, bool cancels);

/* The body of a request as an execution_request; texts are borrowed from the body, the rest is
 * released by execution_body_fini(). */
struct execution_body {
    struct execution_request request;
    const char **argv;  /* owned */
    char *env_json;     /* owned */
    char *secrets_json; /* owned */
    json_t *any_stdin;  /* owned */
    bool cancel_on_disconnect;
};

int execution_body_read(struct request *request, struct execution_body *body, struct error *err);
void execution_body_fini(struct execution_body *body);

static inline void scoped_execution_body_fini(struct execution_body *body)
{
    execution_body_fini(body);
}

/* The caller's own id of a new execution, by its field or by the header Idempotency-Key; NULL without
 * one. Borrowed from the request. */
int execution_key(const struct request *request, const char **out_key, struct error *err);

enum { EXECUTION_FIELDS = 14 };
extern const struct json_field execution_fields[EXECUTION_FIELDS];
extern const struct route_extra execution_extras[];
