/* SPDX-License-Identifier: Apache-2.0 */
#include "base/alloc.h"
#include "base/mask.h"
#include "base/str.h"
#include "config/config.h"
#include "core/run/execution_private.h"
#include "wire/json.h"

#include <string.h>

/* The facts that a live execution and a record of one share. */
struct view {
    const char *id, *session_id, *sandbox_id, *key, *request_json, *state, *reason, *error;
    uint64_t generation;
    int exit_code, signal;
    bool background, files_were_reset;
    struct end_reason reset_reason;
    int64_t timeout_ms, cpu_us;
    uint64_t max_rss_bytes, stdout_bytes, stderr_bytes;
    bool counts_stdin;
    uint64_t stdin_bytes, stdin_pending;
    const struct stamp *created, *started, *ended;
    int64_t now_us; /* boot clock: for the duration of a running one */
};

static void put_text_or_null(struct json_writer *json, const char *key, const char *text)
{
    json_put_text(json, key, str_is_empty(text) ? NULL : text);
}

static void put_duration(struct json_writer *json, const struct view *view)
{
    int64_t end_us = view->ended->boot_us ? view->ended->boot_us : view->now_us;

    if (view->started->boot_us)
        json_put_double(json, "duration_seconds",
                        (double)MAX(end_us - view->started->boot_us, (int64_t)0) / 1e6);
    else
        json_put_null(json, "duration_seconds");
}

static const char *error_name(const char *state, int exit_code)
{
    if (str_equal(state, "exited") && exit_code == 127)
        return "program_not_found";
    if (str_equal(state, "exited") && exit_code == 126)
        return "program_not_executable";
    if (str_equal(state, "exited"))
        return "output_incomplete";
    return str_equal(state, "crashed") ? "not_started" : "execution_stopped";
}

void execution_write_error(struct json_writer *json, const char *key, const char *state,
                           int exit_code, const char *text)
{
    if (str_is_empty(text)) {
        json_put_null(json, key);
        return;
    }
    json_begin_object(json, key);
    json_put_text(json, "code",
                  str_equal(state, "timeout") ? "execution_timeout" : error_name(state, exit_code));
    json_put_text(json, "message", text);
    json_put_text(json, "hint", "");
    json_put_bool(json, "retryable", false);
    json_end_object(json);
}

static void put_end(struct json_writer *json, const struct view *view)
{
    if (view->exit_code >= 0)
        json_put_int(json, "exit_code", view->exit_code);
    else
        json_put_null(json, "exit_code");
    if (view->signal)
        json_put_int(json, "signal", view->signal);
    else
        json_put_null(json, "signal");
    put_text_or_null(json, "reason", view->reason);
    execution_write_error(json, "error", view->state, view->exit_code, view->error);
}

/* It is kept with the request: most have none, and then nothing is parsed. */
static char *find_warning(const char *request_json)
{
    scoped(json_decref) json_t *request = NULL;
    const char *text;

    if (!request_json || !strstr(request_json, "\"warning\":\""))
        return NULL;
    request = json_read(request_json, strlen(request_json), NULL);
    text = json_string_value(json_object_get(request, "warning"));
    return text ? xstrdup(text) : NULL;
}

char *execution_warning(const struct execution *execution)
{
    return find_warning(execution->facts.request_json);
}

static void put_timeout(struct json_writer *json, const char *key, int64_t ms)
{
    if (ms > 0)
        json_put_double(json, key, (double)ms / 1000);
    else
        json_put_null(json, key);
}

static void put_view(struct json_writer *json, const struct view *view)
{
    scoped(free) char *warning = find_warning(view->request_json);
    char reset_reason[END_TEXT_SIZE];

    json_put_text(json, "id", view->id);
    json_put_text(json, "session_id", view->session_id);
    put_text_or_null(json, "sandbox_id", view->sandbox_id);
    put_text_or_null(json, "key", view->key);
    json_put_text(json, "state", view->state);
    put_end(json, view);
    json_put_text(json, "warning", warning);
    json_put_bool(json, "background", view->background);
    json_put_int(json, "generation", (int64_t)view->generation);
    json_put_bool(json, "files_were_reset", view->files_were_reset);
    json_put_text(json, "reset_reason", end_reason_text_or_null(&view->reset_reason, reset_reason));
    put_timeout(json, "timeout_seconds", view->timeout_ms);
    put_timeout(json, "timeout", view->timeout_ms);
    json_put_time(json, "created_at", view->created->wall_us);
    json_put_time(json, "started_at", view->started->wall_us);
    json_put_time(json, "ended_at", view->ended->wall_us);
    put_duration(json, view);
    json_put_double(json, "cpu_seconds", (double)view->cpu_us / 1e6);
    json_put_int(json, "max_memory_bytes", (int64_t)view->max_rss_bytes);
    json_put_int(json, "stdout_bytes", (int64_t)view->stdout_bytes);
    json_put_int(json, "stderr_bytes", (int64_t)view->stderr_bytes);
    if (view->counts_stdin) {
        json_put_int(json, "stdin_bytes", (int64_t)view->stdin_bytes);
        json_put_int(json, "stdin_pending", (int64_t)view->stdin_pending);
    }
    json_put_raw(json, "request", str_is_empty(view->request_json) ? "{}" : view->request_json);
}

