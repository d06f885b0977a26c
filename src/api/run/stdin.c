/* SPDX-License-Identifier: Apache-2.0 */
/* Input, signals and size of a running execution. */

#include "api/run/executions.h"
#include "base/alloc.h"
#include "base/str.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

enum { HELD_MAXIMUM = 1024 * 1024 };

/* The execution of the route, if it is in memory; answers otherwise: it has ended long ago. */
static struct execution *live_execution(struct request *request,
                                        const struct found_execution *found)
{
    struct error err = { 0 };

    if (found->live)
        return found->live;
    error_named(&err, ERR_CONFLICT, "execution_not_running", "execution %s is %s",
                found_execution_id(found), found_execution_state(found));
    request_fail(request, &err);
    return NULL;
}

/* --- stdin ----------------------------------------------------------------------------------- */

/* Bytes on their way: what the program's pipe does not take yet is held, and the client waits. */
struct feed {
    struct request *request;
    struct execution *execution; /* a reference */
    struct execution_watcher watcher;
    struct buffer held;
    uint64_t written;
    uint64_t end; /* see execution_stdin_end() */
    bool ends;    /* the pipe is closed behind the last byte */
    bool is_all;  /* the client has sent everything */
    bool is_over; /* the end was asked for */
};

static void feed_release(struct request *request)
{
    struct feed *feed = request->state;

    request->on_gone = NULL;
    execution_unwatch(&feed->watcher);
    execution_unref(feed->execution);
    buffer_fini(&feed->held);
    free(feed);
}

static void feed_fail(struct feed *feed, const struct error *err)
{
    struct request *request = feed->request;

    request_fail(request, err);
    feed_release(request);
}

static void feed_reply(struct feed *feed)
{
    struct request *request = feed->request;
    scoped(buffer_fini) struct buffer text = BUFFER_INIT(1024);
    struct json_writer json = JSON_WRITER(&text);

    json_begin_object(&json, NULL);
    json_put_int(&json, "written", (int64_t)feed->written);
    json_put_bool(&json, "closed", feed->ends);
    json_end_object(&json);
    request_reply(request, 200, &text);
    feed_release(request);
}

static void feed_took(struct feed *feed, ssize_t taken)
{
    feed->written += (uint64_t)taken;
    if (taken > 0)
        feed->end = execution_stdin_end(feed->execution);
}

/* Everything was accepted: the client is answered when it has arrived. */
static void feed_finish(struct feed *feed)
{
    struct error err = { 0 };
    int taken = feed->is_over ? 1 : execution_stdin_is_taken(feed->execution, feed->end, &err);

    if (taken > 0 && feed->ends && !feed->is_over) {
        taken = execution_close_stdin(feed->execution, &err) < 0 ? -1 : 1;
        feed->is_over = true;
    }
    if (taken < 0)
        feed_fail(feed, &err);
    else if (taken > 0 && (!feed->is_over || execution_stdin_has_ended(feed->execution)))
        feed_reply(feed);
}

/* Writes what is held; goes on with the client's bytes when all of it is gone. */
static void feed_pump(struct feed *feed)
{
    struct error err = { 0 };
    ssize_t taken = 0;

    if (feed->held.length)
        taken = execution_write_stdin(feed->execution, feed->held.data, feed->held.length, &err);
    if (taken < 0) {
        feed_fail(feed, &err);
        return;
    }
    buffer_consume(&feed->held, (size_t)taken);
    feed_took(feed, taken);
    if (feed->held.length)
        http_exchange_pause_body(feed->request->exchange);
    else if (!feed->is_all)
        http_exchange_resume_body(feed->request->exchange);
    else
        feed_finish(feed);
}

static void on_feed_change(struct execution_watcher *watcher)
{
    struct feed *feed = container_of(watcher, struct feed, watcher);

    if (feed->held.length || feed->is_all)
        feed_pump(feed);
}

static void on_feed_data(struct http_exchange *exchange, const uint8_t *data, size_t length)
{
    struct request *request = http_exchange_user(exchange);
    struct feed *feed = request->state;
    struct error err = { 0 };
    ssize_t taken = 0;

    if (!request->on_gone)
        return;
    if (length == 0) {
        feed->is_all = true;
        if (!feed->held.length)
            feed_pump(feed);
        return;
    }
    if (!feed->held.length)
        taken = execution_write_stdin(feed->execution, data, length, &err);
    if (taken < 0) {
        feed_fail(feed, &err);
        return;
    }
    feed_took(feed, taken);
    if ((size_t)taken == length)
        return;
    if (buffer_append(&feed->held, data + taken, length - (size_t)taken) < 0) {
        error_named(&err, ERR_INTERNAL, "internal", "more input than announced");
        feed_fail(feed, &err);
        return;
    }
    http_exchange_pause_body(exchange);
}

static void on_stdin(struct request *request, const struct found_execution *found)
{
    struct execution *execution = live_execution(request, found);
    struct feed *feed;
    bool ends = false;
    struct error err = { 0 };

    if (!execution)
        return;
    /* A caller who asks for the end again waits for the end that is on its way. */
    if (request_parameter_bool(request, "eof", &ends, &err) < 0 ||
        ((!ends || execution_stdin_has_ended(execution)) &&
         execution_write_stdin(execution, NULL, 0, &err) < 0)) {
        request_fail(request, &err);
        return;
    }
    feed = xnew(struct feed);
    feed->request = request;
    feed->execution = execution;
    feed->held = BUFFER_INIT(HELD_MAXIMUM);
    feed->ends = ends;
    feed->is_over = !execution_stdin_has_ended(execution);
    execution_ref(execution);
    execution_watch(execution, &feed->watcher, on_feed_change);
    request->state = feed;
    request->on_gone = feed_release;
    http_exchange_stream_body(request->exchange, on_feed_data);
}

