/* SPDX-License-Identifier: Apache-2.0 */
/* The front door: where a request comes from, who makes it, and whether they may. */

#include "auth/auth.h"
#include "base/alloc.h"
#include "base/str.h"
#include "cluster/relay_identity.h"
#include "config/config.h"
#include "core/run/execution.h"
#include "core/session/storage.h"
#include "face/cookie.h"
#include "face/request.h"
#include "service/backend_view.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>

/* --- from where: a request that a web page has caused is not trusted ------------------------- */

static bool name_is(const char *name, const char *host, size_t length)
{
    return strlen(name) == length && strncasecmp(host, name, length) == 0;
}

static bool is_our_name(const struct config *config, const char *host, size_t length)
{
    static const char *const local[] = { "localhost", "127.0.0.1", "[::1]" };

    for (size_t i = 0; i < ARRAY_LENGTH(local); i++)
        if (name_is(local[i], host, length))
            return true;
    for (size_t i = 0; i < config->http.hosts.count; i++)
        if (name_is(config->http.hosts.items[i], host, length))
            return true;
    return cookie_origin_has_host(config, host, length) ||
           (config->auth.mode != AUTH_MODE_NONE && config->http.hosts.count == 0);
}

static size_t host_length(const char *host)
{
    const char *bracket = *host == '[' ? strchr(host, ']') : NULL;

    return bracket ? (size_t)(bracket - host) + 1 : strcspn(host, ":");
}

/* A name that resolves to us but is not ours may be in the hands of a stranger's web page. A face
 * with host names of its own was found by one of them. */
static int check_host(const struct request *request, struct error *err)
{
    const char *host = http_head_header(http_exchange_head(request->exchange), "host");

    if (http_exchange_peer(request->exchange)->is_unix || !host || request->has_own_host ||
        is_our_name(request->faces->parts.config, host, host_length(host)))
        return 0;
    error_named(err, ERR_FORBIDDEN, "host_not_allowed", "the Host \"%.100s\" is not this daemon",
                host);
    return error_hint(
        err, "the daemon answers to localhost, 127.0.0.1, [::1] and the names in the setting "
             "http.hosts");
}

/* A page of ours may use us; one of another origin, or of none ("null"), may not. */
static int check_origin(const struct request *request, struct error *err)
{
    const struct http_head *head = http_exchange_head(request->exchange);
    bool has_tls = !str_is_empty(request->faces->parts.config->tls.certificate);
    const char *scheme = has_tls ? "https://" : "http://";
    const char *origin = http_head_header(head, "origin");
    const char *host = http_head_header(head, "host");

    if (!origin)
        return 0;
    if (str_starts_with(origin, scheme) && host && strcasecmp(origin + strlen(scheme), host) == 0)
        return 0;
    if (cookie_origin_is(request->faces->parts.config, origin))
        return 0;
    return error_named(err, ERR_FORBIDDEN, "origin_not_allowed",
                       "web pages of %.100s may not use this daemon", origin);
}

static bool changes_something(const struct http_head *head)
{
    return head->method != HTTP_GET && head->method != HTTP_HEAD;
}

/* Browsers send no Origin with some requests of a page, a form without a body say, but they tell
 * whose page it was. Programs send no such header. */
static int check_fetch_site(const struct request *request, struct error *err)
{
    const struct http_head *head = http_exchange_head(request->exchange);
    const char *site = http_head_header(head, "sec-fetch-site");

    if (!site || !changes_something(head) || strcasecmp(site, "same-origin") == 0 ||
        strcasecmp(site, "none") == 0)
        return 0;
    return error_named(err, ERR_FORBIDDEN, "origin_not_allowed",
                       "a %.32s web page may not change anything in this daemon", site);
}

/* --- programs in sandboxes ------------------------------------------------------------------- */

/* Programs of direct sandboxes use the loopback of the host: the user of such a connection must be
 * known. */
