/* SPDX-License-Identifier: Apache-2.0 */
/* Waiting for something that an execution does: a text in its output, or a port that it serves. */

#include "api/run/executions.h"
#include "base/alloc.h"
#include "base/str.h"
#include "core/core.h"
#include "service/condition.h"

#include <string.h>

enum {
    TIMEOUT_DEFAULT_MS = 30 * 1000,
    TEXT_MAXIMUM = 4096,
    PORT_MAXIMUM = 65535,
};

struct wait {
    struct request *request;
    struct condition condition;
    struct found_execution found; /* its record is valid only while the wait begins */
};

static void on_gone(struct request *request)
{
    struct wait *wait = request->state;

    condition_stop(&wait->condition);
    free(wait);
}

static void write_answer(const struct wait *wait, struct json_writer *json)
{
    const struct condition *condition = &wait->condition;
    int64_t waited_us = loop_now_us(wait->request->core->loop) - condition->began_us;

    json_begin_object(json, NULL);
    json_put_bool(json, "met", condition->is_met);
    json_put_text(json, "reason", condition->reason);
    json_put_text(json, "stream", condition->stream);
    if (condition->stream)
        json_put_int(json, "offset", (int64_t)condition->offset);
    else
        json_put_null(json, "offset");
    json_put_double(json, "waited_seconds", (double)waited_us / 1e6);
    found_execution_write_json(&wait->found, json, "execution", false);
    json_end_object(json);
}

static void on_over(struct condition *condition)
{
    struct wait *wait = container_of(condition, struct wait, condition);
    struct request *request = wait->request;
    scoped(buffer_fini) struct buffer text = BUFFER_INIT(REQUEST_REPLY_MAXIMUM);
    struct json_writer json = JSON_WRITER(&text);

    if (condition->err.code) {
        request_fail(request, &condition->err);
    } else {
        write_answer(wait, &json);
        request_reply(request, 200, &text);
    }
    request->on_gone = NULL;
    on_gone(request);
}

/* --- what was asked -------------------------------------------------------------------------- */

static int read_wish(const struct request *request, struct condition_wish *wish, struct error *err)
{
    uint64_t port = 0;

    *wish = (struct condition_wish){ .text = request_parameter(request, "output"),
                                     .stream = request_parameter(request, "stream"),
                                     .timeout_ms = TIMEOUT_DEFAULT_MS };
    if (request_parameter_u64(request, "port", PORT_MAXIMUM, &port, err) < 0 ||
        request_parameter_u64(request, "offset", INT64_MAX, &wish->offset, err) < 0 ||
        request_parameter_ms(request, "timeout_seconds", WAIT_MAXIMUM_MS, &wish->timeout_ms, err) <
            0)
        return -1;
    wish->port = (unsigned)port;
    if (!wish->text == !wish->port)
        return error_named(err, ERR_INVALID, "invalid_parameter",
                           "give exactly one of output and port");
    if (wish->text && (!*wish->text || strlen(wish->text) > TEXT_MAXIMUM))
        return error_named(err, ERR_INVALID, "invalid_parameter",
                           "output must be a string of at most %d bytes", TEXT_MAXIMUM);
    if (wish->stream && !str_equal(wish->stream, "stdout") && !str_equal(wish->stream, "stderr"))
        return error_named(err, ERR_INVALID, "invalid_parameter",
                           "stream must be stdout or stderr");
    return 0;
}

static void on_found(struct request *request, const struct found_execution *found)
{
    struct condition_wish wish;
    struct wait *wait;
    struct error err = { 0 };

    if (read_wish(request, &wish, &err) < 0) {
        request_fail(request, &err);
        return;
    }
    wait = xnew(struct wait);
    wait->request = request;
    wait->found = *found;
    request->state = wait;
    request->on_gone = on_gone;
    condition_start(&wait->condition, found, &wish, on_over);
}

static void get_wait(struct request *request)
{
    api_find_execution(request, on_found);
}

static const struct route_parameter wait_parameters[] = {
    { "output", "string", "text to wait for in the output of the program" },
    { "stream", "string", "stream to search: stdout or stderr; both by default" },
    { "offset", "integer", "byte offset at which the search starts" },
    { "port", "integer", "TCP port to wait for: a program inside the sandbox listens on it" },
    { "timeout_seconds", "string", "seconds to wait, 30 by default and an hour at most" },
    { 0 },
};

static const struct route_answer wait_answers[] = {
    { 200, "{met, reason, stream, offset, waited_seconds, execution}; if not met, reason is "
           "timeout or ended" },
    { 400, "a parameter is unknown or out of range" },
    { 404, "session_not_found or execution_not_found" },
    { 409, "sandbox_too_old or ports_unknown: the sandbox cannot tell which ports are served" },
    { 0 },
};

const struct route api_wait_routes[] = {
    { HTTP_GET, "/api/v1/sessions/{session}/executions/{execution}/wait", get_wait,
      "Wait until an execution has written a text or a port accepts connections",
      .session = ROUTE_ANY_SESSION, .parameters = wait_parameters, .answers = wait_answers },
    { 0 },
};
