#include "face/face.h"

#include "base/alloc.h"
#include "base/mask.h"
#include "base/str.h"
#include "core/core.h"
#include "face/request.h"
#include "face/trail.h"
#include "wire/sse.h"

#include <assert.h>
#include <string.h>
#include <strings.h>

/* --- the faces -------------------------------------------------------------------------------- */

static void add_routes(struct faces *faces, const struct face *face)
{
    for (const struct route *const *table = face->tables; *table; table++) {
        for (const struct route *route = *table; route->path; route++) {
            faces->routes = xrealloc(faces->routes, faces->route_count + 1, sizeof(*faces->routes));
            faces->routes[faces->route_count++] = route;
        }
    }
}

struct faces *faces_new(const struct faces_parts *parts)
{
    struct faces *faces = xnew(struct faces);

    faces->parts = *parts;
    list_init(&faces->streams);
    for (const struct face_entry *entry = parts->faces; entry->face; entry++) {
        faces->entries = xrealloc(faces->entries, faces->entry_count + 1, sizeof(*faces->entries));
        faces->entries[faces->entry_count++] = *entry;
        add_routes(faces, entry->face);
    }
    assert(faces->entry_count > 0 && !faces->entries[faces->entry_count - 1].face->prefix &&
           !faces->entries[faces->entry_count - 1].face->host); /* a face for every request */
    faces->trail = audit_trail_new(faces);
    return faces;
}

void faces_free(struct faces *faces)
{
    if (!faces)
        return;
    audit_trail_free(faces->trail);
    free(faces->entries);
    free(faces->routes);
    free(faces);
}

static bool has_prefix(const struct face *face, const char *path)
{
    size_t length = face->prefix ? strlen(face->prefix) : 0;

    return strncmp(path, face->prefix ? face->prefix : "", length) == 0 &&
           (length == 0 || path[length] == '\0' || path[length] == '/');
}

static bool has_host(const struct face *face, const struct http_head *head)
{
    const char *host = face->host ? http_head_header(head, "host") : NULL;
    size_t length = face->host ? strlen(face->host) : 0;

    return !face->host || (host && strncasecmp(host, face->host, length) == 0 &&
                           (host[length] == '\0' || host[length] == ':'));
}

/* The first that fits; the last one for what none does. */
static const struct face_entry *find_face(const struct faces *faces, const struct http_head *head)
{
    size_t at = 0;

    while (at + 1 < faces->entry_count && !(has_prefix(faces->entries[at].face, head->path) &&
                                            has_host(faces->entries[at].face, head)))
        at++;
    return &faces->entries[at];
}

/* --- streams --------------------------------------------------------------------------------- */

void faces_tell_shutdown(struct faces *faces, bool destroys)
{
    static const char *const data[] = {
        "{\"type\":\"shutdown\",\"reason\":\"shutdown\",\"sessions\":\"keep\"}",
        "{\"type\":\"shutdown\",\"reason\":\"shutdown\",\"sessions\":\"destroy\"}"
    };
    scoped(buffer_fini) struct buffer text = BUFFER_INIT(256);
    struct request *request, *following;

    if (sse_write(&text, NULL, "shutdown", data[destroys], strlen(data[destroys])) < 0)
        return;
    list_for_each_safe (request, following, &faces->streams, stream)
        http_respond_write(request->exchange, text.data, text.length);
}

/* --- life of a request ----------------------------------------------------------------------- */

static struct request *request_new(struct faces *faces, struct http_exchange *exchange)
{
    const struct face_entry *entry = find_face(faces, http_exchange_head(exchange));
    struct request *request = xnew(struct request);

    request->faces = faces;
    request->face = entry->face;
    request->context = entry->context;
    request->core = faces->parts.core;
    request->exchange = exchange;
    request->began_us = loop_now_us(faces->parts.loop);
    return request;
}

static void request_free(struct request *request)
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
    struct request *request = http_exchange_user(exchange);

    audit_trail_request(request);
    request->exchange = NULL;
    list_remove(&request->stream);
    share_give(&request->share);
    if (request->on_gone)
        request->on_gone(request);
    if (request->pending == 0)
        request_free(request);
}

void request_begin(struct request *request)
{
    request->pending++;
}

bool request_finish(struct request *request)
{
    request->pending--;
    if (request->exchange)
        return false;
    if (request->pending == 0)
        request_free(request);
    return true;
}

/* --- what ------------------------------------------------------------------------------------ */

