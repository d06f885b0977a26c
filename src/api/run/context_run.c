/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The answer to a run of code in a context: one JSON document when it has ended, or as Server-Sent
 * Events
 *
 *     stdout, stderr   {"text"}
 *     display, result  {"data": {MIME type: value}}
 *     error            {"name", "value", "frames", "traceback"}
 *     done             how it ended
 */

#include "api/run/contexts.h"
#include "api/sessions/sessions.h"
#include "base/alloc.h"
#include "base/str.h"
#include "config/config.h"
#include "core/run/rules.h"
#include "face/events.h"
#include "service/recorded.h"

#include <string.h>

enum { RESULTS_MAXIMUM = 32 * 1024 * 1024 };

/* Head and tail of a stream. */
struct capture {
    struct buffer head, tail;
    uint64_t dropped; /* between them */
};

struct answer {
    struct request *request;
    struct context_run *run; /* borrowed until it is done */
    bool is_stream, cancels, is_truncated;
    size_t half; /* of what is captured of a stream */
    struct capture captures[2];
    struct buffer unfinished[2]; /* the beginning of a character */
    struct buffer results;       /* JSON values with commas between them */
    char *error_json;            /* owned; NULL without one */
    struct event_answer events;  /* with is_stream */
    struct buffer done;          /* its last event, which waits until the run is recorded */
    struct recorded recorded;
};

struct fields {
    const char *code;
    int64_t timeout_ms;
    bool cancel_on_disconnect;
};

const struct json_field context_run_fields[3] = {
    { "code", JSON_KIND_TEXT, offsetof(struct fields, code), .required = true,
      .max_length = CONTEXT_CODE_MAXIMUM },
    { "timeout_seconds", JSON_KIND_SECONDS, offsetof(struct fields, timeout_ms),
      .maximum = SECONDS_MAXIMUM },
    { "cancel_on_disconnect", JSON_KIND_BOOL, offsetof(struct fields, cancel_on_disconnect) },
};

static void answer_free(struct answer *answer)
{
    for (size_t i = 0; i < ARRAY_LENGTH(answer->captures); i++) {
        buffer_fini(&answer->captures[i].head);
        buffer_fini(&answer->captures[i].tail);
        buffer_fini(&answer->unfinished[i]);
    }
    buffer_fini(&answer->results);
    buffer_fini(&answer->done);
    event_answer_fini(&answer->events);
    free(answer->error_json);
    free(answer);
}

/* --- as events ------------------------------------------------------------------------------- */

static void send_text(struct answer *answer, size_t stream, const void *data, size_t length)
{
    scoped(buffer_fini) struct buffer text = BUFFER_INIT(REQUEST_REPLY_MAXIMUM);
    struct json_writer json = JSON_WRITER(&text);

    if (length == 0)
        return;
    json_begin_object(&json, NULL);
    json_put_bytes(&json, "text", data, length);
    json_end_object(&json);
    event_answer_send(&answer->events, stream == 1 ? "stderr" : "stdout", text.data, text.length);
}

static void send_output(struct answer *answer, size_t stream, const void *data, size_t length)
{
    struct buffer *text = &answer->unfinished[stream];
    size_t rest;

    buffer_append(text, data, length);
    rest = str_utf8_unfinished(text->data, text->length);
    send_text(answer, stream, text->data, text->length - rest);
    buffer_consume(text, text->length - rest);
}

static void flush_output(struct answer *answer)
{
    for (size_t i = 0; i < ARRAY_LENGTH(answer->unfinished); i++) {
        send_text(answer, i, answer->unfinished[i].data, answer->unfinished[i].length);
        buffer_clear(&answer->unfinished[i]);
    }
}

static void on_drain(struct http_exchange *exchange)
{
    struct request *request = http_exchange_user(exchange);
    struct answer *answer = request->on_gone ? request->state : NULL;

    if (answer)
        context_run_resume(answer->run);
}

/* --- in one piece ---------------------------------------------------------------------------- */

