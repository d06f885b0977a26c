/* SPDX-License-Identifier: Apache-2.0 */
#include "web/dashboard.h"

#include "base/alloc.h"
#include "base/str.h"
#include "config/config.h"
#include "core/core.h"
#include "core/metrics.h"
#include "web/private.h"

#include <stdlib.h>
#include <string.h>
#include <zlib.h>

/* --- headers ----------------------------------------------------------------------------------- */

static const char policy[] =
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' blob: data:; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

static void put_headers(struct request *request, const char *cache)
{
    struct http_exchange *exchange = request->exchange;

    http_respond_clear_headers(exchange);
    http_respond_header(exchange, "Cache-Control", cache);
    http_respond_header(exchange, "X-Content-Type-Options", "nosniff");
    http_respond_header(exchange, "Content-Security-Policy", policy);
    http_respond_header(exchange, "X-Frame-Options", "DENY");
    http_respond_header(exchange, "Referrer-Policy", "no-referrer");
    http_respond_header(exchange, "Cross-Origin-Opener-Policy", "same-origin");
    http_respond_header(exchange, "Cross-Origin-Resource-Policy", "same-origin");
}

static void count(const struct request *request)
{
    metrics_add(request->core->metrics, METRIC_HTTP_REQUESTS, 2, 1);
}

/* --- files ------------------------------------------------------------------------------------- */

static const struct web_asset *find_asset(const struct dashboard *dashboard, const char *name)
{
    for (const struct web_asset *asset = dashboard->parts.assets; asset->name; asset++)
        if (str_equal(asset->name, name))
            return asset;
    return NULL;
}

/* Browsers do; q values are not worth a parser here. */
static bool takes_gzip(const struct request *request)
{
    const char *encodings = request_header(request, "accept-encoding");
    const char *gzip = encodings ? strstr(encodings, "gzip") : NULL;

    return gzip && !strstr(gzip, ";q=0,") && !str_ends_with(gzip, ";q=0");
}

/* Allocated; NULL when it cannot be. */
static unsigned char *inflate_asset(const struct web_asset *asset)
{
    scoped(free) unsigned char *plain = xmalloc(asset->plain_length + 1);
    z_stream stream = { .next_in = (unsigned char *)asset->data,
                        .avail_in = (uInt)asset->length,
                        .next_out = plain,
                        .avail_out = (uInt)asset->plain_length + 1 };
    int result;

    if (inflateInit2(&stream, 15 + 16) != Z_OK)
        return NULL;
    result = inflate(&stream, Z_FINISH);
    inflateEnd(&stream);
    return result == Z_STREAM_END && stream.total_out == asset->plain_length ? steal_ptr(&plain)
                                                                             : NULL;
}

static void send_asset(struct request *request, const struct web_asset *asset, const char *cache)
{
    scoped(free) unsigned char *plain = NULL;
    struct error err = { 0 };

    if (takes_gzip(request)) {
        put_headers(request, cache);
        http_respond_header(request->exchange, "Vary", "Accept-Encoding");
        http_respond_header(request->exchange, "Content-Encoding", "gzip");
        http_respond(request->exchange, 200, asset->type, asset->data, asset->length);
        return;
    }
    plain = inflate_asset(asset);
    if (!plain) {
        error_set(&err, ERR_INTERNAL, "the file %s of the dashboard is damaged", asset->name);
        request_fail(request, &err);
        return;
    }
    put_headers(request, cache);
    http_respond_header(request->exchange, "Vary", "Accept-Encoding");
    http_respond(request->exchange, 200, asset->type, plain, asset->plain_length);
}

/* --- the page ---------------------------------------------------------------------------------- */

/* The page of a build without the dashboard. */
static const char plain_page[] =
    "<!doctype html>\n<html lang=\"en\">\n<meta charset=\"utf-8\">\n<title>Sandglass</title>\n"
    "<h1>Sandglass " SANDGLASS_VERSION "</h1>\n"
    "<p>The daemon runs. This build has no dashboard, because Node.js was not there when it was "
    "built.</p>\n"
    "<p>To get it: install <code>nodejs</code> and <code>npm</code>, run "
    "<code>scripts/build</code> "
    "again, and restart the daemon.</p>\n"
    "<p>Everything else works: <code>sandglass --help</code>, and the API that "
    "<a href=\"openapi.json\">openapi.json</a> lists.</p>\n</html>\n";

