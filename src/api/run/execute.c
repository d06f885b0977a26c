/* SPDX-License-Identifier: Apache-2.0 */
/*
 * POST /execute: one call for code. The session is made on demand; one that was made for this call
 * is removed before the answer when the call is ephemeral or the code could not be run to its end.
 * After the run the workspace is searched for files that are new or changed.
 */

#include "core/run/execute.h"
#include "api/run/executions.h"
#include "api/sessions/options.h"
#include "api/sessions/sessions.h"
#include "base/alloc.h"
#include "base/str.h"
#include "config/config.h"
#include "core/run/language.h"
#include "service/executions.h"

#include <string.h>
#include <sys/stat.h>

enum { FILES_TOLD = 1000 };

struct execute_body {
    const char *code, *language, *session_id, *key, *cwd;
    json_t *env, *secrets;
    int64_t timeout_ms;
    bool ephemeral;
    bool cancel_on_disconnect;
    struct session_options options;
};

#define BODY(name) offsetof(struct execute_body, name)
#define OPTION(name) offsetof(struct execute_body, options.name)

static const struct json_field fields[] = {
    { "code", JSON_KIND_TEXT, BODY(code), .required = true,
      .max_length = PROTOCOL_MAX_SCRIPT_BYTES },
    { "language", JSON_KIND_TEXT, BODY(language), .max_length = 64 },
    { "session_id", JSON_KIND_TEXT, BODY(session_id), .max_length = 300 },
    { "key", JSON_KIND_TEXT, BODY(key), .max_length = 256 },
    { "timeout_seconds", JSON_KIND_SECONDS, BODY(timeout_ms), .minimum = 0,
      .maximum = SECONDS_MAXIMUM },
    { "env", JSON_KIND_TEXT_MAP, BODY(env) },
    { "secrets", JSON_KIND_TEXT_MAP, BODY(secrets) },
    { "cwd", JSON_KIND_TEXT, BODY(cwd), .max_length = 4095 },
    { "ephemeral", JSON_KIND_BOOL, BODY(ephemeral) },
    { "cancel_on_disconnect", JSON_KIND_BOOL, BODY(cancel_on_disconnect) },
    SESSION_OPTION_FIELDS(OPTION),
};

/* With an Idempotency-Key the session is opened and the execution looked for before the code runs. */
enum answer_stage { ANSWER_RUNNING, ANSWER_OPENING, ANSWER_SEARCHING };

struct answer {
    struct request *request; /* NULL: the client has left during the search */
    struct execute_body body;
    char *env, *secrets, *labels;  /* owned; of the body, as text */
    struct session_request wanted; /* the session to open, when the body names none */
    char *repeat_key;              /* owned: Idempotency-Key; NULL without one */
    enum answer_stage stage;
    struct session_op op;
    struct execution_search search;
    char session_id[ID_SIZE];   /* where it is looked for */
    struct execution *repeated; /* a reference: the one in memory that has the key */
    bool is_answered;
    struct execute execute;
};

static void answer_free(struct answer *answer)
{
    if (answer->stage == ANSWER_OPENING)
        session_op_cancel(&answer->op);
    if (answer->stage == ANSWER_RUNNING)
        execute_fini(&answer->execute);
    if (answer->repeated)
        execution_unref(answer->repeated);
    free(answer->repeat_key);
    free(answer->env);
    free(answer->secrets);
    free(answer->labels);
    session_options_fini(&answer->body.options);
    free(answer);
}

/* The store answers all the same. */
static void on_gone(struct request *request)
{
    struct answer *answer = request->state;

    if (answer->stage == ANSWER_SEARCHING)
        answer->request = NULL;
    else
        answer_free(answer);
}

static void finish(struct answer *answer)
{
    answer->request->on_gone = NULL;
    answer_free(answer);
}

/* --- the answer ------------------------------------------------------------------------------ */

static void put_session_files(const struct execute *execute, struct json_writer *json)
{
    struct protocol_entry_view entry;
    size_t at = 0;

    json_begin_array(json, "session_files");
    for (unsigned count = 0; count < FILES_TOLD && execute_next_file(execute, true, &at, &entry);
         count++) {
        json_begin_object(json, NULL);
        json_put_bytes(json, "name", entry.path, entry.fixed.path_length);
        json_put_int(json, "size_bytes", (int64_t)entry.fixed.stat.size);
        json_put_int(json, "size", (int64_t)entry.fixed.stat.size);
        json_put_time(json, "modified", entry.fixed.stat.modified_us);
        json_end_object(json);
    }
    json_end_array(json);
}

