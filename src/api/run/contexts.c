/* SPDX-License-Identifier: Apache-2.0 */
#include "api/run/contexts.h"

#include "api/pages.h"
#include "api/sessions/sessions.h"
#include "base/alloc.h"
#include "base/str.h"

#include <string.h>

static void context_reply(struct request *request, int status, const struct context *context)
{
    scoped(buffer_fini) struct buffer text = BUFFER_INIT(REQUEST_REPLY_MAXIMUM);
    struct json_writer json = JSON_WRITER(&text);

    context_write_json(context, &json, NULL);
    request_reply(request, status, &text);
}

struct context *api_find_context(struct request *request)
{
    struct context *context = context_find(request->session, request_path(request, "context"));
    struct error err = { 0 };

    if (context)
        return context;
    error_named(&err, ERR_NOT_FOUND, "context_not_found",
                "context \"%.60s\" not found in session %s", request_path(request, "context"),
                request->session_id);
    request_fail(request, &err);
    return NULL;
}

/* --- starting: the answer comes when the interpreter is there --------------------------------- */

struct start {
    struct request *request;
    struct context_run *run;
    int status;
    bool is_new; /* removed again when it cannot be started */
};

static void on_start_gone(struct request *request)
{
    struct start *start = request->state;

    context_run_leave(start->run, false);
    free(start);
}

static bool always_has_room(const struct context_run *run UNUSED)
{
    return true;
}

static void start_failure(const struct context_run *run, struct error *err)
{
    if (run->state == RUN_FAILED)
        *err = run->err;
    else if (run->exit_code == 127)
        error_named(err, ERR_CONFLICT, "language_unavailable", "the sandbox has no interpreter: %s",
                    run->cause);
    else
        error_named(err, ERR_CONFLICT, "context_crashed", "the interpreter did not start: %s",
                    run->cause ? run->cause : context_run_state_name(run->state));
}

static void on_start_done(struct context_run *run)
{
    struct start *start = run->user;
    struct request *request = start->request;
    struct context *context = run->context;
    struct error err = { 0 };

    request->on_gone = NULL;
    if (run->state == RUN_OK) {
        context_reply(request, start->status, context);
    } else {
        start_failure(run, &err);
        request_fail(request, &err);
        if (start->is_new && run->state != RUN_CANCELLED)
            context_remove(context);
    }
    free(start);
}

static const struct context_handler start_handler = {
    .has_room = always_has_room,
    .on_done = on_start_done,
};

static void start_interpreter(struct request *request, struct context *context, int status,
                              bool is_new)
{
    struct start *start = xnew(struct start);
    struct error err = { 0 };

    *start = (struct start){ .request = request, .status = status, .is_new = is_new };
    start->run = context_run_start(context, NULL, 0, -1, &start_handler, start, &err);
    if (!start->run) {
        request_fail(request, &err);
        free(start);
        return;
    }
    request->state = start;
    request->on_gone = on_start_gone;
}

struct fields {
    const char *language, *cwd;
    json_t *env;
};

static const struct json_field context_fields[] = {
    { "language", JSON_KIND_TEXT, offsetof(struct fields, language), .max_length = 64 },
    { "cwd", JSON_KIND_TEXT, offsetof(struct fields, cwd), .max_length = 4095 },
    { "env", JSON_KIND_TEXT_MAP, offsetof(struct fields, env) },
};

static size_t count_contexts(const struct session *session)
{
    const struct context *context;
    size_t count = 0;

    list_for_each (context, session_contexts(session), node)
        count++;
    return count;
}

/* The context that was made for the key; a new one when none was. */
static struct context *open_by_key(const struct request *request, const struct fields *fields,
                                   const char *env, const char *key, bool *out_is_new,
                                   struct error *err)
{
    scoped(free) char *name = xasprintf("idempotency-key\n%s", key);
    size_t before = count_contexts(request->session);
    struct context *context = context_open(request->session, fields->language, name, err);

    *out_is_new = context && count_contexts(request->session) > before;
    if (*out_is_new) {
        context->cwd = fields->cwd ? xstrdup(fields->cwd) : NULL;
        context->env_json = env ? xstrdup(env) : NULL;
    }
    return context;
}

static void post_context(struct request *request)
{
    struct fields fields = { .language = "python" };
    scoped(free) char *env = NULL;
    struct context *context;
    struct error err = { 0 };
    const char *key;
    bool is_new = true;

    if (request_decode(request, &fields, &err) < 0 ||
        request_idempotency_key(request, &key, &err) < 0) {
        request_fail(request, &err);
        return;
    }
    env = json_to_text(fields.env);
    context = key ? open_by_key(request, &fields, env, key, &is_new, &err)
                  : context_new(request->session, fields.language, fields.cwd, env, &err);
    if (!context)
        request_fail(request, &err);
    else if (is_new)
        start_interpreter(request, context, 201, true);
    else
        context_reply(request, 200, context);
}

