/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The tools of a model: what there is, and calls. The answer to a call is one JSON document when it
 * is over, or as Server-Sent Events
 *
 *     output   {"text"}: what a command has just written
 *     result   the document
 *
 * A client that leaves has interrupted its call.
 */

#include "api/pages.h"
#include "api/private.h"
#include "base/alloc.h"
#include "base/str.h"
#include "face/events.h"
#include "tools/tool.h"

#include <string.h>

enum { UNFINISHED_MAXIMUM = 256 * 1024 };

struct answer {
    struct request *request;
    struct tool_call call;
    bool is_stream;
    struct buffer unfinished;   /* output whose last character is not whole */
    struct event_answer events; /* with is_stream */
};

static void answer_free(struct answer *answer)
{
    event_answer_fini(&answer->events);
    buffer_fini(&answer->unfinished);
    tool_call_fini(&answer->call);
    free(answer);
}

static void on_gone(struct request *request)
{
    answer_free(request->state);
}

/* --- as events ------------------------------------------------------------------------------- */

/* A client that reads too slowly misses some of the output, never the result. */
static void on_progress(struct tool_call *call, const char *bytes, size_t length)
{
    struct answer *answer = container_of(call, struct answer, call);
    struct buffer *output = &answer->unfinished;
    scoped(buffer_fini) struct buffer text = BUFFER_INIT(REQUEST_REPLY_MAXIMUM);
    struct json_writer json = JSON_WRITER(&text);
    size_t whole;

    if (http_respond_pending(answer->request->exchange) > HTTP_HIGH_WATER)
        return;
    (void)buffer_append(output, bytes, length);
    whole = output->length - str_utf8_unfinished(output->data, output->length);
    json_begin_object(&json, NULL);
    json_put_bytes(&json, "text", output->data, whole);
    json_end_object(&json);
    buffer_consume(output, whole);
    event_answer_send(&answer->events, "output", text.data, text.length);
}

/* --- a call ---------------------------------------------------------------------------------- */

static void on_done(struct tool_call *call)
{
    struct answer *answer = container_of(call, struct answer, call);
    struct request *request = answer->request;
    scoped(buffer_fini) struct buffer text = BUFFER_INIT(REQUEST_REPLY_MAXIMUM);
    struct json_writer json = JSON_WRITER(&text);

    request->on_gone = NULL;
    tool_result_write_json(&call->result, &json, NULL);
    if (answer->is_stream) {
        event_answer_send(&answer->events, "result", text.data, text.length);
        http_respond_end(request->exchange);
    } else {
        request_reply_result(request, 200, &text);
    }
    answer_free(answer);
}

static const struct tool *find_tool(const struct request *request, struct error *err)
{
    const char *name = request_path(request, "tool");
    const struct tool *tool = tool_find(name);

    if (tool)
        return tool;
    error_named(err, ERR_NOT_FOUND, "tool_not_found", "unknown tool \"%.60s\"", name);
    error_hint_known(err, HINT_TOOLS);
    return NULL;
}

static int check_call(const struct request *request, const struct tool *tool, struct error *err)
{
    const char *client = request_parameter(request, "client");

    if (tool->needs_session && !*request->session_id) {
        error_named(err, ERR_INVALID, "session_needed", "%s needs a session", tool->name);
        error_hint(err, "POST /api/v1/sessions/{id}/tools/%s", tool->name);
        err->hint_kind = HINT_SESSION_NEEDED;
        return -1;
    }
    if (client && strlen(client) > 128)
        return error_named(err, ERR_INVALID, "invalid_parameter",
                           "parameter client is longer than 128 bytes");
    return tool_check(tool, request->body, err);
}

