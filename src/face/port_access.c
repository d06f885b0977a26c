/* SPDX-License-Identifier: Apache-2.0 */
#include "face/port_access.h"

#include "base/alloc.h"
#include "base/str.h"
#include "config/config.h"
#include "core/core.h"
#include "face/request.h"

#include <stdio.h>
#include <string.h>
#include <strings.h>

enum { COOKIES_TRIED = 8 };

/* --- permissions ----------------------------------------------------------------------------- */

static int64_t now_wall_s(const struct request *request)
{
    return clock_wall_us(loop_clock(request->core->loop)) / 1000000;
}

static int refuse_stranger(struct error *err)
{
    error_named(err, ERR_NOT_FOUND, "url_not_found", "this URL is unknown");
    return error_hint_known(err, HINT_PORT_URL);
}

int port_permission_read(const struct request *request, const char *text, struct port_token *out,
                         struct error *err)
{
    struct error unused = { 0 };

    if (vault_open(request->core->vault, &unused) < 0)
        return refuse_stranger(err);
    switch (port_token_read(out, request->core->vault, text, now_wall_s(request))) {
    case PORT_TOKEN_VALID:
        return 0;
    case PORT_TOKEN_EXPIRED:
        error_named(err, ERR_FORBIDDEN, "url_expired", "this URL has expired");
        return error_hint_known(err, HINT_PORT_URL);
    case PORT_TOKEN_FOREIGN:
        break;
    }
    return refuse_stranger(err);
}

static bool keeps_authorization(const struct request *request)
{
    const char *value = request_header(request, "authorization");

    return value && request->faces->parts.config->auth.mode != AUTH_MODE_JWT &&
           !port_is_own_credential(value);
}

void port_permission_use(struct request *request, const struct port_token *token,
                         struct port_target *target)
{
    struct session *session = map_get(&request->core->sessions_by_id, token->session_id);
    struct error err = { 0 };

    if (!session || !session_is_alive(session)) {
        error_named(&err, ERR_GONE, "session_ended", "the session of this URL has ended");
        request_fail(request, &err);
        return;
    }
    if (share_take(&request->share, request->core->shares, session_owner(session), SHARE_REQUESTS,
                   &err) < 0) {
        request_fail(request, &err);
        return;
    }
    memcpy(request->session_id, token->session_id, sizeof(request->session_id));
    target->port = token->port;
    target->generation = token->generation;
    target->keeps_authorization = keeps_authorization(request);
    port_proxy_start(request, session, target);
}

/* --- URLs ------------------------------------------------------------------------------------ */

static bool has_tls(const struct config *config)
{
    return !str_is_empty(config->tls.certificate);
}

/* Whether browsers reach host names of ports by https, maybe through a proxy in front of us. */
static bool host_is_secure(const struct config *config)
{
    return strstr(config->ports.domain, "://")
               ? strncasecmp(config->ports.domain, "https://", 8) == 0
               : has_tls(config);
}

char *port_path_write(const char *token_text)
{
    return xasprintf(PORT_SHARED_PATH "%s/", token_text);
}

char *port_url_write(const struct request *request, const char *token_text,
                     const struct port_token *token)
{
    const struct config *config = request->faces->parts.config;
    const char *host = request_header(request, "host");
    scoped(free) char *path = port_path_write(token_text);
    size_t length;

    if (!str_is_empty(config->ports.domain))
        return xasprintf("%s://%u-%s.%s/?" PORT_PARAMETER "=%s",
                         host_is_secure(config) ? "https" : "http", token->port, token->session_id,
                         port_domain_find(config->ports.domain, &length), token_text);
    if (!host || http_exchange_peer(request->exchange)->is_unix)
        return steal_ptr(&path);
    return xasprintf("%s://%s%s", has_tls(config) ? "https" : "http", host, path);
}

/* --- host names ------------------------------------------------------------------------------ */

static enum face_claim claim(void *context, const struct http_head *head)
{
    const struct config *config = context;
    const char *host = http_head_header(head, "host");
    struct port_name name;

    return host && port_name_read(host, config->ports.domain, &name) ? FACE_CLAIM_HOST
                                                                     : FACE_CLAIM_NONE;
}

static bool session_of(void *context, const struct http_head *head, char out_id[ID_SIZE])
{
    const struct config *config = context;
    const char *host = http_head_header(head, "host");
    struct port_name name;

    if (!host || !port_name_read(host, config->ports.domain, &name))
        return false;
    memcpy(out_id, name.session_id, ID_SIZE);
    return true;
}

static struct port_name name_of(const struct request *request)
{
    struct port_name name = { 0 };

    (void)port_name_read(request_header(request, "host"),
                         request->faces->parts.config->ports.domain, &name);
    return name;
}

static void use_by_host(struct request *request, const struct port_token *token, const char *rest,
                        bool is_shared)
{
    struct port_target target = {
        .door = PORT_DOOR_HOST, .target = rest, .prefix = "", .is_shared = is_shared
    };

    port_permission_use(request, token, &target);
}

