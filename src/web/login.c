/* SPDX-License-Identifier: Apache-2.0 */
/* Logging in: credentials, or a one-time token, for a cookie; and logging out. */

#include "auth/auth.h"
#include "base/alloc.h"
#include "base/str.h"
#include "config/config.h"
#include "core/core.h"
#include "face/cookie.h"
#include "web/private.h"

#include <stdio.h>
#include <string.h>

static int64_t now_wall_us(const struct request *request)
{
    return clock_wall_us(loop_clock(request->core->loop));
}

/* For the caller of this request, who has shown credentials. */
static struct login make_login(const struct request *request)
{
    const struct config *config = request->faces->parts.config;
    struct login login = {
        .mode = config->auth.mode,
        .issued_us = now_wall_us(request),
        .roles = request->roles,
        .is_operator = request->is_operator,
    };

    login.expires_us = login.issued_us + config->dashboard.login_timeout_ms * 1000;
    if (request->credentials_expire_us)
        login.expires_us = MIN(login.expires_us, request->credentials_expire_us);
    id_make(login.id, ID_LOGIN);
    memcpy(login.key_id, request->key_id, sizeof(login.key_id));
    snprintf(login.principal, sizeof(login.principal), "%s", request->principal);
    snprintf(login.on_behalf_of, sizeof(login.on_behalf_of), "%s", request->on_behalf_of);
    return login;
}

/* A login cannot be made longer, or multiplied, with its own cookie. */
static int refuse_cookie(const struct request *request, struct error *err)
{
    if (!request->by_cookie)
        return 0;
    error_named(err, ERR_FORBIDDEN, "credentials_needed",
                "a login needs credentials of its own, not the cookie of another login");
    return error_hint_known(err, HINT_LOGIN);
}

static void reply_login(struct request *request, const struct login *login)
{
    scoped(buffer_fini) struct buffer text = BUFFER_INIT(4096);
    struct json_writer json = JSON_WRITER(&text);
    struct error err = { 0 };

    if (cookie_give(request, login, &err) < 0) {
        request_fail(request, &err);
        return;
    }
    json_begin_object(&json, NULL);
    json_put_time(&json, "expires_at", login->expires_us);
    json_end_object(&json);
    request_reply(request, 200, &text);
}

static void post_login(struct request *request)
{
    struct login login = make_login(request);
    struct error err = { 0 };

    if (refuse_cookie(request, &err) < 0)
        request_fail(request, &err);
    else
        reply_login(request, &login);
}

/* --- one-time tokens --------------------------------------------------------------------------- */

/* Only those who may do everything open a port. */
static int check_may_listen(const struct request *request, struct error *err)
{
    if (request->is_operator || request->any_owner)
        return 0;
    error_named(err, ERR_FORBIDDEN, "no_port",
                "the daemon listens on unix sockets only, which browsers cannot use");
    return error_hint(err, "ask an operator to run 'sandglass dashboard', or to start the daemon "
                           "with --listen 127.0.0.1:7070");
}

static int listen_somewhere(const struct request *request, struct error *err)
{
    struct dashboard *dashboard = dashboard_of(request);
    unsigned port;

    if (dashboard->url)
        return 0;
    if (check_may_listen(request, err) < 0)
        return -1;
    if (!dashboard->parts.listen)
        return error_named(err, ERR_UNAVAILABLE, "no_port", "the daemon listens on no TCP port");
    port = dashboard->parts.listen(dashboard->parts.listen_context, err);
    if (!port)
        return -1;
    dashboard_serve_at(dashboard, "127.0.0.1", port);
    return 0;
}

static void reply_ticket(struct request *request, const char *ticket, int64_t expires_us)
{
    scoped(buffer_fini) struct buffer text = BUFFER_INIT(8192);
    struct json_writer json = JSON_WRITER(&text);
    scoped(free) char *url = xasprintf("%s#token=%s", dashboard_of(request)->url, ticket);

    json_begin_object(&json, NULL);
    json_put_text(&json, "token", ticket);
    json_put_text(&json, "url", url);
    json_put_time(&json, "expires_at", expires_us);
    json_end_object(&json);
    request_reply(request, 201, &text);
}

