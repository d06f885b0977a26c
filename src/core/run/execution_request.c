/* SPDX-License-Identifier: Apache-2.0 */
#include "base/alloc.h"
#include "base/mask.h"
#include "base/str.h"
#include "config/config.h"
#include "core/run/execution_private.h"
#include "core/run/rules.h"
#include "core/secrets.h"
#include "core/stamp.h"
#include "wire/json.h"

#include <errno.h>
#include <signal.h>
#include <string.h>
#include <sys/ioctl.h>

enum {
    REQUEST_MAXIMUM = 64 * 1024,   /* of a request in the record */
    REQUEST_TEXT_SHOWN = 16 * 1024 /* of its code or arguments */
};

/* --- the request, as the record keeps it ------------------------------------------------------ */

/* The beginning of a text that is too long, without a possible first half of a secret. */
static void put_masked(struct json_writer *json, const char *key, const struct mask *mask,
                       const char *text, size_t maximum)
{
    scoped(mask_stream_fini) struct mask_stream stream = MASK_STREAM(mask);
    scoped(buffer_fini) struct buffer masked = BUFFER_INIT(REQUEST_MAXIMUM);
    size_t length = strlen(text);

    mask_feed(&stream, text, MIN(length, maximum), &masked);
    if (length <= maximum)
        mask_end(&stream, &masked);
    json_put_bytes(json, key, buffer_text(&masked), masked.length);
}

static void put_argv(struct json_writer *json, const struct mask *mask, const char *const *argv)
{
    size_t bytes = 0;

    json_begin_array(json, "argv");
    for (size_t i = 0; argv[i] && bytes < REQUEST_TEXT_SHOWN; i++) {
        size_t length = strlen(argv[i]);

        put_masked(json, NULL, mask, argv[i], REQUEST_TEXT_SHOWN - bytes);
        bytes += length;
    }
    json_end_array(json);
}

/* Names only: values may be secrets. */
static void put_env_names(struct json_writer *json, const char *env_json)
{
    scoped(json_decref) json_t *env = env_json ? json_read(env_json, strlen(env_json), NULL) : NULL;
    size_t bytes = 0;
    const char *name;
    json_t *value;

    if (!env || json_object_size(env) == 0)
        return;
    json_begin_array(json, "env");
    json_object_foreach(env, name, value)
    {
        bytes += strlen(name);
        if (bytes < REQUEST_TEXT_SHOWN / 2)
            json_put_text(json, NULL, name);
    }
    json_end_array(json);
}

static char *request_to_json(const struct execution_request *request, const struct mask *mask,
                             const struct config_rule *warning)
{
    scoped(buffer_fini) struct buffer text = BUFFER_INIT(REQUEST_MAXIMUM * 2);
    struct json_writer json = JSON_WRITER(&text);
    char warned[RULE_TEXT_SIZE];

    json_begin_object(&json, NULL);
    if (warning) {
        rule_describe(warning, warned, sizeof(warned));
        json_put_text(&json, "warning", warned);
    }
    if (request->argv)
        put_argv(&json, mask, request->argv);
    if (request->command)
        put_masked(&json, "command", mask, request->command, REQUEST_TEXT_SHOWN);
    if (request->context_id) {
        json_put_text(&json, "context", request->context_id);
        json_put_text(&json, "language", request->language);
    } else if (request->code) {
        json_put_text(&json, "language", request->language ? request->language : "python");
        json_put_int(&json, "code_bytes", (int64_t)request->code_length);
        put_masked(&json, "code", mask, request->code, REQUEST_TEXT_SHOWN);
    }
    put_env_names(&json, request->env_json);
    if (request->secrets_json) {
        json_begin_array(&json, "secrets");
        secrets_write_names(request->secrets_json, &json);
        json_end_array(&json);
    }
    if (request->tag)
        put_masked(&json, "tag", mask, request->tag, REQUEST_TEXT_SHOWN);
    if (request->cwd)
        put_masked(&json, "cwd", mask, request->cwd, REQUEST_TEXT_SHOWN);
    if (request->user)
        put_masked(&json, "user", mask, request->user, REQUEST_TEXT_SHOWN);
    if (request->stdin_data)
        json_put_int(&json, "stdin_bytes", (int64_t)request->stdin_length);
    else if (request->wants_stdin)
        json_put_bool(&json, "stdin", true);
    if (request->terminal)
        json_put_bool(&json, "tty", true);
    if (request->needs_client)
        json_put_bool(&json, "cancel_on_disconnect", true);
    if (request->output_full)
        json_put_text(&json, "output_full", request->output_full);
    json_end_object(&json);
    return text.overflowed ? xstrdup("{}") : buffer_steal_text(&text);
}

/* --- starting --------------------------------------------------------------------------------- */

