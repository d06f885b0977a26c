/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tools/list and tools/call. A call first finds its session, then runs; what a command writes in
 * the meantime is told as progress, to those who have asked for it.
 */

#include "base/alloc.h"
#include "base/str.h"
#include "mcp/private.h"
#include "service/find.h"
#include "service/home.h"
#include "tools/tool.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

enum {
    PROGRESS_US = 100 * 1000,    /* between two notifications */
    PROGRESS_MAXIMUM = 8 * 1024, /* bytes in one: what is more is left out */
};

/* Arguments that every tool that works in a session has over MCP. */
static const struct tool_argument session_arguments[] = {
    { .name = "session_id",
      .kind = TOOL_TEXT,
      .description = "Work in this session instead of the session of this connection.",
      .max_length = 300 },
    { .name = "key",
      .kind = TOOL_TEXT,
      .description = "Work in the session with this name, which is created if necessary.",
      .max_length = 256 },
    { 0 },
};

struct call {
    struct mcp_request *request; /* borrowed: it releases us */
    const struct tool *tool;
    json_t *arguments;              /* owned; the tool's own */
    struct mcp_place *place;        /* while the session is being opened */
    struct home_question *question; /* while the home of one that is not here is looked up */
    struct tool_call running;
    bool is_running, is_cancelled, is_answered;
    char session_id[ID_SIZE]; /* "" without one */
    const char *notice;       /* about the session, before the result; NULL without */
    bool tells_session;       /* the client has to know its id to find it again */

    char *token; /* owned: JSON; NULL when the client wants no progress */
    struct buffer output;
    uint64_t written; /* bytes so far */
    struct timer progress;
};

/* A question to the store, which may outlive its call. */
struct home_question {
    struct session_home home;
    struct call *call; /* NULL when it has gone */
    struct error err;  /* what is told when the session is nowhere */
};

/* --- tools/list ------------------------------------------------------------------------------ */

static bool works_in_session(const struct tool *tool)
{
    assert(tool);
    return tool->needs_session || tool->takes_session;
}

static void put_annotations(struct json_writer *json, const struct tool *tool)
{
    json_begin_object(json, "annotations");
    json_put_text(json, "title", tool->title);
    json_put_bool(json, "readOnlyHint", tool->is_read_only);
    json_put_bool(json, "destructiveHint", tool->is_destructive);
    json_put_bool(json, "idempotentHint", tool->is_idempotent);
    json_put_bool(json, "openWorldHint", tool->is_open_world);
    json_end_object(json);
}

static void put_tool(struct json_writer *json, const struct mcp_request *request,
                     const struct tool *tool)
{
    json_begin_object(json, NULL);
    json_put_text(json, "name", tool->name);
    if (mcp_request_speaks(request, "2025-06-18"))
        json_put_text(json, "title", tool->title);
    json_put_text(json, "description", tool->description);
    tool_write_schema(tool, works_in_session(tool) ? session_arguments : NULL, json, "inputSchema");
    if (mcp_request_speaks(request, "2025-03-26"))
        put_annotations(json, tool);
    json_end_object(json);
}

void mcp_tools_list(struct mcp_request *request)
{
    struct mcp_result result;
    const struct tool *tool;

    if (json_object_get(request->params, "cursor")) {
        mcp_request_fail(request, JSONRPC_INVALID_PARAMS, "this cursor is unknown", NULL);
        return;
    }
    mcp_result_begin(&result, request);
    mcp_result_put_cache(&result, request, 3600 * 1000, "public");
    json_begin_array(&result.json, "tools");
    for (size_t i = 0; (tool = tool_at(i)); i++)
        put_tool(&result.json, request, tool);
    json_end_array(&result.json);
    mcp_result_send(&result, request);
}

/* --- the result ------------------------------------------------------------------------------ */

static void put_text(struct json_writer *json, const char *text)
{
    json_begin_object(json, NULL);
    json_put_text(json, "type", "text");
    json_put_text(json, "text", text);
    json_end_object(json);
}

static void put_session(struct json_writer *json, const struct call *call)
{
    scoped(free) char *text = xasprintf(
        "[session] id=%s → pass it as session_id to continue in this session", call->session_id);

    put_text(json, text);
}

