/* SPDX-License-Identifier: Apache-2.0 */
#include "core/session/source_question.h"

#include "base/alloc.h"
#include "base/str.h"
#include "core/session/session_private.h"

#include <stdlib.h>

struct source_question {
    struct list node; /* core->source_questions */
    struct core *core;
    struct backend *backend; /* borrowed */
    struct backend_op asked;
    struct session_request request; /* its texts are owned */
    struct session_op *op;          /* borrowed; its `question` is this one */
    session_done_fn *done;
    source_answered_fn *answered;
};

static void free_question(struct source_question *question)
{
    session_request_fini(&question->request);
    list_remove(&question->node);
    free(question);
}

static void on_answer(struct backend_op *asked)
{
    struct source_question *question = container_of(asked, struct source_question, asked);
    struct session_op *op = question->op;

    op->question = NULL;
    if (asked->err.code == ERR_NONE) {
        question->answered(question->core, &question->request, op, question->done);
    } else {
        op->err = asked->err;
        session_op_defer(op, question->core, question->done);
    }
    free_question(question);
}

bool source_question_ask(struct core *core, struct backend *backend,
                         const struct session_request *request, struct session_op *op,
                         session_done_fn *done, source_answered_fn *answered)
{
    struct source_question *question;

    if (str_is_empty(request->template_name) || !backend->ops->find_source)
        return false;
    question = xnew(struct source_question);
    *question = (struct source_question){ .core = core,
                                          .backend = backend,
                                          .asked.done = on_answer,
                                          .op = op,
                                          .done = done,
                                          .answered = answered };
    list_init(&question->node);
    session_request_copy(&question->request, request);
    if (backend_find_source(
            backend, &(struct sandbox_source){ SOURCE_TEMPLATE, question->request.template_name },
            &question->asked)) {
        free_question(question);
        return false;
    }
    list_append(&core->source_questions, &question->node);
    op->core = core;
    op->question = question;
    return true;
}

void source_question_drop(struct source_question *question)
{
    if (!question)
        return;
    backend_cancel(question->backend, &question->asked);
    question->op->question = NULL;
    free_question(question);
}

void source_questions_refuse(struct core *core)
{
    struct source_question *question;

    while ((question = list_first(&core->source_questions, struct source_question, node))) {
        struct session_op *op = question->op;
        session_done_fn *done = question->done;

        source_question_drop(question);
        error_named(&op->err, ERR_UNAVAILABLE, "shutting_down", "the daemon is shutting down");
        session_op_defer(op, core, done);
    }
}

/* The operations may be gone, and the backend answers nothing any more. */
void source_questions_free(struct core *core)
{
    struct source_question *question;

    while ((question = list_first(&core->source_questions, struct source_question, node)))
        free_question(question);
}