static int check_unknown_user(const struct request *request, const struct http_peer *peer,
                              struct error *err)
{
    if (!peer->is_loopback || !backend_view_shares_host(request->core))
        return 0;
    error_named(err, ERR_FORBIDDEN, "user_unknown",
                "the peer of this connection cannot be identified and could be a sandbox");
    return error_hint(err, "use the unix socket of the daemon");
}

/* Programs in sandboxes may not use the daemon's listeners, even with credentials that they have
 * found. A connection that init has handed over is known to be a program's (request_identify). */
static int check_peer(const struct request *request, struct error *err)
{
    const struct http_peer *peer = http_exchange_peer(request->exchange);

    if (*peer->member)
        return 0;
    if (peer->uid == (uid_t)-1)
        return check_unknown_user(request, peer, err);
    if (!peer->is_inside && !backend_view_run_as(request->core, peer->uid))
        return 0;
    return error_named(err, ERR_FORBIDDEN, "sandbox_not_allowed",
                       "programs in a sandbox may not use the daemon");
}

int request_check_source(const struct request *request, struct error *err)
{
    if (check_peer(request, err) < 0 || check_host(request, err) < 0)
        return -1;
    if (request->route && request->route->any_origin)
        return 0;
    return check_origin(request, err) < 0 ? -1 : check_fetch_site(request, err);
}

/* --- who ------------------------------------------------------------------------------------- */

static bool has_authentication(const struct request *request)
{
    return request->faces->parts.config->auth.mode != AUTH_MODE_NONE;
}

static void take_caller(struct request *request, struct caller *caller)
{
    request->owner = steal_ptr(&caller->owner);
    request->principal = steal_ptr(&caller->principal);
    request->on_behalf_of = steal_ptr(&caller->on_behalf_of);
    request->roles = caller->roles;
    request->is_operator = caller->is_operator;
    request->any_owner = has_authentication(request) && request->roles & ROLE_ADMIN;
    request->credentials_expire_us = caller->expires_us;
    memcpy(request->key_id, caller->key_id, sizeof(request->key_id));
}

static void take_nobody(struct request *request)
{
    request->owner = xstrdup("");
    request->principal = xstrdup("");
    request->on_behalf_of = xstrdup("");
}

/* RFC 6750: what to authenticate with, and whether something was wrong with it. */
static void refuse(struct request *request, const struct error *err)
{
    if (err->code == ERR_UNAUTHORIZED)
        http_respond_header(request->exchange, "WWW-Authenticate",
                            str_equal(err->name, "credentials_missing")
                                ? "Bearer realm=\"sandglass\""
                                : "Bearer realm=\"sandglass\", error=\"invalid_token\"");
    request_fail(request, err);
}

static int check_access(const struct request *request, struct error *err)
{
    if (!request->route || request->route->access != ROUTE_ADMINS || !has_authentication(request) ||
        request->roles & ROLE_ADMIN)
        return 0;
    return error_named(err, ERR_FORBIDDEN, "admin_required", "this needs the role admin");
}

/* --- waiting for the keys to check with ------------------------------------------------------ */

struct wait {
    struct auth_waiter waiter;
    struct request *request;
    request_fn *then;
};

static void identify(struct request *request, request_fn *then, bool may_wait);

static void on_ready(struct auth_waiter *waiter)
{
    struct wait *wait = container_of(waiter, struct wait, waiter);
    struct request *request = wait->request;
    request_fn *then = wait->then;

    free(wait);
    if (!request_finish(request))
        identify(request, then, false);
}

static void start_waiting(struct request *request, request_fn *then)
{
    struct wait *wait = xnew(struct wait);

    wait->request = request;
    wait->then = then;
    request_begin(request);
    auth_wait(request->faces->parts.auth, &wait->waiter, on_ready);
}

/* --- all of it ------------------------------------------------------------------------------- */

static void admit(struct request *request, struct caller *caller, request_fn *then)
{
    struct error err = { 0 };

    if (auth_admit(request->faces->parts.auth, caller, &err) < 0) {
        request_fail(request, &err);
        return;
    }
    take_caller(request, caller);
    if (check_access(request, &err) < 0)
        request_fail(request, &err);
    else
        then(request);
}

