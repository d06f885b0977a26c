#include "base/alloc.h"
#include "base/mask.h"
#include "base/str.h"
#include "config/config.h"
#include "core/execution_internal.h"
#include "wire/json.h"

#include <string.h>

/* What both a live execution and a record of one can tell. */
struct view {
    const char *id, *session_id, *sandbox_id, *key, *request_json, *state, *reason, *error;
    uint64_t generation;
    int exit_code, signal;
    bool background, files_were_reset;
    int64_t timeout_ms, cpu_us;
    uint64_t max_rss_bytes, stdout_bytes, stderr_bytes;
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
    put_text_or_null(json, "error", view->error);
}

static void put_view(struct json_writer *json, const struct view *view)
{
    json_put_text(json, "id", view->id);
    json_put_text(json, "session_id", view->session_id);
    put_text_or_null(json, "sandbox_id", view->sandbox_id);
    put_text_or_null(json, "key", view->key);
    json_put_text(json, "state", view->state);
    put_end(json, view);
    json_put_bool(json, "background", view->background);
    json_put_int(json, "generation", (int64_t)view->generation);
    json_put_bool(json, "files_were_reset", view->files_were_reset);
    if (view->timeout_ms > 0)
        json_put_double(json, "timeout", (double)view->timeout_ms / 1000);
    else
        json_put_null(json, "timeout");
    json_put_time(json, "created_at", view->created->wall_us);
    json_put_time(json, "started_at", view->started->wall_us);
    json_put_time(json, "ended_at", view->ended->wall_us);
    put_duration(json, view);
    json_put_double(json, "cpu_seconds", (double)view->cpu_us / 1e6);
    json_put_int(json, "max_memory_bytes", (int64_t)view->max_rss_bytes);
    json_put_int(json, "stdout_bytes", (int64_t)view->stdout_bytes);
    json_put_int(json, "stderr_bytes", (int64_t)view->stderr_bytes);
    json_put_raw(json, "request", str_is_empty(view->request_json) ? "{}" : view->request_json);
}

static bool put_stream(struct json_writer *json, const char *key, struct output *output,
                       size_t capture, const struct mask *secrets)
{
    scoped(buffer_fini) struct buffer masked = BUFFER_INIT(16 * capture + 16 * 1024);
    scoped(buffer_fini) struct buffer text = BUFFER_INIT(capture + 1024);
    bool truncated = false;

    if (output && output_capture(output, capture, &text, &truncated) < 0)
        truncated = true;
    mask_append(secrets, text.data, text.length, &masked);
    json_put_bytes(json, key, masked.data ? (const void *)masked.data : "", masked.length);
    return truncated;
}

static void put_outputs(struct json_writer *json, struct core *core, struct output *out,
                        struct output *err, const struct mask *secrets)
{
    size_t capture = (size_t)core->parts.config->exec.output_capture_bytes;
    bool truncated = put_stream(json, "stdout", out, capture, secrets);
    const struct error *failure = out ? output_error(out) : NULL;

    truncated = put_stream(json, "stderr", err, capture, secrets) || truncated;
    json_put_bool(json, "truncated", truncated);
    failure = failure || !err ? failure : output_error(err);
    if (failure)
        json_put_text(json, "output_error", failure->message);
}

void execution_write_json(struct execution *execution, struct json_writer *json, const char *key,
                          bool with_output)
{
    struct view view = {
        .id = execution->id,
        .session_id = execution->session_id,
        .sandbox_id = execution->sandbox_id,
        .key = execution->key,
        .request_json = execution->request_json,
        .state = execution_state_name(execution->state),
        .reason = execution->reason,
        .error = execution->error,
        .generation = execution->generation,
        .exit_code = execution->exit_code,
        .signal = execution->signal,
        .background = execution->background,
        .files_were_reset = execution->files_were_reset,
        .timeout_ms = execution->timeout_ms,
        .cpu_us = execution->cpu_us,
        .max_rss_bytes = execution->max_rss_bytes,
        .stdout_bytes = output_length(execution->out),
        .stderr_bytes = execution->err ? output_length(execution->err) : 0,
        .created = &execution->created,
        .started = &execution->started,
        .ended = &execution->ended,
        .now_us = loop_now_us(execution->core->loop),
    };

    json_begin_object(json, key);
    put_view(json, &view);
    if (with_output)
        put_outputs(json, execution->core, execution->out, execution->err, NULL);
    json_end_object(json);
}

void execution_record_write_json(const struct execution_record *record, struct core *core,
                                 struct json_writer *json, const char *key, bool with_output,
                                 const struct mask *secrets)
{
    struct view view = {
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
    put_view(json, &view);
    if (with_output) {
        scoped(output_free) struct output *out = execution_open_output(core, record->id, false);
        scoped(output_free) struct output *err = execution_open_output(core, record->id, true);

        put_outputs(json, core, out, err, secrets);
    }
    json_end_object(json);
}
