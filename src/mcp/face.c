/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The MCP face: /mcp over HTTP. Callers are identified as on every face; the messages are the
 * business of the server, and so are its answers, which are JSON-RPC.
 */

#include "base/alloc.h"
#include "base/str.h"
#include "face/home.h"
#include "face/request.h"
#include "face/trail.h"
#include "mcp/private.h"
#include "service/find.h"

#include <stdlib.h>
#include <string.h>

static void on_gone(struct request *request)
{
    mcp_exchange_gone(request->state);
}

/* From now on the server answers. */
static void hand_over(struct request *request, struct mcp_exchange *exchange)
{
    request->state = exchange;
    request->on_gone = on_gone;
}

/* --- which node, where there are several --------------------------------------------------------- */

/* The node that has the client, when it is another one; allocated. */
static char *other_node(const struct request *request, char out_id[ID_SIZE])
{
    const struct mcp *mcp = request->context;
    char *node;

    mcp_client_header_read(request->exchange, out_id, &node);
    if (node && mcp->parts.node && !str_equal(node, mcp->parts.node))
        return node;
    free(node);
    return NULL;
}

static bool may_leave(const struct request *request)
{
    return request->faces->parts.cluster && !request->relay;
}

/* When the node that has the client is lost, its session may have another home, and that node knows
 * the client again by it. */
static void find_client(struct request *request, request_fn *here)
{
    char id[ID_SIZE];
    scoped(free) char *node = may_leave(request) ? other_node(request, id) : NULL;
    scoped(free) char *session = node ? xasprintf("key:" MCP_KEY "%s", id) : NULL;

    if (node)
        request_go_to_node(request, node, session, request->raw_body, here);
    else
        here(request);
}

static const char *text_at(const json_t *object, const char *name)
{
    const char *text = json_string_value(json_object_get(object, name));

    return str_is_empty(text) ? NULL : text;
}

/* The session that a message works in, an id or key:KEY, allocated; NULL when it names none. */
static char *session_of(const json_t *message)
{
    static const char scheme[] = "sandglass://";
    const json_t *params = json_object_get(message, "params");
    const json_t *arguments = json_object_get(params, "arguments");
    const char *uri = text_at(params, "uri");
    const char *key = text_at(arguments, "key");

    if (text_at(arguments, "session_id"))
        return xstrdup(text_at(arguments, "session_id"));
    if (key)
        return xasprintf("key:%s", key);
    if (uri && str_starts_with(uri, scheme))
        return xstrndup(uri + strlen(scheme), strcspn(uri + strlen(scheme), "/"));
    return NULL;
}

/* --- POST ------------------------------------------------------------------------------------ */

/* A message that names no session works in that of its client. */
static void note_own_session(struct request *request)
{
    const char *id = request_header(request, "mcp-session-id");
    const struct caller_identity caller = request_identity(request);
    const struct mcp_client *client = id ? mcp_client_find(request->context, &caller, id) : NULL;

    if (client)
        memcpy(request->session_id, client->session_id, sizeof(request->session_id));
}

/* For the audit log: the method, the tool, and the tool's arguments, among which the log knows what
 * it has to leave out. The server refuses messages that cannot be read. */
static void note_message(struct request *request, const json_t *message)
{
    const json_t *params = json_object_get(message, "params");
    json_t *arguments = json_object_get(params, "arguments");
    scoped(free) char *session = session_of(message);

    if (!session)
        note_own_session(request);
    request->body = json_is_object(arguments) ? json_copy(arguments) : json_object();
    json_object_set(request->body, "mcp_method", json_object_get(message, "method"));
    json_object_set(request->body, "mcp_tool", json_object_get(params, "name"));
    audit_trail_body(request);
}

/* Whether the message works in a session of this node, for a client of any node. */
static bool is_about_here(const struct request *request)
{
    scoped(free) char *session = session_of(request->message);
    struct caller_identity caller = request_identity(request);

    return session && find_live_session(request->core, &caller, session, NULL);
}

static void answer_message(struct request *request)
{
    const struct buffer *body = request->raw_body;
    struct caller_identity caller = request_identity(request);
    char id[ID_SIZE];
    scoped(free) char *node = other_node(request, id);

    hand_over(request, mcp_post(request->context, &caller, request->exchange,
                                node && is_about_here(request), request->message,
                                body->length ? (const void *)body->data : "", body->length));
}

/* The session is here, or there is none. The first message of a client, and one that makes a session
 * of its own, may go to any node. */