/* A browser that has logged in sends no credentials, but a cookie. */
static void identify_login(struct request *request, request_fn *then)
{
    scoped(caller_fini) struct caller caller = { 0 };
    struct error err = { 0 };

    if (cookie_resume(request, &caller, &err) < 0) {
        refuse(request, &err);
        return;
    }
    request->by_cookie = true;
    admit(request, &caller, then);
}

static void identify(struct request *request, request_fn *then, bool may_wait)
{
    struct auth *auth = request->faces->parts.auth;
    scoped(caller_fini) struct caller caller = { 0 };
    struct error err = { 0 };

    switch (auth_resolve(auth, http_exchange_head(request->exchange),
                         http_exchange_peer(request->exchange), &caller, &err)) {
    case AUTH_KNOWN:
        break;
    case AUTH_WAIT:
        if (may_wait) {
            start_waiting(request, then);
            return;
        }
        error_named(&err, ERR_UNAVAILABLE, "issuer_unavailable",
                    "the keys of the token issuer are not available");
        refuse(request, &err);
        return;
    case AUTH_REFUSED:
        refuse(request, &err);
        return;
    }
    admit(request, &caller, then);
}

/* A program in a sandbox is known by the execution that it belongs to, while that runs. */
static void identify_program(struct request *request, request_fn *then)
{
    const struct http_peer *peer = http_exchange_peer(request->exchange);
    const struct execution *execution = execution_find_running(request->core, peer->member);
    struct error err = { 0 };

    if (!execution) {
        take_nobody(request);
        error_named(&err, ERR_FORBIDDEN, "execution_ended",
                    "the execution that this program belongs to has ended");
        request_fail(request, &err);
        return;
    }
    request->owner = xstrdup(session_owner(execution_session(execution)));
    request->principal = xstrdup(execution_facts(execution)->id);
    request->on_behalf_of = xstrdup("");
    memcpy(request->session_id, execution_facts(execution)->session_id,
           sizeof(request->session_id));
    then(request);
}

static bool is_program(const struct request *request)
{
    return http_exchange_peer(request->exchange)->member[0] != '\0';
}

/* Programs have routes of their own, which other callers do not see. */
static bool is_wrong_side(const struct request *request)
{
    return request->route && (request->route->access == ROUTE_PROGRAMS) != is_program(request);
}

static void refuse_side(struct request *request)
{
    struct error err = { 0 };

    take_nobody(request);
    error_named(&err, ERR_NOT_FOUND, "route_not_found", "unknown route on this socket");
    error_hint(&err, "programs in a sandbox PUT and GET /storage/NAME over SANDGLASS_STORAGE; all "
                     "other routes need a listener of the daemon");
    request_fail(request, &err);
}

void request_identify_relayed(struct request *request, request_fn *then)
{
    const struct relay_identity *identity = request->relay;
    struct error err = { 0 };

    if (is_wrong_side(request)) {
        refuse_side(request);
        return;
    }
    request->owner = xstrdup(identity->owner);
    request->principal = xstrdup(identity->principal);
    request->on_behalf_of = xstrdup(identity->on_behalf_of);
    request->roles = identity->roles;
    request->is_operator = identity->flags & RELAY_OPERATOR;
    request->any_owner = identity->flags & RELAY_ANY_OWNER;
    if (check_access(request, &err) < 0)
        request_fail(request, &err);
    else
        then(request);
}

void request_identify(struct request *request, request_fn *then)
{
    if (is_wrong_side(request)) {
        refuse_side(request);
        return;
    }
    if (is_program(request)) {
        identify_program(request, then);
        return;
    }
    if (request->route && request->route->access == ROUTE_ANYBODY) {
        take_nobody(request);
        then(request);
        return;
    }
    if (cookie_is_used(request))
        identify_login(request, then);
    else
        identify(request, then, true);
}