static void post_stdin(struct request *request)
{
    api_find_execution(request, on_stdin);
}

/* --- signal ---------------------------------------------------------------------------------- */

struct signal_body {
    bool tree;
};

static const struct json_field signal_fields[] = {
    { "tree", JSON_KIND_BOOL, offsetof(struct signal_body, tree) },
};

static const struct route_extra signal_extras[] = {
    { "signal", "{\"type\":[\"string\",\"integer\"],\"description\":\"SIGTERM, TERM or 15\"}" },
    { 0 },
};

static int signal_by_name(const char *name)
{
    if (strncasecmp(name, "SIG", 3) == 0)
        name += 3;
    for (int number = 1; number < NSIG; number++) {
        const char *known = sigabbrev_np(number);

        if (known && strcasecmp(known, name) == 0)
            return number;
    }
    return 0;
}

static int read_signal(const json_t *given, int *out_number, struct error *err)
{
    uint64_t number = 0;

    if (json_is_integer(given) && json_integer_value(given) > 0 && json_integer_value(given) < NSIG)
        number = (uint64_t)json_integer_value(given);
    else if (json_is_string(given) && str_to_u64(json_string_value(given), &number) < 0)
        number = (uint64_t)signal_by_name(json_string_value(given));
    if (number < 1 || number >= NSIG)
        return error_named(err, ERR_INVALID, "invalid_field",
                           "signal must be a name such as SIGTERM or a number");
    *out_number = (int)number;
    return 0;
}

static void on_signal(struct request *request, const struct found_execution *found)
{
    struct execution *execution = live_execution(request, found);
    scoped(json_decref) json_t *given = request_take_field(request, "signal");
    struct signal_body body = { 0 };
    int number = 0;
    struct error err = { 0 };

    if (!execution)
        return;
    if (request_decode(request, &body, &err) < 0 || read_signal(given, &number, &err) < 0 ||
        execution_signal(execution, number, body.tree, &err) < 0)
        request_fail(request, &err);
    else
        request_reply_empty_object(request, 200);
}

static void post_signal(struct request *request)
{
    api_find_execution(request, on_signal);
}

/* --- resize ---------------------------------------------------------------------------------- */

struct resize_body {
    int64_t columns, rows;
};

static const struct json_field resize_fields[] = {
    { "cols", JSON_KIND_INT, offsetof(struct resize_body, columns), .required = true, .minimum = 1,
      .maximum = 10000 },
    { "rows", JSON_KIND_INT, offsetof(struct resize_body, rows), .required = true, .minimum = 1,
      .maximum = 10000 },
};

static void on_resize(struct request *request, const struct found_execution *found)
{
    struct execution *execution = live_execution(request, found);
    struct resize_body body = { 0 };
    struct error err = { 0 };

    if (!execution)
        return;
    if (request_decode(request, &body, &err) < 0 ||
        execution_resize(execution, (unsigned)body.columns, (unsigned)body.rows, &err) < 0)
        request_fail(request, &err);
    else
        request_reply_empty_object(request, 200);
}

static void post_resize(struct request *request)
{
    api_find_execution(request, on_resize);
}

/* --- the table ------------------------------------------------------------------------------- */

static const struct route_parameter stdin_parameters[] = {
    { "eof", "boolean", "close the input after these bytes" },
    { 0 },
};

static const struct route_answer stdin_answers[] = {
    { 200, "{written, closed}: all bytes are in the sandbox, and the program can read them" },
    { 404, "session_not_found, execution_not_found" },
    { 409, "execution_not_running, no_stdin, stdin_closed" },
    { 0 },
};

static const struct route_answer answers[] = {
    { 200, "done" },
    { 400, "a field is unknown, of the wrong type or out of range" },
    { 404, "session_not_found, execution_not_found" },
    { 409, "execution_not_running, no_terminal" },
    { 0 },
};

#define EXECUTION "/api/v1/sessions/{session}/executions/{execution}"

const struct route api_input_routes[] = {
    { HTTP_POST, EXECUTION "/stdin", post_stdin, "Write to the input of an execution",
      .unrecorded = true, .body = ROUTE_BYTES_BODY, .session = ROUTE_ANY_SESSION,
      .parameters = stdin_parameters, .answers = stdin_answers },
    { HTTP_PUT, EXECUTION "/stdin", post_stdin, "As POST", .unrecorded = true,
      .body = ROUTE_BYTES_BODY, .session = ROUTE_ANY_SESSION, .parameters = stdin_parameters,
      .answers = stdin_answers },
    { HTTP_POST, EXECUTION "/signal", post_signal,
      "Send a signal to an execution, or to its process tree", .body = ROUTE_JSON_BODY,
      .session = ROUTE_ANY_SESSION, .fields = signal_fields,
      .field_count = ARRAY_LENGTH(signal_fields), .extras = signal_extras, .answers = answers },
    { HTTP_POST, EXECUTION "/resize", post_resize, "Resize the terminal of an execution",
      .unrecorded = true, .body = ROUTE_JSON_BODY, .session = ROUTE_ANY_SESSION,
      .fields = resize_fields, .field_count = ARRAY_LENGTH(resize_fields), .answers = answers },
    { 0 },
};
