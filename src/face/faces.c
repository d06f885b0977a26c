/* SPDX-License-Identifier: Apache-2.0 */
#include "face/face.h"

#include "base/alloc.h"
#include "base/mask.h"
#include "base/str.h"
#include "cluster/cluster.h"
#include "cluster/home_cache.h"
#include "cluster/relay_identity.h"
#include "config/config.h"
#include "core/core.h"
#include "face/home.h"
#include "face/rename.h"
#include "face/request.h"
#include "face/trail.h"
#include "loop/worker.h"
#include "service/recorded.h"
#include "wire/http/sse.h"

#include <assert.h>
#include <string.h>
#include <strings.h>

enum { HOMES_MAXIMUM = 16 * 1024 }; /* of sessions elsewhere that are remembered */

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
    list_init(&faces->requests);
    list_init(&faces->parsings);
    for (const struct face_entry *entry = parts->faces; entry->face; entry++) {
        faces->entries = xrealloc(faces->entries, faces->entry_count + 1, sizeof(*faces->entries));
        faces->entries[faces->entry_count++] = *entry;
        if (!entry->face->is_foreign)
            add_routes(faces, entry->face);
    }
    assert(faces->entry_count > 0 && !faces->entries[faces->entry_count - 1].face->prefix &&
           !faces->entries[faces->entry_count - 1].face->host &&
           !faces->entries[faces->entry_count - 1].face->claim); /* a face for every request */
    faces->homes = parts->cluster ? home_cache_new(HOMES_MAXIMUM) : NULL;
    faces->trail = audit_trail_new(faces);
    return faces;
}

