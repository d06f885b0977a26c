/* SPDX-License-Identifier: Apache-2.0 */
#include "fixture.h"

#include "base/alloc.h"

#include <arpa/inet.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cmocka.h>

void fixture_start(struct fixture *fixture, const struct http_server_limits *limits,
                   http_request_fn *on_request)
{
    fixture_start_by(fixture, &clock_system, limits, on_request);
}

void fixture_start_by(struct fixture *fixture, const struct clock *clock,
                      const struct http_server_limits *limits, http_request_fn *on_request)
{
    struct error err = { 0 };
    char address[128];

    *fixture = (struct fixture){ .loop = loop_new(clock) };
    snprintf(fixture->directory, sizeof(fixture->directory), "/tmp/sandglass-net-XXXXXX");
    assert_non_null(mkdtemp(fixture->directory));
    snprintf(fixture->socket_path, sizeof(fixture->socket_path), "%s/s", fixture->directory);
    fixture->server = http_server_new(fixture->loop, limits, on_request, fixture);
    snprintf(address, sizeof(address), "unix:%s", fixture->socket_path);
    if (http_server_listen(fixture->server, address, &err) < 0 ||
        http_server_listen(fixture->server, "127.0.0.1:0", &err) < 0)
        fail_msg("%s", err.message);
}

void fixture_stop(struct fixture *fixture)
{
    http_server_free(fixture->server);
    loop_free(fixture->loop);
    assert_int_equal(access(fixture->socket_path, F_OK), -1);
    assert_int_equal(rmdir(fixture->directory), 0);
}

static void peer_init(struct peer *peer, struct fixture *fixture, int fd)
{
    assert_true(fd >= 0);
    *peer = (struct peer){ .fixture = fixture, .fd = fd, .received = BUFFER_INIT(256 << 20) };
}

void peer_open_unix(struct peer *peer, struct fixture *fixture)
{
    struct sockaddr_un address = { .sun_family = AF_UNIX };

    peer_init(peer, fixture, socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
    snprintf(address.sun_path, sizeof(address.sun_path), "%s", fixture->socket_path);
    assert_int_equal(connect(peer->fd, (struct sockaddr *)&address, sizeof(address)), 0);
    assert_int_equal(fcntl(peer->fd, F_SETFL, O_NONBLOCK), 0);
}

void peer_open_tcp(struct peer *peer, struct fixture *fixture)
{
    struct sockaddr_in address = {
        .sin_family = AF_INET,
        .sin_port = htons((uint16_t)http_server_port(fixture->server)),
        .sin_addr.s_addr = htonl(INADDR_LOOPBACK),
    };

    peer_init(peer, fixture, socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    assert_int_equal(connect(peer->fd, (struct sockaddr *)&address, sizeof(address)), 0);
    assert_int_equal(fcntl(peer->fd, F_SETFL, O_NONBLOCK), 0);
}

void peer_close(struct peer *peer)
{
    fd_close(peer->fd);
    peer->fd = -1;
    buffer_fini(&peer->received);
}

bool peer_poll(struct peer *peer)
{
    char bytes[65536];
    ssize_t length = recv(peer->fd, bytes, sizeof(bytes), 0);

    if (length > 0)
        return buffer_append(&peer->received, bytes, (size_t)length) == 0;
    if (length == 0)
        peer->ended = true;
    else if (errno != EAGAIN)
        peer->ended = peer->reset = true;
    return false;
}

void peer_send(struct peer *peer, const void *data, size_t length)
{
    const char *from = data;

    while (length) {
        ssize_t sent = send(peer->fd, from, length, MSG_NOSIGNAL);

        if (sent > 0) {
            from += sent;
            length -= (size_t)sent;
        } else {
            assert_int_equal(errno, EAGAIN);
            loop_turn(peer->fixture->loop, 1);
            while (peer_poll(peer))
                ;
        }
    }
}

void peer_send_text(struct peer *peer, const char *text)
{
    peer_send(peer, text, strlen(text));
}

bool peer_has(struct peer *peer, const char *text)
{
    while (peer_poll(peer))
        ;
    return memmem(buffer_text(&peer->received), peer->received.length, text, strlen(text)) != NULL;
}

unsigned peer_count(struct peer *peer, const char *text)
{
    const char *at = buffer_text(&peer->received);
    unsigned count = 0;

    for (; (at = strstr(at, text)); at += strlen(text))
        count++;
    return count;
}

void peer_expect(struct peer *peer, const char *text)
{
    fixture_wait(peer->fixture, peer_has(peer, text) || peer->ended);
    if (!peer_has(peer, text))
        fail_msg("\"%s\" did not come, but: %.400s", text, buffer_text(&peer->received));
}

void peer_expect_end(struct peer *peer)
{
    fixture_wait(peer->fixture, (peer_has(peer, "\n"), peer->ended));
}

/* Reads one response as far as it has come; true when it is whole. */
static bool response_parse(struct peer *peer, struct buffer *body, int *out_status)
{
    scoped(http_parser_free) struct http_parser *parser = http_parser_new(HTTP_KIND_RESPONSE, NULL);
    size_t at = 0;

    if (body)
        buffer_clear(body);
    for (;;) {
        const uint8_t *data;
        size_t length;
        size_t used;
        enum http_event event = http_parser_feed(parser, peer->received.data + at,
                                                 peer->received.length - at, &used, &data, &length);

        at += used;
        assert_int_not_equal(event, HTTP_BAD);
        if (event == HTTP_NEED_MORE && peer->ended)
            event = http_parser_eof(parser);
        if (event == HTTP_NEED_MORE || event == HTTP_BAD)
            return false;
        if (event == HTTP_BODY && body)
            buffer_append(body, data, length);
        if (event == HTTP_DONE) {
            *out_status = http_parser_head(parser)->status;
            buffer_consume(&peer->received, at);
            return true;
        }
    }
}

int peer_read_response(struct peer *peer, struct buffer *body)
{
    int status = 0;

    fixture_wait(peer->fixture,
                 (peer_has(peer, "\n"), response_parse(peer, body, &status)) || peer->ended);
    return status;
}

size_t count_open_files(void)
{
    DIR *directory = opendir("/proc/self/fd");
    size_t count = 0;

    assert_non_null(directory);
    while (readdir(directory))
        count++;
    closedir(directory);
    return count;
}
