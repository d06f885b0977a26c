/* SPDX-License-Identifier: Apache-2.0 */
#include "base/alloc.h"
#include "base/str.h"
#include "config/config.h"
#include "core/core.h"
#include "core/output/spool.h"
#include "core/run/context/context_private.h"
#include "core/run/context/context_record.h"
#include "core/run/language.h"
#include "core/run/rules.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum {
    RUNS_WAITING_MAXIMUM = 64,
    INTERRUPTS = 2,
    START_TIMEOUT_MS = 60 * 1000, /* of an interpreter */
};

static const char *const state_names[RUN_STATES] = {
    [RUN_WAITING] = "waiting", [RUN_ACTIVE] = "running",          [RUN_OK] = "ok",
    [RUN_ERROR] = "error",     [RUN_INTERRUPTED] = "interrupted", [RUN_TIMEOUT] = "timeout",
    [RUN_CRASHED] = "crashed", [RUN_CANCELLED] = "cancelled",     [RUN_FAILED] = "failed",
};

const char *context_run_state_name(enum context_run_state state)
{
    return state_names[state];
}

const char *context_run_warning(const struct context_run *run, char *text)
{
    if (run->warning) {
        rule_describe(run->warning, text, RULE_TEXT_SIZE);
        return text;
    }
    return run->context ? no_network_warning(run->context->session, &run->tail) : NULL;
}

static void begin_next(struct context *context);

static struct spool *stream_output(const struct context *context, size_t stream)
{
    return stream == 0 ? execution_stdout(context->execution)
                       : execution_stderr(context->execution);
}

/* --- the end ---------------------------------------------------------------------------------- */

static void unfollow(struct context *context)
{
    for (size_t i = 0; i < ARRAY_LENGTH(context->streams); i++) {
        struct spool_follower *follower = &context->streams[i].follower;

        if (context->execution && list_is_linked(&follower->node))
            spool_unfollow(stream_output(context, i), follower);
    }
}

/* A client that takes nothing is not waited for: the run goes on without it. */
static void leave_behind(struct context_run *run)
{
    run->is_stalled = false;
    if (run->handler && !run->handler->has_room(run))
        run->handler->on_stalled(run);
}

static void on_next(struct deferred *deferred)
{
    struct context *context = container_of(deferred, struct context, next);
    struct context_run *run = list_first(&context->runs, struct context_run, node);

    if (run && run->is_stalled)
        leave_behind(run);
    else
        begin_next(context);
}

void context_run_finish(struct context_run *run, enum context_run_state state, const char *cause)
{
    struct context *context = run->context;

    if (run->state == RUN_ACTIVE) {
        unfollow(context);
        run->duration_us = loop_now_us(context->core->loop) - run->began_us;
    }
    run->state = state;
    run->cause = cause ? xstrdup(cause) : NULL;
    timer_stop(&run->timer);
    list_remove(&run->node);
    session_hold_end(&run->hold);
    context_record_emit(run->record, run, context->language->name);
    if (run->handler)
        run->handler->on_done(run);
    context_record_free(run->record);
    buffer_fini(&run->input);
    free(run->cause);
    free(run->replaced);
    free(run);
    if (!list_is_empty(&context->runs))
        loop_defer(context->core->loop, &context->next, on_next);
}

/* --- what comes from the driver --------------------------------------------------------------- */

static void deliver(struct context_run *run, size_t stream, const void *data, size_t length)
{
    run->bytes[stream] += length;
    output_tail_add(&run->tail, data, length);
    context_record_output(run->record, stream, data, length);
    if (run->handler && run->number > 0)
        run->handler->on_output(run, stream == 1, data, length);
}

static bool is_known(const char *type, const json_t *message)
{
    if (str_equal(type, "display") || str_equal(type, "result"))
        return json_is_object(json_object_get(message, "data"));
    return str_equal(type, "error");
}

static void take_done(struct context_run *run, size_t stream, const json_t *message)
{
    const json_t *code = json_object_get(message, "exit_code");

    run->is_over[stream] = true;
    run->end = str_equal(json_string_value(json_object_get(message, "state")), "ok") ? RUN_OK
                                                                                     : RUN_ERROR;
    if (json_is_integer(code))
        run->exit_code = (int)(json_integer_value(code) & 255);
}