/* --- the rest -------------------------------------------------------------------------------- */

static void get_contexts(struct request *request)
{
    scoped(buffer_fini) struct buffer text = BUFFER_INIT(REQUEST_REPLY_MAXIMUM);
    struct json_writer json = JSON_WRITER(&text);
    const struct context *context;

    json_begin_object(&json, NULL);
    json_begin_array(&json, "contexts");
    list_for_each (context, session_contexts(request->session), node)
        context_write_json(context, &json, NULL);
    json_end_array(&json);
    json_end_object(&json);
    api_reply_page(request, &text, "contexts", "id");
}

static void get_context(struct request *request)
{
    struct context *context = api_find_context(request);

    if (context)
        context_reply(request, 200, context);
}

static void delete_context(struct request *request)
{
    struct context *context = api_find_context(request);

    if (!context)
        return;
    context_reply(request, 200, context);
    context_remove(context);
}

static void post_interrupt(struct request *request)
{
    struct context *context = api_find_context(request);
    struct error err = { 0 };

    if (!context)
        return;
    if (context_interrupt(context, &err) < 0)
        request_fail(request, &err);
    else
        context_reply(request, 200, context);
}

static void post_restart(struct request *request)
{
    struct context *context = api_find_context(request);

    if (!context)
        return;
    context_restart(context);
    start_interpreter(request, context, 200, false);
}

static void post_run(struct request *request)
{
    struct context *context = api_find_context(request);

    if (context)
        api_run_context(request, context);
}

/* --- the table ------------------------------------------------------------------------------- */

#define CONTEXTS "/api/v1/sessions/{session}/contexts"
#define CONTEXT CONTEXTS "/{context}"

static const struct route_answer start_answers[] = {
    { 201, "the context; its interpreter runs" },
    { 200, "the context already made with this Idempotency-Key" },
    { 400, "unsupported_language, or a field is unknown or of the wrong type" },
    { 404, "session_not_found: unknown, or owned by another principal" },
    { 409, "language_unavailable or context_crashed: the interpreter could not be started" },
    { 410, "session_ended: with the reason and the final record" },
    { 429, "too_many_contexts" },
    { 0 },
};

static const struct route_parameter list_parameters[] = { API_PAGE_PARAMETERS, { 0 } };

static const struct route_answer list_answers[] = {
    { 200, "{contexts, next_cursor}" },
    { 404, "session_not_found: unknown, or owned by another principal" },
    { 0 },
};

static const struct route_answer context_answers[] = {
    { 200, "the context" },
    { 404, "session_not_found or context_not_found" },
    { 409, "not possible in its current state" },
    { 0 },
};

static const struct route_answer run_answers[] = {
    { 200, "{state, stdout, stderr, results, error, …}; with Accept: text/event-stream the events "
           "stdout, stderr, display, result, error and done" },
    { 400, "a field is unknown, of the wrong type or out of range" },
    { 404, "session_not_found or context_not_found" },
    { 409, "not possible in the current state of the session" },
    { 429, "too_many_runs: too many runs wait for this context" },
    { 0 },
};

const struct route api_context_routes[] = {
    { HTTP_POST, CONTEXTS, post_context, "Start a context: an interpreter that keeps its state",
      .body = ROUTE_JSON_BODY, .session = ROUTE_LIVE_SESSION, .fields = context_fields,
      .field_count = ARRAY_LENGTH(context_fields), .answers = start_answers, .idempotent = true },
    { HTTP_GET, CONTEXTS, get_contexts, "List the contexts of a session",
      .session = ROUTE_LIVE_SESSION, .parameters = list_parameters, .answers = list_answers },
    { HTTP_GET, CONTEXT, get_context, "Read a context", .session = ROUTE_LIVE_SESSION,
      .answers = context_answers },
    { HTTP_DELETE, CONTEXT, delete_context, "Remove a context and the code that runs in it",
      .session = ROUTE_LIVE_SESSION, .answers = context_answers },
    { HTTP_POST, CONTEXT "/interrupt", post_interrupt,
      "Interrupt the running code; the interpreter stays", .body = ROUTE_JSON_BODY,
      .session = ROUTE_LIVE_SESSION, .answers = context_answers },
    { HTTP_POST, CONTEXT "/restart", post_restart, "Restart the interpreter of a context",
      .body = ROUTE_JSON_BODY, .session = ROUTE_LIVE_SESSION, .answers = context_answers },
    { HTTP_POST, CONTEXT "/run", post_run, "Run code in a context", .body = ROUTE_JSON_BODY,
      .session = ROUTE_LIVE_SESSION, .fields = context_run_fields,
      .field_count = ARRAY_LENGTH(context_run_fields), .answers = run_answers },
    { 0 },
};