static void put_link(struct json_writer *json, const struct mcp_request *request,
                     const struct tool_content *content)
{
    if (!mcp_request_speaks(request, "2025-06-18")) {
        scoped(free) char *text = xasprintf("[file] %s: %s", content->name, content->uri);

        put_text(json, text);
        return;
    }
    json_begin_object(json, NULL);
    json_put_text(json, "type", "resource_link");
    json_put_text(json, "uri", content->uri);
    json_put_text(json, "name", content->name);
    if (content->mime)
        json_put_text(json, "mimeType", content->mime);
    json_put_int(json, "size", (int64_t)content->size);
    json_end_object(json);
}

static void put_content(struct json_writer *json, const struct mcp_request *request,
                        const struct tool_content *content)
{
    switch (content->kind) {
    case TOOL_CONTENT_TEXT:
        put_text(json, content->text);
        break;
    case TOOL_CONTENT_IMAGE:
        json_begin_object(json, NULL);
        json_put_text(json, "type", "image");
        json_put_text(json, "data", content->data);
        json_put_text(json, "mimeType", content->mime);
        json_end_object(json);
        break;
    case TOOL_CONTENT_LINK:
        put_link(json, request, content);
        break;
    case TOOL_CONTENT_BLOB:
        json_begin_object(json, NULL);
        json_put_text(json, "type", "resource");
        json_begin_object(json, "resource");
        json_put_text(json, "uri", content->uri);
        json_put_text(json, "mimeType", content->mime);
        json_put_text(json, "blob", content->data);
        json_end_object(json);
        json_end_object(json);
        break;
    }
}

static void note_links(struct mcp_client *client, const struct tool_result *result)
{
    for (size_t i = 0; client && i < result->count; i++) {
        const struct tool_content *content = &result->contents[i];

        if (content->uri)
            mcp_client_note_link(client, content->uri, content->name,
                                 content->mime ? content->mime : "application/octet-stream",
                                 content->size);
    }
}

static void answer(struct call *call)
{
    struct mcp_request *request = call->request;
    const struct tool_result *found = &call->running.result;
    struct mcp_result result;

    call->is_answered = true;
    note_links(request->client, found);
    mcp_result_begin(&result, request);
    json_begin_array(&result.json, "content");
    if (call->notice)
        put_text(&result.json, call->notice);
    for (size_t i = 0; i < found->count; i++)
        put_content(&result.json, request, &found->contents[i]);
    if (call->tells_session)
        put_session(&result.json, call);
    json_end_array(&result.json);
    if (found->structured && mcp_request_speaks(request, "2025-06-18"))
        json_put_raw(&result.json, "structuredContent", found->structured);
    json_put_bool(&result.json, "isError", found->is_error);
    mcp_result_send(&result, request);
}

/* An error that the model can correct is a result, so that the model reads it. */
static void answer_error(struct mcp_request *request, const struct error *err)
{
    const char *hint = error_hint_for(err, SURFACE_MCP);
    scoped(free) char *text = *hint ? xasprintf("ERROR: %s (%s).", err->message, hint)
                                    : xasprintf("ERROR: %s.", err->message);
    struct mcp_result result;

    mcp_result_begin(&result, request);
    json_begin_array(&result.json, "content");
    put_text(&result.json, text);
    json_end_array(&result.json);
    json_put_bool(&result.json, "isError", true);
    mcp_result_send(&result, request);
}

/* --- progress -------------------------------------------------------------------------------- */

static void send_progress(struct call *call)
{
    struct mcp_channel *channel = call->request->channel;
    size_t whole = call->output.length -
                   str_utf8_unfinished(call->output.data, call->output.length);
    scoped(buffer_fini) struct buffer text = BUFFER_INIT(16 * PROGRESS_MAXIMUM);
    struct json_writer json = JSON_WRITER(&text);

    if (whole == 0)
        return;
    jsonrpc_begin_notification(&json, "notifications/progress");
    json_begin_object(&json, "params");
    json_put_raw(&json, "progressToken", call->token);
    json_put_int(&json, "progress", (int64_t)call->written);
    if (strcmp(call->request->version, "2025-03-26") >= 0)
        json_put_bytes(&json, "message", call->output.data, whole);
    json_end_object(&json);
    json_end_object(&json);
    buffer_consume(&call->output, whole);
    if (!channel->ops->is_full(channel))
        channel->ops->notify(channel, text.data, text.length);
}

static void on_progress_due(struct timer *timer)
{
    send_progress(container_of(timer, struct call, progress));
}