static void put_output_files(const struct execute *execute, struct json_writer *json)
{
    struct protocol_entry_view entry;
    size_t at = 0;

    json_begin_array(json, "output_files");
    for (unsigned count = 0; count < FILES_TOLD && execute_next_file(execute, true, &at, &entry);
         count++)
        json_put_bytes(json, NULL, entry.path, entry.fixed.path_length);
    json_end_array(json);
}

static bool put_stream(struct json_writer *json, const char *key, struct spool *spool,
                       size_t capture)
{
    scoped(buffer_fini) struct buffer text = BUFFER_INIT(capture + 1024);
    bool is_truncated = false;

    if (spool)
        (void)spool_capture(spool, capture, &text, &is_truncated);
    json_put_bytes(json, key, text.data ? (const void *)text.data : "", text.length);
    return is_truncated;
}

/* Output that could not be read counts too. */
static const char *find_error(const struct execution *execution)
{
    const struct error *err = spool_error(execution_stdout(execution));

    if (execution_facts(execution)->error)
        return execution_facts(execution)->error;
    if (!err && execution_stderr(execution))
        err = spool_error(execution_stderr(execution));
    return err ? err->message : NULL;
}

static void put_end(const struct execution *execution, struct json_writer *json)
{
    const struct execution_facts *facts = execution_facts(execution);
    char timeout[STR_UNIT_SIZE];
    scoped(free) char *timed_out = NULL;

    json_put_text(json, "state", execution_state_name(facts->state));
    if (facts->exit_code >= 0)
        json_put_int(json, "exit_code", facts->exit_code);
    else
        json_put_null(json, "exit_code");
    if (facts->signal)
        json_put_int(json, "signal", facts->signal);
    else
        json_put_null(json, "signal");
    json_put_text(json, "reason", facts->reason);
    if (facts->state == EXECUTION_TIMEOUT) {
        str_format_duration(facts->timeout_ms, timeout);
        timed_out = xasprintf("timeout: execution timed out after %s", timeout);
    }
    execution_write_error(json, "error", execution_state_name(facts->state), facts->exit_code,
                          timed_out ? timed_out : find_error(execution));
}

static int64_t least_remaining_ms(const struct session *session)
{
    int64_t remaining_ms = -1;

    (void)session_next_end(session, &remaining_ms);
    return remaining_ms;
}

static void put_remaining(struct json_writer *json, const char *key, int64_t remaining_ms)
{
    if (remaining_ms >= 0)
        json_put_double(json, key, (double)remaining_ms / 1000);
    else
        json_put_null(json, key);
}

static void put_session(const struct execute *execute, struct json_writer *json)
{
    const struct session *session = execute_session(execute);
    int64_t remaining_ms = session ? least_remaining_ms(session) : -1;

    json_put_text(json, "session_id", execute->session_id);
    json_put_bool(json, "session_ended", !session);
    put_remaining(json, "session_time_remaining_seconds", remaining_ms);
    put_remaining(json, "session_ttl_remaining", remaining_ms);
    put_session_files(execute, json);
    put_output_files(execute, json);
}

static void reply(struct answer *answer)
{
    const struct execute *execute = &answer->execute;
    const struct execution *execution = execute->execution;
    const struct execution_facts *facts = execution_facts(execution);
    size_t capture = (size_t)answer->request->core->parts.config->exec.output_capture_bytes;
    int64_t wall_us = facts->started.boot_us ? facts->ended.boot_us - facts->started.boot_us : 0;
    scoped(buffer_fini) struct buffer text = BUFFER_INIT(REQUEST_REPLY_MAXIMUM);
    struct json_writer json = JSON_WRITER(&text);
    scoped(free) char *warning = execution_warning(execution);
    char reset_reason[END_TEXT_SIZE];
    bool is_truncated;

    json_begin_object(&json, NULL);
    is_truncated = put_stream(&json, "stdout", execution_stdout(execution), capture);
    is_truncated = put_stream(&json, "stderr", execution_stderr(execution), capture) ||
                   is_truncated;
    json_put_bool(&json, "truncated", is_truncated);
    put_end(execution, &json);
    json_put_text(&json, "execution_id", facts->id);
    json_put_double(&json, "duration_seconds", (double)wall_us / 1e6);
    json_put_bool(&json, "files_were_reset", facts->files_were_reset);
    json_put_text(&json, "warning", warning);
    json_put_text(&json, "reset_reason",
                  end_reason_text_or_null(&facts->reset_reason, reset_reason));
    put_session(execute, &json);
    json_end_object(&json);
    request_reply_result(answer->request, 200, &text);
}

