/* SPDX-License-Identifier: Apache-2.0 */
#include "bench/client.h"

#include "base/alloc.h"
#include "base/str.h"

#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>

enum { REQUEST_MAXIMUM = 1 << 20, BODY_MAXIMUM = 64 << 20, READ_BYTES = 256 << 10, WAIT_S = 120 };

/* --- sockets --------------------------------------------------------------------------------- */

static int connect_unix(const char *path, struct error *err)
{
    struct sockaddr_un address = { .sun_family = AF_UNIX };
    scoped(fd_close) int fd = -1;

    if (strlen(path) >= sizeof(address.sun_path))
        return error_set(err, ERR_INVALID, "the path of the socket is too long: %s", path);
    memcpy(address.sun_path, path, strlen(path) + 1);
    fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0 || connect(fd, (struct sockaddr *)&address, sizeof(address)) < 0)
        return error_sys(err, "connect to %s", path);
    return steal_fd(&fd);
}

static int connect_tcp(const char *place, struct error *err)
{
    scoped(free) char *host = xstrdup(place);
    char *port = strrchr(host, ':');
    struct addrinfo hints = { .ai_socktype = SOCK_STREAM };
    struct addrinfo *found = NULL;
    scoped(fd_close) int fd = -1;
    int result;

    if (!port)
        return error_set(err, ERR_INVALID, "%s is not HOST:PORT", place);
    *port++ = '\0';
    port[strcspn(port, "/")] = '\0';
    if (getaddrinfo(host, port, &hints, &found) != 0)
        return error_set(err, ERR_UNAVAILABLE, "nobody knows the address of %s", place);
    fd = socket(found->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    result = fd < 0 ? -1 : connect(fd, found->ai_addr, found->ai_addrlen);
    freeaddrinfo(found);
    if (result < 0)
        return error_sys(err, "connect to %s", place);
    (void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &(int){ 1 }, sizeof(int));
    return steal_fd(&fd);
}

int bench_connect(const char *url, struct error *err)
{
    struct timeval wait = { .tv_sec = WAIT_S };
    int fd;

    if (str_starts_with(url, "https:"))
        return error_set(err, ERR_INVALID, "only unix:PATH and HOST:PORT are measured, not %s",
                         url);
    if (str_starts_with(url, "unix:"))
        fd = connect_unix(url + strlen("unix:"), err);
    else
        fd = connect_tcp(str_starts_with(url, "http://") ? url + strlen("http://") : url, err);
    if (fd >= 0) {
        (void)setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &wait, sizeof(wait));
        (void)setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &wait, sizeof(wait));
    }
    return fd;
}

static int send_all(int fd, const void *data, size_t length, struct error *err)
{
    const char *at = data;

    while (length > 0) {
        ssize_t sent = send(fd, at, length, MSG_NOSIGNAL);

        if (sent < 0 && errno == EINTR)
            continue;
        if (sent < 0)
            return error_sys(err, "send");
        at += sent;
        length -= (size_t)sent;
    }
    return 0;
}

/* --- the client ------------------------------------------------------------------------------ */

static void add_variable(struct buffer *lines, const char *header, const char *prefix,
                         const char *variable)
{
    const char *value = getenv(variable);

    if (str_is_empty(value))
        return;
    buffer_appendf(lines, "%s: %s", header, prefix);
    buffer_appendf(lines, "%s\r\n", value);
}

void bench_client_init(struct bench_client *client, const char *url)
{
    scoped(buffer_fini) struct buffer lines = BUFFER_INIT(REQUEST_MAXIMUM);

    buffer_append_text(&lines, "Host: localhost\r\n");
    add_variable(&lines, "Authorization", "Bearer ", "SANDGLASS_API_KEY");
    add_variable(&lines, "X-Sandglass-On-Behalf-Of", "", "SANDGLASS_ON_BEHALF_OF");
    *client = (struct bench_client){
        .url = xstrdup(url),
        .headers = buffer_steal_text(&lines),
        .fd = -1,
        .parser = http_parser_new(HTTP_KIND_RESPONSE, NULL),
        .request = BUFFER_INIT(REQUEST_MAXIMUM),
        .body = BUFFER_INIT(BODY_MAXIMUM),
        .input = BUFFER_INIT(READ_BYTES),
    };
}

static void hang_up(struct bench_client *client)
{
    fd_close(steal_fd(&client->fd));
    http_parser_free(client->parser);
    client->parser = http_parser_new(HTTP_KIND_RESPONSE, NULL);
    buffer_clear(&client->input);
}

void bench_client_fini(struct bench_client *client)
{
    fd_close(client->fd);
    http_parser_free(client->parser);
    free(client->url);
    free(client->headers);
    buffer_fini(&client->request);
    buffer_fini(&client->body);
    buffer_fini(&client->input);
}

static int write_head(struct bench_client *client, enum http_method method, const char *target,
                      const char *type, uint64_t length, struct error *err)
{
    buffer_clear(&client->request);
    buffer_appendf(&client->request, "%s %s HTTP/1.1\r\n%s", http_method_name(method), target,
                   client->headers);
    if (type)
        buffer_appendf(&client->request, "Content-Type: %s\r\nContent-Length: %llu\r\n", type,
                       (unsigned long long)length);
    buffer_append_text(&client->request, "\r\n");
    if (client->fd < 0)
        client->fd = bench_connect(client->url, err);
    return client->fd < 0 ? -1 : 0;
}