static void post_token(struct request *request)
{
    struct login login = make_login(request);
    char ticket[TICKET_TEXT_SIZE];
    struct error err = { 0 };
    int64_t expires_us;

    if (refuse_cookie(request, &err) < 0 || listen_somewhere(request, &err) < 0 ||
        tickets_issue(dashboard_of(request)->tickets, &login, ticket, &expires_us, &err) < 0)
        request_fail(request, &err);
    else
        reply_ticket(request, ticket, expires_us);
}

struct exchange_body {
    const char *token; /* borrowed */
};

static const struct json_field exchange_fields[] = {
    { "token", JSON_KIND_TEXT, offsetof(struct exchange_body, token), .required = true },
};

static int check_page_header(const struct request *request, struct error *err)
{
    if (request_header(request, "x-sandglass-page"))
        return 0;
    return error_named(err, ERR_FORBIDDEN, "page_header_missing",
                       "this needs the header X-Sandglass-Page");
}

static void post_exchange(struct request *request)
{
    struct exchange_body body = { 0 };
    struct error err = { 0 };
    struct login login;

    if (check_page_header(request, &err) < 0 || request_decode(request, &body, &err) < 0) {
        request_fail(request, &err);
        return;
    }
    if (tickets_take(dashboard_of(request)->tickets, body.token, &login)) {
        reply_login(request, &login);
    } else {
        error_named(&err, ERR_UNAUTHORIZED, "token_used",
                    "this one-time token is not known: it was used, or has expired");
        error_hint(&err, "run 'sandglass dashboard' again");
        request_fail(request, &err);
    }
}

/* --- and back ---------------------------------------------------------------------------------- */

static void post_logout(struct request *request)
{
    struct error err = { 0 };
    struct login login;

    if (check_page_header(request, &err) < 0) {
        request_fail(request, &err);
        return;
    }
    if (cookie_read(request, &login, &err) == 0)
        auth_end_login(request->faces->parts.auth, &login);
    cookie_take(request);
    request_reply_empty_object(request, 200);
}

/* --- the table --------------------------------------------------------------------------------- */

static const struct route_answer login_answers[] = {
    { 200, "{expires_at}, and the cookie of the login" },
    { 401, "the credentials are not valid" },
    { 403, "credentials_needed: the caller was identified by a cookie" },
    { 0 },
};

static const struct route_answer token_answers[] = {
    { 201, "{token, url, expires_at}: a one-time token, and the page with it" },
    { 403, "credentials_needed, or no_port: the daemon listens on unix sockets only" },
    { 429, "too_many_tokens" },
    { 0 },
};

static const struct route_answer exchange_answers[] = {
    { 200, "{expires_at}, and the cookie of the login" },
    { 401, "token_used: unknown, used or expired" },
    { 403, "page_header_missing: there is no header X-Sandglass-Page" },
    { 0 },
};

static const struct route_answer logout_answers[] = {
    { 200, "the cookie is taken back, and its login is refused from now on" },
    { 403, "page_header_missing: there is no header X-Sandglass-Page" },
    { 0 },
};

const struct route web_login_routes[] = {
    { HTTP_POST, "/ui/login", post_login, "Exchange credentials for the cookie of the dashboard",
      .answers = login_answers, .unrecorded = true },
    { HTTP_POST, "/ui/tokens", post_token, "Create a one-time token for the dashboard",
      .answers = token_answers, .unrecorded = true },
    { HTTP_POST, "/ui/exchange", post_exchange, "Exchange a one-time token for the cookie",
      .body = ROUTE_JSON_BODY, .fields = exchange_fields,
      .field_count = ARRAY_LENGTH(exchange_fields), .answers = exchange_answers,
      .access = ROUTE_ANYBODY, .unrecorded = true },
    { HTTP_POST, "/ui/logout", post_logout, "End the login of this browser",
      .answers = logout_answers, .access = ROUTE_ANYBODY, .unrecorded = true },
    { 0 },
};