/* --- the run --------------------------------------------------------------------------------- */

static void on_done(struct execute *execute)
{
    struct answer *answer = container_of(execute, struct answer, execute);

    if (execute->err.code)
        request_fail(answer->request, &execute->err);
    else
        reply(answer);
    finish(answer);
}

static void start(struct answer *answer, struct session *session, bool session_is_new)
{
    struct request *request = answer->request;
    const struct execute_body *body = &answer->body;
    struct execute_request wanted = {
        .session = session,
        .owner = request->owner,
        .options = session ? NULL : &answer->wanted,
        .session_is_new = session_is_new,
        .execution_key = answer->repeat_key,
        .code = body->code,
        .language = body->language,
        .cwd = body->cwd,
        .env_json = answer->env,
        .secrets_json = answer->secrets,
        .timeout_ms = body->timeout_ms,
        .is_ephemeral = body->ephemeral,
        .goes_on = !body->cancel_on_disconnect,
    };
    struct error err = { 0 };

    answer->stage = ANSWER_RUNNING;
    if (execute_start(&answer->execute, request->core, &wanted, on_done, &err) == 0)
        return;
    request_fail(request, &err);
    finish(answer);
}

/* --- the same request again ------------------------------------------------------------------ */

static void copy_member(struct json_writer *json, const char *name, const json_t *from)
{
    const json_t *value = json_object_get(from, name);
    scoped(free) char *text = value ? json_dumps(value, JSON_COMPACT | JSON_ENCODE_ANY) : NULL;

    json_put_raw(json, name, text ? text : "null");
}

/* From its record. The workspace is as it is now: the files of that run are not looked for again. */
static void reply_recorded(struct answer *answer, const struct found_execution *found)
{
    static const char *const members[] = {
        "stdout",           "stderr",           "truncated", "state",
        "exit_code",        "signal",           "reason",    "error",
        "duration_seconds", "files_were_reset", "warning",   "reset_reason"
    };
    scoped(buffer_fini) struct buffer text = BUFFER_INIT(REQUEST_REPLY_MAXIMUM);
    scoped(buffer_fini) struct buffer whole = BUFFER_INIT(REQUEST_REPLY_MAXIMUM);
    struct json_writer source = JSON_WRITER(&whole);
    struct json_writer json = JSON_WRITER(&text);
    scoped(json_decref) json_t *document = NULL;
    struct execute execute = { .core = answer->request->core };

    found_execution_write_json(found, &source, NULL, true);
    document = json_read(whole.data, whole.length, NULL);
    memcpy(execute.session_id, answer->session_id, sizeof(execute.session_id));
    json_begin_object(&json, NULL);
    for (size_t i = 0; i < ARRAY_LENGTH(members); i++)
        copy_member(&json, members[i], document);
    json_put_text(&json, "execution_id", found_execution_id(found));
    put_session(&execute, &json);
    json_end_object(&json);
    request_reply_result(answer->request, 200, &text);
}

static void on_recorded(struct execution_search *search, const struct found_execution *found)
{
    struct answer *answer = container_of(search, struct answer, search);

    if (!answer->request)
        return;
    if (found->live) { /* it may end before it is joined: then its key still has to find it */
        execution_ref(found->live);
        answer->repeated = found->live;
        return;
    }
    answer->is_answered = true;
    reply_recorded(answer, found);
}

/* One in memory is joined by its key, and one that is not known is started. */
static void on_searched(struct execution_search *search)
{
    struct answer *answer = container_of(search, struct answer, search);
    struct error err = search->err;
    struct session *session;

    execution_search_fini(search);
    answer->stage = ANSWER_RUNNING;
    if (!answer->request) {
        answer_free(answer);
        return;
    }
    session = session_find(answer->request->core, NULL, true, answer->session_id);
    if (!answer->is_answered && !err.code && session) {
        start(answer, session, false);
        return;
    }
    if (!answer->is_answered && !err.code)
        error_named(&err, ERR_GONE, "session_ended", "session %s has ended", answer->session_id);
    if (!answer->is_answered)
        request_fail(answer->request, &err);
    finish(answer);
}

static void look_for_repeated(struct answer *answer, const struct session *session)
{
    memcpy(answer->session_id, session_id(session), sizeof(answer->session_id));
    answer->stage = ANSWER_SEARCHING;
    answer->search.on_found = on_recorded;
    answer->search.done = on_searched;
    execution_search_start(&answer->search, answer->request->core, answer->session_id, NULL,
                           answer->repeat_key);
}

