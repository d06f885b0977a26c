#include "api/api.h"

#include "api/request.h"
#include "base/alloc.h"
#include "base/log.h"
#include "base/mask.h"
#include "base/str.h"
#include "config/config.h"
#include "core/metrics.h"
#include "mcp/mcp.h"
#include "tools/tool.h"
#include "wire/sse.h"

#include <string.h>
#include <strings.h>

struct api *api_new(const struct api_parts *parts)
{
    struct api *api = xnew(struct api);

    api->parts = *parts;
    list_init(&api->streams);
    api->audit = api_audit_new(api);
    api->tools = tools_new(parts->core);
    api->mcp = mcp_new(&(struct mcp_parts){
        .loop = parts->loop, .config = parts->config, .core = parts->core, .tools = api->tools });
    return api;
}

void api_free(struct api *api)
{
    if (!api)
        return;
    api_audit_free(api->audit);
    mcp_free(api->mcp);
    tools_free(api->tools);
    free(api->openapi);
    free(api);
}

/* --- streams --------------------------------------------------------------------------------- */

void api_stream_start(struct api_request *request)
{
    list_append(&request->api->streams, &request->stream);
    http_respond_start(request->exchange, 200, "text/event-stream", -1);
}

void api_tell_shutdown(struct api *api, bool destroys)
{
    static const char *const data[] = {
        "{\"type\":\"shutdown\",\"reason\":\"shutdown\",\"sessions\":\"keep\"}",
        "{\"type\":\"shutdown\",\"reason\":\"shutdown\",\"sessions\":\"destroy\"}"
    };
    scoped(buffer_fini) struct buffer text = BUFFER_INIT(256);
    struct api_request *request, *following;

    if (sse_write(&text, NULL, "shutdown", data[destroys], strlen(data[destroys])) < 0)
        return;
    list_for_each_safe (request, following, &api->streams, stream)
        http_respond_write(request->exchange, text.data, text.length);
}

/* --- life of a request ----------------------------------------------------------------------- */

static struct api_request *request_new(struct api *api, struct http_exchange *exchange)
{
    struct api_request *request = xnew(struct api_request);

    request->api = api;
    request->core = api->parts.core;
    request->exchange = exchange;
    request->began_us = loop_now_us(api->parts.loop);
    return request;
}

static void request_free(struct api_request *request)
{
    free(request->path);
    for (size_t i = 0; i < request->parameter_count; i++) {
        free(request->parameters[i].name);
        free(request->parameters[i].value);
    }
    free(request->problem);
    free(request->owner);
    free(request->principal);
    free(request->on_behalf_of);
    mask_free(request->secrets);
    free(request->audited);
    json_decref(request->body);
    free(request);
}

static void on_close(struct http_exchange *exchange)
{
    struct api_request *request = http_exchange_user(exchange);

    api_audit_request(request);
    request->exchange = NULL;
    list_remove(&request->stream);
    share_give(&request->share);
    if (request->on_gone)
        request->on_gone(request);
    if (request->pending == 0)
        request_free(request);
}

void api_begin(struct api_request *request)
{
    request->pending++;
}

bool api_finish(struct api_request *request)
{
    request->pending--;
    if (request->exchange)
        return false;
    if (request->pending == 0)
        request_free(request);
    return true;
}

/* --- what ------------------------------------------------------------------------------------ */

static int check_parameters(const struct api_request *request, struct error *err)
{
    for (size_t i = 0; i < request->parameter_count; i++) {
        const char *name = request->parameters[i].name;
        const struct api_parameter *known = request->route->parameters;

        while (known && known->name && strcmp(known->name, name) != 0)
            known++;
        if (!known || !known->name)
            return error_named(err, ERR_INVALID, "unknown_parameter",
                               "this route has no parameter \"%.60s\"", name);
        for (size_t k = 0; k < i; k++) {
            if (strcmp(request->parameters[k].name, name) == 0 && strcmp(name, "label") != 0)
                return error_named(err, ERR_INVALID, "invalid_query",
                                   "parameter \"%s\" is there more than once", name);
        }
    }
    return 0;
}

