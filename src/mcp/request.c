/* SPDX-License-Identifier: Apache-2.0 */
#include "base/alloc.h"
#include "base/str.h"
#include "mcp/private.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* In which era a method exists. */
enum { STATEFUL = 1, STATELESS = 2, BOTH = 3 };

static const struct method {
    const char *name;
    mcp_method_fn *call;
    unsigned eras;
    bool is_first; /* may come before `initialize` has been answered */
} methods[] = {
    { "initialize", mcp_initialize, STATEFUL, true },
    { "ping", mcp_ping, STATEFUL, true },
    { "server/discover", mcp_discover, STATELESS, true },
    { "tools/list", mcp_tools_list, BOTH, false },
    { "tools/call", mcp_tools_call, BOTH, false },
    { "resources/list", mcp_resources_list, BOTH, false },
    { "resources/templates/list", mcp_resources_templates, BOTH, false },
    { "resources/read", mcp_resources_read, BOTH, false },
};

static const struct method *find_method(const char *name, bool is_stateless)
{
    unsigned era = is_stateless ? STATELESS : STATEFUL;

    for (size_t i = 0; i < ARRAY_LENGTH(methods); i++)
        if (strcmp(methods[i].name, name) == 0 && methods[i].eras & era)
            return &methods[i];
    return NULL;
}

/* --- life ------------------------------------------------------------------------------------ */

static void request_free(struct mcp_request *request)
{
    if (request->release)
        request->release(request);
    list_remove(&request->node);
    mcp_identity_fini(&request->identity);
    json_decref(request->params);
    free(request->id);
    free(request);
}

void mcp_request_drop(struct mcp_request *request)
{
    request_free(request);
}

void mcp_request_close(struct mcp_request *request)
{
    struct mcp_channel *channel = request->channel;

    request_free(request);
    channel->ops->close(channel);
}

static void finish(struct mcp_request *request, int status, struct buffer *text)
{
    struct mcp_channel *channel = request->channel;

    request_free(request);
    channel->ops->finish(channel, status, text->data, text->length);
}

void mcp_write_failure(struct buffer *text, const char *id, int code, const char *message,
                       const char *data)
{
    struct json_writer json = JSON_WRITER(text);

    jsonrpc_write_error(&json, id, code, message, data);
}

void mcp_request_fail(struct mcp_request *request, int code, const char *message, const char *data)
{
    scoped(buffer_fini) struct buffer text = BUFFER_INIT(64 * 1024);
    bool is_unknown = request->is_stateless && code == JSONRPC_METHOD_NOT_FOUND;

    mcp_write_failure(&text, request->id, code, message, data);
    finish(request, is_unknown ? 404 : 200, &text);
}

struct mcp_request *mcp_request_find(const struct mcp_client *client, const char *id)
{
    struct mcp_request *request;

    list_for_each (request, &client->requests, node)
        if (strcmp(request->id, id) == 0)
            return request;
    return NULL;
}

/* --- results --------------------------------------------------------------------------------- */

static void put_server_info(struct json_writer *json, const char *key)
{
    json_begin_object(json, key);
    json_put_text(json, "name", "sandglass");
    json_put_text(json, "version", SANDGLASS_VERSION);
    json_end_object(json);
}

void mcp_result_begin(struct mcp_result *result, const struct mcp_request *request)
{
    *result = (struct mcp_result){ .text = BUFFER_INIT(MCP_ANSWER_MAXIMUM) };
    result->json = JSON_WRITER(&result->text);
    jsonrpc_begin_result(&result->json, request->id);
    json_begin_object(&result->json, "result");
    if (!request->is_stateless)
        return;
    json_put_text(&result->json, "resultType", "complete");
    json_begin_object(&result->json, "_meta");
    put_server_info(&result->json, MCP_META "serverInfo");
    json_end_object(&result->json);
}

void mcp_result_put_cache(struct mcp_result *result, const struct mcp_request *request,
                          int64_t ttl_ms, const char *scope)
{
    if (!request->is_stateless)
        return;
    json_put_int(&result->json, "ttlMs", ttl_ms);
    json_put_text(&result->json, "cacheScope", scope);
}