static void on_opened(struct session_op *op)
{
    struct answer *answer = container_of(op, struct answer, op);

    answer->stage = ANSWER_RUNNING;
    if (op->err.code) {
        request_fail(answer->request, &op->err);
        finish(answer);
    } else if (op->created) {
        start(answer, op->session, true);
    } else {
        look_for_repeated(answer, op->session);
    }
}

static void open_session(struct answer *answer)
{
    answer->wanted.is_one_shot = answer->body.ephemeral;
    answer->stage = ANSWER_OPENING;
    session_open(answer->request->core, &answer->wanted, &answer->op, on_opened);
}

static void on_found(struct request *request)
{
    struct answer *answer = request->state;

    if (answer->repeat_key)
        look_for_repeated(answer, request->session);
    else
        start(answer, request->session, false);
}

/* A session that exists has its options already; with a key they are those of a new one, or have to
 * be the same. */
static int read_options(struct request *request, struct answer *answer, struct error *err)
{
    const char *name = answer->body.session_id ? session_options_named(request) : NULL;

    if (name)
        return error_named(err, ERR_INVALID, "invalid_field",
                           "%s is for a new session: leave out %s or session_id", name, name);
    if (session_options_read(request, &answer->body.options, &answer->wanted, err) < 0)
        return -1;
    answer->wanted.key = str_is_empty(answer->body.key) ? NULL : answer->body.key;
    if (answer->wanted.idempotency_key)
        answer->repeat_key = xstrdup(answer->wanted.idempotency_key);
    if (answer->wanted.key) /* the session is known by it already */
        answer->wanted.idempotency_key = NULL;
    answer->wanted.labels_json = answer->labels = json_to_text(answer->body.options.labels);
    return 0;
}

static int read_body(struct request *request, struct execute_body *body, struct error *err)
{
    body->timeout_ms = execute_default_timeout_ms(request->core);
    body->cancel_on_disconnect = true;
    body->options = SESSION_OPTIONS_INIT;
    if (request_decode(request, body, err) < 0)
        return -1;
    if (!*body->code)
        return error_named(err, ERR_INVALID, "invalid_field", "code must not be empty");
    if ((body->session_id || body->key) && session_check_enabled(request->core, err) < 0)
        return -1;
    if (body->session_id && body->key)
        return error_named(err, ERR_INVALID, "invalid_field", "give session_id or key, not both");
    if (body->ephemeral && (body->session_id || body->key))
        return error_named(err, ERR_INVALID, "invalid_field",
                           "ephemeral needs a session of its own: leave out session_id and key");
    return language_check(body->language, err);
}

static void post_execute(struct request *request)
{
    struct answer *answer = xnew(struct answer);
    struct error err = { 0 };

    if (read_body(request, &answer->body, &err) < 0 || read_options(request, answer, &err) < 0) {
        answer_free(answer);
        request_fail(request, &err);
        return;
    }
    answer->request = request;
    answer->env = json_to_text(answer->body.env);
    answer->secrets = json_to_text(answer->body.secrets);
    request->state = answer;
    request->on_gone = on_gone;
    if (answer->body.session_id)
        request_find_session(request, answer->body.session_id, ROUTE_LIVE_SESSION, on_found);
    else if (answer->repeat_key)
        open_session(answer);
    else
        start(answer, NULL, false);
}

static const struct route_answer answers[] = {
    { 200, "{stdout, stderr, exit_code, state, execution_id, duration_seconds, session_id, "
           "session_ended, session_ttl_remaining, session_files, output_files}; state is timeout "
           "when it was "
           "stopped" },
    { 400, "a field is missing, unknown, of the wrong type or out of range; unsupported_language" },
    { 403, "sessions_disabled, command_blocked, mount_not_allowed" },
    { 404, "session_not_found" },
    { 410, "session_ended" },
    { 429, "capacity, too_many_executions" },
    { 502, "the sandbox could not be created" },
    { 0 },
};

const struct route api_execute_routes[] = {
    { HTTP_POST, "/api/v1/execute", post_execute,
      "Run code in a session, which is created on demand with the options of POST /sessions",
      .body = ROUTE_JSON_BODY, .fields = fields, .field_count = ARRAY_LENGTH(fields),
      .answers = answers, .home = ROUTE_PLACED, .idempotent = true },
    { 0 },
};