/* A page in a browser can POST other types without asking first, and PUT none. */
static int check_content_type(const struct api_request *request, struct error *err)
{
    const struct http_head *head = http_exchange_head(request->exchange);
    const char *type = http_head_header(head, "content-type");
    const char *wanted = request->route->body == API_BYTES_BODY ? "application/octet-stream"
                                                                : "application/json";
    size_t length = type ? strcspn(type, "; \t") : 0;

    if (!head->has_body || head->content_length == 0 || request->route->body == API_NO_BODY)
        return 0;
    if (request->route->body == API_JSON_BODY && http_head_header(head, "content-encoding"))
        return error_named(err, ERR_INVALID, "unsupported_media_type",
                           "a JSON body cannot have a Content-Encoding here");
    if (request->route->body == API_BYTES_BODY && head->method == HTTP_PUT)
        return 0;
    if (type && length == strlen(wanted) && strncasecmp(type, wanted, length) == 0)
        return 0;
    error_named(err, ERR_INVALID, "unsupported_media_type", "the body has to be %s, not %.60s",
                wanted, type ? type : "without a type");
    return error_hint(err, "send the header Content-Type: %s", wanted);
}

static void find_and_handle(struct api_request *request)
{
    if (request->route->session == API_NO_SESSION)
        request->route->handle(request);
    else
        api_find_session(request, api_path(request, "session"), request->route->session,
                         request->route->handle);
}

static void on_body(struct http_exchange *exchange, struct buffer *body)
{
    struct api_request *request = http_exchange_user(exchange);
    struct error err = { 0 };

    request->body = body->length ? json_read(body->data, body->length, &err) : json_object();
    if (!request->body) {
        api_fail(request, &err);
        return;
    }
    api_audit_body(request);
    find_and_handle(request);
}

static int find_route(struct api_request *request, struct error *err)
{
    const struct http_head *head = http_exchange_head(request->exchange);
    scoped(buffer_fini) struct buffer allow = BUFFER_INIT(256);

    if (api_parse_target(request, head->target, head->query, err) < 0)
        return -1;
    switch (api_match_route(request, head->method, &allow)) {
    case API_MATCH:
        return 0;
    case API_NO_PATH:
        break;
    case API_NO_METHOD:
        http_respond_header(request->exchange, "Allow", buffer_text(&allow));
        return error_named(err, ERR_INVALID, "method_not_allowed", "%s is not for %.200s",
                           http_method_name(head->method), head->path);
    }
    error_named(err, ERR_NOT_FOUND, "route_not_found", "there is no route %.200s", head->path);
    return error_hint(err, "GET /openapi.json lists all of them");
}

/* By the principal, who may act for many owners. */
static int take_share(struct api_request *request, struct error *err)
{
    const char *caller = str_is_empty(request->principal) ? request->owner : request->principal;

    if (request->route->access == API_ANYBODY)
        return 0;
    return share_take(&request->share, request->core->shares, caller, SHARE_REQUESTS, err);
}

/* The caller is known, and may ask. */
static void on_identified(struct api_request *request)
{
    struct error err = { 0 };

    api_audit_begin(request);
    if (request->problem)
        api_fail(request, request->problem);
    else if (take_share(request, &err) < 0 || check_parameters(request, &err) < 0 ||
             check_content_type(request, &err) < 0)
        api_fail(request, &err);
    else if (request->route->body == API_JSON_BODY)
        http_exchange_read_body(request->exchange, API_BODY_MAXIMUM, on_body);
    else
        find_and_handle(request);
}

void api_handle(void *context, struct http_exchange *exchange)
{
    struct api_request *request = request_new(context, exchange);
    struct error err = { 0 };

    http_exchange_set_user(exchange, request);
    http_exchange_on_close(exchange, on_close);
    http_respond_header(exchange, "Cache-Control", "no-store");
    http_respond_header(exchange, "X-Content-Type-Options", "nosniff");
    if (find_route(request, &err) < 0) {
        request->problem = xnew(struct error);
        *request->problem = err;
    }
    if (api_check_source(request, &err) < 0) {
        api_fail(request, &err);
        return;
    }
    api_identify(request, on_identified);
}