static void capture(struct answer *answer, size_t stream, const uint8_t *data, size_t length)
{
    struct capture *into = &answer->captures[stream];
    size_t room = answer->half - into->head.length;
    size_t count = MIN(room, length);

    buffer_append(&into->head, data, count);
    data += count;
    length -= count;
    if (length > answer->half) {
        into->dropped += length - answer->half;
        data += length - answer->half;
        length = answer->half;
    }
    if (into->tail.length + length > answer->half) {
        size_t excess = into->tail.length + length - answer->half;

        into->dropped += excess;
        buffer_consume(&into->tail, excess);
    }
    buffer_append(&into->tail, data, length);
}

static void put_capture(struct answer *answer, struct json_writer *json, const char *key,
                        size_t stream)
{
    struct capture *from = &answer->captures[stream];
    scoped(buffer_fini) struct buffer text = BUFFER_INIT(answer->half * 2 + 128);

    buffer_append(&text, from->head.data, from->head.length);
    if (from->dropped) {
        buffer_appendf(&text, "\n[… %llu bytes left out …]\n", (unsigned long long)from->dropped);
        answer->is_truncated = true;
    }
    buffer_append(&text, from->tail.data, from->tail.length);
    json_put_bytes(json, key, text.data ? (const void *)text.data : "", text.length);
}

static void keep_result(struct answer *answer, const char *type, const json_t *message)
{
    scoped(free) char *data = json_dumps(json_object_get(message, "data"), JSON_COMPACT);

    if (!data || buffer_appendf(&answer->results, "%s{\"type\":\"%s\",\"data\":%s}",
                                answer->results.length ? "," : "", type, data) < 0)
        answer->is_truncated = true;
}

/* --- how it ended ---------------------------------------------------------------------------- */

static void put_end(struct json_writer *json, const struct context_run *run)
{
    char warning[RULE_TEXT_SIZE];

    json_put_text(json, "context_id", run->context->id);
    json_put_int(json, "number", (int64_t)run->number);
    json_put_text(json, "state", context_run_state_name(run->state));
    if (run->exit_code >= 0)
        json_put_int(json, "exit_code", run->exit_code);
    else
        json_put_null(json, "exit_code");
    json_put_text(json, "warning", context_run_warning(run, warning));
    json_put_text(json, "cause", run->cause);
    json_put_text(json, "replaced", run->replaced);
    json_put_bool(json, "context_lost", run->is_driver_killed || run->state == RUN_CRASHED);
    json_put_int(json, "dropped_messages", run->dropped);
    json_put_int(json, "stdout_bytes", (int64_t)run->bytes[0]);
    json_put_int(json, "stderr_bytes", (int64_t)run->bytes[1]);
    json_put_double(json, "duration_seconds", (double)run->duration_us / 1e6);
}

static void on_recorded(struct recorded *recorded)
{
    struct answer *answer = container_of(recorded, struct answer, recorded);

    if (!request_finish(answer->request)) {
        event_answer_send(&answer->events, "done", answer->done.data, answer->done.length);
        http_respond_end(answer->request->exchange);
    }
    answer_free(answer);
}

/* Takes the answer over. */
static void send_done(struct answer *answer, const struct context_run *run)
{
    struct json_writer json = JSON_WRITER(&answer->done);

    answer->done = BUFFER_INIT(64 * 1024);
    flush_output(answer);
    if (run->state == RUN_CRASHED && answer->error_json)
        event_answer_send(&answer->events, "error", answer->error_json, strlen(answer->error_json));
    json_begin_object(&json, NULL);
    put_end(&json, run);
    json_end_object(&json);
    event_answer_fini(&answer->events); /* no heartbeat any more */
    request_begin(answer->request);
    recorded_wait_written(&answer->recorded, answer->request->core, on_recorded);
}

static void reply(struct answer *answer, const struct context_run *run)
{
    scoped(buffer_fini) struct buffer text = BUFFER_INIT(REQUEST_REPLY_MAXIMUM);
    struct json_writer json = JSON_WRITER(&text);
    scoped(free) char *results = NULL;

    results = xasprintf("[%s]", buffer_text(&answer->results));
    json_begin_object(&json, NULL);
    put_end(&json, run);
    put_capture(answer, &json, "stdout", 0);
    put_capture(answer, &json, "stderr", 1);
    json_put_raw(&json, "results", results);
    json_put_raw(&json, "error", answer->error_json ? answer->error_json : "null");
    json_put_bool(&json, "truncated", answer->is_truncated);
    json_end_object(&json);
    request_reply_result(answer->request, 200, &text);
}

