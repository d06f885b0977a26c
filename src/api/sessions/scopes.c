/* SPDX-License-Identifier: Apache-2.0 */
/*
 * POST /scopes: a lease on an owner, held for as long as the answer is read.
 *
 * The first line of the answer is {"owner": …}; empty lines follow now and then. When the
 * connection ends, for any reason, all sessions of that owner are ended.
 */

#include "core/session/scopes.h"
#include "api/private.h"
#include "auth/caller.h"
#include "base/alloc.h"
#include "base/str.h"
#include "config/config.h"
#include "core/core.h"
#include "core/metrics.h"

#include <stdlib.h>
#include <string.h>

enum { NAME_MAXIMUM = 200, HEARTBEAT_US = 15 * 1000 * 1000 };

struct scope {
    struct request *request;
    struct scope_lease lease;
    struct timer heartbeat;
    char *name; /* owned: the owner, as the caller names it */
};

struct scope_body {
    const char *owner;
};

static const struct json_field fields[] = {
    { "owner", JSON_KIND_TEXT, offsetof(struct scope_body, owner), .max_length = NAME_MAXIMUM },
};

static void on_gone(struct request *request)
{
    struct scope *scope = request->state;

    timer_stop(&scope->heartbeat);
    scope_lease_release(&scope->lease);
    free(scope->name);
    free(scope);
}

static void on_heartbeat(struct timer *timer)
{
    struct scope *scope = container_of(timer, struct scope, heartbeat);

    if (http_respond_pending(scope->request->exchange) == 0)
        http_respond_write(scope->request->exchange, "\n", 1);
    timer_arm_in(timer, HEARTBEAT_US);
}

/* It has to come back unchanged through a header. */
static bool is_header_value(const char *name)
{
    size_t length = strlen(name);

    for (size_t i = 0; i < length; i++) {
        if (name[i] < ' ' || name[i] > '~')
            return false;
    }
    return length > 0 && name[0] != ' ' && name[length - 1] != ' ';
}

static int find_name(const struct request *request, char minted[ID_SIZE], const char **out_name,
                     struct error *err)
{
    struct scope_body body = { 0 };

    if (request_decode(request, &body, err) < 0)
        return -1;
    if (body.owner && !is_header_value(body.owner))
        return error_named(err, ERR_INVALID, "invalid_field",
                           "owner must be visible ASCII without spaces around it");
    if (!body.owner)
        id_make(minted, ID_SCOPE);
    *out_name = body.owner ? body.owner : minted;
    return 0;
}

/* The owner of sessions that a request with this name in its attribution header opens;
 * allocated. */
static int find_owner(const struct request *request, const char *name, char **out_owner,
                      struct error *err)
{
    if (request->faces->parts.config->auth.mode == AUTH_MODE_NONE) {
        *out_owner = xstrdup(name);
        return 0;
    }
    if (request->roles & ROLE_DELEGATE) {
        *out_owner = caller_owner(request->principal, name);
        return 0;
    }
    error_named(err, ERR_FORBIDDEN, "delegate_required",
                "a scope has an owner of its own, which needs the role delegate");
    return error_hint(err, "without it, label the sessions and DELETE /api/v1/sessions?label=…");
}

static void reply(struct scope *scope)
{
    struct http_exchange *exchange = scope->request->exchange;
    scoped(buffer_fini) struct buffer line = BUFFER_INIT(4096);
    struct json_writer json = JSON_WRITER(&line);

    json_begin_object(&json, NULL);
    json_put_text(&json, "owner", scope->name);
    json_end_object(&json);
    buffer_append_byte(&line, '\n');
    metrics_add(scope->request->core->metrics, METRIC_HTTP_REQUESTS, 2, 1);
    http_respond_start(exchange, 201, "application/x-ndjson", -1);
    http_respond_write(exchange, line.data, line.length);
    timer_arm_in(&scope->heartbeat, HEARTBEAT_US);
}

static void on_taken(struct scope_lease *lease, const struct error *err)
{
    struct scope *scope = container_of(lease, struct scope, lease);

    if (err)
        request_fail(scope->request, err);
    else
        reply(scope);
}

static void post_scope(struct request *request)
{
    char minted[ID_SIZE];
    const char *name = NULL;
    scoped(free) char *owner = NULL;
    struct scope *scope;
    struct error err = { 0 };

    if (find_name(request, minted, &name, &err) < 0 ||
        find_owner(request, name, &owner, &err) < 0) {
        request_fail(request, &err);
        return;
    }
    scope = xnew(struct scope);
    scope->request = request;
    scope->name = xstrdup(name);
    timer_init(&scope->heartbeat, request->core->loop, on_heartbeat);
    request->state = scope;
    request->on_gone = on_gone;
    if (core_is_clustered(request->core)) {
        if (scope_lease_ask(&scope->lease, request->core->scopes, owner, on_taken, &err) < 0)
            request_fail(request, &err);
    } else if (scope_lease_take(&scope->lease, request->core->scopes, owner, &err) < 0) {
        request_fail(request, &err);
    } else {
        reply(scope);
    }
}

static const struct route_answer answers[] = {
    { 201, "{\"owner\"} in the first line; the owner's sessions end with the connection, which "
           "stays open" },
    { 400, "invalid_field" },
    { 403, "delegate_required" },
    { 409, "scope_taken: another scope holds this owner" },
    { 503, "with several nodes: the store does not answer" },
    { 0 },
};

const struct route api_scope_routes[] = {
    { HTTP_POST, "/api/v1/scopes", post_scope,
      "Open a scope: an owner, new or given, whose sessions end with this connection",
      .body = ROUTE_JSON_BODY, .fields = fields, .field_count = ARRAY_LENGTH(fields),
      .answers = answers },
    { 0 },
};
