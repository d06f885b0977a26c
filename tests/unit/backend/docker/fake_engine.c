/* SPDX-License-Identifier: Apache-2.0 */
#include "fake_engine.h"

#include "base/str.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cmocka.h>

void fake_hang_up(struct fake_connection *connection)
{
    if (connection->socket.fd < 0)
        return;
    io_watch_stop(&connection->socket);
    close(connection->socket.fd);
    connection->socket.fd = -1;
    buffer_fini(&connection->received);
}

void fake_send(struct fake_connection *connection, const void *data, size_t length)
{
    const char *at = data;

    while (length) {
        ssize_t sent = send(connection->socket.fd, at, length, MSG_NOSIGNAL);

        if (sent < 0) {
            assert_int_equal(errno, EAGAIN);
            loop_turn(connection->engine->loop, 1);
            continue;
        }
        at += sent;
        length -= (size_t)sent;
    }
}

void fake_send_text(struct fake_connection *connection, const char *text)
{
    fake_send(connection, text, strlen(text));
}

void fake_answer(struct fake_connection *connection, int status, const char *type, const char *body)
{
    char head[512];
    int length =
        snprintf(head, sizeof(head),
                 "HTTP/1.1 %d Some Words\r\nContent-Type: %s\r\nContent-Length: %zu\r\n\r\n",
                 status, type, strlen(body));

    fake_send(connection, head, (size_t)length);
    fake_send_text(connection, body);
}

void fake_become_raw(struct fake_connection *connection)
{
    connection->state = FAKE_RAW;
}

static void answer_ping(struct fake_connection *connection)
{
    char answer[256];

    snprintf(answer, sizeof(answer),
             "HTTP/1.1 200 OK\r\nApi-Version: %s\r\nDate: Tue, 17 Nov 2026 11:05:55 GMT\r\n"
             "Content-Length: 2\r\nContent-Type: text/plain; charset=utf-8\r\n\r\nOK",
             connection->engine->version);
    fake_send_text(connection, answer);
}

/* Length of the first request, 0 when it is not whole. */
static size_t request_length(struct fake_connection *connection)
{
    const char *text = buffer_text(&connection->received);
    const char *end = strstr(text, "\r\n\r\n");
    const char *length = strcasestr(text, "\r\nContent-Length:");
    size_t head = end ? (size_t)(end - text) + 4 : 0;
    size_t body = length && end && length < end ? strtoul(length + 17, NULL, 10) : 0;

    return head && connection->received.length >= head + body ? head + body : 0;
}

static void take_request(struct fake_connection *connection, size_t length)
{
    struct fake_engine *fake = connection->engine;
    char *text = strndup(buffer_text(&connection->received), length);
    char *body = strstr(text, "\r\n\r\n") + 4;
    char *method = text;
    char *target = strchr(text, ' ') + 1;

    target[-1] = '\0';
    *strchr(target, ' ') = '\0';
    buffer_consume(&connection->received, length);
    connection->requests++;
    if (strcmp(target, "/_ping") == 0)
        fake->pings++;
    else
        fake->requests++;
    if (strcmp(target, "/_ping") == 0 && fake->version) {
        answer_ping(connection);
    } else {
        fake->last = connection;
        snprintf(fake->last_target, sizeof(fake->last_target), "%s", target);
        snprintf(fake->last_body, sizeof(fake->last_body), "%s", body);
        fake->on_request(connection, method, target, body);
    }
    free(text);
}

static void on_ready(struct io_watch *watch, unsigned events UNUSED)
{
    struct fake_connection *connection = container_of(watch, struct fake_connection, socket);
    char bytes[65536];
    ssize_t length = recv(watch->fd, bytes, sizeof(bytes), 0);
    size_t whole;

    if (length > 0) {
        buffer_append(&connection->received, bytes, (size_t)length);
    } else if (length == 0 && connection->state == FAKE_RAW) {
        connection->ended = true;
        io_watch_stop(watch);
    } else if (length == 0 || errno != EAGAIN) {
        fake_hang_up(connection);
        return;
    }
    while (watch->fd >= 0 && connection->state == FAKE_ASKING &&
           (whole = request_length(connection)))
        take_request(connection, whole);
}

static void on_door(struct io_watch *watch, unsigned events UNUSED)
{
    struct fake_engine *fake = container_of(watch, struct fake_engine, door);
    int fd = accept4(watch->fd, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
    struct fake_connection *connection = fake->connections;

    assert_true(fd >= 0);
    while (connection->socket.fd >= 0)
        assert_true(++connection < fake->connections + FAKE_CONNECTIONS);
    *connection = (struct fake_connection){ .engine = fake, .received = BUFFER_INIT(64 << 20) };
    fake->accepted++;
    io_watch_start(&connection->socket, fake->loop, fd, IO_READ, on_ready);
}

void fake_engine_open_door(struct fake_engine *fake)
{
    struct sockaddr_un address = { .sun_family = AF_UNIX };
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);

    snprintf(address.sun_path, sizeof(address.sun_path), "%s", fake->path);
    (void)unlink(fake->path);
    assert_int_equal(bind(fd, (struct sockaddr *)&address, sizeof(address)), 0);
    assert_int_equal(listen(fd, 64), 0);
    io_watch_start(&fake->door, fake->loop, fd, IO_READ, on_door);
}

void fake_engine_start(struct fake_engine *fake, struct loop *loop, fake_request_fn *on_request)
{
    *fake = (struct fake_engine){ .loop = loop, .on_request = on_request, .version = "1.41" };
    for (size_t i = 0; i < FAKE_CONNECTIONS; i++)
        fake->connections[i].socket.fd = -1;
    snprintf(fake->directory, sizeof(fake->directory), "/tmp/sandglass-engine-XXXXXX");
    assert_non_null(mkdtemp(fake->directory));
    snprintf(fake->path, sizeof(fake->path), "%s/s", fake->directory);
    snprintf(fake->host, sizeof(fake->host), "unix://%s", fake->path);
    fake_engine_open_door(fake);
}

void fake_engine_close_door(struct fake_engine *fake)
{
    for (size_t i = 0; i < FAKE_CONNECTIONS; i++)
        fake_hang_up(&fake->connections[i]);
    if (fake->door.fd < 0)
        return;
    io_watch_stop(&fake->door);
    close(fake->door.fd);
    fake->door.fd = -1;
}

void fake_engine_stop(struct fake_engine *fake)
{
    fake_engine_close_door(fake);
    (void)unlink(fake->path);
    assert_int_equal(rmdir(fake->directory), 0);
}