static void note_crash(struct answer *answer, const struct context_run *run)
{
    scoped(buffer_fini) struct buffer text = BUFFER_INIT(8192);
    struct json_writer json = JSON_WRITER(&text);

    json_begin_object(&json, NULL);
    json_put_text(&json, "name", "context_crashed");
    json_put_text(&json, "value", run->cause);
    json_begin_array(&json, "frames");
    json_end_array(&json);
    json_end_object(&json);
    free(answer->error_json);
    answer->error_json = buffer_steal_text(&text);
}

/* --- what the run tells ---------------------------------------------------------------------- */

static bool has_room(const struct context_run *run)
{
    const struct answer *answer = run->user;

    return !answer->is_stream || event_answer_has_room(&answer->events);
}

static void on_output(struct context_run *run, bool is_stderr, const void *data, size_t length)
{
    struct answer *answer = run->user;

    if (answer->is_stream)
        send_output(answer, is_stderr, data, length);
    else
        capture(answer, is_stderr, data, length);
}

static void on_message(struct context_run *run, const char *type, const json_t *message)
{
    struct answer *answer = run->user;
    scoped(free) char *text = NULL;

    if (!answer->is_stream && !str_equal(type, "error")) {
        keep_result(answer, type, message);
        return;
    }
    text = json_dumps(message, JSON_COMPACT);
    if (answer->is_stream && text) {
        flush_output(answer);
        event_answer_send(&answer->events, type, text, strlen(text));
    } else if (text) {
        free(answer->error_json);
        answer->error_json = steal_ptr(&text);
    }
}

static void on_stalled(struct context_run *run)
{
    struct answer *answer = run->user;

    answer->cancels = false; /* it did not leave: it is we who cut it off */
    http_exchange_abort(answer->request->exchange);
}

static void on_done(struct context_run *run)
{
    struct answer *answer = run->user;

    answer->request->on_gone = NULL;
    if (run->state == RUN_CRASHED)
        note_crash(answer, run);
    if (run->state == RUN_FAILED && !answer->events.has_started) {
        request_fail(answer->request, &run->err);
    } else if (!answer->is_stream) {
        reply(answer, run);
    } else {
        send_done(answer, run);
        return;
    }
    answer_free(answer);
}

static const struct context_handler run_handler = {
    .has_room = has_room,
    .on_output = on_output,
    .on_message = on_message,
    .on_stalled = on_stalled,
    .on_done = on_done,
};

static void on_gone(struct request *request)
{
    struct answer *answer = request->state;

    context_run_leave(answer->run, answer->cancels && !request->core->stopping);
    answer_free(answer);
}

static struct answer *answer_new(struct request *request, const struct fields *fields)
{
    struct answer *answer = xnew(struct answer);
    const char *accept = request_header(request, "accept");

    answer->request = request;
    answer->is_stream = accept && strstr(accept, "text/event-stream");
    answer->cancels = fields->cancel_on_disconnect;
    answer->half = (size_t)request->core->parts.config->exec.output_capture_bytes / 2;
    answer->results = BUFFER_INIT(RESULTS_MAXIMUM);
    for (size_t i = 0; i < ARRAY_LENGTH(answer->captures); i++) {
        answer->captures[i].head = BUFFER_INIT(answer->half);
        answer->captures[i].tail = BUFFER_INIT(answer->half);
        answer->unfinished[i] = BUFFER_INIT(DRIVER_INPUT_MAXIMUM + 8);
    }
    return answer;
}

void api_run_context(struct request *request, struct context *context)
{
    struct fields fields = { .timeout_ms = -1, .cancel_on_disconnect = true };
    struct answer *answer;
    struct error err = { 0 };

    if (request_decode(request, &fields, &err) < 0) {
        request_fail(request, &err);
        return;
    }
    answer = answer_new(request, &fields);
    answer->run = context_run_start(context, fields.code, strlen(fields.code), fields.timeout_ms,
                                    &run_handler, answer, &err);
    if (!answer->run) {
        request_fail(request, &err);
        answer_free(answer);
        return;
    }
    if (answer->is_stream) {
        http_respond_on_drain(request->exchange, on_drain);
        event_answer_init(&answer->events, request);
    }
    request->state = answer;
    request->on_gone = on_gone;
}
