/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Shared by the routes of sessions: filters, and answers with a session. */

#include "api/private.h"
#include "service/sessions.h"

enum {
    KEY_MAXIMUM = 256,               /* bytes of a key that a caller gives */
    SECONDS_MAXIMUM = 315360000,     /* ten years: longer is taken for a mistake */
    ENVIRONMENT_MAXIMUM = 128 * 1024 /* bytes of all variables together */
};

/* Whether an object of texts can be variables of a program. Values are never told. */
int check_variables(const char *field, const json_t *variables, struct error *err);

/* Which sessions the parameters label, state and owner of a request mean; its texts are borrowed
 * from the request. */
int api_read_filter(const struct request *request, struct session_filter *filter,
                    struct error *err);

/* GET /sessions */
void api_list_sessions(struct request *request);

void session_reply(struct request *request, int status, const struct session *session);

/* The same when what was changed is in the store: for everything that changes a session. */
void session_reply_recorded(struct request *request, int status, const struct session *session);

/* An operation of session.h whose end is the answer: 200 with the session, or the error. */
struct session_call {
    struct session_op op;
    struct request *request;
};

struct session_call *session_call_new(struct request *request);
void session_call_done(struct session_op *op);
void session_call_changed(struct session_op *op); /* the same, with session_reply_recorded() */

/* The answer is the final record of the session that has ended. */
void session_call_ended(struct session_op *op);

/* As JSON text, NULL for none. */
char *json_to_text(const json_t *value);
