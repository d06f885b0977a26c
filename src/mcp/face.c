/*
 * The MCP face: /mcp over HTTP. Callers are identified as on every face; the messages are the
 * business of the server, and so are its answers, which are JSON-RPC.
 */

#include "face/request.h"
#include "face/trail.h"
#include "mcp/private.h"

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

/* --- POST ------------------------------------------------------------------------------------ */

/* For the audit log: the method, the tool, and the tool's arguments, among which the log knows what
 * it has to leave out. What cannot be read is the server's to refuse. */
static void note_message(struct request *request, const struct buffer *body)
{
    scoped(json_decref) json_t *message = body->length ? json_read(body->data, body->length, NULL)
                                                       : NULL;
    const json_t *params = json_object_get(message, "params");
    json_t *arguments = json_object_get(params, "arguments");

    request->body = json_is_object(arguments) ? json_copy(arguments) : json_object();
    json_object_set(request->body, "mcp_method", json_object_get(message, "method"));
    json_object_set(request->body, "mcp_tool", json_object_get(params, "name"));
    audit_trail_body(request);
}

static void on_message(struct http_exchange *http, struct buffer *body)
{
    struct request *request = http_exchange_user(http);
    struct caller_identity caller = request_identity(request);

    note_message(request, body);
    hand_over(request, mcp_post(request->context, &caller, http,
                                body->length ? (const void *)body->data : "", body->length));
}

static void post_mcp(struct request *request)
{
    http_exchange_read_body(request->exchange, REQUEST_BODY_MAXIMUM, on_message);
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

static void get_mcp(struct request *request)
{
    struct caller_identity caller = request_identity(request);

    if (mcp_wants_pipe(request->exchange))
        upgrade(request, &caller);
    else
        hand_over(request, mcp_get(request->context, &caller, request->exchange));
}

static void delete_mcp(struct request *request)
{
    struct caller_identity caller = request_identity(request);

    hand_over(request, mcp_delete(request->context, &caller, request->exchange));
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
      .body = ROUTE_MESSAGE_BODY, .answers = post_answers },
    { HTTP_GET, "/mcp", get_mcp, "Messages of the MCP server", .answers = get_answers },
    { HTTP_DELETE, "/mcp", delete_mcp, "End an MCP session", .answers = delete_answers },
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
