/* SPDX-License-Identifier: Apache-2.0 */
#include "base/alloc.h"
#include "base/str.h"
#include "mcp/private.h"

#include <string.h>

/* With `initialize`, newest first. */
static const char *const versions[] = { "2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05" };

const char *mcp_version_find(const char *version)
{
    for (size_t i = 0; i < ARRAY_LENGTH(versions); i++)
        if (str_equal(versions[i], version))
            return versions[i];
    return NULL;
}

char *mcp_version_data(const char *requested, bool is_stateless)
{
    struct buffer text = BUFFER_INIT(4096);
    struct json_writer json = JSON_WRITER(&text);

    json_begin_object(&json, NULL);
    json_begin_array(&json, "supported");
    if (is_stateless)
        json_put_text(&json, NULL, MCP_VERSION_STATELESS);
    for (size_t i = 0; i < ARRAY_LENGTH(versions) && !is_stateless; i++)
        json_put_text(&json, NULL, versions[i]);
    json_end_array(&json);
    json_put_bytes(&json, "requested", requested, strnlen(requested, 64));
    json_end_object(&json);
    return buffer_steal_text(&text);
}

static void put_capabilities(struct json_writer *json)
{
    json_begin_object(json, "capabilities");
    json_begin_object(json, "tools");
    json_end_object(json);
    json_begin_object(json, "resources");
    json_end_object(json);
    json_end_object(json);
}

int mcp_initialize_check(const json_t *params, struct error *err)
{
    if (!json_is_string(json_object_get(params, "protocolVersion")))
        return error_set(err, ERR_INVALID, "protocolVersion must be a string such as \"%s\"",
                         versions[0]);
    return 0;
}

void mcp_initialize(struct mcp_request *request)
{
    struct mcp_client *client = request->client;
    const char *version = mcp_version_find(mcp_param_text(request, "protocolVersion"));
    scoped(free) char *instructions = mcp_instructions(client->mcp);
    struct mcp_result result;
    struct error err = { 0 };

    if (mcp_initialize_check(request->params, &err) < 0) {
        mcp_request_fail(request, JSONRPC_INVALID_PARAMS, err.message, NULL);
        return;
    }
    if (client->version) {
        mcp_request_fail(request, JSONRPC_INVALID_REQUEST, "this client is initialized already",
                         NULL);
        return;
    }
    client->version = version ? version : versions[0];
    mcp_result_begin(&result, request);
    json_put_text(&result.json, "protocolVersion", client->version);
    put_capabilities(&result.json);
    json_begin_object(&result.json, "serverInfo");
    json_put_text(&result.json, "name", "sandglass");
    if (strcmp(client->version, "2025-06-18") >= 0)
        json_put_text(&result.json, "title", "Sandglass");
    json_put_text(&result.json, "version", SANDGLASS_VERSION);
    json_end_object(&result.json);
    json_put_text(&result.json, "instructions", instructions);
    mcp_result_send(&result, request);
}

void mcp_ping(struct mcp_request *request)
{
    struct mcp_result result;

    mcp_result_begin(&result, request);
    mcp_result_send(&result, request);
}

void mcp_discover(struct mcp_request *request)
{
    scoped(free) char *instructions = mcp_instructions(request->mcp);
    struct mcp_result result;

    mcp_result_begin(&result, request);
    json_begin_array(&result.json, "supportedVersions");
    json_put_text(&result.json, NULL, MCP_VERSION_STATELESS);
    json_end_array(&result.json);
    put_capabilities(&result.json);
    json_put_text(&result.json, "instructions", instructions);
    mcp_result_put_cache(&result, request, 0, "private");
    mcp_result_send(&result, request);
}

/* --- the stateless era ----------------------------------------------------------------------- */

const char *mcp_meta_version(const json_t *params)
{
    const json_t *meta = json_object_get(params, "_meta");

    return json_string_value(json_object_get(meta, MCP_META "protocolVersion"));
}

int mcp_meta_check(const json_t *params, char **out_data, struct error *err)
{
    const json_t *meta = json_object_get(params, "_meta");
    const char *version = mcp_meta_version(params);

    if (!version) {
        error_set(err, ERR_INVALID, "_meta needs " MCP_META "protocolVersion");
        return JSONRPC_INVALID_PARAMS;
    }
    if (strcmp(version, MCP_VERSION_STATELESS) != 0) {
        error_set(err, ERR_INVALID, "protocol version %.40s is not supported", version);
        *out_data = mcp_version_data(version, true);
        return MCP_VERSION_UNSUPPORTED;
    }
    if (!json_is_object(json_object_get(meta, MCP_META "clientCapabilities"))) {
        error_set(err, ERR_INVALID, "_meta needs " MCP_META "clientCapabilities");
        return JSONRPC_INVALID_PARAMS;
    }
    return 0;
}
