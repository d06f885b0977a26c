/* SPDX-License-Identifier: Apache-2.0 */
#include "face/port_private.h"

#include "base/alloc.h"
#include "base/str.h"
#include "config/config.h"
#include "core/core.h"
#include "core/metrics.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

enum { WAITING_BYTES = 256 * 1024, HEADERS_MAXIMUM = 128 * 2 + 16 };

/* --- the end --------------------------------------------------------------------------------- */

static void proxy_free(struct port_proxy *proxy)
{
    port_stream_close(&proxy->stream);
    http_client_free(proxy->client);
    port_tunnel_fini(proxy);
    for (char **name = proxy->withholds; name && *name; name++)
        free(*name);
    free(proxy->withholds);
    free(proxy->target);
    free(proxy->prefix);
    free(proxy->host);
    free(proxy);
}

static void on_gone(struct request *request)
{
    proxy_free(request->state);
}

/* Before the answer has begun it is an error; afterwards the client sees that it was cut. */
static void proxy_fail(struct port_proxy *proxy, const struct error *err)
{
    struct http_exchange *exchange = proxy->request->exchange;

    if (http_exchange_status(exchange)) {
        http_exchange_abort(exchange);
        return;
    }
    if (proxy->is_shared)
        http_respond_header(exchange, "Access-Control-Allow-Origin", "*");
    request_fail(proxy->request, err);
}

/* --- the request ----------------------------------------------------------------------------- */

static void resume_client(struct http_call *call)
{
    struct port_proxy *proxy = http_call_user(call);

    http_exchange_resume_body(proxy->request->exchange);
}

static void on_client_data(struct http_exchange *exchange, const uint8_t *data, size_t length)
{
    struct request *request = http_exchange_user(exchange);
    struct port_proxy *proxy = request->state;

    if (!proxy->call)
        return;
    port_stream_note_bytes(&proxy->stream);
    if (length)
        http_call_write(proxy->call, data, length);
    else
        http_call_end(proxy->call);
    if (http_call_pending(proxy->call) >= WAITING_BYTES)
        http_exchange_pause_body(exchange);
}

/* Pairs of name and value; the texts that were made for it are freed with it. */
struct header_list {
    const char *pairs[HEADERS_MAXIMUM];
    size_t count;
    char *made[2]; /* owned */
};

static void put_pair(struct header_list *list, const char *name, const char *value)
{
    if (!value || list->count + 2 >= HEADERS_MAXIMUM)
        return;
    list->pairs[list->count++] = name;
    list->pairs[list->count++] = value;
}

static bool is_withheld(const struct port_proxy *proxy, const char *name)
{
    for (char **withheld = proxy->withholds; withheld && *withheld; withheld++)
        if (strcmp(*withheld, name) == 0)
            return true;
    return false;
}

static const char *scheme_of(const struct port_proxy *proxy)
{
    return str_is_empty(proxy->request->faces->parts.config->tls.certificate) ? "http" : "https";
}

/* To the server a page of its own comes from its own origin; pages below a path have none. */
static const char *origin_for(struct port_proxy *proxy, struct header_list *list)
{
    const char *origin = request_header(proxy->request, "origin");
    const char *host = request_header(proxy->request, "host");
    scoped(free) char *own = xasprintf("%s://%s", scheme_of(proxy), host ? host : "");

    if (!origin || (strcasecmp(origin, own) != 0 && !str_equal(origin, "null")))
        return origin;
    list->made[0] = xasprintf("http://%s", proxy->host);
    return list->made[0];
}

static void put_cookies(struct port_proxy *proxy, struct header_list *list)
{
    const char *cookies = request_header(proxy->request, "cookie");

    if (!cookies || proxy->door == PORT_DOOR_PATH || is_withheld(proxy, "cookie"))
        return;
    list->made[1] = port_cookies_enter(cookies);
    put_pair(list, "Cookie", list->made[1]);
}

