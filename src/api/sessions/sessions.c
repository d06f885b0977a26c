/* SPDX-License-Identifier: Apache-2.0 */
#include "api/sessions/sessions.h"

#include "api/gather.h"
#include "api/sessions/options.h"
#include "base/alloc.h"
#include "base/str.h"
#include "core/sandbox/usage.h"

#include <stdio.h>
#include <string.h>

enum { USUAL_BYTES = 2000 };

/* --- shared ---------------------------------------------------------------------------------- */

char *json_to_text(const json_t *value)
{
    return value ? json_dumps(value, JSON_COMPACT) : NULL;
}

static void write_session(struct request *request, const struct session *session,
                          struct buffer *text)
{
    struct json_writer json = JSON_WRITER(text);

    memcpy(request->session_id, session_id(session), sizeof(request->session_id));
    (void)buffer_reserve(text, USUAL_BYTES); /* at once, not by growing six times */
    session_write_json(session, &json, NULL);
}

void session_reply(struct request *request, int status, const struct session *session)
{
    scoped(buffer_fini) struct buffer text = BUFFER_INIT(REQUEST_REPLY_MAXIMUM);

    write_session(request, session, &text);
    request_reply(request, status, &text);
}

void session_reply_recorded(struct request *request, int status, const struct session *session)
{
    scoped(buffer_fini) struct buffer text = BUFFER_INIT(REQUEST_REPLY_MAXIMUM);

    write_session(request, session, &text);
    request_reply_recorded(request, status, &text);
}

struct session_call *session_call_new(struct request *request)
{
    struct session_call *call = xnew(struct session_call);

    call->request = request;
    request_begin(request);
    return call;
}

/* The operation is over: its request is failed, or answered by `reply`. */
static void session_call_end(struct session_op *op,
                             void (*reply)(struct request *, const struct session_op *))
{
    struct session_call *call = container_of(op, struct session_call, op);
    struct request *request = call->request;

    if (!request_finish(request)) {
        if (op->err.code)
            request_fail(request, &op->err);
        else
            reply(request, op);
    }
    free(call);
}

/* A new session is recorded; one that is opened again may have changed. */
static void reply_done(struct request *request, const struct session_op *op)
{
    if (op->created)
        session_reply(request, 201, op->session);
    else
        session_reply_recorded(request, 200, op->session);
}

void session_call_done(struct session_op *op)
{
    session_call_end(op, reply_done);
}

static void reply_changed(struct request *request, const struct session_op *op)
{
    session_reply_recorded(request, 200, op->session);
}

void session_call_changed(struct session_op *op)
{
    session_call_end(op, reply_changed);
}

/* --- the final record ------------------------------------------------------------------------ */

static void reply_ended(struct request *request, const struct session_op *op)
{
    scoped(buffer_fini) struct buffer text = BUFFER_INIT(REQUEST_REPLY_MAXIMUM);
    struct json_writer json = JSON_WRITER(&text);

    session_record_write_json(op->record, &json, NULL);
    request_reply(request, 200, &text);
}

void session_call_ended(struct session_op *op)
{
    session_call_end(op, reply_ended);
}

/* --- create ---------------------------------------------------------------------------------- */

struct create {
    const char *key;
    json_t *env, *secrets;
    struct session_options options;
};

#define CREATE(name) offsetof(struct create, name)
#define OPTION(name) offsetof(struct create, options.name)

static const struct json_field create_fields[] = {
    { "key", JSON_KIND_TEXT, CREATE(key), .max_length = KEY_MAXIMUM },
    SESSION_OPTION_FIELDS(OPTION),
    { "env", JSON_KIND_TEXT_MAP, CREATE(env), .max_length = ENVIRONMENT_MAXIMUM },
    { "secrets", JSON_KIND_TEXT_MAP, CREATE(secrets), .max_length = ENVIRONMENT_MAXIMUM },
};

int check_variables(const char *field, const json_t *variables, struct error *err)
{
    const char *name;
    json_t *value;
    size_t bytes = 0;

    json_object_foreach((json_t *)variables, name, value)
    {
        if (!*name || strchr(name, '='))
            return error_named(err, ERR_INVALID, "invalid_field",
                               "%s: \"%.64s\" is not a valid variable name", field, name);
        bytes += strlen(name) + json_string_length(value) + 2;
    }
    if (bytes > ENVIRONMENT_MAXIMUM)
        return error_named(err, ERR_TOO_LARGE, "env_too_large", "%s is larger than %d bytes", field,
                           ENVIRONMENT_MAXIMUM);
    return 0;
}

static int read_create(struct request *request, struct create *create,
                       struct session_request *wanted, struct error *err)
{
    if (request_decode(request, create, err) < 0 ||
        session_options_read(request, &create->options, wanted, err) < 0 ||
        check_variables("env", create->env, err) < 0 ||
        check_variables("secrets", create->secrets, err) < 0)
        return -1;
    if (create->key && !*create->key)
        return error_named(err, ERR_INVALID, "invalid_field", "key must not be empty");
    wanted->key = create->key;
    return 0;
}