/* Head and tail of both streams, read before the rest is written: that may fail. */
struct captured {
    struct buffer texts[2];
    bool truncated;
    const struct error *failure; /* borrowed from the outputs; NULL without */
};

static void capture(struct captured *captured, struct core *core, struct spool *const outputs[2],
                    const struct mask *secrets)
{
    size_t limit = (size_t)core->parts.config->exec.output_capture_bytes;

    *captured = (struct captured){ 0 };
    for (size_t i = 0; i < ARRAY_LENGTH(captured->texts); i++) {
        scoped(buffer_fini) struct buffer text = BUFFER_INIT(limit + 1024);
        bool truncated = false;

        captured->texts[i] = BUFFER_INIT(16 * limit + 16 * 1024);
        if (!outputs[i])
            continue;
        (void)spool_capture(outputs[i], limit, &text, &truncated);
        mask_append(secrets, text.data, text.length, &captured->texts[i]);
        captured->truncated = captured->truncated || truncated;
        if (!captured->failure)
            captured->failure = spool_error(outputs[i]);
    }
}

static void put_captured(struct json_writer *json, struct captured *captured)
{
    static const char *const keys[] = { "stdout", "stderr" };

    for (size_t i = 0; i < ARRAY_LENGTH(captured->texts); i++) {
        struct buffer *text = &captured->texts[i];

        json_put_bytes(json, keys[i], text->data ? (const void *)text->data : "", text->length);
        buffer_fini(text);
    }
    json_put_bool(json, "truncated", captured->truncated);
    if (captured->failure)
        json_put_text(json, "output_error", captured->failure->message);
}

static void put_with_output(struct json_writer *json, struct view *view, struct core *core,
                            struct spool *out, struct spool *err, const struct mask *secrets)
{
    struct captured captured;

    capture(&captured, core, (struct spool *const[]){ out, err }, secrets);
    if (captured.failure && str_is_empty(view->error))
        view->error = captured.failure->message;
    put_view(json, view);
    put_captured(json, &captured);
}

void execution_write_json(struct execution *execution, struct json_writer *json, const char *key,
                          bool with_output)
{
    struct view view = {
        .id = execution->facts.id,
        .session_id = execution->facts.session_id,
        .sandbox_id = execution->facts.sandbox_id,
        .key = execution->facts.key,
        .request_json = execution->facts.request_json,
        .state = execution_state_name(execution->facts.state),
        .reason = execution->facts.reason,
        .error = execution->facts.error,
        .generation = execution->facts.generation,
        .exit_code = execution->facts.exit_code,
        .signal = execution->facts.signal,
        .background = execution->facts.kind != EXECUTION_FOREGROUND,
        .files_were_reset = execution->facts.files_were_reset,
        .reset_reason = execution->facts.reset_reason,
        .timeout_ms = execution->facts.timeout_ms,
        .cpu_us = execution->facts.cpu_us,
        .max_rss_bytes = execution->facts.max_rss_bytes,
        .stdout_bytes = spool_length(execution->output.out),
        .stderr_bytes = execution->output.err ? spool_length(execution->output.err) : 0,
        .created = &execution->facts.created,
        .started = &execution->facts.started,
        .ended = &execution->facts.ended,
        .now_us = loop_now_us(execution->core->loop),
    };

    view.counts_stdin = execution_stdin_count(execution, &view.stdin_bytes, &view.stdin_pending);
    json_begin_object(json, key);
    if (with_output)
        put_with_output(json, &view, execution->core, execution->output.out, execution->output.err,
                        NULL);
    else
        put_view(json, &view);
    json_end_object(json);
}

static const struct session_reset *find_reset(const struct core *core,
                                              const struct execution_record *record)
{
    const struct session *session = map_get(&core->sessions_by_id, record->session_id);

    return session && str_equal(session_reported_reset(session)->execution_id, record->id)
               ? session_reported_reset(session)
               : NULL;
}

void execution_record_write_json(const struct execution_record *record, struct core *core,
                                 struct json_writer *json, const char *key, bool with_output,
                                 const struct mask *secrets)
{
    const struct session_reset *reset = find_reset(core, record);
    struct view view = {
        .files_were_reset = reset != NULL,
        .reset_reason = reset ? reset->reason : (struct end_reason){ 0 },
        .id = record->id,
        .session_id = record->session_id,
        .sandbox_id = record->sandbox_id,
        .key = record->key,
        .request_json = record->request_json,
        .state = record->state,
        .reason = record->reason,
        .error = record->error,
        .generation = record->generation,
        .exit_code = record->exit_code,
        .signal = record->signal,
        .background = record->background,
        .timeout_ms = record->timeout_ms,
        .cpu_us = record->cpu_us,
        .max_rss_bytes = record->max_rss_bytes,
        .stdout_bytes = record->stdout_bytes,
        .stderr_bytes = record->stderr_bytes,
        .created = &record->created,
        .started = &record->started,
        .ended = &record->ended,
        .now_us = loop_now_us(core->loop),
    };

    json_begin_object(json, key);
    if (with_output) {
        scoped(spool_free) struct spool *out = execution_open_output(core, record, false);
        scoped(spool_free) struct spool *err = execution_open_output(core, record, true);

        put_with_output(json, &view, core, out, err, secrets);
    } else {
        put_view(json, &view);
    }
    json_end_object(json);
}