static void get_page(struct request *request)
{
    const struct web_asset *page = find_asset(dashboard_of(request), "index.html");

    count(request);
    if (page) {
        send_asset(request, page, "no-cache");
        return;
    }
    put_headers(request, "no-cache");
    http_respond(request->exchange, 200, "text/html; charset=utf-8", plain_page,
                 sizeof(plain_page) - 1);
}

static void get_file(struct request *request)
{
    const char *name = request_path(request, "file");
    const struct web_asset *asset = find_asset(dashboard_of(request), name);
    struct error err = { 0 };

    if (!asset) {
        error_named(&err, ERR_NOT_FOUND, "route_not_found", "the dashboard has no file \"%.100s\"",
                    name);
        error_hint(&err, "load the page again: another release of the daemon may be running");
        request_fail(request, &err);
        return;
    }
    count(request);
    send_asset(request, asset, "public, max-age=31536000, immutable");
}

/* --- the faces --------------------------------------------------------------------------------- */

static const struct route_answer page_answers[] = {
    { 200, "HTML; without the dashboard a short page that says how to get it" },
    { 0 },
};

static const struct route_answer file_answers[] = {
    { 200, "a file of the page; its name has a hash, so that it never changes" },
    { 404, "route_not_found" },
    { 0 },
};

static const struct route page_routes[] = {
    { HTTP_GET, "/", get_page, "The dashboard", .answers = page_answers, .access = ROUTE_ANYBODY },
    { 0 },
};

static const struct route file_routes[] = {
    { HTTP_GET, "/ui/{file}", get_file, "A file of the dashboard", .answers = file_answers,
      .access = ROUTE_ANYBODY },
    { 0 },
};

static const struct route *const page_tables[] = { page_routes, NULL };
static const struct route *const tables[] = { web_login_routes, file_routes, NULL };

const struct face web_page_face = {
    .name = "page",
    .prefix = "/",
    .identify = request_identify,
    .fail = request_fail_json,
    .tables = page_tables,
};

const struct face web_face = {
    .name = "web",
    .prefix = "/ui",
    .identify = request_identify,
    .fail = request_fail_json,
    .tables = tables,
};

/* --- life -------------------------------------------------------------------------------------- */

struct dashboard *dashboard_new(const struct dashboard_parts *parts)
{
    struct dashboard *dashboard = xnew(struct dashboard);

    dashboard->parts = *parts;
    dashboard->tickets = tickets_new(parts->loop);
    if (!str_is_empty(parts->config->dashboard.url))
        dashboard->url = xasprintf("%s%s", parts->config->dashboard.url,
                                   str_ends_with(parts->config->dashboard.url, "/") ? "" : "/");
    return dashboard;
}

void dashboard_free(struct dashboard *dashboard)
{
    if (!dashboard)
        return;
    tickets_free(dashboard->tickets);
    free(dashboard->url);
    free(dashboard);
}

/* An address for every interface is no address to go to. */
void dashboard_serve_at(struct dashboard *dashboard, const char *address, unsigned port)
{
    const char *colon = strrchr(address, ':');
    const char *scheme = str_is_empty(dashboard->parts.config->tls.certificate) ? "http" : "https";
    scoped(free) char *host = colon && colon[1] != ']' && *address != '\0'
                                  ? xstrndup(address, (size_t)(colon - address))
                                  : xstrdup(address);

    if (dashboard->url || !port)
        return;
    if (!*host || str_equal(host, "0.0.0.0") || str_equal(host, "[::]") || str_equal(host, "*")) {
        free(host);
        host = xstrdup("127.0.0.1");
    }
    dashboard->url = xasprintf("%s://%s:%u/", scheme, host, port);
}