static void tell_message(struct context_run *run, const char *type, const json_t *message)
{
    const char *value = json_string_value(json_object_get(message, "value"));

    if (str_equal(type, "error") && value)
        output_tail_add(&run->tail, value, strlen(value));
    context_record_message(run->record, run, type, message);
    if (run->handler && run->number > 0)
        run->handler->on_message(run, type, message);
}

static void take_message(struct context_run *run, size_t stream, const void *data, size_t length)
{
    scoped(json_decref) json_t *message = json_read(data, length, NULL);
    scoped(free) char *type = NULL;

    if (!json_is_string(json_object_get(message, "type"))) {
        run->dropped++;
        return;
    }
    type = xstrdup(json_string_value(json_object_get(message, "type")));
    json_object_del(message, "type");
    if (str_equal(type, "begin"))
        run->context->streams[stream].is_skipping = false;
    else if (str_equal(type, "done"))
        take_done(run, stream, message);
    else if (!is_known(type, message))
        run->dropped++;
    else
        tell_message(run, type, message);
}

static bool has_room(const struct context_run *run)
{
    return !run->handler || run->handler->has_room(run);
}

/* False when nothing more can be taken from the parser now. */
static bool take_event(struct context_run *run, size_t stream)
{
    struct context_stream *from = &run->context->streams[stream];
    const void *data;
    size_t length;

    if (run->is_over[stream] || !has_room(run))
        return false;
    switch (driver_parser_next(&from->parser, &data, &length)) {
    case DRIVER_NOTHING:
        return false;
    case DRIVER_OUTPUT:
        if (!from->is_skipping)
            deliver(run, stream, data, length);
        return true;
    case DRIVER_MESSAGE:
        take_message(run, stream, data, length);
        return true;
    case DRIVER_DROPPED:
        run->dropped++;
        return true;
    }
    return false;
}

/* Moves the bytes of the spool into the parser; false when there are none. */
static bool read_more(struct context_run *run, size_t stream)
{
    static uint8_t bytes[DRIVER_INPUT_MAXIMUM];
    struct context *context = run->context;
    struct context_stream *from = &context->streams[stream];
    struct spool *output = stream_output(context, stream);
    size_t room = driver_parser_room(&from->parser);
    uint64_t start, end;
    ssize_t count;

    if (run->is_over[stream] || !has_room(run) || room == 0 ||
        !spool_extent(output, from->offset, &start, &end))
        return false;
    count = spool_read(output, start, bytes, (size_t)MIN(end - start, (uint64_t)room));
    if (count < 0)
        return false;
    driver_parser_feed(&from->parser, bytes, (size_t)count);
    from->offset = start + (uint64_t)count;
    if (list_is_linked(&from->follower.node))
        spool_follower_moved(output, &from->follower, from->offset);
    return true;
}

static void read_streams(struct context_run *run)
{
    bool progress = true;

    while (progress) {
        progress = false;
        for (size_t i = 0; i < ARRAY_LENGTH(run->is_over); i++) {
            while (take_event(run, i))
                progress = true;
            progress = read_more(run, i) || progress;
        }
    }
}

/* --- what goes to it -------------------------------------------------------------------------- */

static void send_input(struct context_run *run)
{
    struct execution *execution = run->context->execution;
    ssize_t count;

    while (run->input.length && execution_facts(execution)->state == EXECUTION_RUNNING) {
        count = execution_write_stdin(execution, run->input.data, run->input.length, NULL);
        if (count <= 0)
            return;
        buffer_consume(&run->input, (size_t)count);
    }
}

static void on_driver_gone(struct context *context, struct context_run *run)
{
    char cause[256];

    context_describe_end(context->execution, cause, sizeof(cause));
    if (!run || run->state != RUN_ACTIVE) {
        context_drop_driver(context, false, cause);
        return;
    }
    for (size_t i = 0; i < ARRAY_LENGTH(context->streams); i++)
        driver_parser_end(&context->streams[i].parser);
    read_streams(run);
    if (!has_room(run))
        return;
    run->exit_code = execution_facts(context->execution)->exit_code;
    context_drop_driver(context, false, cause);
    context_run_finish(run, run->stop == RUN_STOP_TIMED_OUT ? RUN_TIMEOUT : RUN_CRASHED, cause);
}

