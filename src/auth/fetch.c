#include "auth/fetch.h"

#include "base/alloc.h"
#include "base/clock.h"
#include "base/str.h"
#include "wire/http.h"

#include <errno.h>
#include <netdb.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>

enum { LOOK_MS = 100, READ_BYTES = 16 * 1024 };

struct fetch {
    bool secure;
    char *host, *port; /* owned */
    char *authority;   /* owned: for the Host header */
    const char *target;
    int64_t deadline_us;
    const atomic_bool *cancelled; /* borrowed */
    int fd;                       /* owned */
    SSL_CTX *context;             /* owned */
    SSL *ssl;                     /* owned */
};

static void fetch_fini(struct fetch *fetch)
{
    SSL_free(fetch->ssl);
    SSL_CTX_free(fetch->context);
    fd_close(fetch->fd);
    free(fetch->host);
    free(fetch->port);
    free(fetch->authority);
}

static void scoped_fetch_fini(struct fetch *fetch)
{
    fetch_fini(fetch);
}

/* --- where ----------------------------------------------------------------------------------- */

static int read_host(struct fetch *fetch, const char *authority, size_t length, struct error *err)
{
    const char *end = authority + length;
    const char *bracket = *authority == '[' ? memchr(authority, ']', length) : NULL;
    const char *colon = bracket ? bracket + 1 : memchr(authority, ':', length);

    if (bracket && (colon == end || *colon != ':'))
        colon = NULL;
    if (length == 0 || memchr(authority, '@', length) || colon == authority)
        return error_set(err, ERR_INVALID, "there is no host in the address");
    fetch->authority = xstrndup(authority, length);
    fetch->host = bracket ? xstrndup(authority + 1, (size_t)(bracket - authority - 1))
                          : xstrndup(authority, (size_t)((colon ? colon : end) - authority));
    fetch->port = colon ? xstrndup(colon + 1, (size_t)(end - colon - 1))
                        : xstrdup(fetch->secure ? "443" : "80");
    return 0;
}

static int read_url(struct fetch *fetch, const char *url, struct error *err)
{
    const char *rest;

    fetch->secure = str_starts_with(url, "https://");
    if (!fetch->secure && !str_starts_with(url, "http://"))
        return error_set(err, ERR_INVALID, "%.200s is not an https:// address", url);
    rest = strstr(url, "://") + 3;
    fetch->target = rest + strcspn(rest, "/?#");
    return read_host(fetch, rest, strcspn(rest, "/?#"), err);
}

/* --- waiting --------------------------------------------------------------------------------- */

static int fetch_wait(struct fetch *fetch, short events, struct error *err)
{
    struct pollfd look = { .fd = fetch->fd, .events = events };

    for (;;) {
        int64_t left_us = fetch->deadline_us - clock_now_us(&clock_system);

        if (atomic_load(fetch->cancelled))
            return error_set(err, ERR_UNAVAILABLE, "given up");
        if (left_us <= 0)
            return error_set(err, ERR_TIMEOUT, "%s does not answer in time", fetch->authority);
        if (poll(&look, 1, LOOK_MS) > 0)
            return 0;
    }
}

static int connect_to(struct fetch *fetch, const struct addrinfo *address, struct error *err)
{
    int failure = 0;
    socklen_t length = sizeof(failure);

    fd_close(fetch->fd);
    fetch->fd = socket(address->ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fetch->fd < 0)
        return error_sys(err, "open a socket");
    if (connect(fetch->fd, address->ai_addr, address->ai_addrlen) < 0 && errno != EINPROGRESS)
        return error_sys(err, "connect to %s", fetch->authority);
    if (fetch_wait(fetch, POLLOUT, err) < 0)
        return -1;
    if (getsockopt(fetch->fd, SOL_SOCKET, SO_ERROR, &failure, &length) < 0 || failure) {
        errno = failure;
        return error_sys(err, "connect to %s", fetch->authority);
    }
    return 0;
}

