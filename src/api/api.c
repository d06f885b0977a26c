#include "api/api.h"

#include "api/request.h"
#include "base/alloc.h"
#include "base/log.h"
#include "base/str.h"
#include "config/config.h"
#include "core/metrics.h"

#include <ctype.h>
#include <string.h>
#include <strings.h>

enum { OWNER_MAXIMUM = 256 };

struct api *api_new(const struct api_parts *parts)
{
    struct api *api = xnew(struct api);

    api->parts = *parts;
    return api;
}

void api_free(struct api *api)
{
    if (!api)
        return;
    free(api->openapi);
    free(api);
}

/* --- life of a request ----------------------------------------------------------------------- */

static struct api_request *request_new(struct api *api, struct http_exchange *exchange)
{
    struct api_request *request = xnew(struct api_request);

    request->api = api;
    request->core = api->parts.core;
    request->exchange = exchange;
    return request;
}

static void request_free(struct api_request *request)
{
    for (size_t i = 0; i < request->segment_count; i++)
        free(request->segments[i]);
    for (size_t i = 0; i < request->parameter_count; i++) {
        free(request->parameters[i].name);
        free(request->parameters[i].value);
    }
    free(request->owner);
    free(request->on_behalf_of);
    json_decref(request->body);
    free(request);
}

static void on_close(struct http_exchange *exchange)
{
    struct api_request *request = http_exchange_user(exchange);

    request->exchange = NULL;
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

/* --- from where: local mode trusts nobody who was sent here by a web page -------------------- */

static bool is_local_name(const char *host, size_t length)
{
    static const char *const names[] = { "localhost", "127.0.0.1", "[::1]" };

    for (size_t i = 0; i < ARRAY_LENGTH(names); i++) {
        if (strlen(names[i]) == length && strncasecmp(host, names[i], length) == 0)
            return true;
    }
    return false;
}

static size_t host_length(const char *host)
{
    const char *bracket = *host == '[' ? strchr(host, ']') : NULL;

    return bracket ? (size_t)(bracket - host) + 1 : strcspn(host, ":");
}

/* A name that resolves to us but is not ours may be in the hands of a stranger's web page. */
static int check_host(const struct http_exchange *exchange, struct error *err)
{
    const char *host = http_head_header(http_exchange_head(exchange), "host");

    if (http_exchange_peer(exchange)->is_unix || !host || is_local_name(host, host_length(host)))
        return 0;
    error_named(err, ERR_FORBIDDEN, "host_not_allowed", "the Host \"%.100s\" is not this daemon",
                host);
    return error_hint(err, "without authentication it answers only to localhost, 127.0.0.1 and "
                           "[::1]");
}

static int check_origin(const struct http_exchange *exchange, struct error *err)
{
    const struct http_head *head = http_exchange_head(exchange);
    const char *origin = http_head_header(head, "origin");
    const char *host = http_head_header(head, "host");

    if (!origin)
        return 0;
    if (str_starts_with(origin, "http://") && host && strcasecmp(origin + 7, host) == 0)
        return 0;
    return error_named(err, ERR_FORBIDDEN, "origin_not_allowed",
                       "web pages of %.100s may not use this daemon", origin);
}

/* --- who ------------------------------------------------------------------------------------- */

static char *trimmed(const char *text)
{
    size_t length;

    while (*text == ' ' || *text == '\t')
        text++;
    length = strlen(text);
    while (length && (text[length - 1] == ' ' || text[length - 1] == '\t'))
        length--;
    return xstrndup(text, length);
}

static int read_attribution(struct api_request *request, struct error *err)
{
    static const char name[] = "x-sandglass-on-behalf-of";
    const struct http_head *head = http_exchange_head(request->exchange);
    unsigned count = 0;

    for (size_t i = 0; i < head->header_count; i++)
        count += strcmp(head->headers[i].name, name) == 0;
    if (count > 1)
        return error_named(err, ERR_INVALID, "invalid_header",
                           "X-Sandglass-On-Behalf-Of is there more than once");
    request->on_behalf_of = trimmed(count ? http_head_header(head, name) : "");
    if (strlen(request->on_behalf_of) > OWNER_MAXIMUM)
        return error_named(err, ERR_INVALID, "invalid_header",
                           "X-Sandglass-On-Behalf-Of is longer than %d bytes", OWNER_MAXIMUM);
    return 0;
}

static int authenticate(struct api_request *request, struct error *err)
{
    if (read_attribution(request, err) < 0)
        return -1;
    if (request->api->parts.config->auth.mode != AUTH_MODE_NONE)
        return error_named(err, ERR_UNAUTHORIZED, "auth_unavailable",
                           "this build knows only auth.mode none");
    request->owner = xstrdup(request->on_behalf_of);
    return check_host(request->exchange, err) < 0 ? -1 : check_origin(request->exchange, err);
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

/* A browser can send other types without asking first. */
static int check_content_type(const struct api_request *request, struct error *err)
{
    const struct http_head *head = http_exchange_head(request->exchange);
    const char *type = http_head_header(head, "content-type");
    const char *wanted = request->route->body == API_BYTES_BODY ? "application/octet-stream"
                                                                : "application/json";
    size_t length = type ? strcspn(type, "; \t") : 0;

    if (!head->has_body || head->content_length == 0 || request->route->body == API_NO_BODY)
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
    if (!request->body)
        api_fail(request, &err);
    else
        find_and_handle(request);
}

static int check_request(struct api_request *request, const struct http_head *head,
                         struct error *err)
{
    scoped(buffer_fini) struct buffer allow = BUFFER_INIT(256);

    if (api_parse_target(request, head->target, head->query, err) < 0)
        return -1;
    switch (api_match_route(request, head->method, &allow)) {
    case API_MATCH:
        break;
    case API_NO_PATH:
        error_named(err, ERR_NOT_FOUND, "route_not_found", "there is no route %.200s", head->path);
        return error_hint(err, "GET /openapi.json lists all of them");
    case API_NO_METHOD:
        http_respond_header(request->exchange, "Allow", buffer_text(&allow));
        return error_named(err, ERR_INVALID, "method_not_allowed", "%s is not for %.200s",
                           http_method_name(head->method), head->path);
    }
    if (check_parameters(request, err) < 0 || check_content_type(request, err) < 0)
        return -1;
    return 0;
}

void api_handle(void *context, struct http_exchange *exchange)
{
    struct api_request *request = request_new(context, exchange);
    struct error err = { 0 };

    http_exchange_set_user(exchange, request);
    http_exchange_on_close(exchange, on_close);
    http_respond_header(exchange, "Cache-Control", "no-store");
    http_respond_header(exchange, "X-Content-Type-Options", "nosniff");
    if (authenticate(request, &err) < 0 ||
        check_request(request, http_exchange_head(exchange), &err) < 0)
        api_fail(request, &err);
    else if (request->route->body == API_JSON_BODY)
        http_exchange_read_body(exchange, API_BODY_MAXIMUM, on_body);
    else
        find_and_handle(request);
}
