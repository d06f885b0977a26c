/* SPDX-License-Identifier: Apache-2.0 */
/* How a call gets its connection and gives it back. */

#include "net/http_call.h"

#include <assert.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <sys/socket.h>

enum {
    CONNECT_TIMEOUT_US = 10 * 1000 * 1000,
    BACKLOG_RETRY_US = 10 * 1000,
    KEEPALIVE_IDLE_S = 30, /* a server that vanished is noticed within a minute */
    KEEPALIVE_INTERVAL_S = 10,
    KEEPALIVE_PROBES = 3,
};

static void connect_failed(struct http_call *call, int number)
{
    struct error err;

    errno = number;
    error_sys(&err, "connect to %s", call->client->url);
    err.code = ERR_UNAVAILABLE;
    err.retryable = true;
    snprintf(err.name, sizeof(err.name), "unreachable");
    call_finish(call, &err);
}

/* An idle connection has nothing to read; an end or a stray byte means that it is spent. */
static bool take_idle(struct http_call *call)
{
    struct http_client *client = call->client;
    char byte;

    if (client->fresh_posts && !call_may_repeat(call))
        return false;
    while (client->idle_count) {
        int fd = client->idle[--client->idle_count];

        if (client->is_given ||
            (recv(fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT) < 0 && errno == EAGAIN)) {
            call->connection.socket.fd = fd;
            call->connection.reused = !client->is_given;
            return true;
        }
        fd_close(fd);
    }
    return false;
}

static void connect_succeeded(struct http_call *call)
{
    struct http_client *client = call->client;

    if (client->tls) {
        io_watch_stop(&call->connection.socket);
        call->connection.socket.fd =
            tls_connect(client->tls, call->connection.socket.fd, client->name);
    }
    if (call->connection.socket.fd < 0)
        connect_failed(call, errno);
    else
        call_connected(call);
}

static void connect_try(struct http_call *call)
{
    const struct address *address = &call->client->address;

    call_enter(call, CALL_CONNECTING);
    if (connect(call->connection.socket.fd, (const struct sockaddr *)&address->storage,
                address->length) == 0) {
        connect_succeeded(call);
    } else if (errno == EAGAIN) {
        call_enter(call, CALL_BACKLOGGED);
        timer_arm_in(&call->connection.timer, BACKLOG_RETRY_US);
    } else if (errno == EINPROGRESS) {
        timer_arm_at(&call->connection.timer, call->connection.deadline_us);
        call_wake(call);
    } else {
        connect_failed(call, errno);
    }
}

/* A unix socket with a full backlog is retried by a timer: it cannot be polled for room. */
static void on_connect_timer(struct timer *timer)
{
    struct http_call *call = container_of(timer, struct http_call, connection.timer);

    if (loop_now_us(timer->loop) >= call->connection.deadline_us)
        connect_failed(call, ETIMEDOUT);
    else
        connect_try(call);
}

static void set_tcp_option(int fd, int option, int value)
{
    (void)setsockopt(fd, IPPROTO_TCP, option, &value, sizeof(value));
}

static int client_socket(const struct http_client *client)
{
    int fd =
        socket(client->address.storage.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    int on = 1;

    if (fd < 0 || client->address.is_unix)
        return fd;
    (void)setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof(on));
    set_tcp_option(fd, TCP_NODELAY, 1);
    set_tcp_option(fd, TCP_KEEPIDLE, KEEPALIVE_IDLE_S);
    set_tcp_option(fd, TCP_KEEPINTVL, KEEPALIVE_INTERVAL_S);
    set_tcp_option(fd, TCP_KEEPCNT, KEEPALIVE_PROBES);
    return fd;
}

void call_connect(struct http_call *call)
{
    struct http_client *client = call->client;

    call_enter(call, CALL_CONNECTING);
    timer_init(&call->connection.timer, client->loop, on_connect_timer);
    call->connection.deadline_us = loop_now_us(client->loop) + CONNECT_TIMEOUT_US;
    if (take_idle(call)) {
        call_connected(call);
        return;
    }
    if (client->is_given) {
        connect_failed(call, ECONNRESET);
        return;
    }
    call->connection.socket.fd = client_socket(client);
    if (call->connection.socket.fd < 0)
        connect_failed(call, errno);
    else
        connect_try(call);
}

void call_connect_ready(struct http_call *call)
{
    int number = 0;
    socklen_t length = sizeof(number);

    if (getsockopt(call->connection.socket.fd, SOL_SOCKET, SO_ERROR, &number, &length) < 0)
        number = errno;
    if (number)
        connect_failed(call, number);
    else
        connect_succeeded(call);
}

void call_give_back(struct http_call *call)
{
    struct http_client *client = call->client;

    assert(call->state == CALL_FINISHED);
    if (client->is_given || call->err.code || !call->answer.status || call->answer.status == 101 ||
        !http_parser_head(call->answer.parser)->keep_alive || call->answer.input != INPUT_OPEN ||
        call->request.sending != SENDING_ENDED || call->request.queue.pending ||
        call->answer.unparsed.length)
        return;
    if (client->idle_count == client->idle_maximum)
        fd_close(client->idle[--client->idle_count]);
    client->idle[client->idle_count++] = steal_fd(&call->connection.socket.fd);
}