static int check_parameters(const struct request *request, struct error *err)
{
    for (size_t i = 0; i < request->parameter_count; i++) {
        const char *name = request->parameters[i].name;
        const struct route_parameter *known = request->route->parameters;

        while (known && known->name && strcmp(known->name, name) != 0)
            known++;
        if (!known || !known->name)
            return error_named(err, ERR_INVALID, "unknown_parameter",
                               "this route has no parameter \"%.60s\"", name);
        for (size_t k = 0; k < i; k++) {
            if (strcmp(request->parameters[k].name, name) == 0 && strcmp(name, "label") != 0)
                return error_named(err, ERR_INVALID, "invalid_query", "duplicate parameter \"%s\"",
                                   name);
        }
    }
    return 0;
}

/* A page in a browser can POST other types without asking first, and PUT none. */
static int check_content_type(const struct request *request, struct error *err)
{
    const struct http_head *head = http_exchange_head(request->exchange);
    const char *type = http_head_header(head, "content-type");
    const char *wanted = request->route->body == ROUTE_BYTES_BODY ? "application/octet-stream"
                                                                  : "application/json";
    size_t length = type ? strcspn(type, "; \t") : 0;

    if (!head->has_body || head->content_length == 0 || request->route->body == ROUTE_NO_BODY)
        return 0;
    if (request->route->body == ROUTE_JSON_BODY && http_head_header(head, "content-encoding"))
        return error_named(err, ERR_INVALID, "unsupported_media_type",
                           "a JSON body must not have a Content-Encoding");
    if (request->route->body == ROUTE_BYTES_BODY && head->method == HTTP_PUT)
        return 0;
    if (type && length == strlen(wanted) && strncasecmp(type, wanted, length) == 0)
        return 0;
    error_named(err, ERR_INVALID, "unsupported_media_type", "the body must be %s, not %.60s",
                wanted, type ? type : "without a type");
    return error_hint(err, "send the header Content-Type: %s", wanted);
}

static void find_and_handle(struct request *request)
{
    if (request->route->session == ROUTE_NO_SESSION)
        request->route->handle(request);
    else
        request_find_session(request, request_path(request, "session"), request->route->session,
                             request->route->handle);
}

static void on_body(struct http_exchange *exchange, struct buffer *body)
{
    struct request *request = http_exchange_user(exchange);
    struct error err = { 0 };

    request->body = body->length ? json_read(body->data, body->length, &err) : json_object();
    if (!request->body) {
        request_fail(request, &err);
        return;
    }
    audit_trail_body(request);
    find_and_handle(request);
}

static int find_route(struct request *request, struct error *err)
{
    const struct http_head *head = http_exchange_head(request->exchange);
    scoped(buffer_fini) struct buffer allow = BUFFER_INIT(256);

    if (request_parse_target(request, head->target, head->query, err) < 0)
        return -1;
    switch (request_match_route(request, head->method, &allow)) {
    case ROUTE_MATCH:
        return 0;
    case ROUTE_NO_PATH:
        break;
    case ROUTE_NO_METHOD:
        http_respond_header(request->exchange, "Allow", buffer_text(&allow));
        return error_named(err, ERR_INVALID, "method_not_allowed",
                           "method %s is not allowed for %.200s", http_method_name(head->method),
                           head->path);
    }
    error_named(err, ERR_NOT_FOUND, "route_not_found", "unknown route %.200s", head->path);
    return error_hint(err, "GET /openapi.json lists all of them");
}

/* By the principal, who may act for many owners. */
static int take_share(struct request *request, struct error *err)
{
    const char *caller = str_is_empty(request->principal) ? request->owner : request->principal;

    if (request->route->access == ROUTE_ANYBODY)
        return 0;
    return share_take(&request->share, request->core->shares, caller, SHARE_REQUESTS, err);
}

/* The caller is known, and may ask. */
static void on_identified(struct request *request)
{
    struct error err = { 0 };

    audit_trail_begin(request);
    if (request->problem)
        request_fail(request, request->problem);
    else if (take_share(request, &err) < 0 || check_parameters(request, &err) < 0 ||
             check_content_type(request, &err) < 0)
        request_fail(request, &err);
    else if (request->route->body == ROUTE_JSON_BODY)
        http_exchange_read_body(request->exchange, REQUEST_BODY_MAXIMUM, on_body);
    else
        find_and_handle(request);
}

void faces_handle(void *context, struct http_exchange *exchange)
{
    struct request *request = request_new(context, exchange);
    struct error err = { 0 };

    http_exchange_set_user(exchange, request);
    http_exchange_on_close(exchange, on_close);
    http_respond_header(exchange, "Cache-Control", "no-store");
    http_respond_header(exchange, "X-Content-Type-Options", "nosniff");
    if (find_route(request, &err) < 0) {
        request->problem = xnew(struct error);
        *request->problem = err;
    }
    if (request_check_source(request, &err) < 0) {
        request_fail(request, &err);
        return;
    }
    request->face->identify(request, on_identified);
}
