/* SPDX-License-Identifier: Apache-2.0 */
#include "auth/fetch.h"

#include "base/alloc.h"
#include "loop/loop.h"
#include "net/http_client.h"

#include <string.h>

enum { LOOK_MS = 100 };

struct fetch {
    struct buffer *out; /* borrowed */
    bool too_large;
    bool done;
    int status;
    struct error err;
};

static void on_data(struct http_call *call, const uint8_t *data, size_t length)
{
    struct fetch *fetch = http_call_user(call);

    fetch->too_large |= buffer_append(fetch->out, data, length) < 0;
}

static void on_end(struct http_call *call, const struct error *err)
{
    struct fetch *fetch = http_call_user(call);

    fetch->done = true;
    fetch->status = http_call_status(call);
    if (err)
        fetch->err = *err;
}

/* "https://host" and "/path?query" of one address; both allocated. */
static int split(const char *url, char **out_server, char **out_target, struct error *err)
{
    const char *host = strstr(url, "://");
    size_t length;

    if (!host)
        return error_set(err, ERR_INVALID, "it is not an https:// address");
    host += 3;
    length = strcspn(host, "/?#");
    if (memchr(host, '@', length))
        return error_set(err, ERR_INVALID, "a URL with a password is not accepted");
    *out_server = xstrndup(url, (size_t)(host - url) + length);
    *out_target = xasprintf("%s%.*s", host[length] == '/' ? "" : "/",
                            (int)strcspn(host + length, "#"), host + length);
    return 0;
}

/* A loop of its own, so that nothing of the daemon's waits. */
static void run(struct fetch *fetch, struct loop *loop, struct http_client *client,
                const char *target, int64_t timeout_ms, const atomic_bool *cancelled)
{
    static const struct http_call_handler handler = { .on_data = on_data, .on_end = on_end };
    static const char *const headers[] = { "Accept", "application/json", NULL };
    int64_t deadline_us = loop_now_us(loop) + timeout_ms * 1000;

    (void)http_client_request(client, HTTP_GET, target, NULL, "", 0, headers, &handler, fetch);
    while (!fetch->done && !fetch->too_large && !atomic_load(cancelled) &&
           loop_now_us(loop) < deadline_us)
        loop_turn(loop, LOOK_MS);
}

static int check(const struct fetch *fetch, struct error *err)
{
    if (fetch->too_large)
        return error_set(err, ERR_TOO_LARGE, "the answer is too large");
    if (!fetch->done)
        return error_set(err, ERR_TIMEOUT, "no answer came in time");
    if (fetch->err.code) {
        *err = fetch->err;
        return *err->hint ? error_wrap(err, "%s", err->hint) : -1;
    }
    if (fetch->status != 200)
        return error_set(err, ERR_BACKEND, "the answer is status %d", fetch->status);
    return 0;
}

int fetch_document(const char *url, int64_t timeout_ms, const atomic_bool *cancelled,
                   struct buffer *out, struct error *err)
{
    scoped(loop_free) struct loop *loop = loop_new(&clock_system);
    scoped(http_client_free) struct http_client *client = NULL;
    scoped(free) char *server = NULL;
    scoped(free) char *target = NULL;
    struct fetch fetch = { .out = out };

    if (split(url, &server, &target, err) < 0)
        return error_wrap(err, "fetch %.200s", url);
    client = http_client_new(loop, server, err);
    if (!client)
        return error_wrap(err, "fetch %.200s", url);
    run(&fetch, loop, client, target, timeout_ms, cancelled);
    if (check(&fetch, err) < 0)
        return error_wrap(err, "fetch %.200s", url);
    return 0;
}