/* A browser that opens the page: it goes on with the cookie, and its address has no permission. */
static bool is_navigation(const struct request *request)
{
    const struct http_head *head = http_exchange_head(request->exchange);
    const char *mode = http_head_header(head, "sec-fetch-mode");
    const char *accept = http_head_header(head, "accept");

    if (head->method != HTTP_GET && head->method != HTTP_HEAD)
        return false;
    return mode ? strcasecmp(mode, "navigate") == 0 : accept && strstr(accept, "text/html");
}

static void send_on(struct request *request, const struct port_token *token, const char *text,
                    const char *rest)
{
    bool is_secure = host_is_secure(request->faces->parts.config);
    scoped(free) char *cookie = xasprintf(
        "%s" PORT_COOKIE "=%s; Path=/; Max-Age=%lld; HttpOnly; SameSite=Lax%s",
        is_secure ? "__Host-" : "", text, (long long)(token->expires_wall_s - now_wall_s(request)),
        is_secure ? "; Secure" : "");

    http_respond_header(request->exchange, "Location", rest);
    http_respond_header(request->exchange, "Set-Cookie", cookie);
    http_respond_header(request->exchange, "Referrer-Policy", "no-referrer");
    http_respond(request->exchange, 303, NULL, NULL, 0);
}

static void refuse(struct request *request, const struct error *err)
{
    http_respond_header(request->exchange, "Referrer-Policy", "no-referrer");
    request_fail(request, err);
}

/* Every permission is good for the host that it was made for. */
static int read_for_host(const struct request *request, const char *text, struct port_token *token,
                         struct error *err)
{
    struct port_name name = name_of(request);

    if (port_permission_read(request, text, token, err) < 0)
        return -1;
    if (token->port == name.port && str_equal(token->session_id, name.session_id))
        return 0;
    return refuse_stranger(err);
}

static bool is_own_origin(const struct request *request)
{
    bool is_secure = host_is_secure(request->faces->parts.config);
    scoped(free) char *origin =
        xasprintf("%s://%s", is_secure ? "https" : "http", request_header(request, "host"));

    return port_is_same_origin(http_exchange_head(request->exchange), origin);
}

static void take_parameter(struct request *request, const char *text, const char *rest)
{
    struct port_token token;
    struct error err = { 0 };

    if (read_for_host(request, text, &token, &err) < 0)
        refuse(request, &err);
    else if (is_navigation(request))
        send_on(request, &token, text, rest);
    else
        use_by_host(request, &token, rest, true);
}

/* Of several the first that is good; else what is said of the last one that has expired. */
static int read_cookies(const struct request *request, struct port_token *token, struct error *err)
{
    const char *cookies = request_header(request, "cookie");
    int result = refuse_stranger(err);

    for (unsigned i = 0; i < COOKIES_TRIED && result < 0; i++) {
        scoped(free) char *text = port_cookie_find(cookies, i);
        struct error why = { 0 };

        if (!text)
            break;
        result = read_for_host(request, text, token, &why);
        if (why.code == ERR_FORBIDDEN)
            *err = why;
    }
    return result;
}

static void take_cookie(struct request *request)
{
    struct port_token token;
    struct error err = { 0 };
    int result = is_own_origin(request) ? read_cookies(request, &token, &err)
                                        : refuse_stranger(&err);

    if (result < 0)
        refuse(request, &err);
    else
        use_by_host(request, &token, http_exchange_head(request->exchange)->target, false);
}

static bool has_credentials(const struct request *request)
{
    return request_header(request, "authorization") || request_header(request, "x-api-key") ||
           http_exchange_peer(request->exchange)->is_unix;
}

static void refuse_unknown(struct request *request)
{
    struct error err = { 0 };

    (void)refuse_stranger(&err);
    refuse(request, &err);
}

static void identify(struct request *request, request_fn *then)
{
    const struct http_head *head = http_exchange_head(request->exchange);
    scoped(free) char *cookie = port_cookie_find(http_head_header(head, "cookie"), 0);
    scoped(free) char *parameter = NULL;
    scoped(free) char *rest = port_target_split(head->target, &parameter);

    if (*http_exchange_peer(request->exchange)->member)
        refuse_unknown(request); /* a program in a sandbox */
    else if (parameter)
        take_parameter(request, parameter, rest);
    else if (cookie)
        take_cookie(request);
    else if (has_credentials(request) && is_own_origin(request))
        request_identify(request, then);
    else
        refuse_unknown(request);
}

static void use_by_owner(struct request *request)
{
    struct port_target target = { .port = name_of(request).port,
                                  .door = PORT_DOOR_HOST,
                                  .target = http_exchange_head(request->exchange)->target,
                                  .prefix = "" };

    port_proxy_start(request, request->session, &target);
}

static void handle(struct request *request)
{
    struct port_name name = name_of(request);

    request_find_session(request, name.session_id, ROUTE_LIVE_SESSION, use_by_owner);
}

static const struct route whole = {
    .method = HTTP_GET,
    .path = "/{path}",
    .handle = handle,
    .body = ROUTE_NO_BODY,
    .is_proxy = true,
    .any_origin = true,
};

static const struct route *const tables[] = { NULL };

const struct face port_face = {
    .name = "ports",
    .claim = claim,
    .session_of = session_of,
    .identifies_at_home = true,
    .route = &whole,
    .identify = identify,
    .fail = request_fail_json,
    .tables = tables,
};
