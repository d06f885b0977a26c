/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A run of code: a line of JSON for each thing that it tells.
 *
 *     stdout, stderr          {"text", "timestamp"}
 *     result                  {"text", "html", "png", …, "is_main_result"}
 *     error                   {"name", "value", "traceback"}
 *     number_of_executions    {"execution_count"}
 *     keepalive, end_of_execution
 *
 * The answer begins when the interpreter does, so that a failure before that has its own status.
 */

#include "base/alloc.h"
#include "base/clock.h"
#include "base/str.h"
#include "core/core.h"
#include "core/metrics.h"
#include "core/run/context/context.h"
#include "core/run/language.h"
#include "e2b/code.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { KEEPALIVE_MS = 5000, LINE_MAXIMUM = 64 * 1024 * 1024 };

struct run {
    struct request *request;
    struct context_run *run; /* borrowed until it is done */
    struct timer keepalive;
    struct buffer unfinished[2]; /* the beginning of a character */
    char *restore;               /* owned: code that brings variables back; NULL without any */
    size_t hidden;               /* runs of ours before this one, in its context */
    bool has_started, has_spoken;
    bool was_cut; /* by us: the code goes on */
};

static void run_free(struct run *run)
{
    timer_stop(&run->keepalive);
    for (size_t i = 0; i < ARRAY_LENGTH(run->unfinished); i++)
        buffer_fini(&run->unfinished[i]);
    free(run->restore);
    free(run);
}

/* --- lines ----------------------------------------------------------------------------------- */

static void start_answer(struct run *run)
{
    struct request *request = run->request;

    if (run->has_started)
        return;
    run->has_started = true;
    metrics_add(request->core->metrics, METRIC_HTTP_REQUESTS, 2, 1);
    http_respond_start(request->exchange, 200, "application/x-ndjson", -1);
}

static void send_line(struct run *run, struct buffer *line)
{
    start_answer(run);
    run->has_spoken = true;
    buffer_append_byte(line, '\n');
    if (!line->overflowed)
        http_respond_write(run->request->exchange, line->data, line->length);
}

static void send_text_line(struct run *run, const char *json)
{
    scoped(buffer_fini) struct buffer line = BUFFER_INIT(1024);

    buffer_append_text(&line, json);
    send_line(run, &line);
}

static void put_timestamp(struct json_writer *json, const struct run *run)
{
    json_put_time(json, "timestamp", clock_wall_us(loop_clock(run->request->core->loop)));
}

static void send_output(struct run *run, size_t stream, const void *data, size_t length)
{
    scoped(buffer_fini) struct buffer line = BUFFER_INIT(LINE_MAXIMUM);
    struct json_writer json = JSON_WRITER(&line);

    if (length == 0)
        return;
    json_begin_object(&json, NULL);
    json_put_text(&json, "type", stream ? "stderr" : "stdout");
    json_put_bytes(&json, "text", data, length);
    put_timestamp(&json, run);
    json_end_object(&json);
    send_line(run, &line);
}

static void on_keepalive(struct timer *timer)
{
    struct run *run = container_of(timer, struct run, keepalive);

    if (!run->has_spoken)
        send_text_line(run, "{\"type\":\"keepalive\"}");
    run->has_spoken = false;
    timer_arm_in(timer, KEEPALIVE_MS * 1000LL);
}

/* --- results --------------------------------------------------------------------------------- */

static const struct {
    const char *type, *name;
} representations[] = {
    { "text/html", "html" },
    { "text/markdown", "markdown" },
    { "image/svg+xml", "svg" },
    { "image/png", "png" },
    { "image/jpeg", "jpeg" },
    { "application/pdf", "pdf" },
    { "text/latex", "latex" },
    { "application/json", "json" },
    { "application/javascript", "javascript" },
    { "e2b/data", "data" },
    { "e2b/chart", "chart" },
};

static const char *representation_name(const char *type)
{
    for (size_t i = 0; i < ARRAY_LENGTH(representations); i++)
        if (str_equal(representations[i].type, type))
            return representations[i].name;
    return NULL;
}

/* The clients show a text without the quotes of its repr. */
static json_t *plain_text(const json_t *value)
{
    const char *text = json_string_value(value);
    size_t length = json_string_length(value);

    if (!text)
        return json_incref((json_t *)value);
    if (length >= 2 && (*text == '\'' || *text == '"') && text[length - 1] == *text)
        return json_stringn(text + 1, length - 2);
    return json_incref((json_t *)value);
}