static void put_headers(struct port_proxy *proxy, struct header_list *list)
{
    const struct http_head *head = http_exchange_head(proxy->request->exchange);

    for (size_t i = 0; i < head->header_count; i++)
        if (port_header_enters(proxy->door, head, head->headers[i].name) &&
            !is_withheld(proxy, head->headers[i].name))
            put_pair(list, head->headers[i].name, head->headers[i].value);
    if (proxy->keeps_authorization)
        put_pair(list, "Authorization", request_header(proxy->request, "authorization"));
    put_cookies(proxy, list);
    put_pair(list, "Origin", origin_for(proxy, list));
    put_pair(list, "X-Forwarded-Host", request_header(proxy->request, "host"));
    put_pair(list, "X-Forwarded-Proto", scheme_of(proxy));
    if (!proxy->is_shared && *proxy->prefix)
        put_pair(list, "X-Forwarded-Prefix", proxy->prefix);
    put_pair(list, "Connection", proxy->kind == PORT_PROXY_WEBSOCKET ? "Upgrade" : "close");
    if (proxy->kind == PORT_PROXY_WEBSOCKET)
        put_pair(list, "Upgrade", "websocket");
}

/* --- the answer ------------------------------------------------------------------------------ */

static int put_location(struct port_proxy *proxy, const char *value, struct error *err)
{
    scoped(free) char *location =
        port_location_rewrite(proxy->door, proxy->prefix, proxy->host, value);

    if (!location) {
        error_named(err, ERR_BACKEND, "redirect_refused",
                    "the server on port %u redirects to another host, which is not followed below "
                    "a path of the daemon",
                    proxy->port);
        return error_hint(err, "open the port by a host name of its own (setting ports.domain)");
    }
    http_respond_header(proxy->request->exchange, "Location", location);
    return 0;
}

static void put_cookie(struct port_proxy *proxy, const char *value)
{
    scoped(free) char *cookie = proxy->door == PORT_DOOR_HOST ? port_cookie_leave(value) : NULL;

    if (cookie)
        http_respond_header(proxy->request->exchange, "Set-Cookie", cookie);
}

static void put_policies(struct port_proxy *proxy)
{
    struct http_exchange *exchange = proxy->request->exchange;

    if (proxy->door == PORT_DOOR_HOST) {
        if (!proxy->is_shared)
            http_respond_header(exchange, "Cross-Origin-Resource-Policy", "same-origin");
        return;
    }
    http_respond_header(exchange, "Content-Security-Policy", PORT_PATH_POLICY);
    http_respond_header(exchange, "Referrer-Policy", "no-referrer");
    http_respond_header(exchange, "Cross-Origin-Resource-Policy",
                        proxy->is_shared ? "cross-origin" : "same-origin");
    if (proxy->is_shared) {
        http_respond_header(exchange, "Access-Control-Allow-Origin", "*");
        http_respond_header(exchange, "Access-Control-Expose-Headers", "*");
    }
}

/* In place of the headers that every answer of the daemon has. */
static int put_answer_headers(struct port_proxy *proxy, const struct http_head *head,
                              struct error *err)
{
    const char *location = http_head_header(head, "location");

    http_respond_clear_headers(proxy->request->exchange);
    if (location && put_location(proxy, location, err) < 0)
        return -1;
    for (size_t i = 0; i < head->header_count; i++) {
        const struct http_header *header = &head->headers[i];

        if (strcmp(header->name, "set-cookie") == 0)
            put_cookie(proxy, header->value);
        else if (port_header_leaves(proxy->door, head, header->name))
            http_respond_header(proxy->request->exchange, header->name, header->value);
    }
    put_policies(proxy);
    return 0;
}

static void start_raw(struct port_proxy *proxy)
{
    struct http_exchange *exchange = proxy->request->exchange;

    http_respond_upgrade(exchange, "websocket", on_client_data);
    http_exchange_pause_body(exchange); /* until the call has room */
}

static void on_head(struct http_call *call, const struct http_head *head)
{
    struct port_proxy *proxy = http_call_user(call);
    struct http_exchange *exchange = proxy->request->exchange;
    struct error err = { 0 };

    if (head->status == 101 && proxy->kind != PORT_PROXY_WEBSOCKET)
        error_named(&err, ERR_BACKEND, "bad_answer",
                    "the server on port %u changed the protocol without being asked", proxy->port);
    if (err.code || put_answer_headers(proxy, head, &err) < 0) {
        proxy->call = NULL;
        http_call_cancel(call);
        proxy_fail(proxy, &err);
        return;
    }
    metrics_add(proxy->request->core->metrics, METRIC_HTTP_REQUESTS, (unsigned)head->status / 100,
                1);
    if (head->status == 101)
        start_raw(proxy);
    else
        http_respond_start(exchange, head->status, NULL, head->content_length);
}