static void choose_node(struct request *request)
{
    const json_t *message = request->message;
    scoped(free) char *session = NULL;
    const char *method;

    if (!may_leave(request) || is_about_here(request)) {
        answer_message(request);
        return;
    }
    session = session_of(message);
    method = text_at(message, "method");
    if (!session && !request_header(request, "mcp-session-id") &&
        (str_equal(method, "initialize") || str_equal(method, "tools/call")))
        request_place_new(request, request->raw_body, answer_message);
    else
        find_client(request, answer_message);
}

/* Without a message the server says what is wrong with the text. */
static void take_message(struct request *request, json_t *message, const struct error *err)
{
    scoped(free) char *session = NULL;

    request->message = message;
    if (!request->raw_body->length)
        json_decref(steal_ptr(&request->message));
    if (!message && request->raw_body == &request->text) { /* too large to be read once more */
        mcp_refuse_text(request->context, request->exchange, err);
        return;
    }
    note_message(request, request->message);
    session = may_leave(request) ? session_of(request->message) : NULL;
    if (session)
        request_find_home_of(request, session, request->raw_body, choose_node);
    else
        choose_node(request);
}

static void on_message(struct http_exchange *http, struct buffer *body)
{
    request_parse_body(http_exchange_user(http), body, take_message);
}

static void post_mcp(struct request *request)
{
    request_read_body(request, REQUEST_BODY_MAXIMUM, on_message);
}

/* --- GET: events, or a line for each message ------------------------------------------------- */

static void on_data(struct http_exchange *http, const uint8_t *data, size_t length)
{
    struct request *request = http_exchange_user(http);

    mcp_exchange_data(request->state, data, length);
}

static void on_drain(struct http_exchange *http)
{
    struct request *request = http_exchange_user(http);

    mcp_exchange_drained(request->state);
}

static void upgrade(struct request *request, const struct caller_identity *caller)
{
    struct error err = { 0 };
    struct mcp_exchange *exchange = mcp_pipe(request->context, caller, request->exchange, &err);

    if (!exchange) {
        request_fail(request, &err);
        return;
    }
    hand_over(request, exchange);
    http_respond_on_drain(request->exchange, on_drain);
    http_respond_upgrade(request->exchange, MCP_UPGRADE, on_data);
}

static void get_here(struct request *request)
{
    struct caller_identity caller = request_identity(request);

    if (mcp_wants_pipe(request->exchange))
        upgrade(request, &caller);
    else
        hand_over(request, mcp_get(request->context, &caller, request->exchange));
}

static void get_mcp(struct request *request)
{
    find_client(request, get_here);
}

static void delete_here(struct request *request)
{
    struct caller_identity caller = request_identity(request);

    hand_over(request, mcp_delete(request->context, &caller, request->exchange));
}

static void delete_mcp(struct request *request)
{
    find_client(request, delete_here);
}

/* --- the routes ------------------------------------------------------------------------------ */

static const struct route_answer post_answers[] = {
    { 200, "the answer to a request, as JSON or as text/event-stream" },
    { 202, "a notification was taken" },
    { 400, "a JSON-RPC error: invalid message, missing Mcp-Session-Id, or mismatched headers" },
    { 404, "a JSON-RPC error: the MCP session has ended; send initialize again" },
    { 0 },
};

static const struct route_answer get_answers[] = {
    { 101, "Upgrade: mcp-lines: one message per line, both ways; the sessions of the client end "
           "with the connection" },
    { 200, "text/event-stream; Last-Event-ID resumes an interrupted answer" },
    { 404, "the MCP session has ended" },
    { 0 },
};

static const struct route_answer delete_answers[] = {
    { 204, "the MCP session has ended and its sandbox is removed" },
    { 404, "unknown MCP session" },
    { 0 },
};

static const struct route routes[] = {
    { HTTP_POST, "/mcp", post_mcp, "Send a message of the Model Context Protocol (JSON-RPC)",
      .body = ROUTE_MESSAGE_BODY, .answers = post_answers, .home = ROUTE_OF_MESSAGE },
    { HTTP_GET, "/mcp", get_mcp, "Messages of the MCP server", .answers = get_answers,
      .home = ROUTE_OF_MESSAGE },
    { HTTP_DELETE, "/mcp", delete_mcp, "End an MCP session", .answers = delete_answers,
      .home = ROUTE_OF_MESSAGE },
    { 0 },
};

static const struct route *const tables[] = { routes, NULL };

const struct face mcp_face = {
    .name = "mcp",
    .prefix = "/mcp",
    .identify = request_identify,
    .fail = request_fail_json,
    .tables = tables,
};
