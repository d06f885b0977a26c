/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * A request for a session, where several nodes share the store: what only the others may know is
 * asked of the store before anything is made. That is the session that an Idempotency-Key has made
 * elsewhere, and whether the scope that the owner was minted for is still open.
 *
 * The question has a copy of the request, and belongs to the operation of its caller.
 */

#include "core/session/session.h"

struct open_question;

/* The session that was made for the key of the request. */
struct open_answer {
    bool is_known;
    bool is_elsewhere; /* it lives on another node */
    char session_id[ID_SIZE];
    char *json; /* owned: what is recorded of its request */
};

typedef void open_answered_fn(struct core *core, const struct session_request *request,
                              struct session_op *op, session_done_fn *done,
                              const struct open_answer *answer);

/* False: nothing is to be asked. Otherwise `answered` comes from the loop, once, unless the question
 * is dropped; a scope that is over, or a store that does not answer, is reported to `done`. */
bool open_question_ask(struct core *core, const struct session_request *request,
                       struct session_op *op, session_done_fn *done, open_answered_fn *answered);

/* Neither will come. NULL is fine. */
void open_question_drop(struct open_question *question);

/* No request waits any more. */
void open_questions_free(struct core *core);