static enum context_run_state end_state(const struct context_run *run)
{
    if (run->stop == RUN_STOP_TIMED_OUT)
        return RUN_TIMEOUT;
    if (run->is_interrupted && run->end == RUN_ERROR)
        return RUN_INTERRUPTED;
    return run->end;
}

/* The message that ends a run may be among the bytes that could not be kept. */
static bool end_without_output(struct context *context, struct context_run *run)
{
    for (size_t i = 0; i < ARRAY_LENGTH(context->streams); i++) {
        const struct error *err = spool_error(stream_output(context, i));
        char cause[256];

        if (!err || run->is_over[i])
            continue;
        snprintf(cause, sizeof(cause), "its output is incomplete: %.200s", err->message);
        context_drop_driver(context, true, cause);
        context_run_finish(run, RUN_CRASHED, cause);
        return true;
    }
    return false;
}

void context_pump(struct context *context)
{
    struct context_run *run = list_first(&context->runs, struct context_run, node);

    if (run && run->state == RUN_ACTIVE) {
        send_input(run);
        read_streams(run);
        if (run->is_over[0] && run->is_over[1]) {
            context_run_finish(run, end_state(run), NULL);
            return;
        }
        if (has_room(run) && end_without_output(context, run))
            return;
    }
    if (context->execution && execution_state_is_final(execution_facts(context->execution)->state))
        on_driver_gone(context, run);
}

void context_run_resume(struct context_run *run)
{
    if (run->state == RUN_ACTIVE)
        context_pump(run->context);
}

/* --- time ------------------------------------------------------------------------------------- */

/* Twice in exec.grace: the first one does not reach a command that a shell is just starting. */
static void interrupt_again(struct context_run *run)
{
    const struct config *config = run->context->core->parts.config;

    run->interrupts++;
    timer_arm_in(&run->timer, config->exec.grace_ms * 1000 / INTERRUPTS);
    (void)context_interrupt(run->context, NULL);
}

static void on_timer(struct timer *timer)
{
    struct context_run *run = container_of(timer, struct context_run, timer);
    struct context *context = run->context;

    if (run->interrupts < INTERRUPTS) {
        if (run->stop == RUN_STOP_NONE)
            run->stop = RUN_STOP_TIMED_OUT;
        interrupt_again(run);
        if (run->stop == RUN_STOP_TIMED_OUT)
            leave_behind(run);
        return;
    }
    assert(run->stop != RUN_STOP_NONE);
    run->is_driver_killed = true;
    context_drop_driver(context, true, "a run did not end in time");
    context_run_finish(run, run->stop == RUN_STOP_TIMED_OUT ? RUN_TIMEOUT : RUN_INTERRUPTED, NULL);
}

static void on_stalled(struct spool_follower *follower)
{
    struct context *context = container_of(follower, struct context_stream, follower)->context;
    struct context_run *run = list_first(&context->runs, struct context_run, node);

    if (!run)
        return;
    run->is_stalled = true;
    loop_defer(context->core->loop, &context->next, on_next);
}

/* --- the beginning ---------------------------------------------------------------------------- */

static void on_use_ready(struct session_hold *hold)
{
    struct context_run *run = container_of(hold, struct context_run, hold);
    struct context *context = run->context;

    if (hold->err.code || context_want_driver(context, &run->err) < 0) {
        if (hold->err.code)
            run->err = hold->err;
        context_run_finish(run, RUN_FAILED, NULL);
        return;
    }
    run->state = RUN_ACTIVE;
    run->began_us = loop_now_us(context->core->loop);
    run->replaced = steal_ptr(&context->cause);
    for (size_t i = 0; i < ARRAY_LENGTH(context->streams); i++) {
        struct context_stream *stream = &context->streams[i];

        driver_parser_set_token(&stream->parser, run->token);
        stream->follower.on_stalled = on_stalled;
        spool_follow(stream_output(context, i), &stream->follower, stream->offset);
    }
    if (run->timeout_ms > 0)
        timer_arm_in(&run->timer, run->timeout_ms * 1000);
    context_pump(context);
}