static void post_session(struct request *request)
{
    struct create create = { .options = SESSION_OPTIONS_INIT };
    scoped(free) char *labels = NULL;
    scoped(free) char *env = NULL;
    scoped(free) char *secrets = NULL;
    struct session_request wanted;
    struct session_call *call;
    struct error err = { 0 };

    if (read_create(request, &create, &wanted, &err) < 0) {
        session_options_fini(&create.options);
        request_fail(request, &err);
        return;
    }
    wanted.labels_json = labels = json_to_text(create.options.labels);
    wanted.env_json = env = json_to_text(create.env);
    wanted.secrets_json = secrets = json_to_text(create.secrets);
    call = session_call_new(request);
    session_open(request->core, &wanted, &call->op, session_call_done);
    session_options_fini(&create.options);
}

/* --- one ------------------------------------------------------------------------------------- */

/* An ended session cannot be used, and its record can still be read. */
static void reply_with_session(struct request *request)
{
    scoped(buffer_fini) struct buffer text = BUFFER_INIT(REQUEST_REPLY_MAXIMUM);

    if (request->session) {
        session_reply(request, 200, request->session);
        return;
    }
    buffer_append_text(&text, request->ended_json);
    request_reply(request, 200, &text);
}

struct report_call {
    struct report_wait wait;
    struct request *request; /* borrowed */
};

/* Meanwhile the session may have ended. */
static void on_reported(struct report_wait *wait)
{
    struct report_call *call = container_of(wait, struct report_call, wait);
    struct request *request = call->request;

    free(call);
    if (!request_finish(request))
        request_find_session(request, request->session_id, ROUTE_ANY_SESSION, reply_with_session);
}

static void show_session(struct request *request)
{
    struct report_call *call;

    if (!request->session || session_read_report(request->session, NULL, NULL)) {
        reply_with_session(request);
        return;
    }
    call = xnew(struct report_call);
    call->request = request;
    request_begin(request);
    (void)session_read_report(request->session, &call->wait, on_reported);
}

static void on_session_measured(void *user)
{
    struct request *request = user;

    if (!request_finish(request))
        request_find_session(request, request->session_id, ROUTE_ANY_SESSION, show_session);
}

static void get_session(struct request *request)
{
    struct usage_round *round;
    struct error err = { 0 };
    bool usage = false;

    if (request_parameter_bool(request, "usage", &usage, &err) < 0) {
        request_fail(request, &err);
    } else if (!usage || !request->session) {
        show_session(request);
    } else {
        round = usage_begin(request->core);
        usage_add(round, session_sandbox(request->session));
        request_begin(request);
        usage_end(round, on_session_measured, request);
    }
}

static void delete_session(struct request *request)
{
    struct session_call *call;

    if (!request->session) {
        show_session(request);
        return;
    }
    call = session_call_new(request);
    session_end(request->session, END_DELETED, NULL, &call->op, session_call_ended);
}

/* --- the table ------------------------------------------------------------------------------- */

static const struct route_parameter list_parameters[] = {
    { "label", "string", "name=value; may be repeated, all must match" },
    { "state", "string", "open, paused, ending or ended; default: all live sessions" },
    { "limit", "integer", "at most this many, 100 by default and 1000 at most" },
    { "cursor", "string", "next_cursor of the previous page" },
    { "owner", "string", "sessions of this owner, * for all owners; operators only" },
    { "ids", "string", "live sessions with these ids only, with commas between them" },
    { "usage", "boolean",
      "1: measure the usage of the sandboxes now; default: the last measurement" },
    API_NODE_PARAMETER,
    { 0 },
};

static const struct route_parameter session_parameters[] = {
    { "usage", "boolean",
      "1: measure the usage of the sandbox now; default: the last measurement" },
    { 0 },
};

static const struct route_answer create_answers[] = {
    { 201, "the new session" },
    { 200, "the session already created with this key or Idempotency-Key" },
    { 400, "a field is unknown, of the wrong type or out of range" },
    { 409, "parameters_differ: the key belongs to a session with other limits" },
    { 429, "capacity: no sandbox is free" },
    { 0 },
};

static const struct route_answer session_answers[] = {
    { 200, "the session; the final record of an ended one, until retention ends" },
    { 404, "session_not_found: unknown, or owned by another principal" },
    { 0 },
};

static const struct route_answer list_answers[] = {
    { 200, "{sessions, next_cursor, total, max_sessions}" },
    { 0 },
};

const struct route api_session_routes[] = {
    { HTTP_POST, "/api/v1/sessions", post_session,
      "Create a session, or return the one with this key", .body = ROUTE_JSON_BODY,
      .fields = create_fields, .field_count = ARRAY_LENGTH(create_fields),
      .answers = create_answers, .home = ROUTE_PLACED, .idempotent = true },
    { HTTP_GET, "/api/v1/sessions", api_list_sessions, "List the caller's sessions",
      .parameters = list_parameters, .answers = list_answers, .gather = api_gather_sessions },
    { HTTP_GET, "/api/v1/sessions/{session}", get_session,
      "Read a session by id or key:KEY, with its sandbox and clocks", .session = ROUTE_ANY_SESSION,
      .parameters = session_parameters, .answers = session_answers },
    { HTTP_DELETE, "/api/v1/sessions/{session}", delete_session,
      "End a session; answers when its sandbox is gone", .session = ROUTE_ANY_SESSION,
      .answers = session_answers },
    { 0 },
};
