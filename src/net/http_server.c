/* SPDX-License-Identifier: Apache-2.0 */
#include "net/http_server.h"

#include "base/alloc.h"
#include "net/http_connection.h"
#include "net/peer.h"
#include "net/tls.h"

#include <assert.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Connections over the limit that are sent a refusal; with more of them the next is only closed. */
enum { REFUSED_AT_ONCE = 64 };

const struct http_server_limits http_server_default_limits = {
    .message = {
        .line_bytes = 8 * 1024,
        .head_bytes = 64 * 1024,
        .header_count = 100,
        .body_bytes = UINT64_MAX,
    },
    .connections = 4096,
    .head_timeout_ms = 10 * 1000,
    .body_timeout_ms = 60 * 1000,
    .idle_timeout_ms = 75 * 1000,
    .write_timeout_ms = 60 * 1000,
};

/* sendfile has no flag against SIGPIPE; a program that handles the signal is left alone. */
static void ignore_sigpipe(void)
{
    struct sigaction action;

    if (sigaction(SIGPIPE, NULL, &action) == 0 && action.sa_handler == SIG_DFL)
        signal(SIGPIPE, SIG_IGN);
}

struct http_server *http_server_new(struct loop *loop, const struct http_server_limits *limits,
                                    http_request_fn *on_request, void *context)
{
    struct http_server *server = xnew(struct http_server);

    ignore_sigpipe();
    server->loop = loop;
    server->limits = limits ? *limits : http_server_default_limits;
    server->on_request = on_request;
    server->context = context;
    server->scratch = xmalloc(HTTP_INPUT_BYTES);
    list_init(&server->connections);
    list_init(&server->waiting);
    id_make(server->id, ID_REQUEST);
    return server;
}

/* Makes room: the connection that waits longest for a request, and has nothing to send, goes. */
static bool server_evict(struct http_server *server)
{
    struct http_connection *connection;

    list_for_each (connection, &server->waiting, waiting) {
        if (connection->send_queue.pending || connection->refused)
            continue;
        connection_close(connection);
        return true;
    }
    return false;
}

static void on_accept(void *context, int fd, const struct address *address)
{
    struct http_server *server = context;
    bool refused = server->count >= server->limits.connections && !server_evict(server);
    struct http_peer peer;

    peer_read(&peer, fd, address);
    if (server->tls && !peer.is_unix)
        fd = tls_accept(server->tls, fd);
    if (fd < 0)
        return;
    if (refused && server->refused >= REFUSED_AT_ONCE)
        fd_close(fd);
    else
        connection_open(server, fd, &peer, refused);
}

static void on_exhausted(void *context)
{
    (void)server_evict(context);
}

static struct listener *bind_one(struct http_server *server, const char *address, struct error *err)
{
    struct listener_events events = { on_accept, on_exhausted, server };
    struct address parsed;
    struct listener *listener = NULL;

    assert(!server->draining);
    if (address_parse(&parsed, address, err) == 0)
        listener = listener_bind(server->loop, &parsed, &events, err);
    if (!listener) {
        error_wrap(err, "listen on %s", address);
        return NULL;
    }
    server->listeners =
        xrealloc(server->listeners, server->listener_count + 1, sizeof(server->listeners[0]));
    server->listeners[server->listener_count++] = listener;
    return listener;
}

int http_server_bind(struct http_server *server, const char *address, struct error *err)
{
    return bind_one(server, address, err) ? 0 : -1;
}

int http_server_start(struct http_server *server, struct error *err)
{
    for (size_t i = 0; i < server->listener_count; i++) {
        if (listener_start(server->listeners[i], err) < 0)
            return -1;
    }
    return 0;
}

int http_server_listen(struct http_server *server, const char *address, struct error *err)
{
    struct listener *listener = bind_one(server, address, err);

    return listener ? listener_start(listener, err) : -1;
}

static unsigned count_group(const struct http_server *server, const char *group)
{
    struct http_connection *connection;
    unsigned count = 0;

    list_for_each (connection, &server->connections, link)
        count += strcmp(connection->peer.group, group) == 0;
    return count;
}

void http_server_adopt(struct http_server *server, int fd, const char *group, const char *member,
                       unsigned most)
{
    const struct address address = { .is_unix = true,
                                     .length = sizeof(sa_family_t),
                                     .storage = { .ss_family = AF_UNIX } };
    struct http_peer peer;

    if (server->draining || server->count >= server->limits.connections ||
        count_group(server, group) >= most || fcntl(fd, F_SETFL, O_RDWR | O_NONBLOCK) < 0) {
        fd_close(fd);
        return;
    }
    peer_read(&peer, fd, &address);
    snprintf(peer.group, sizeof(peer.group), "%s", group);
    snprintf(peer.member, sizeof(peer.member), "%s", member);
    connection_open(server, fd, &peer, false);
}

void http_server_set_tls(struct http_server *server, struct tls *tls)
{
    server->tls = tls;
}

unsigned http_server_port_at(const struct http_server *server, size_t index)
{
    return index < server->listener_count ? listener_port(server->listeners[index]) : 0;
}

unsigned http_server_port(const struct http_server *server)
{
    for (size_t i = 0; i < server->listener_count; i++) {
        unsigned port = listener_port(server->listeners[i]);

        if (port)
            return port;
    }
    return 0;
}

static void server_stop_listening(struct http_server *server)
{
    for (size_t i = 0; i < server->listener_count; i++)
        listener_free(server->listeners[i]);
    server->listener_count = 0;
}

void http_server_drain(struct http_server *server)
{
    struct http_connection *connection;

    server->draining = true;
    server_stop_listening(server);
    list_for_each (connection, &server->waiting, waiting)
        connection_wake(connection);
}

void http_server_free(struct http_server *server)
{
    if (!server)
        return;
    server->draining = true;
    server_stop_listening(server);
    while (!list_is_empty(&server->connections))
        connection_close(list_first(&server->connections, struct http_connection, link));
    free(server->listeners);
    free(server->scratch);
    free(server);
}