void mcp_result_send(struct mcp_result *result, struct mcp_request *request)
{
    json_end_object(&result->json);
    json_end_object(&result->json);
    if (result->text.overflowed)
        mcp_request_fail(request, JSONRPC_INTERNAL_ERROR, "the answer is too large", NULL);
    else
        finish(request, 200, &result->text);
    buffer_fini(&result->text);
}

bool mcp_request_speaks(const struct mcp_request *request, const char *version)
{
    return request->version && strcmp(request->version, version) >= 0;
}

const char *mcp_param_text(const struct mcp_request *request, const char *name)
{
    return json_string_value(json_object_get(request->params, name));
}

/* --- what comes ------------------------------------------------------------------------------ */

static struct mcp_request *request_new(const struct mcp_source *source,
                                       const struct jsonrpc_message *message)
{
    struct mcp_request *request = xnew(struct mcp_request);

    request->mcp = source->mcp;
    request->client = source->client;
    request->channel = source->channel;
    request->is_stateless = source->is_stateless;
    request->version = source->is_stateless ? MCP_VERSION_STATELESS
                       : source->client     ? source->client->version
                                            : source->guest_version;
    snprintf(request->guest, sizeof(request->guest), "%s", source->guest ? source->guest : "");
    request->id = xstrdup(message->id);
    request->params = json_incref(message->params);
    mcp_identity_set(&request->identity, source->caller);
    list_init(&request->node);
    return request;
}

static bool is_crowded(const struct mcp_client *client)
{
    const struct list *node;
    unsigned count = 0;

    for (node = client->requests.next; node != &client->requests; node = node->next)
        count++;
    return count >= MCP_REQUESTS_MAXIMUM;
}

/* The reason to refuse a request, as the code of an error; 0 when there is none. */
static int find_objection(const struct mcp_source *source, const struct jsonrpc_message *message,
                          const struct method *method, struct error *err)
{
    struct mcp_client *client = source->client;

    if (!method) {
        error_set(err, ERR_INVALID, "unknown method %.60s", message->method);
        return JSONRPC_METHOD_NOT_FOUND;
    }
    if (client && mcp_request_find(client, message->id)) {
        error_set(err, ERR_INVALID, "a request with this id is in progress");
        return JSONRPC_INVALID_REQUEST;
    }
    if (client && is_crowded(client)) {
        error_set(err, ERR_LIMIT, "%d requests are in progress: wait for one of them",
                  MCP_REQUESTS_MAXIMUM);
        return JSONRPC_INVALID_REQUEST;
    }
    if (source->is_stateless || method->is_first || (client && client->version) || source->guest)
        return 0;
    error_set(err, ERR_INVALID, "send initialize first");
    return JSONRPC_INVALID_REQUEST;
}

void mcp_request_start(const struct mcp_source *source, const struct jsonrpc_message *message)
{
    const struct method *method = find_method(message->method, source->is_stateless);
    struct mcp_request *request = request_new(source, message);
    struct error err = { 0 };
    int code = find_objection(source, message, method, &err);

    list_append(source->client ? &source->client->requests : &source->mcp->unbound, &request->node);
    if (source->channel->ops->begin)
        source->channel->ops->begin(source->channel, request);
    if (code)
        mcp_request_fail(request, code, err.message, NULL);
    else
        method->call(request);
}

/* --- notifications --------------------------------------------------------------------------- */

static void cancel(struct mcp_client *client, const json_t *params)
{
    scoped(free) char *id = jsonrpc_token(json_object_get(params, "requestId"));
    struct mcp_request *request = id ? mcp_request_find(client, id) : NULL;

    if (!request)
        return;
    if (request->cancel)
        request->cancel(request);
    else
        mcp_request_close(request);
}

void mcp_notification(struct mcp_client *client, const struct jsonrpc_message *message)
{
    if (client && strcmp(message->method, "notifications/cancelled") == 0)
        cancel(client, message->params);
}