static void on_progress(struct tool_call *running, const char *text, size_t length)
{
    struct call *call = container_of(running, struct call, running);

    call->written += length;
    (void)buffer_append(&call->output, text,
                        MIN(length, call->output.maximum - call->output.length));
    if (!timer_is_armed(&call->progress))
        timer_arm_in(&call->progress, PROGRESS_US);
}

/* --- the run --------------------------------------------------------------------------------- */

static void on_done(struct tool_call *running)
{
    struct call *call = container_of(running, struct call, running);

    if (call->is_cancelled)
        mcp_request_close(call->request);
    else
        answer(call);
}

static void run(struct call *call)
{
    struct mcp_request *request = call->request;
    const char *client = request->client   ? request->client->id
                         : *request->guest ? request->guest
                                           : NULL;
    scoped(free) char *labels = client && mcp_client_is_leased(client) ? mcp_client_labels(client)
                                                                       : NULL;

    call->is_running = true;
    call->running.on_progress = call->token ? on_progress : NULL;
    call->running.on_done = on_done;
    tool_call_start(request->mcp->parts.tools, &call->running,
                    &(struct tool_request){
                        .tool = call->tool,
                        .arguments = call->arguments,
                        .owner = request->identity.owner,
                        .on_behalf_of = request->identity.on_behalf_of,
                        .any_owner = request->identity.any_owner,
                        .session = *call->session_id ? call->session_id : NULL,
                        .client = client,
                        .labels_json = labels,
                    });
}

static void note_own_session(struct call *call, const struct mcp_place *place)
{
    struct mcp_client *client = call->request->client;

    call->tells_session = !client;
    if (!client)
        return;
    if (*client->session_id && place->is_new)
        call->notice = "[notice] The session of this connection had ended, so this is a new one. "
                       "Files, packages and processes of before are gone.";
    memcpy(client->session_id, place->session_id, sizeof(client->session_id));
}

static void on_placed(struct mcp_place *place)
{
    struct call *call = place->user;

    call->place = NULL;
    if (place->err.code) {
        answer_error(call->request, &place->err);
        return;
    }
    memcpy(call->session_id, place->session_id, sizeof(call->session_id));
    if (place->is_own)
        note_own_session(call, place);
    run(call);
}

/* A client that has left was not told the id of the session that was made for its call, so the
 * session ends. */
static void end_unknown_session(const struct call *call)
{
    struct session *session = NULL;

    if (call->tells_session && !call->is_answered)
        session = map_get(&call->request->mcp->parts.core->sessions_by_id, call->session_id);
    if (session)
        session_end(session, END_DELETED, MCP_END_DETAIL, NULL, NULL);
}

static void call_release(struct mcp_request *request)
{
    struct call *call = request->work;

    end_unknown_session(call);
    timer_stop(&call->progress);
    if (call->place)
        mcp_place_abandon(call->place);
    if (call->question)
        call->question->call = NULL;
    if (call->is_running)
        tool_call_fini(&call->running);
    buffer_fini(&call->output);
    json_decref(call->arguments);
    free(call->token);
    free(call);
}

static void call_cancel(struct mcp_request *request)
{
    struct call *call = request->work;

    call->is_cancelled = true;
    if (call->is_running)
        tool_call_cancel(&call->running);
    else
        mcp_request_close(request);
}

/* --- the beginning --------------------------------------------------------------------------- */

static bool takes(const struct tool *tool, const char *name)
{
    const struct tool_argument *argument = tool->arguments;

    while (argument->name && strcmp(argument->name, name) != 0)
        argument++;
    return argument->name;
}

/* Takes an argument that is ours out of the tool's; the text is borrowed from the request. */
static int take_reference(struct call *call, const struct tool_argument *row, const char **out,
                          struct error *err)
{
    const json_t *given = json_object_get(call->request->params, "arguments");
    const json_t *value = json_object_get(given, row->name);

    if (!value || json_is_null(value))
        return 0;
    if (!json_is_string(value) || json_string_length(value) > row->max_length ||
        json_string_length(value) == 0)
        return error_named(err, ERR_INVALID, "invalid_field",
                           "%s must be a string of at most %zu bytes", row->name, row->max_length);
    *out = json_string_value(value);
    if (!takes(call->tool, row->name))
        json_object_del(call->arguments, row->name);
    return 0;
}