static void send_result(struct run *run, const json_t *data, bool is_main)
{
    scoped(buffer_fini) struct buffer line = BUFFER_INIT(LINE_MAXIMUM);
    scoped(json_decref) json_t *result = json_pack("{s:s}", "type", "result");
    scoped(json_decref) json_t *extra = json_object();
    scoped(free) char *text = NULL;
    const char *type;
    json_t *value;

    json_object_foreach((json_t *)data, type, value)
    {
        const char *name = representation_name(type);

        if (str_equal(type, "text/plain"))
            json_object_set_new(result, "text", plain_text(value));
        else
            json_object_set(name ? result : extra, name ? name : type, value);
    }
    if (json_object_size(extra))
        json_object_set(result, "extra", extra);
    json_object_set_new(result, "is_main_result", json_boolean(is_main));
    text = json_dumps(result, JSON_COMPACT);
    if (text && buffer_append_text(&line, text) == 0)
        send_line(run, &line);
}

static void send_error(struct run *run, const char *name, const char *value, const char *traceback)
{
    scoped(buffer_fini) struct buffer line = BUFFER_INIT(LINE_MAXIMUM);
    struct json_writer json = JSON_WRITER(&line);

    json_begin_object(&json, NULL);
    json_put_text(&json, "type", "error");
    json_put_text(&json, "name", name);
    json_put_text(&json, "value", value ? value : "");
    json_put_text(&json, "traceback", traceback ? traceback : "");
    json_end_object(&json);
    send_line(run, &line);
}

static void send_count(struct run *run, const struct context_run *done)
{
    char line[96];

    snprintf(line, sizeof(line), "{\"type\":\"number_of_executions\",\"execution_count\":%llu}",
             (unsigned long long)(done->number - MIN(done->number, (uint64_t)run->hidden)));
    send_text_line(run, line);
}

/* --- what the run tells ---------------------------------------------------------------------- */

static bool has_room(const struct context_run *context_run)
{
    const struct run *run = context_run->user;

    return http_respond_pending(run->request->exchange) < HTTP_HIGH_WATER;
}

static void on_output(struct context_run *context_run, bool is_stderr, const void *data,
                      size_t length)
{
    struct run *run = context_run->user;
    struct buffer *text = &run->unfinished[is_stderr];
    size_t rest;

    buffer_append(text, data, length);
    rest = str_utf8_unfinished(text->data, text->length);
    send_output(run, is_stderr, text->data, text->length - rest);
    buffer_consume(text, text->length - rest);
}

static void flush_output(struct run *run)
{
    for (size_t i = 0; i < ARRAY_LENGTH(run->unfinished); i++) {
        send_output(run, i, run->unfinished[i].data, run->unfinished[i].length);
        buffer_clear(&run->unfinished[i]);
    }
}

static const char *text_of(const json_t *message, const char *name)
{
    return json_string_value(json_object_get(message, name));
}

static void on_message(struct context_run *context_run, const char *type, const json_t *message)
{
    struct run *run = context_run->user;

    flush_output(run);
    if (str_equal(type, "error"))
        send_error(run, text_of(message, "name"), text_of(message, "value"),
                   text_of(message, "traceback"));
    else
        send_result(run, json_object_get(message, "data"), str_equal(type, "result"));
}

/* It reads nothing for too long: it is cut off, and the code goes on. */
static void on_stalled(struct context_run *context_run)
{
    struct run *run = context_run->user;

    run->was_cut = true;
    http_exchange_abort(run->request->exchange);
}

/* --- the end --------------------------------------------------------------------------------- */

static void send_end(struct run *run, const struct context_run *done)
{
    flush_output(run);
    if (done->state == RUN_CRASHED)
        send_error(run, "ContextCrashed", done->cause, NULL);
    else if (done->state == RUN_TIMEOUT)
        send_error(run, "TimeoutError", "the time for this code is over", NULL);
    else if (done->state == RUN_CANCELLED)
        send_error(run, "Cancelled", "the context was restarted or removed", NULL);
    send_count(run, done);
    send_text_line(run, "{\"type\":\"end_of_execution\"}");
    http_respond_end(run->request->exchange);
}

/* The sandbox is gone: the clients ask whether it still runs when the answer is cut. */
static bool is_killed(const struct run *run, const struct context_run *done)
{
    const struct session *session = e2b_session(run->request);

    return done->state == RUN_CANCELLED && (!session || !session_is_alive(session));
}

static void on_done(struct context_run *context_run)
{
    struct run *run = context_run->user;

    run->request->on_gone = NULL;
    if (is_killed(run, context_run))
        http_exchange_abort(run->request->exchange);
    else if (context_run->state == RUN_FAILED && !run->has_started)
        e2b_code_fail(run->request, &context_run->err);
    else
        send_end(run, context_run);
    run_free(run);
}

static const struct context_handler handler = {
    .has_room = has_room,
    .on_output = on_output,
    .on_message = on_message,
    .on_stalled = on_stalled,
    .on_done = on_done,
};

