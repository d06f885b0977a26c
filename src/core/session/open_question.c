/* SPDX-License-Identifier: Apache-2.0 */
#include "core/session/open_question.h"

#include "base/alloc.h"
#include "base/str.h"
#include "core/session/idempotency.h"
#include "core/session/scopes.h"
#include "core/session/session_private.h"
#include "wire/json.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Successors: key → holder | scope, holder → scope; what is not asked for is left out. */
enum question_stage { ASK_KEY, ASK_HOLDER, ASK_SCOPE, ASK_NOTHING };

struct open_question {
    struct list node; /* core->open_questions */
    struct core *core;
    struct session_request request; /* its texts are owned */
    struct session_op *op;          /* borrowed; NULL: it was dropped */
    session_done_fn *done;
    open_answered_fn *answered;
    enum question_stage stage;
    struct store_query query;
    char *name; /* owned: of the key */
    struct open_answer answer;
    bool has_scope;
};

static void question_free(struct open_question *question)
{
    session_request_fini(&question->request);
    list_remove(&question->node);
    free(question->answer.json);
    free(question->name);
    free(question);
}

/* --- answers of the store -------------------------------------------------------------------- */

static void on_document(struct store_query *query, const struct document_record *record)
{
    struct open_question *question = container_of(query, struct open_question, query);
    struct open_answer *answer = &question->answer;
    scoped(json_decref) json_t *json = NULL;
    const char *session_id;

    if (question->stage == ASK_SCOPE) {
        question->has_scope = record->version && scope_document_is_live(record->json);
        return;
    }
    json = json_read(record->json, strlen(record->json), NULL);
    session_id = json_string_value(json_object_get(json, "session"));
    if (!session_id || !record->version)
        return;
    answer->is_known = true;
    free(answer->json);
    answer->json = xstrdup(record->json);
    snprintf(answer->session_id, ID_SIZE, "%s", session_id);
}

static void on_holder(struct store_query *query, const struct session_record *record)
{
    struct open_question *question = container_of(query, struct open_question, query);

    question->answer.is_elsewhere = !str_equal(record->state, STORE_STATE_ENDED);
}

/* --- the order of the questions --------------------------------------------------------------- */

static const char *owner_of(const struct session_request *request)
{
    return request->owner ? request->owner : "";
}

static bool is_needed(const struct open_question *question)
{
    const struct core *core = question->core;
    char id[ID_SIZE];

    switch (question->stage) {
    case ASK_KEY:
        return idempotency_check(core->idempotency, &question->request, id) == IDEMPOTENCY_NEW &&
               !str_is_empty(question->request.idempotency_key);
    case ASK_HOLDER:
        return question->answer.is_known &&
               !map_get(&core->sessions_by_id, question->answer.session_id);
    case ASK_SCOPE:
        return scopes_must_ask(core->scopes, owner_of(&question->request));
    case ASK_NOTHING:
        return true;
    }
    return true;
}

static void finish(struct open_question *question, const struct error *err)
{
    struct session_op *op = question->op;

    op->asked = NULL;
    if (err) {
        op->err = *err;
        session_op_defer(op, question->core, question->done);
    } else {
        question->answered(question->core, &question->request, op, question->done,
                           &question->answer);
    }
    question_free(question);
}

static void ask_next(struct open_question *question);

static void on_answer(struct store_query *query)
{
    struct open_question *question = container_of(query, struct open_question, query);
    struct error err = query->err;

    if (!question->op) {
        question_free(question);
        return;
    }
    if (err.code == ERR_NONE && question->stage == ASK_SCOPE && !question->has_scope)
        scope_ended_error(owner_of(&question->request), &err);
    if (err.code != ERR_NONE) {
        finish(question, &err);
        return;
    }
    question->stage++;
    ask_next(question);
}

static void ask_next(struct open_question *question)
{
    struct store *store = question->core->parts.store;
    struct store_query *query = &question->query;

    while (!is_needed(question))
        question->stage++;
    *query = (struct store_query){ .on_document = on_document, .done = on_answer };
    switch (question->stage) {
    case ASK_KEY:
        question->name = idempotency_name(&question->request);
        query->kind = IDEMPOTENCY_KIND;
        query->id = question->name;
        store_query(store, STORE_DOCUMENTS, query);
        break;
    case ASK_HOLDER:
        query->on_session = on_holder;
        query->id = question->answer.session_id;
        store_query(store, STORE_SESSIONS, query);
        break;
    case ASK_SCOPE:
        query->kind = SCOPE_KIND;
        query->id = owner_of(&question->request);
        store_query(store, STORE_DOCUMENTS, query);
        break;
    case ASK_NOTHING:
        finish(question, NULL);
        break;
    }
}

bool open_question_ask(struct core *core, const struct session_request *request,
                       struct session_op *op, session_done_fn *done, open_answered_fn *answered)
{
    struct open_question *question;

    if (!core_is_clustered(core) || (str_is_empty(request->idempotency_key) &&
                                     !scopes_must_ask(core->scopes, owner_of(request))))
        return false;
    question = xnew(struct open_question);
    *question = (struct open_question){
        .core = core, .op = op, .done = done, .answered = answered, .stage = ASK_KEY
    };
    session_request_copy(&question->request, request);
    list_append(&core->open_questions, &question->node);
    while (!is_needed(question))
        question->stage++;
    if (question->stage == ASK_NOTHING) {
        question_free(question);
        return false;
    }
    op->core = core;
    op->asked = question;
    ask_next(question);
    return true;
}

/* The store answers all the same. */
void open_question_drop(struct open_question *question)
{
    if (!question)
        return;
    question->op->asked = NULL;
    question->op = NULL;
}

void open_questions_free(struct core *core)
{
    struct open_question *question;

    while ((question = list_first(&core->open_questions, struct open_question, node)))
        question_free(question);
}
