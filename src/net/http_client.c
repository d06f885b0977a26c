/* SPDX-License-Identifier: Apache-2.0 */
#include "net/http_client.h"

#include "base/alloc.h"
#include "base/str.h"
#include "net/http_call.h"

#include <stdlib.h>
#include <string.h>

enum { FETCH_TIMEOUT_MS = 60 * 1000, HEADERS_MAXIMUM = 64 * 1024 };

/* "http://a:80/" and "a:80" are both host "a:80"; a path is not part of the host. */
static char *host_of(const char *url, bool is_unix)
{
    char *host;

    if (is_unix)
        return xstrdup("localhost");
    host = strstr(url, "://");
    host = xstrdup(host ? host + 3 : url);
    host[strcspn(host, "/")] = '\0';
    return host;
}

/* The host without its port and without brackets. */
static char *name_of(const char *host)
{
    const char *end = *host == '[' ? strchr(host, ']') : strrchr(host, ':');
    size_t skip = *host == '[' ? 1 : 0;

    return xstrndup(host + skip, (end ? (size_t)(end - host) : strlen(host)) - skip);
}

struct http_client *http_client_new_with(struct loop *loop, const char *url,
                                         const struct tls_files *files, struct error *err)
{
    struct http_client *client;
    struct address address;
    struct tls *tls = NULL;

    if (address_parse(&address, url, err) < 0)
        return NULL;
    if (str_starts_with(url, "https://")) {
        tls = tls_new_client(loop, files, err);
        if (!tls)
            return NULL;
    }
    client = xnew(struct http_client);
    client->tls = tls;
    client->loop = loop;
    client->address = address;
    client->host = host_of(url, address.is_unix);
    client->name = name_of(client->host);
    client->url = xstrdup(url);
    client->headers = BUFFER_INIT(HEADERS_MAXIMUM);
    http_client_keep_idle(client, 1);
    client->timeout_ms = FETCH_TIMEOUT_MS;
    client->scratch = xmalloc(HTTP_CALL_INPUT_BYTES);
    list_init(&client->calls);
    return client;
}

int http_client_reload_files(struct http_client *client, const struct tls_files *files,
                             struct error *err)
{
    if (!client->tls || tls_reload_client(client->tls, files, err) < 0)
        return -1;
    http_client_close_idle(client);
    return 0;
}

struct http_client *http_client_new(struct loop *loop, const char *url, struct error *err)
{
    return http_client_new_with(loop, url, NULL, err);
}

struct http_client *http_client_new_on(struct loop *loop, int fd, const char *name,
                                       const char *host)
{
    struct http_client *client = xnew(struct http_client);

    client->loop = loop;
    client->is_given = true;
    client->host = xstrdup(host);
    client->name = xstrdup(name);
    client->url = xstrdup(name);
    client->headers = BUFFER_INIT(HEADERS_MAXIMUM);
    http_client_keep_idle(client, 1);
    client->idle[client->idle_count++] = fd;
    client->scratch = xmalloc(HTTP_CALL_INPUT_BYTES);
    list_init(&client->calls);
    return client;
}

void http_client_free(struct http_client *client)
{
    if (!client)
        return;
    while (!list_is_empty(&client->calls))
        call_free(list_first(&client->calls, struct http_call, link));
    http_client_close_idle(client);
    free(client->idle);
    tls_free(client->tls);
    buffer_fini(&client->headers);
    free(client->name);
    free(client->host);
    free(client->url);
    free(client->scratch);
    free(client);
}

void http_client_set_timeout(struct http_client *client, int64_t timeout_ms)
{
    client->timeout_ms = timeout_ms;
}

void http_client_set_fresh_posts(struct http_client *client)
{
    client->fresh_posts = true;
}

void http_client_keep_idle(struct http_client *client, size_t count)
{
    http_client_close_idle(client);
    client->idle = xrealloc(client->idle, count, sizeof(*client->idle));
    client->idle_maximum = count;
}

void http_client_close_idle(struct http_client *client)
{
    while (client->idle_count)
        fd_close(client->idle[--client->idle_count]);
}

void http_client_set_header(struct http_client *client, const char *name, const char *value)
{
    (void)http_put_header(&client->headers, name, value);
}

/* --- fetching ------------------------------------------------------------------------------ */

struct fetch {
    struct buffer *body; /* borrowed; may be NULL */
    int status;
    bool finished;
    struct error err;
};

static void on_fetch_data(struct http_call *call, const uint8_t *data, size_t length)
{
    struct fetch *fetch = http_call_user(call);

    if (fetch->body)
        (void)buffer_append(fetch->body, data, length);
}

static void on_fetch_end(struct http_call *call, const struct error *err)
{
    struct fetch *fetch = http_call_user(call);

    fetch->finished = true;
    fetch->status = http_call_status(call);
    if (err)
        fetch->err = *err;
}

int http_client_fetch(struct http_client *client, enum http_method method, const char *target,
                      const char *content_type, const void *body, size_t body_length,
                      struct buffer *out_body, struct error *err)
{
    static const struct http_call_handler handler = { .on_data = on_fetch_data,
                                                      .on_end = on_fetch_end };
    struct fetch fetch = { .body = out_body };
    int64_t deadline_us = loop_now_us(client->loop) + client->timeout_ms * 1000;
    struct http_call *call;

    if (out_body)
        buffer_clear(out_body);
    call = http_client_request(client, method, target, content_type, body, (int64_t)body_length,
                               NULL, &handler, &fetch);
    while (!fetch.finished) {
        int64_t left_ms = (deadline_us - loop_now_us(client->loop)) / 1000 + 1;

        if (client->timeout_ms && left_ms <= 0) {
            http_call_cancel(call);
            return error_set(err, ERR_TIMEOUT, "%s did not answer in time", client->url);
        }
        loop_turn(client->loop, client->timeout_ms ? left_ms : -1);
    }
    if (fetch.err.code) {
        if (err)
            *err = fetch.err;
        return -1;
    }
    if (out_body && out_body->overflowed)
        return error_set(err, ERR_TOO_LARGE, "the answer of %s is too large", client->url);
    return fetch.status;
}
