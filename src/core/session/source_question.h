/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * A request for a session whose source only another server knows, such as the registry of an image:
 * the server is asked before anything is made, so that a wrong name is the answer to the request and no session.
 *
 * The question has a copy of the request, and belongs to the operation of its caller.
 */

#include "core/session/session.h"

struct source_question;

/* The answer: the copy of the request goes on, or op->err says why not. */
typedef void source_answered_fn(struct core *core, const struct session_request *request,
                                struct session_op *op, session_done_fn *done);

/* False: the backend knows the source. Otherwise `answered` comes from the loop, once, unless the question is
 * dropped; a source that does not exist is reported to `done` instead. */
bool source_question_ask(struct core *core, struct backend *backend,
                         const struct session_request *request, struct session_op *op,
                         session_done_fn *done, source_answered_fn *answered);

/* Neither will come. NULL is fine. */
void source_question_drop(struct source_question *question);

/* The daemon stops: waiting requests are refused with that. */
void source_questions_refuse(struct core *core);
void source_questions_free(struct core *core); /* no request waits any more */
