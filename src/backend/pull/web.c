/* SPDX-License-Identifier: Apache-2.0 */
#include "backend/pull/web.h"

#include "base/alloc.h"
#include "base/str.h"
#include "loop/loop.h"
#include "net/http_client.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

enum {
    STALL_US = 60 * 1000 * 1000,
    LOOK_MS = 1000,
    MAX_REDIRECTS = 5,
    MAX_SERVERS = 4,
    MAX_DROPPED = 1024 * 1024,
};

/* A server that was asked before; its connection is reused. */
struct server {
    struct http_client *client; /* owned */
    char *origin;               /* owned: "https://HOST:PORT" */
};

struct web {
    struct loop *loop; /* owned */
    struct server servers[MAX_SERVERS];
    unsigned next; /* index that the next new server replaces */
    bool plain;
};

/* One exchange. */
struct visit {
    const struct web_request *request; /* borrowed */
    struct loop *loop;                 /* borrowed */
    struct web_answer answer;
    char *location; /* owned; of a redirect */
    int64_t heard_us;
    size_t dropped; /* bytes of a body that is not wanted */
    enum { VISIT_RUNNING, VISIT_ENDED, VISIT_ABANDONED } state;
    struct error err;
};

struct web *web_new(bool plain)
{
    struct web *web = xnew(struct web);

    web->loop = loop_new(&clock_system);
    web->plain = plain;
    return web;
}

static void server_fini(struct server *server)
{
    http_client_free(server->client);
    free(server->origin);
    *server = (struct server){ 0 };
}

void web_free(struct web *web)
{
    if (!web)
        return;
    for (unsigned i = 0; i < MAX_SERVERS; i++)
        server_fini(&web->servers[i]);
    loop_free(web->loop);
    free(web);
}

/* --- the answer ------------------------------------------------------------------------------ */

static void abandon(struct visit *visit, struct http_call *call)
{
    visit->state = VISIT_ABANDONED;
    http_call_cancel(call);
}

static void copy_header(const struct http_head *head, const char *name, char out[WEB_TEXT_SIZE])
{
    const char *value = http_head_header(head, name);

    snprintf(out, WEB_TEXT_SIZE, "%s", value ? value : "");
}

/* "bytes 100-199/200" */
static int64_t range_start(const struct http_head *head)
{
    const char *value = http_head_header(head, "content-range");
    char digits[24];
    size_t length;
    uint64_t start;

    if (!value || !str_starts_with(value, "bytes "))
        return -1;
    value += strlen("bytes ");
    length = strspn(value, "0123456789");
    if (length == 0 || length >= sizeof(digits) || value[length] != '-')
        return -1;
    memcpy(digits, value, length);
    digits[length] = '\0';
    return str_to_u64(digits, &start) < 0 || start > INT64_MAX ? -1 : (int64_t)start;
}

static void take_head(struct web_answer *answer, const struct http_head *head)
{
    *answer = (struct web_answer){ .status = head->status, .range_start = range_start(head) };
    copy_header(head, "content-type", answer->type);
    copy_header(head, "docker-content-digest", answer->digest);
    /* A header that cannot be read asks for nothing that we could give. */
    for (size_t i = 0; head->status == 401 && i < head->header_count; i++)
        if (str_equal(head->headers[i].name, "www-authenticate"))
            (void)challenge_parse(&answer->challenge, head->headers[i].value, NULL);
}

static bool is_redirect(int status)
{
    return status == 301 || status == 302 || status == 303 || status == 307 || status == 308;
}

static void on_head(struct http_call *call, const struct http_head *head)
{
    struct visit *visit = http_call_user(call);
    const char *location = http_head_header(head, "location");

    visit->heard_us = loop_now_us(visit->loop);
    take_head(&visit->answer, head);
    if (is_redirect(head->status) && location)
        visit->location = xstrdup(location);
    if (head->status / 100 == 2 && visit->request->on_head &&
        visit->request->on_head(visit->request->user, &visit->answer, &visit->err) < 0)
        abandon(visit, call);
}

static void on_data(struct http_call *call, const uint8_t *data, size_t length)
{
    struct visit *visit = http_call_user(call);

    visit->heard_us = loop_now_us(visit->loop);
    if (visit->answer.status / 100 != 2) {
        /* The body of a failure is dropped, up to a maximum: a server may send without end. */
        visit->dropped += length;
        if (visit->dropped > MAX_DROPPED)
            abandon(visit, call);
    } else if (visit->request->on_data(visit->request->user, data, length, &visit->err) < 0) {
        abandon(visit, call);
    }
}

static void on_end(struct http_call *call, const struct error *err)
{
    struct visit *visit = http_call_user(call);

    visit->state = VISIT_ENDED;
    if (!err)
        return;
    visit->err = *err;
    visit->err.retryable = true;
    /* The hint says why TLS failed or which part is malformed. */
    if (*err->hint)
        error_wrap(&visit->err, "%s", err->hint);
    visit->err.hint[0] = '\0';
}

/* --- addresses ------------------------------------------------------------------------------- */

/* "https://host:port" and "/path?query"; both allocated. */
static int split(const struct web *web, const char *url, char **out_origin, char **out_target,
                 struct error *err)
{
    bool is_secure = strncasecmp(url, "https://", 8) == 0;
    const char *host = url + (is_secure ? 8 : 7);
    size_t length;