static int fetch_connect(struct fetch *fetch, struct error *err)
{
    struct addrinfo hints = { .ai_socktype = SOCK_STREAM };
    struct addrinfo *list = NULL;
    int result = getaddrinfo(fetch->host, fetch->port, &hints, &list);

    if (result != 0)
        return error_set(err, ERR_UNAVAILABLE, "find %s: %s", fetch->host, gai_strerror(result));
    result = -1;
    for (const struct addrinfo *address = list; address && result < 0; address = address->ai_next)
        result = connect_to(fetch, address, err);
    freeaddrinfo(list);
    return result;
}

/* --- TLS ------------------------------------------------------------------------------------- */

/* What OpenSSL waits for; -1 when it has failed. */
static int ssl_wait(struct fetch *fetch, int result, const char *what, struct error *err)
{
    char reason[200] = "the connection was cut";
    unsigned long number;

    switch (SSL_get_error(fetch->ssl, result)) {
    case SSL_ERROR_WANT_READ:
        return fetch_wait(fetch, POLLIN, err);
    case SSL_ERROR_WANT_WRITE:
        return fetch_wait(fetch, POLLOUT, err);
    }
    number = ERR_get_error();
    if (number)
        ERR_error_string_n(number, reason, sizeof(reason));
    ERR_clear_error();
    return error_set(err, ERR_UNAVAILABLE, "%s %s: %s", what, fetch->authority, reason);
}

static int fetch_secure(struct fetch *fetch, struct error *err)
{
    int result;

    if (!fetch->secure)
        return 0;
    fetch->context = SSL_CTX_new(TLS_client_method());
    if (!fetch->context || !SSL_CTX_set_default_verify_paths(fetch->context) ||
        !SSL_CTX_set_min_proto_version(fetch->context, TLS1_2_VERSION))
        return error_set(err, ERR_INTERNAL, "set up TLS");
    SSL_CTX_set_verify(fetch->context, SSL_VERIFY_PEER, NULL);
    fetch->ssl = SSL_new(fetch->context);
    if (!fetch->ssl || !SSL_set_fd(fetch->ssl, fetch->fd) ||
        !SSL_set1_host(fetch->ssl, fetch->host) ||
        !SSL_set_tlsext_host_name(fetch->ssl, fetch->host))
        return error_set(err, ERR_INTERNAL, "set up TLS");
    while ((result = SSL_connect(fetch->ssl)) != 1)
        if (ssl_wait(fetch, result, "speak TLS with", err) < 0)
            return -1;
    return 0;
}

/* --- bytes ----------------------------------------------------------------------------------- */

static int fetch_send(struct fetch *fetch, const void *data, size_t length, struct error *err)
{
    size_t done = 0;

    while (done < length) {
        const char *at = (const char *)data + done;
        ssize_t sent = fetch->ssl ? SSL_write(fetch->ssl, at, (int)(length - done))
                                  : send(fetch->fd, at, length - done, MSG_NOSIGNAL);

        if (sent > 0)
            done += (size_t)sent;
        else if (fetch->ssl && ssl_wait(fetch, (int)sent, "write to", err) < 0)
            return -1;
        else if (!fetch->ssl && errno != EAGAIN && errno != EINTR)
            return error_sys(err, "write to %s", fetch->authority);
        else if (!fetch->ssl && fetch_wait(fetch, POLLOUT, err) < 0)
            return -1;
    }
    return 0;
}