static void on_home(struct session_home *home)
{
    struct home_question *question = container_of(home, struct home_question, home);
    struct call *call = question->call;

    if (home->found == HOME_LIVE && !str_is_empty(home->node)) {
        error_named(&question->err, ERR_CONFLICT, "home_elsewhere",
                    "session %s is on node %.64s, and this connection is with node %.64s", home->id,
                    home->node, call ? call->request->mcp->parts.node : "");
        error_hint(&question->err,
                   "connect to that node, or use MCP over HTTP at /mcp of any node");
    }
    if (call) {
        call->question = NULL;
        answer_error(call->request, &question->err);
    }
    session_home_fini(home);
    free(question);
}

/* Messages over HTTP are relayed to the home before they come here; those of a pipe are not. */
static void look_for_home(struct call *call, const char *reference, const struct error *err)
{
    struct home_question *question = xnew(struct home_question);

    question->call = call;
    question->err = *err;
    call->question = question;
    session_home_find(&question->home, call->request->mcp->parts.core, &call->request->identity,
                      reference, on_home);
}

/* -1 when there is no such session, and what is to be told of it; 0 when it goes on, now or later. */
static int find_and_run(struct call *call, const char *reference, struct error *err)
{
    const struct mcp_request *request = call->request;
    const struct session *session =
        find_live_session(request->mcp->parts.core, &request->identity, reference, err);

    if (session) {
        memcpy(call->session_id, session_id(session), sizeof(call->session_id));
        run(call);
        return 0;
    }
    error_hint(err, "it may have ended; leave session_id out to work in the session of "
                    "this connection");
    if (!request->mcp->parts.node || !find_may_exist(reference))
        return -1;
    look_for_home(call, reference, err);
    return 0;
}

/* 0 when it goes on, now or later. */
static int choose_session(struct call *call, struct error *err)
{
    const char *session = NULL, *key = NULL;
    bool finds_itself;

    if (!works_in_session(call->tool)) {
        run(call);
        return 0;
    }
    if (take_reference(call, &session_arguments[0], &session, err) < 0 ||
        take_reference(call, &session_arguments[1], &key, err) < 0)
        return -1;
    if (session && key)
        return error_set(err, ERR_INVALID, "give session_id or key, not both");
    if (tools_check(call->request->mcp->parts.tools, call->tool, call->arguments, err) < 0)
        return -1; /* before a session is made for it */
    finds_itself = takes(call->tool, session_arguments[0].name) &&
                   (session || !call->request->client);
    if (finds_itself && !key) {
        run(call);
        return 0;
    }
    if (!session) {
        call->place = mcp_place_open(call->request, key, on_placed, call);
        return 0;
    }
    return find_and_run(call, session, err);
}

static int read_params(struct call *call, struct error *err)
{
    const json_t *params = call->request->params;
    const char *name = json_string_value(json_object_get(params, "name"));
    json_t *arguments = json_object_get(params, "arguments");
    const json_t *meta = json_object_get(params, "_meta");
    const json_t *token = json_object_get(meta, "progressToken");

    call->tool = name ? tool_find(name) : NULL;
    if (!call->tool)
        return error_set(err, ERR_INVALID, "unknown tool \"%.60s\"; tools/list lists the tools",
                         name ? name : "");
    if (arguments && !json_is_object(arguments))
        return error_set(err, ERR_INVALID, "arguments must be an object");
    call->arguments = arguments ? json_copy(arguments) : json_object();
    call->token = token ? jsonrpc_token(token) : NULL;
    if (token && !call->token)
        return error_set(err, ERR_INVALID,
                         "progressToken must be a whole number or a string of at most %d bytes",
                         JSONRPC_ID_MAXIMUM);
    return 0;
}

void mcp_tools_call(struct mcp_request *request)
{
    struct call *call = xnew(struct call);
    struct error err = { 0 };

    call->request = request;
    call->output = BUFFER_INIT(PROGRESS_MAXIMUM);
    timer_init(&call->progress, request->mcp->parts.loop, on_progress_due);
    request->work = call;
    request->release = call_release;
    request->cancel = call_cancel;
    if (read_params(call, &err) < 0)
        mcp_request_fail(request, JSONRPC_INVALID_PARAMS, err.message, NULL);
    else if (choose_session(call, &err) < 0)
        answer_error(request, &err);
}