/* Where the answer goes: the body is kept, or only counted. */
struct answer {
    int status;
    bool keep_alive;
    uint64_t *counted; /* NULL: keep the body */
};

/* Everything that lies in client->input; true at the end of the message. */
static int digest(struct bench_client *client, struct answer *answer, size_t length,
                  struct error *err)
{
    const uint8_t *data = client->input.data;
    const uint8_t *body;
    size_t used, body_length;

    for (;; data += used, length -= used) {
        switch (http_parser_feed(client->parser, data, length, &used, &body, &body_length)) {
        case HTTP_NEED_MORE:
            return 0;
        case HTTP_HEAD_DONE:
            answer->status = http_parser_head(client->parser)->status;
            answer->keep_alive = http_parser_head(client->parser)->keep_alive;
            break;
        case HTTP_BODY:
            if (answer->counted && answer->status < 400)
                *answer->counted += body_length;
            else if (buffer_append(&client->body, body, body_length) < 0)
                return error_set(err, ERR_TOO_LARGE, "the answer is too large");
            break;
        case HTTP_DONE:
            return 1;
        case HTTP_BAD:
            return error_set(err, ERR_BACKEND, "malformed answer: %s",
                             http_parser_reason(client->parser));
        }
    }
}

/* A blocking recv() of a unix socket wakes up when the server takes the request, too. */
static ssize_t wait_and_receive(int fd, void *place, size_t room)
{
    struct pollfd watch = { .fd = fd, .events = POLLIN };

    return poll(&watch, 1, -1) < 0 ? -1 : recv(fd, place, room, 0);
}

static int receive(struct bench_client *client, struct answer *answer, struct error *err)
{
    uint8_t *place = buffer_reserve(&client->input, READ_BYTES);
    int ended = 0;

    while (ended == 0) {
        ssize_t got = wait_and_receive(client->fd, place, READ_BYTES);

        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            return error_sys(err, "receive");
        if (got == 0 && http_parser_eof(client->parser) != HTTP_DONE)
            return error_set(err, ERR_UNAVAILABLE, "the server closed the connection");
        ended = got == 0 ? 1 : digest(client, answer, (size_t)got, err);
        answer->keep_alive = answer->keep_alive && got > 0;
    }
    if (ended > 0)
        http_parser_next(client->parser);
    return ended < 0 ? -1 : 0;
}

static int finish(struct bench_client *client, const char *target, uint64_t *out_bytes,
                  struct error *err)
{
    struct answer answer = { .counted = out_bytes };

    buffer_clear(&client->body);
    if (out_bytes)
        *out_bytes = 0;
    if (receive(client, &answer, err) < 0) {
        hang_up(client);
        return error_wrap(err, "%s", target);
    }
    if (!answer.keep_alive)
        hang_up(client);
    if (answer.status >= 400)
        return error_set(err, ERR_BACKEND, "%s: %d %.200s", target, answer.status,
                         buffer_text(&client->body));
    return answer.status;
}

int bench_client_drain(struct bench_client *client, enum http_method method, const char *target,
                       const char *body, uint64_t *out_bytes, struct error *err)
{
    size_t length = body ? strlen(body) : 0;

    if (write_head(client, method, target, body ? "application/json" : NULL, length, err) < 0)
        return -1;
    if (body)
        buffer_append(&client->request, body, length);
    if (send_all(client->fd, client->request.data, client->request.length, err) < 0) {
        hang_up(client);
        return -1;
    }
    return finish(client, target, out_bytes, err);
}

int bench_client_call(struct bench_client *client, enum http_method method, const char *target,
                      const char *body, struct error *err)
{
    return bench_client_drain(client, method, target, body, NULL, err);
}

int bench_client_upload(struct bench_client *client, const char *target, const char *type,
                        uint64_t length, struct error *err)
{
    static const char block[READ_BYTES];

    if (write_head(client, HTTP_PUT, target, type, length, err) < 0 ||
        send_all(client->fd, client->request.data, client->request.length, err) < 0)
        return -1;
    while (length > 0) {
        size_t part = (size_t)MIN(length, (uint64_t)sizeof(block));

        if (send_all(client->fd, block, part, err) < 0)
            return -1;
        length -= part;
    }
    return finish(client, target, NULL, err);
}

int bench_client_put(struct bench_client *client, const char *target, const char *type,
                     const void *bytes, size_t length, struct error *err)
{
    if (write_head(client, HTTP_PUT, target, type, length, err) < 0 ||
        send_all(client->fd, client->request.data, client->request.length, err) < 0 ||
        send_all(client->fd, bytes, length, err) < 0)
        return -1;
    return finish(client, target, NULL, err);
}

int bench_client_find(const struct bench_client *client, const char *mark, char *out, size_t size,
                      struct error *err)
{
    const struct buffer *answer = &client->body;
    const char *found = memmem(answer->data, answer->length, mark, strlen(mark));
    const char *begin = found ? found + strlen(mark) : NULL;
    size_t left = begin ? answer->length - (size_t)(begin - (const char *)answer->data) : 0;
    const char *end = begin ? memchr(begin, '"', left) : NULL;

    if (!end || (size_t)(end - begin) >= size)
        return error_set(err, ERR_BACKEND, "the answer has no %s", mark);
    memcpy(out, begin, (size_t)(end - begin));
    out[end - begin] = '\0';
    return 0;
}
