/* SPDX-License-Identifier: Apache-2.0 */
#include "face/cookie.h"

#include "auth/auth.h"
#include "auth/credentials.h"
#include "base/alloc.h"
#include "base/str.h"
#include "config/config.h"
#include "core/core.h"
#include "core/vault.h"
#include "face/request.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

enum { NAME_SIZE = 64, NAME_DIGITS = 12, PATH_SIZE = 512, COOKIE_SIZE = LOGIN_TEXT_SIZE + 1024 };

static const char about_login[] = "dashboard login";
static const char about_name[] = "dashboard cookie";

/* --- the URL of the page ----------------------------------------------------------------------- */

/* Where the host of dashboard.url begins; NULL without one. */
static const char *host_of(const struct config *config)
{
    const char *slashes = strstr(config->dashboard.url ? config->dashboard.url : "", "://");

    return slashes ? slashes + 3 : NULL;
}

bool cookie_origin_is(const struct config *config, const char *origin)
{
    const char *host = config->dashboard.enabled ? host_of(config) : NULL;
    size_t length = host ? (size_t)(host - config->dashboard.url) + strcspn(host, "/") : 0;

    return host && strlen(origin) == length &&
           strncasecmp(origin, config->dashboard.url, length) == 0;
}

bool cookie_origin_has_host(const struct config *config, const char *host, size_t length)
{
    const char *own = config->dashboard.enabled ? host_of(config) : NULL;
    size_t own_length = 0;

    if (own)
        own_length = *own == '[' ? strcspn(own, "]") + 1 : strcspn(own, ":/");
    return own && own_length == length && strncasecmp(own, host, length) == 0;
}

static bool is_secure(const struct config *config)
{
    return !str_is_empty(config->tls.certificate) ||
           str_starts_with(config->dashboard.url ? config->dashboard.url : "", "https://");
}

/* Of dashboard.url; "/" without one. */
static void cookie_path(const struct config *config, char out[PATH_SIZE])
{
    const char *host = host_of(config);
    const char *path = host ? host + strcspn(host, "/") : "/";

    snprintf(out, PATH_SIZE, "%s", *path && strlen(path) < PATH_SIZE ? path : "/");
}

/* --- the cookie -------------------------------------------------------------------------------- */

/* Cookies of a host are sent to all of its ports: each daemon has a name of its own. The vault is
 * open. */
static void cookie_name(const struct request *request, char out[NAME_SIZE])
{
    const struct config *config = request->faces->parts.config;
    char signature[VAULT_SIGNATURE_SIZE], path[PATH_SIZE];
    const char *prefix = "";

    cookie_path(config, path);
    vault_sign(request->core->vault, about_name, path, signature);
    if (is_secure(config))
        prefix = str_equal(path, "/") ? "__Host-" : "__Secure-";
    snprintf(out, NAME_SIZE, "%ssandglass_%.*s", prefix, NAME_DIGITS, signature);
}

/* The value of our cookie, allocated; NULL without one. */
static char *own_cookie(const struct request *request)
{
    const char *header = request_header(request, "cookie");
    char name[NAME_SIZE];
    const char *value;
    struct error err;
    size_t length;

    if (!header || !request->faces->parts.config->dashboard.enabled ||
        vault_open(request->core->vault, &err) < 0)
        return NULL;
    cookie_name(request, name);
    value = login_find_cookie(header, name, &length);
    return value && length && length < COOKIE_SIZE ? xstrndup(value, length) : NULL;
}

bool cookie_is_used(const struct request *request)
{
    scoped(free) char *value = NULL;

    if (request_header(request, "authorization") || request_header(request, "x-api-key"))
        return false;
    value = own_cookie(request);
    return value != NULL;
}

int cookie_read(const struct request *request, struct login *login, struct error *err)
{
    scoped(free) char *value = own_cookie(request);
    char *dot = value ? strrchr(value, '.') : NULL;

    if (dot) {
        *dot = '\0';
        if (vault_is_signed(request->core->vault, about_login, value, dot + 1) &&
            login_read(login, value) == 0)
            return 0;
    }
    error_named(err, ERR_UNAUTHORIZED, "login_unknown", "the login of this browser is not known");
    return error_hint(err, "log in again, with an API key or with 'sandglass dashboard'");
}

/* --- whose page -------------------------------------------------------------------------------- */

static bool changes_something(const struct http_head *head)
{
    return head->method != HTTP_GET && head->method != HTTP_HEAD;
}

static int check_page(const struct request *request, struct error *err)
{
    const char *site = request_header(request, "sec-fetch-site");

    if (site && strcasecmp(site, "same-origin") != 0 && strcasecmp(site, "none") != 0)
        return error_named(err, ERR_FORBIDDEN, "origin_not_allowed",
                           "a %.32s web page may not use the login of this browser", site);
    if (!changes_something(http_exchange_head(request->exchange)) ||
        request_header(request, "x-sandglass-page"))
        return 0;
    error_named(err, ERR_FORBIDDEN, "page_header_missing",
                "a change with the cookie of the dashboard needs the header X-Sandglass-Page");
    return error_hint(err, "programs send an API key instead of the cookie");
}

int cookie_resume(const struct request *request, struct caller *out, struct error *err)
{
    scoped(credentials_fini) struct credentials given = { 0 };
    struct login login;

    if (check_page(request, err) < 0 || cookie_read(request, &login, err) < 0 ||
        credentials_read(&given, http_exchange_head(request->exchange), err) < 0)
        return -1;
    return auth_resume(request->faces->parts.auth, &login, given.on_behalf_of, out, err);
}

/* --- giving ------------------------------------------------------------------------------------ */

static void put_cookie(struct request *request, const char *value, int64_t seconds)
{
    const struct config *config = request->faces->parts.config;
    char name[NAME_SIZE], path[PATH_SIZE];
    scoped(free) char *text = NULL;

    cookie_name(request, name);
    cookie_path(config, path);
    text = xasprintf("%s=%s; Path=%s; Max-Age=%" PRId64 "; HttpOnly; SameSite=Strict%s", name,
                     value, path, seconds, is_secure(config) ? "; Secure" : "");
    http_respond_header(request->exchange, "Set-Cookie", text);
}

int cookie_give(struct request *request, const struct login *login, struct error *err)
{
    int64_t now_us = clock_wall_us(loop_clock(request->core->loop));
    char text[LOGIN_TEXT_SIZE], signature[VAULT_SIGNATURE_SIZE];
    scoped(free) char *value = NULL;

    if (vault_open(request->core->vault, err) < 0)
        return -1;
    login_write(login, text);
    vault_sign(request->core->vault, about_login, text, signature);
    value = xasprintf("%s.%s", text, signature);
    put_cookie(request, value, (login->expires_us - now_us) / 1000000);
    return 0;
}

void cookie_take(struct request *request)
{
    struct error err;

    if (vault_open(request->core->vault, &err) == 0)
        put_cookie(request, "", 0);
}