static void start_call(struct request *request, const struct tool *tool)
{
    const char *accept = request_header(request, "accept");
    struct answer *answer = xnew(struct answer);
    struct tool_request wanted = {
        .tool = tool,
        .arguments = request->body,
        .owner = request->owner,
        .on_behalf_of = request->on_behalf_of,
        .any_owner = request->any_owner,
        .session = *request->session_id ? request->session_id : NULL,
        .client = request_parameter(request, "client"),
    };

    answer->request = request;
    answer->is_stream = accept && strstr(accept, "text/event-stream");
    answer->unfinished = BUFFER_INIT(UNFINISHED_MAXIMUM);
    answer->call.on_done = on_done;
    if (answer->is_stream) {
        answer->call.on_progress = on_progress;
        event_answer_init(&answer->events, request);
    }
    request->state = answer;
    request->on_gone = on_gone;
    tool_call_start(api_of(request)->parts.tools, &answer->call, &wanted);
}

static void post_tool(struct request *request)
{
    struct error err = { 0 };
    const struct tool *tool = find_tool(request, &err);

    if (tool && check_call(request, tool, &err) == 0)
        start_call(request, tool);
    else
        request_fail(request, &err);
}

/* --- the rest -------------------------------------------------------------------------------- */

static void get_tools(struct request *request)
{
    scoped(buffer_fini) struct buffer text = BUFFER_INIT(REQUEST_REPLY_MAXIMUM);
    struct json_writer json = JSON_WRITER(&text);
    const struct tool *tool;

    json_begin_object(&json, NULL);
    json_begin_array(&json, "tools");
    for (size_t i = 0; (tool = tool_at(i)); i++)
        tool_write_json(tool, &json, NULL);
    json_end_array(&json);
    json_end_object(&json);
    api_reply_page(request, &text, "tools", "name");
}

static void post_interrupt(struct request *request)
{
    scoped(buffer_fini) struct buffer text = BUFFER_INIT(1024);
    struct json_writer json = JSON_WRITER(&text);

    json_begin_object(&json, NULL);
    json_put_int(&json, "interrupted",
                 tools_interrupt(api_of(request)->parts.tools, request->session_id));
    json_end_object(&json);
    request_reply(request, 200, &text);
}

static const struct route_parameter list_parameters[] = { API_PAGE_PARAMETERS, { 0 } };

static const struct route_parameter call_parameters[] = {
    { "client", "string",
      "name of the client: each client of a session has its own shell and interpreter" },
    { 0 },
};

static const struct route_answer call_answers[] = {
    { 200, "{content, is_error, structured}, even if the tool failed; with Accept: "
           "text/event-stream the events output and result" },
    { 400, "an argument is missing, unknown, of the wrong type or out of range" },
    { 404, "session_not_found or tool_not_found" },
    { 410, "session_ended: with the reason and the final record" },
    { 413, "field_too_large" },
    { 0 },
};

static const struct route_answer list_answers[] = {
    { 200, "{tools:[{name, title, description, annotations, needs_session, input_schema}], "
           "next_cursor}" },
    { 0 },
};

static const struct route_answer interrupt_answers[] = {
    { 200, "{interrupted}: the number of interrupted calls; the sandbox stays" },
    { 404, "session_not_found: unknown, or owned by another principal" },
    { 410, "session_ended: with the reason and the final record" },
    { 0 },
};

const struct route api_tool_routes[] = {
    { HTTP_GET, "/api/v1/tools", get_tools, "List the tools for models, with their JSON schemas",
      .parameters = list_parameters, .answers = list_answers },
    { HTTP_POST, "/api/v1/tools/{tool}", post_tool, "Call a tool that finds its session itself",
      .body = ROUTE_JSON_BODY, .parameters = call_parameters, .answers = call_answers,
      .home = ROUTE_PLACED },
    { HTTP_POST, "/api/v1/sessions/{session}/tools/{tool}", post_tool,
      "Call a tool; the body holds its arguments", .body = ROUTE_JSON_BODY,
      .session = ROUTE_LIVE_SESSION, .parameters = call_parameters, .answers = call_answers },
    { HTTP_POST, "/api/v1/sessions/{session}/interrupt", post_interrupt,
      "Interrupt all tool calls of a session; the sandbox stays", .body = ROUTE_JSON_BODY,
      .session = ROUTE_LIVE_SESSION, .answers = interrupt_answers },
    { 0 },
};