void faces_free(struct faces *faces)
{
    if (!faces)
        return;
    worker_free(faces->parser);
    audit_trail_free(faces->trail);
    home_cache_free(faces->homes);
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

static enum face_claim claim_of(const struct face_entry *entry, const struct http_head *head)
{
    if (entry->face->claim)
        return entry->face->claim(entry->context, head);
    if (!has_prefix(entry->face, head->path) || !has_host(entry->face, head))
        return FACE_CLAIM_NONE;
    return entry->face->host ? FACE_CLAIM_HOST : FACE_CLAIM_PATH;
}

/* The first that fits; the last one for what none does. */
static const struct face_entry *find_face(const struct faces *faces, const struct http_head *head,
                                          enum face_claim *out_claim)
{
    size_t at = 0;

    *out_claim = claim_of(&faces->entries[0], head);
    while (at + 1 < faces->entry_count && *out_claim == FACE_CLAIM_NONE)
        *out_claim = claim_of(&faces->entries[++at], head);
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

void faces_refuse_open(struct faces *faces, const struct error *err)
{
    struct request *request, *following;

    list_for_each_safe (request, following, &faces->requests, open) {
        if (http_exchange_status(request->exchange))
            http_exchange_abort(request->exchange);
        else
            request_fail(request, err);
    }
}

/* --- life of a request ----------------------------------------------------------------------- */

static struct request *request_new(struct faces *faces, struct http_exchange *exchange)
{
    struct request *request = xnew(struct request);
    enum face_claim claim;
    const struct face_entry *entry = find_face(faces, http_exchange_head(exchange), &claim);

    request->faces = faces;
    request->face = entry->face;
    request->has_own_host = claim == FACE_CLAIM_HOST;
    request->context = entry->context;
    request->core = faces->parts.core;
    request->exchange = exchange;
    request->began_us = loop_now_us(faces->parts.loop);
    list_append(&faces->requests, &request->open);
    return request;
}

static void request_free(struct request *request)
{
    free(request->path);
    for (size_t i = 0; i < request->parameter_count; i++) {
        free(request->parameters[i].name);
        free(request->parameters[i].value);
    }
    free(request->renamed);
    free(request->problem);
    free(request->owner);
    free(request->principal);
    free(request->on_behalf_of);
    if (request->relay)
        relay_identity_fini(request->relay);
    free(request->relay);
    mask_free(request->secrets);
    free(request->audited);
    buffer_fini(&request->text);
    buffer_fini(&request->chunks);
    json_decref(request->message);
    json_decref(request->body);
    free(request);
}

static void on_close(struct http_exchange *exchange)
{
    struct request *request = http_exchange_user(exchange);

    audit_trail_request(request);
    request->exchange = NULL;
    list_remove(&request->stream);
    list_remove(&request->open);
    share_give(&request->share);
    share_give(&request->bytes);
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

static bool checks_parameters(const struct request *request)
{
    return !request->face->is_foreign && !request->route->is_proxy;
}

static int check_parameters(struct request *request, struct error *err)
{
    if (checks_parameters(request) && request_rename_parameters(request, err) < 0)
        return -1;
    for (size_t i = 0; i < request->parameter_count && checks_parameters(request); i++) {
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

/* A daemon that is alone has one name. */
static int check_node(const struct request *request, struct error *err)
{
    const char *node = request_parameter(request, "node");

    if (request->faces->parts.cluster || !request->route->gather || !node ||
        str_equal(node, request->faces->parts.config->node.id))
        return 0;
    error_named(err, ERR_NOT_FOUND, "node_not_found", "node \"%.64s\" is not known", node);
    return error_hint(err, "this daemon is not part of a cluster; its own name is \"%s\"",
                      request->faces->parts.config->node.id);
}

/* A page in a browser can POST other types without asking first, and PUT none. */
static int check_content_type(const struct request *request, struct error *err)
{
    const struct http_head *head = http_exchange_head(request->exchange);
    const char *type = http_head_header(head, "content-type");
    const char *wanted = request->route->body == ROUTE_BYTES_BODY ? "application/octet-stream"
                                                                  : "application/json";
    size_t length = type ? strcspn(type, "; \t") : 0;

    if (!head->has_body || head->content_length == 0 || request->route->body == ROUTE_NO_BODY ||
        request->route->body == ROUTE_ANY_BODY)
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
    request_put_deprecation(request);
    if (request->route->session == ROUTE_NO_SESSION)
        request->route->handle(request);
    else
        request_find_session(request, request_path(request, "session"), request->route->session,
                             request->route->handle);
}

static void take_body(struct request *request, json_t *document, const struct error *problem)
{
    struct error err = *problem;

    request->body = document;
    if (!document || request_rename_fields(request, &err) < 0) {
        request_fail(request, &err);
        return;
    }
    audit_trail_body(request);
    if (request->faces->parts.cluster && request->route->home == ROUTE_PLACED && !request->relay)
        request_place(request, find_and_handle);
    else
        find_and_handle(request);
}

static void on_body(struct http_exchange *exchange, struct buffer *body)
{
    request_parse_body(http_exchange_user(exchange), body, take_body);
}

/* A body that was read for another node, which is not large. */
static void take_body_again(struct request *request)
{
    const struct buffer *body = request->raw_body;
    struct error err = { 0 };

    take_body(request,
              body->length ? json_read_request(body->data, body->length, &err) : json_object(),
              &err);
}

static void serve(struct request *request)
{
    if (request->route->body != ROUTE_JSON_BODY)
        find_and_handle(request);
    else if (request->raw_body)
        take_body_again(request);
    else
        request_read_body(request, REQUEST_BODY_MAXIMUM, on_body);
}

static int find_in_tables(struct request *request, struct error *err)
{
    const struct http_head *head = http_exchange_head(request->exchange);
    scoped(buffer_fini) struct buffer allow = BUFFER_INIT(256);
    bool is_sound = request_parse_target(request, head->target, head->query, err) == 0;
    enum route_match match = is_sound ? request_match_route(request, head->method, &allow)
                                      : ROUTE_NO_PATH;

    if (match == ROUTE_MATCH || request_match_proxy(request, head->target))
        return 0;
    if (!is_sound)
        return -1;
    switch (match) {
    case ROUTE_MATCH:
    case ROUTE_NO_PATH:
        break;
    case ROUTE_NO_METHOD:
        http_respond_header(request->exchange, "Allow", buffer_text(&allow));
        return error_named(err, ERR_INVALID, "method_not_allowed",
                           "method %s is not allowed for %.200s", http_method_name(head->method),
                           head->path);
    }
    error_named(err, ERR_NOT_FOUND, "route_not_found", "unknown route %.200s", head->path);
    return error_hint(err, "GET /openapi.json lists all routes");
}

static int find_route(struct request *request, struct error *err)
{
    request->route = request->face->route;
    return request->route ? 0 : find_in_tables(request, err);
}

/* By the principal, who may act for many owners. */
static int take_share(struct request *request, struct error *err)
{
    const char *caller = str_is_empty(request->principal) ? request->owner : request->principal;

    if (request->route->access == ROUTE_ANYBODY)
        return 0;
    return share_take(&request->share, request->core->shares, caller, SHARE_REQUESTS, err);
}

/* The records of a node that is cut off may be outdated, so it serves nothing. Requests that change
 * something need a store that can be written; reads and input of programs do not. */
static int check_serving(const struct request *request, struct error *err)
{
    const struct http_head *head = http_exchange_head(request->exchange);
    struct cluster *cluster = request->faces->parts.cluster;

    if (request->route->access == ROUTE_ANYBODY)
        return 0;
    if (cluster && !cluster_is_serving(cluster, err))
        return -1;
    if (head->method == HTTP_GET || head->method == HTTP_HEAD || request->route->unrecorded)
        return 0;
    return recorded_check(request->core, err);
}

/* The caller is known, and may ask. */
static void on_identified(struct request *request)
{
    struct error err = { 0 };

    audit_trail_begin(request);
    if (request->problem)
        request_fail(request, request->problem);
    else if (check_serving(request, &err) < 0)
        request_turn_away(request, &err);
    else if (take_share(request, &err) < 0 || check_parameters(request, &err) < 0 ||
             check_node(request, &err) < 0 || check_content_type(request, &err) < 0)
        request_fail(request, &err);
    else if (request->faces->parts.cluster)
        request_find_home(request, serve);
    else
        serve(request);
}

static void identify(struct request *request)
{
    request->face->identify(request, on_identified);
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
    if (request_accept_relay(request, &err) < 0 ||
        (!request->relay && request_check_source(request, &err) < 0)) {
        request_fail(request, &err);
        return;
    }
    if (request->relay && !(request->relay->flags & RELAY_UNIDENTIFIED))
        request_identify_relayed(request, on_identified);
    else if (request->face->identifies_at_home)
        request_find_home_first(request, identify);
    else
        identify(request);
}
