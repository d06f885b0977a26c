/*
 * POST /execute: one call for code. The session is made on demand; one that was made for this call
 * goes again when the code could not be run to its end. Afterwards the workspace is
 * looked through for what is new or changed since the run began.
 */

#include "api/executions.h"
#include "api/sessions.h"
#include "base/alloc.h"
#include "base/str.h"
#include "config/config.h"
#include "core/listing.h"
#include "core/sandbox.h"

#include <string.h>
#include <sys/stat.h>

enum {
    TIMEOUT_DEFAULT_MS = 60 * 1000,
    FILES_DEPTH = 8, /* how deep a run's files are looked for */
    FILES_TOLD = 1000,
    FILES_RECORDED = 100,
    CLOCK_SLACK_US = 20 * 1000 /* time stamps of files are a bit behind the clock */
};

struct execute_body {
    const char *code, *language, *session_id, *key, *cwd;
    json_t *env, *secrets;
    int64_t timeout_ms;
};

#define BODY(name) offsetof(struct execute_body, name)

static const struct json_field fields[] = {
    { "code", JSON_KIND_TEXT, BODY(code), .required = true,
      .max_length = PROTOCOL_MAX_SCRIPT_BYTES },
    { "language", JSON_KIND_TEXT, BODY(language), .max_length = 64 },
    { "session_id", JSON_KIND_TEXT, BODY(session_id), .max_length = 300 },
    { "key", JSON_KIND_TEXT, BODY(key), .max_length = 256 },
    { "timeout", JSON_KIND_SECONDS, BODY(timeout_ms), .minimum = 0, .maximum = SECONDS_MAXIMUM },
    { "env", JSON_KIND_TEXT_MAP, BODY(env) },
    { "secrets", JSON_KIND_TEXT_MAP, BODY(secrets) },
    { "cwd", JSON_KIND_TEXT, BODY(cwd), .max_length = 4095 },
};

struct execute {
    struct api_request *request;
    struct execute_body body;
    struct session_op op;
    bool is_opening;
    bool made_session; /* for this call: it goes again when the run fails */
    char session_id[ID_SIZE];
    struct execution *execution; /* a reference */
    struct execution_watcher watcher;
    struct session_use use;
    bool in_use;
    struct listing listing;
};

static void execute_release(struct execute *execute)
{
    if (execute->is_opening)
        session_op_cancel(&execute->op);
    execution_unwatch(&execute->watcher);
    if (execute->execution)
        execution_unref(execute->execution);
    listing_fini(&execute->listing);
    if (execute->in_use)
        session_use_end(&execute->use);
    free(execute);
}

static struct session *find_session(const struct execute *execute)
{
    return map_get(&execute->request->core->sessions_by_id, execute->session_id);
}

static void end_session(struct execute *execute, const char *why)
{
    struct session *session = execute->made_session ? find_session(execute) : NULL;

    if (session)
        session_end(session, END_FAILED, why, NULL, NULL);
}

/* Nobody knows the id of a session that was made for a client who has left. */
static void on_gone(struct api_request *request)
{
    struct execute *execute = request->state;

    if (execute->made_session && execute->execution &&
        !execution_state_is_final(execute->execution->state))
        end_session(execute, "the client left");
    execute_release(execute);
}

static void finish(struct execute *execute)
{
    execute->request->on_gone = NULL;
    execute_release(execute);
}

static void fail(struct execute *execute, const struct error *err)
{
    api_fail(execute->request, err);
    finish(execute);
}

/* --- the answer ------------------------------------------------------------------------------ */

/* No part of its path is hidden. */
static bool is_visible(const char *path, size_t length)
{
    for (size_t i = 0; i < length; i++)
        if (path[i] == '.' && (i == 0 || path[i - 1] == '/'))
            return false;
    return length > 0;
}

/* A file that the run has made or changed. By the time that the kernel keeps: unpacked files have
 * older times of their own. */
static bool is_of_the_run(const struct execute *execute, const struct protocol_entry_view *entry)
{
    return S_ISREG(entry->fixed.stat.mode) && is_visible(entry->path, entry->fixed.path_length) &&
           entry->fixed.stat.changed_us >= execute->execution->started.wall_us - CLOCK_SLACK_US;
}

static bool next_file(const struct execute *execute, size_t *at,
                      struct protocol_entry_view *out_entry)
{
    while (execute->listing.loop && listing_next(&execute->listing, at, out_entry))
        if (is_of_the_run(execute, out_entry))
            return true;
    return false;
}