/* The driver ends with the sandbox; its end is reported before or after this. */
static void on_use_lost(struct session_hold *hold UNUSED)
{
}

static void begin_next(struct context *context)
{
    struct context_run *run = list_first(&context->runs, struct context_run, node);

    if (run && run->state == RUN_WAITING && !run->hold.session)
        session_hold_begin(&run->hold, context->session, 0, on_use_ready, on_use_lost);
}

static int check_run(const struct context *context, const char *code, size_t length,
                     struct error *err)
{
    const struct context_run *run;
    size_t waiting = 0;

    if (code && memchr(code, 0, length))
        return error_named(err, ERR_INVALID, "invalid_field", "code contains a NUL");
    if (length > CONTEXT_CODE_MAXIMUM)
        return error_named(err, ERR_TOO_LARGE, "code_too_large", "code is larger than %d bytes",
                           CONTEXT_CODE_MAXIMUM);
    list_for_each (run, &context->runs, node)
        waiting++;
    if (waiting >= RUNS_WAITING_MAXIMUM) {
        error_named(err, ERR_LIMIT, "too_many_runs", "%zu runs already wait for context %s",
                    waiting, context->id);
        err->retryable = true;
        return error_hint(err, "wait for one to end, or use another context");
    }
    return 0;
}

static void make_token(char token[DRIVER_TOKEN_SIZE])
{
    char first[ID_SIZE], second[ID_SIZE];

    id_make(first, ID_CONTEXT);
    id_make(second, ID_CONTEXT);
    snprintf(token, DRIVER_TOKEN_SIZE, "%.16s%.16s", first + 4, second + 4);
}

static int check_rules(const struct context *context, const char *code, size_t length,
                       const struct config_rule **out_warning, struct error *err)
{
    const struct execution_request request = { .code = code, .code_length = length };
    const struct session *session = context->session;

    return code ? rules_check(context->core, session_id(session), session_owner(session), &request,
                              out_warning, err)
                : 0;
}

struct context_run *context_run_start(struct context *context, const char *code, size_t length,
                                      int64_t timeout_ms, const struct context_handler *handler,
                                      void *user, struct error *err)
{
    const struct config *config = context->core->parts.config;
    const struct config_rule *warning = NULL;
    struct context_run *run;

    if (check_run(context, code, length, err) < 0 ||
        check_rules(context, code, length, &warning, err) < 0)
        return NULL;
    run = xnew(struct context_run);
    run->context = context;
    run->handler = handler;
    run->user = user;
    run->exit_code = -1;
    run->warning = warning;
    run->number = code ? ++context->last_number : 0;
    run->record = code ? context_record_new(code, length) : NULL;
    run->timeout_ms = !code            ? START_TIMEOUT_MS
                      : timeout_ms < 0 ? config->exec.timeout_ms
                                       : timeout_ms;
    make_token(run->token);
    timer_init(&run->timer, context->core->loop, on_timer);
    run->input = BUFFER_INIT(CONTEXT_CODE_MAXIMUM + 128);
    buffer_appendf(&run->input, "%s %llu\n", run->token, (unsigned long long)run->number);
    buffer_append(&run->input, code, length);
    buffer_append_byte(&run->input, 0);
    list_append(&context->runs, &run->node);
    begin_next(context);
    return run;
}

void context_run_cancel(struct context_run *run)
{
    if (run->state == RUN_WAITING) {
        context_run_finish(run, RUN_CANCELLED, NULL);
        return;
    }
    assert(run->state == RUN_ACTIVE);
    if (run->stop != RUN_STOP_NONE)
        return;
    run->stop = RUN_STOP_CANCELLED;
    interrupt_again(run);
}

void context_run_leave(struct context_run *run, bool cancels)
{
    struct context *context = run->context;

    run->handler = NULL;
    if (cancels)
        context_run_cancel(run);
    else if (run->state == RUN_ACTIVE)
        context_pump(context);
}