/* A client that leaves interrupts its code, so that the next one runs. */
static void on_gone(struct request *request)
{
    struct run *run = request->state;

    context_run_leave(run->run, !run->was_cut && !request->core->stopping);
    run_free(run);
}

static void on_drain(struct http_exchange *exchange)
{
    struct request *request = http_exchange_user(exchange);
    struct run *run = request->on_gone ? request->state : NULL;

    if (run)
        context_run_resume(run->run);
}

/* --- starting -------------------------------------------------------------------------------- */

struct wishes {
    const char *code, *context_id, *language;
    size_t code_length;
    const json_t *variables; /* NULL without any */
};

static int read_wishes(const json_t *body, struct wishes *wishes, struct error *err)
{
    const json_t *code = json_object_get(body, "code");
    const json_t *variables = json_object_get(body, "env_vars");
    const char *name;
    json_t *value;

    wishes->code = json_string_value(code);
    wishes->code_length = json_string_length(code);
    wishes->context_id = text_of(body, "context_id");
    wishes->language = text_of(body, "language");
    if (!wishes->code)
        return error_named(err, ERR_INVALID, "invalid_field", "code must be a text");
    if (wishes->code_length > CONTEXT_CODE_MAXIMUM)
        return error_named(err, ERR_TOO_LARGE, "code_too_large", "code is larger than %d bytes",
                           CONTEXT_CODE_MAXIMUM);
    if (wishes->context_id && wishes->language)
        return error_named(err, ERR_INVALID, "invalid_field",
                           "Only one of context_id or language can be provided");
    json_object_foreach((json_t *)variables, name, value)
    {
        if (!*name || strchr(name, '=') || !json_is_string(value))
            return error_named(err, ERR_INVALID, "invalid_field",
                               "env_vars must be an object of texts");
        wishes->variables = variables;
    }
    return 0;
}

static struct context *choose_context(struct session *session, const struct wishes *wishes,
                                      struct error *err)
{
    struct context *context = NULL;

    if (!wishes->context_id)
        return e2b_default_context(session, e2b_language(wishes->language), err);
    context = context_find(session, wishes->context_id);
    if (!context)
        error_named(err, ERR_NOT_FOUND, "context_not_found", "Context %.60s not found",
                    wishes->context_id);
    return context;
}

/* Runs of ours before and after it, which set variables and bring them back. */
static int set_variables(struct context *context, const json_t *variables, char **out_restore,
                         struct error *err)
{
    scoped(free) char *set = NULL;
    scoped(free) char *restore = NULL;

    if (e2b_env_code(context->language->name, variables, &set, &restore, err) < 0 ||
        !context_run_start(context, set, strlen(set), -1, NULL, NULL, err))
        return -1;
    *out_restore = steal_ptr(&restore);
    return 0;
}

static struct run *run_new(struct request *request)
{
    struct run *run = xnew(struct run);

    run->request = request;
    for (size_t i = 0; i < ARRAY_LENGTH(run->unfinished); i++)
        run->unfinished[i] = BUFFER_INIT(DRIVER_INPUT_MAXIMUM + 8);
    timer_init(&run->keepalive, request->core->loop, on_keepalive);
    return run;
}

static int begin(struct run *run, struct context *context, const struct wishes *wishes,
                 struct error *err)
{
    struct e2b *e2b = run->request->context;
    size_t *hidden = e2b_hidden_runs(e2b, context->id);

    if (wishes->variables && set_variables(context, wishes->variables, &run->restore, err) < 0)
        return -1;
    *hidden += wishes->variables ? 1 : 0;
    run->hidden = *hidden;
    run->run =
        context_run_start(context, wishes->code, wishes->code_length, -1, &handler, run, err);
    if (run->restore &&
        context_run_start(context, run->restore, strlen(run->restore), -1, NULL, NULL, err))
        *hidden += 1;
    return run->run ? 0 : -1;
}

void e2b_post_execute(struct request *request)
{
    struct session *session = e2b_session(request);
    struct wishes wishes = { 0 };
    struct context *context;
    struct error err = { 0 };
    struct run *run;

    if (!session) {
        e2b_fail_gone(request, request->session_id);
        return;
    }
    if (read_wishes(request->body, &wishes, &err) < 0 ||
        !(context = choose_context(session, &wishes, &err))) {
        e2b_code_fail(request, &err);
        return;
    }
    run = run_new(request);
    if (begin(run, context, &wishes, &err) < 0) {
        e2b_code_fail(request, &err);
        run_free(run);
        return;
    }
    http_respond_on_drain(request->exchange, on_drain);
    timer_arm_in(&run->keepalive, KEEPALIVE_MS * 1000LL);
    request->state = run;
    request->on_gone = on_gone;
}