static void put_session_files(const struct execute *execute, struct json_writer *json)
{
    struct protocol_entry_view entry;
    size_t at = 0;

    json_begin_array(json, "session_files");
    for (unsigned count = 0; count < FILES_TOLD && next_file(execute, &at, &entry); count++) {
        json_begin_object(json, NULL);
        json_put_bytes(json, "name", entry.path, entry.fixed.path_length);
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
    for (unsigned count = 0; count < FILES_TOLD && next_file(execute, &at, &entry); count++)
        json_put_bytes(json, NULL, entry.path, entry.fixed.path_length);
    json_end_array(json);
}

static bool put_stream(struct json_writer *json, const char *key, struct output *output,
                       size_t capture)
{
    scoped(buffer_fini) struct buffer text = BUFFER_INIT(capture + 1024);
    bool is_truncated = false;

    if (output)
        (void)output_capture(output, capture, &text, &is_truncated);
    json_put_bytes(json, key, text.data ? (const void *)text.data : "", text.length);
    return is_truncated;
}

static void put_end(const struct execution *execution, struct json_writer *json)
{
    char timeout[STR_UNIT_SIZE];
    scoped(free) char *timed_out = NULL;

    json_put_text(json, "state", execution_state_name(execution->state));
    if (execution->exit_code >= 0)
        json_put_int(json, "exit_code", execution->exit_code);
    else
        json_put_null(json, "exit_code");
    if (execution->signal)
        json_put_int(json, "signal", execution->signal);
    else
        json_put_null(json, "signal");
    json_put_text(json, "reason", execution->reason);
    if (execution->state == EXECUTION_TIMEOUT) {
        str_format_duration(execution->timeout_ms, timeout);
        timed_out = xasprintf("execution timed out after %s", timeout);
    }
    json_put_text(json, "error", timed_out ? timed_out : execution->error);
}

static int64_t least_remaining_ms(const struct session *session)
{
    int64_t remaining_ms = -1;

    (void)session_next_end(session, &remaining_ms);
    return remaining_ms;
}

static void put_session(const struct execute *execute, struct json_writer *json)
{
    const struct session *session = find_session(execute);
    int64_t remaining_ms = session ? least_remaining_ms(session) : -1;

    json_put_text(json, "session_id", execute->session_id);
    if (remaining_ms >= 0)
        json_put_double(json, "session_ttl_remaining", (double)remaining_ms / 1000);
    else
        json_put_null(json, "session_ttl_remaining");
    put_session_files(execute, json);
    put_output_files(execute, json);
}

/* For the history, which cannot look later. */
static void record_files(const struct execute *execute)
{
    scoped(buffer_fini) struct buffer text = BUFFER_INIT(256 * 1024);
    struct json_writer json = JSON_WRITER(&text);
    struct session *session = find_session(execute);
    struct protocol_entry_view entry;
    size_t at = 0;
    unsigned count = 0;

    json_begin_object(&json, NULL);
    json_put_text(&json, "execution_id", execute->execution->id);
    json_begin_array(&json, "files");
    for (; count < FILES_RECORDED && next_file(execute, &at, &entry); count++) {
        json_begin_object(&json, NULL);
        json_put_bytes(&json, "name", entry.path, entry.fixed.path_length);
        json_put_int(&json, "size", (int64_t)entry.fixed.stat.size);
        json_end_object(&json);
    }
    json_end_array(&json);
    json_end_object(&json);
    if (session && count > 0 && !text.overflowed)
        session_emit(session, "execution.files", buffer_text(&text));
}

static void answer(struct execute *execute)
{
    const struct execution *execution = execute->execution;
    size_t capture = (size_t)execution->core->parts.config->exec.output_capture_bytes;
    int64_t wall_us =
        execution->started.boot_us ? execution->ended.boot_us - execution->started.boot_us : 0;
    scoped(buffer_fini) struct buffer text = BUFFER_INIT(API_REPLY_MAXIMUM);
    struct json_writer json = JSON_WRITER(&text);
    bool is_truncated;

    json_begin_object(&json, NULL);
    is_truncated = put_stream(&json, "stdout", execution->out, capture);
    is_truncated = put_stream(&json, "stderr", execution->err, capture) || is_truncated;
    json_put_bool(&json, "truncated", is_truncated);
    put_end(execution, &json);
    json_put_text(&json, "execution_id", execution->id);
    json_put_double(&json, "duration_seconds", (double)wall_us / 1e6);
    json_put_bool(&json, "files_were_reset", execution->files_were_reset);
    put_session(execute, &json);
    json_end_object(&json);
    api_reply(execute->request, 200, &text);
    finish(execute);
}

/* --- files ----------------------------------------------------------------------------------- */

/* The answer does not depend on the list: without one there are just no files in it. */
static void on_listed(struct listing *listing)
{
    struct execute *execute = container_of(listing, struct execute, listing);

    if (listing->err.code)
        buffer_clear(&listing->bytes);
    record_files(execute);
    session_use_end(&execute->use);
    execute->in_use = false;
    answer(execute);
}

static void on_list_ready(struct session_use *use)
{
    struct execute *execute = container_of(use, struct execute, use);

    if (use->err.code || !use->agent) {
        execute->in_use = !use->err.code;
        answer(execute);
        return;
    }
    listing_start(&execute->listing, execute->request->core->loop, use->agent, "", ".", FILES_DEPTH,
                  on_listed);
}

static void on_list_lost(struct session_use *use)
{
    struct execute *execute = container_of(use, struct execute, use);

    execute->in_use = false;
    answer(execute);
}

static void list_files(struct execute *execute)
{
    struct session *session = find_session(execute);

    if (!session) {
        answer(execute);
        return;
    }
    execute->in_use = true;
    session_use_begin(&execute->use, session, execute->execution->generation, on_list_ready,
                      on_list_lost);
}

/* --- the run --------------------------------------------------------------------------------- */

static void on_change(struct execution_watcher *watcher)
{
    struct execute *execute = container_of(watcher, struct execute, watcher);
    struct execution *execution = execute->execution;

    if (!execution_state_is_final(execution->state))
        return;
    execution_unwatch(&execute->watcher);
    if (execution->state == EXECUTION_EXITED) {
        list_files(execute);
        return;
    }
    end_session(execute, execution_state_name(execution->state));
    if (execution->start_error.code)
        fail(execute, &execution->start_error);
    else
        answer(execute);
}

static void run(struct execute *execute, struct session *session)
{
    scoped(free) char *env = json_to_text(execute->body.env);
    scoped(free) char *secrets = json_to_text(execute->body.secrets);
    struct execution_request wanted = {
        .code = execute->body.code,
        .code_length = strlen(execute->body.code),
        .language = execute->body.language,
        .env_json = env,
        .secrets_json = secrets,
        .cwd = execute->body.cwd,
        .timeout_ms = execute->body.timeout_ms,
    };
    struct error err = { 0 };

    memcpy(execute->session_id, session->id, sizeof(execute->session_id));
    execute->execution = execution_start(session, &wanted, &err);
    if (!execute->execution) {
        end_session(execute, "not started");
        fail(execute, &err);
        return;
    }
    execution_ref(execute->execution);
    execution_watch(execute->execution, &execute->watcher, on_change);
}

static void on_opened(struct session_op *op)
{
    struct execute *execute = container_of(op, struct execute, op);

    execute->is_opening = false;
    execute->made_session = op->created;
    if (op->err.code)
        fail(execute, &op->err);
    else
        run(execute, op->session);
}

static void on_found(struct api_request *request)
{
    struct execute *execute = request->state;

    run(execute, request->session);
}

static int read_body(struct api_request *request, struct execute_body *body, struct error *err)
{
    const struct config *config = request->api->parts.config;

    body->timeout_ms = config->exec.timeout_ms > 0 ? config->exec.timeout_ms : TIMEOUT_DEFAULT_MS;
    if (api_decode(request, body, err) < 0)
        return -1;
    if (!*body->code)
        return error_named(err, ERR_INVALID, "invalid_field", "code must not be empty");
    if (body->session_id && body->key)
        return error_named(err, ERR_INVALID, "invalid_field", "give session_id or key, not both");
    return execution_check_language(body->language, err);
}

static void post_execute(struct api_request *request)
{
    struct session_request wanted = SESSION_REQUEST_INIT;
    struct execute *execute = xnew(struct execute);
    struct error err = { 0 };

    if (read_body(request, &execute->body, &err) < 0) {
        free(execute);
        api_fail(request, &err);
        return;
    }
    execute->request = request;
    request->state = execute;
    request->on_gone = on_gone;
    if (execute->body.session_id) {
        api_find_session(request, execute->body.session_id, API_LIVE_SESSION, on_found);
        return;
    }
    wanted.owner = request->owner;
    wanted.on_behalf_of = request->on_behalf_of;
    wanted.key = str_is_empty(execute->body.key) ? NULL : execute->body.key;
    execute->is_opening = true;
    session_open(request->core, &wanted, &execute->op, on_opened);
}

static const struct api_answer answers[] = {
    { 200, "{stdout, stderr, exit_code, state, execution_id, duration_seconds, session_id, "
           "session_ttl_remaining, session_files, output_files}; state is timeout when it was "
           "stopped" },
    { 400, "a field is missing, unknown, of the wrong type or out of range; unsupported_language" },
    { 404, "session_not_found" },
    { 410, "session_ended" },
    { 429, "capacity, too_many_executions" },
    { 502, "the sandbox could not be made" },
    { 0 },
};

const struct api_route api_execute_routes[] = {
    { HTTP_POST, "/api/v1/execute", post_execute, "Run code in a session, which is made on demand",
      .body = API_JSON_BODY, .fields = fields, .field_count = ARRAY_LENGTH(fields),
      .answers = answers },
    { 0 },
};