static void on_answer_data(struct http_call *call, const uint8_t *data, size_t length)
{
    struct port_proxy *proxy = http_call_user(call);
    struct http_exchange *exchange = proxy->request->exchange;

    port_stream_note_bytes(&proxy->stream);
    http_respond_write(exchange, data, length);
    if (http_respond_pending(exchange) >= HTTP_HIGH_WATER)
        http_call_pause(call);
}

static void on_answer_end(struct http_call *call, const struct error *err)
{
    struct port_proxy *proxy = http_call_user(call);
    struct error shown = { 0 };

    proxy->call = NULL;
    if (!err) {
        http_respond_end(proxy->request->exchange);
        return;
    }
    error_named(&shown, ERR_BACKEND, "bad_answer", "%s%s%.200s", err->message,
                *err->hint ? ": " : "", err->hint);
    proxy_fail(proxy, &shown);
}

static void on_drain(struct http_exchange *exchange)
{
    struct request *request = http_exchange_user(exchange);
    struct port_proxy *proxy = request->state;

    if (proxy->call)
        http_call_resume(proxy->call);
}

/* --- all of it ------------------------------------------------------------------------------- */

static void ask(struct port_proxy *proxy, int fd)
{
    static const struct http_call_handler handler = { .on_head = on_head,
                                                      .on_data = on_answer_data,
                                                      .on_writable = resume_client,
                                                      .on_end = on_answer_end };
    struct http_exchange *exchange = proxy->request->exchange;
    const struct http_head *head = http_exchange_head(exchange);
    scoped(free) char *name = xasprintf("the server on port %u", proxy->port);
    struct header_list headers = { 0 };
    int64_t length = head->chunked ? -1 : head->has_body ? head->content_length : 0;

    put_headers(proxy, &headers);
    proxy->client = http_client_new_on(proxy->request->core->loop, fd, name, proxy->host);
    proxy->call = http_client_request(proxy->client, head->method, proxy->target, NULL, NULL,
                                      length, headers.pairs, &handler, proxy);
    free(headers.made[0]);
    free(headers.made[1]);
    http_respond_on_drain(exchange, on_drain);
    if (length)
        http_exchange_stream_body(exchange, on_client_data);
}

static void on_open(struct port_stream *stream)
{
    struct port_proxy *proxy = container_of(stream, struct port_proxy, stream);

    if (stream->err.code)
        proxy_fail(proxy, &stream->err);
    else if (proxy->kind == PORT_PROXY_TUNNEL)
        port_tunnel_begin(proxy, stream->fd);
    else
        ask(proxy, stream->fd);
}

static void on_lost(struct port_stream *stream)
{
    struct port_proxy *proxy = container_of(stream, struct port_proxy, stream);

    proxy_fail(proxy, &stream->err);
}

bool port_wants_tunnel(const struct http_head *head)
{
    const char *upgrade = http_head_header(head, "upgrade");

    return head->upgrade && upgrade && strcasecmp(upgrade, "tcp") == 0;
}

static enum port_proxy_kind kind_of(const struct http_head *head)
{
    const char *upgrade = http_head_header(head, "upgrade");

    if (head->has_body || !head->upgrade || !upgrade)
        return PORT_PROXY_HTTP;
    if (port_wants_tunnel(head))
        return PORT_PROXY_TUNNEL;
    return strcasecmp(upgrade, "websocket") == 0 ? PORT_PROXY_WEBSOCKET : PORT_PROXY_HTTP;
}

static char **copy_names(const char *const *names)
{
    size_t count = 0;
    char **copies;

    while (names && names[count])
        count++;
    copies = xcalloc(count + 1, sizeof(*copies));
    for (size_t i = 0; i < count; i++)
        copies[i] = xstrdup(names[i]);
    return copies;
}

void port_proxy_start(struct request *request, struct session *session,
                      const struct port_target *target)
{
    struct port_proxy *proxy = xnew(struct port_proxy);

    assert(!request->on_gone);
    *proxy = (struct port_proxy){
        .request = request,
        .kind = kind_of(http_exchange_head(request->exchange)),
        .port = target->port,
        .door = target->door,
        .is_shared = target->is_shared,
        .keeps_authorization = target->keeps_authorization,
        .target = xstrdup(target->target),
        .prefix = xstrdup(target->prefix),
        .host = target->host ? xstrdup(target->host) : xasprintf("localhost:%u", target->port),
        .withholds = copy_names(target->withholds),
        .socket.fd = -1,
    };
    request->state = proxy;
    request->on_gone = on_gone;
    port_stream_open(&proxy->stream, session, target->port, target->generation, on_open, on_lost);
}