static int check_may_start(const struct session *session, struct error *err)
{
    size_t maximum = (size_t)session_core(session)->parts.config->exec.max_concurrent;

    if (session_core(session)->stopping)
        return error_named(err, ERR_UNAVAILABLE, "shutting_down", "the daemon is shutting down");
    if (session_core(session)->parts.store->counts.failing) {
        error_named(
            err, ERR_UNAVAILABLE, "store_failing",
            "records cannot be written at the moment, and no execution starts without a record");
        return error_hint(
            err, "check the disk of the state directory; /readyz reports when it works again");
    }
    if (session_state(session) != SESSION_OPEN && session_state(session) != SESSION_PAUSED)
        return error_named(err, ERR_GONE, "session_ended", "session %s is ending",
                           session_id(session));
    if (maximum && executions_count(session) >= maximum) {
        error_named(err, ERR_LIMIT, "too_many_executions",
                    "session %s already runs %zu executions, which is its limit",
                    session_id(session), maximum);
        err->retryable = true;
        return error_hint(err, "wait for one to end, cancel one, or raise exec.max_concurrent");
    }
    return 0;
}

static int check_stdin(const struct execution_request *request, struct error *err)
{
    if (!request->stdin_data || request->stdin_length <= STDIN_MAXIMUM)
        return 0;
    error_named(err, ERR_TOO_LARGE, "stdin_too_large",
                "stdin exceeds the size limit of a request (%d bytes)", STDIN_MAXIMUM);
    return error_hint(err, "send \"stdin\": true and stream the bytes to …/stdin");
}

/* The driver of a context is ours; the code that runs in it is checked when it comes. */
static int check_rules(const struct session *session, const struct execution_request *request,
                       const struct config_rule **out_warning, struct error *err)
{
    if (request->context_id)
        return 0;
    return rules_check(session_core(session), session_id(session), session_owner(session), request,
                       out_warning, err);
}

static int check_output_full(const struct execution_request *request, struct error *err)
{
    if (!request->output_full || spool_full_parse(request->output_full) >= 0)
        return 0;
    return error_named(err, ERR_INVALID, "invalid_field",
                       "output_full must be drop, block or stop, not \"%.32s\"",
                       request->output_full);
}

/* The shares that its owner holds as long as it waits or runs. */
static int take_shares(const struct session *session, const struct execution_request *request,
                       struct share shares[2], struct error *err)
{
    struct shares *all = session_core(session)->shares;

    if (share_take(&shares[0], all, session_owner(session), SHARE_EXECUTIONS, err) < 0)
        return -1;
    if (!request->terminal ||
        share_take(&shares[1], all, session_owner(session), SHARE_TERMINALS, err) == 0)
        return 0;
    share_give(&shares[0]);
    return -1;
}

static void prepare_stdin(struct execution_run *run, const struct execution_request *request)
{
    if (request->wants_stdin || request->terminal)
        run->input.state = INPUT_OPEN;
    if (!request->stdin_data)
        return;
    run->input.state = INPUT_ENDING;
    buffer_append(&run->input.data, request->stdin_data, request->stdin_length);
}

static void fill(struct execution *execution, const struct execution_request *request,
                 const struct config_rule *warning)
{
    const struct config *config = execution->core->parts.config;

    execution->facts.key = request->key ? xstrdup(request->key) : NULL;
    if (session_secrets(execution->session))
        execution->mask = mask_ref(session_secrets(execution->session)->mask);
    execution->facts.request_json = request_to_json(request, execution_mask(execution), warning);
    execution->facts.kind = request->context_id   ? EXECUTION_DRIVER
                            : request->background ? EXECUTION_BACKGROUND
                                                  : EXECUTION_FOREGROUND;
    execution->needs_client = request->needs_client;
    execution->terminal = request->terminal;
    execution->facts.timeout_ms = request->timeout_ms < 0 ? config->exec.timeout_ms
                                                          : request->timeout_ms;
    execution->output.full = (enum spool_full)(
        request->output_full ? spool_full_parse(request->output_full) : config->exec.output_full);
    execution->facts.created = stamp_now(execution->core);
    execution->run->terminal.size.columns = request->columns ? request->columns : 80;
    execution->run->terminal.size.rows = request->rows ? request->rows : 24;
    execution_open_outputs(execution, NULL);
}

struct execution *execution_start(struct session *session, const struct execution_request *request,
                                  struct error *err)
{
    struct execution *execution = request->key ? execution_find_key(session, request->key) : NULL;
    const struct config_rule *warning = NULL;
    struct share shares[2] = { 0 };
    struct program program;
    char id[ID_SIZE];

    if (execution)
        return execution;
    id_make(id, ID_EXECUTION);
    if (check_may_start(session, err) < 0 || check_stdin(request, err) < 0 ||
        check_rules(session, request, &warning, err) < 0 || check_output_full(request, err) < 0 ||
        take_shares(session, request, shares, err) < 0)
        return NULL;
    if ((request->secrets_json && session_learn_secrets(session, request->secrets_json, err) < 0) ||
        program_prepare(&program, session, request, id, err) < 0) {
        share_give(&shares[0]);
        share_give(&shares[1]);
        return NULL;
    }
    execution = execution_new(session, id);
    execution->share = shares[0];
    execution->terminal_share = shares[1];
    execution->run->spawn.program = program;
    fill(execution, request, warning);
    prepare_stdin(execution->run, request);

    /* In its first record, so that the next daemon knows the process by it. */
    execution->facts.number = session_new_execution_number(session);
    execution_save(execution);
    execution->run->spawn.generation = request->generation;
    session_hold_begin(&execution->run->hold, session, request->generation, execution_hold_ready,
                       execution_hold_lost);
    execution_arm_timeout(execution);
    execution_expect_client(execution, CLIENT_FIRST_PATIENCE_US);
    return execution;
}