    /* The address comes from a server and is shown on terminals: refuse control characters. */
    for (const char *at = url; *at; at++)
        if (*at <= ' ' || *at > '~')
            return error_set(err, ERR_INVALID, "an address has characters that are not ASCII");
    if (!is_secure && strncasecmp(url, "http://", 7) != 0)
        return error_set(err, ERR_INVALID, "\"%.200s\" is not an https:// address", url);
    if (!is_secure && !web->plain) {
        error_set(err, ERR_INVALID, "\"%.200s\" is not encrypted", url);
        return error_hint(err, "--insecure allows plain HTTP");
    }
    length = strcspn(host, "/?#");
    if (length == 0 || memchr(host, '@', length))
        return error_set(err, ERR_INVALID, "\"%.200s\" is not an address of a server", url);
    *out_origin = xasprintf("%s%.*s", is_secure ? "https://" : "http://", (int)length, host);
    *out_target = xasprintf("%s%.*s", host[length] == '/' ? "" : "/",
                            (int)strcspn(host + length, "#"), host + length);
    return 0;
}

/* Where a redirect leads, allocated; NULL when that is no address. */
static char *resolve(const char *origin, const char *location)
{
    if (location[0] == '/' && location[1] != '/')
        return xasprintf("%s%s", origin, location);
    return strstr(location, "://") ? xstrdup(location) : NULL;
}

static struct server *find_server(struct web *web, const char *origin, struct error *err)
{
    struct server *server = &web->servers[web->next];
    struct http_client *client;

    for (unsigned i = 0; i < MAX_SERVERS; i++)
        if (web->servers[i].origin && strcasecmp(web->servers[i].origin, origin) == 0)
            return &web->servers[i];
    client = http_client_new(web->loop, origin, err);
    if (!client) {
        /* A name that is not known now may be known later. */
        err->retryable = true;
        return NULL;
    }
    server_fini(server);
    *server = (struct server){ .client = client, .origin = xstrdup(origin) };
    web->next = (web->next + 1) % MAX_SERVERS;
    return server;
}

/* --- one exchange ---------------------------------------------------------------------------- */

static void visit_run(struct visit *visit, const struct server *server, const char *target,
                      const char *const *headers)
{
    static const struct http_call_handler handler = { .on_head = on_head,
                                                      .on_data = on_data,
                                                      .on_end = on_end };
    struct http_call *call;

    visit->heard_us = loop_now_us(visit->loop);
    call = http_client_request(server->client, HTTP_GET, target, NULL, "", 0, headers, &handler,
                               visit);
    while (visit->state == VISIT_RUNNING) {
        loop_turn(visit->loop, LOOK_MS);
        if (visit->state == VISIT_RUNNING &&
            loop_now_us(visit->loop) - visit->heard_us > STALL_US) {
            abandon(visit, call);
            error_set(&visit->err, ERR_TIMEOUT, "%s sent nothing for %d s", server->origin,
                      STALL_US / 1000000);
            visit->err.retryable = true;
        }
    }
}

static int visit_once(struct web *web, struct visit *visit, const char *url, bool is_trusted,
                      char **out_origin, struct error *err)
{
    const struct web_request *request = visit->request;
    const char *headers[10] = { "User-Agent", "sandglass" };
    scoped(free) char *target = NULL;
    struct server *server;
    size_t used = 2;
    char range[48];

    if (split(web, url, out_origin, &target, err) < 0)
        return -1;
    server = find_server(web, *out_origin, err);
    if (!server)
        return -1;
    if (request->accept) {
        headers[used++] = "Accept";
        headers[used++] = request->accept;
    }
    if (request->authorization && is_trusted) {
        headers[used++] = "Authorization";
        headers[used++] = request->authorization;
    }
    if (request->from > 0) {
        snprintf(range, sizeof(range), "bytes=%llu-", (unsigned long long)request->from);
        headers[used++] = "Range";
        headers[used++] = range;
    }
    visit_run(visit, server, target, headers);
    if (!visit->err.code)
        return 0;
    *err = visit->err;
    return -1;
}

int web_get(struct web *web, const struct web_request *request, struct web_answer *out,
            struct error *err)
{
    scoped(free) char *url = xstrdup(request->url);
    scoped(free) char *first = NULL;

    for (unsigned i = 0; i <= MAX_REDIRECTS; i++) {
        struct visit visit = { .request = request, .loop = web->loop };
        scoped(free) char *location = NULL;
        scoped(free) char *origin = NULL;
        bool is_trusted = i == 0; /* with the credentials: the server that was asked first */
        int result;

        if (first && strncasecmp(url, first, strlen(first)) == 0)
            is_trusted = strchr("/?", url[strlen(first)]) != NULL;
        result = visit_once(web, &visit, url, is_trusted, &origin, err);
        location = visit.location;
        if (result < 0)
            return -1;
        if (!location) {
            *out = visit.answer;
            out->is_from_elsewhere = !is_trusted;
            return 0;
        }
        free(url);
        url = resolve(origin, location);
        if (!url)
            return error_set(err, ERR_BACKEND, "%s redirects to a malformed address", origin);
        if (!first)
            first = steal_ptr(&origin);
    }
    return error_set(err, ERR_BACKEND, "%.200s is redirected too often", request->url);
}

/* --- documents ------------------------------------------------------------------------------- */

static int append(void *user, const void *data, size_t length, struct error *err)
{
    struct buffer *body = user;

    if (buffer_append(body, data, length) == 0)
        return 0;
    return error_set(err, ERR_TOO_LARGE, "the answer is larger than %zu bytes", body->maximum);
}

int web_get_document(struct web *web, const struct web_request *request, struct buffer *body,
                     struct web_answer *out, struct error *err)
{
    struct web_request whole = *request;

    buffer_clear(body);
    whole.on_data = append;
    whole.user = body;
    return web_get(web, &whole, out, err);
}

void web_sleep(struct web *web, int64_t ms)
{
    int64_t until_us = loop_now_us(web->loop) + ms * 1000;

    while (loop_now_us(web->loop) < until_us)
        loop_turn(web->loop, (until_us - loop_now_us(web->loop)) / 1000 + 1);
}