/* How many bytes came; 0 at the end, -1 on failure. */
static ssize_t fetch_receive(struct fetch *fetch, void *data, size_t size, struct error *err)
{
    for (;;) {
        ssize_t length = fetch->ssl ? SSL_read(fetch->ssl, data, (int)size)
                                    : recv(fetch->fd, data, size, 0);

        if (length > 0)
            return length;
        if (!fetch->ssl && length == 0)
            return 0;
        if (fetch->ssl && SSL_get_error(fetch->ssl, (int)length) == SSL_ERROR_ZERO_RETURN)
            return 0;
        if (fetch->ssl && ssl_wait(fetch, (int)length, "read from", err) < 0)
            return -1;
        if (!fetch->ssl && errno != EAGAIN && errno != EINTR)
            return error_sys(err, "read from %s", fetch->authority);
        if (!fetch->ssl && fetch_wait(fetch, POLLIN, err) < 0)
            return -1;
    }
}

/* --- HTTP ------------------------------------------------------------------------------------ */

static int fetch_ask(struct fetch *fetch, struct error *err)
{
    scoped(buffer_fini) struct buffer head = BUFFER_INIT(16 * 1024);

    buffer_appendf(&head, "GET %s%.*s HTTP/1.1\r\n", *fetch->target == '/' ? "" : "/",
                   (int)strcspn(fetch->target, "#"), fetch->target);
    http_put_header(&head, "Host", fetch->authority);
    http_put_header(&head, "Accept", "application/json");
    http_put_header(&head, "Connection", "close");
    buffer_append_text(&head, "\r\n");
    if (head.overflowed)
        return error_set(err, ERR_INVALID, "the address is too long");
    return fetch_send(fetch, head.data, head.length, err);
}

/* 1 when the answer is complete, 0 when more is needed, -1 when it cannot be taken. */
static int take_bytes(struct http_parser *parser, const uint8_t *data, size_t length,
                      struct buffer *out, struct error *err)
{
    for (;;) {
        const uint8_t *body = NULL;
        size_t body_length = 0;
        size_t used = 0;

        switch (http_parser_feed(parser, data, length, &used, &body, &body_length)) {
        case HTTP_NEED_MORE:
            return 0;
        case HTTP_DONE:
            return 1;
        case HTTP_BAD:
            return error_set(err, ERR_BACKEND, "the answer is malformed: %s",
                             http_parser_reason(parser));
        case HTTP_HEAD_DONE:
            if (http_parser_head(parser)->status != 200)
                return error_set(err, ERR_BACKEND, "the answer is status %d",
                                 http_parser_head(parser)->status);
            break;
        case HTTP_BODY:
            if (buffer_append(out, body, body_length) < 0)
                return error_set(err, ERR_TOO_LARGE, "the answer is too large");
            break;
        }
        data += used;
        length -= used;
    }
}

static int fetch_read(struct fetch *fetch, struct buffer *out, struct error *err)
{
    scoped(http_parser_free) struct http_parser *parser = http_parser_new(HTTP_KIND_RESPONSE, NULL);
    uint8_t data[READ_BYTES];

    for (;;) {
        ssize_t length = fetch_receive(fetch, data, sizeof(data), err);
        int taken;

        if (length < 0)
            return -1;
        if (length == 0 && http_parser_eof(parser) != HTTP_DONE)
            return error_set(err, ERR_BACKEND, "the answer was cut off");
        if (length == 0)
            return 0;
        taken = take_bytes(parser, data, (size_t)length, out, err);
        if (taken != 0)
            return taken < 0 ? -1 : 0;
    }
}

int fetch_document(const char *url, int64_t timeout_ms, const atomic_bool *cancelled,
                   struct buffer *out, struct error *err)
{
    scoped(fetch_fini) struct fetch fetch = {
        .fd = -1,
        .deadline_us = clock_now_us(&clock_system) + timeout_ms * 1000,
        .cancelled = cancelled,
    };

    if (read_url(&fetch, url, err) < 0 || fetch_connect(&fetch, err) < 0 ||
        fetch_secure(&fetch, err) < 0 || fetch_ask(&fetch, err) < 0 ||
        fetch_read(&fetch, out, err) < 0)
        return error_wrap(err, "fetch %.200s", url);
    return 0;
}
