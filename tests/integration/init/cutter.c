/* SPDX-License-Identifier: Apache-2.0 */
#include "cutter.h"

#include "base/alloc.h"
#include "base/list.h"
#include "base/macros.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

enum { CHUNK = 65536 };

/* An end of a connection: that of the bridge, CUTTER_IN, or of the relay, CUTTER_OUT. */
struct end {
    struct connection *connection; /* borrowed */
    struct io_watch watch;
    int fd; /* owned */
};

/* One way through a connection. */
struct way {
    uint64_t passed;
    size_t at, length; /* of what was taken and not passed on */
    bool has_ended;
    uint8_t bytes[CHUNK];
};

struct connection {
    struct list link;
    struct cutter *cutter; /* borrowed */
    unsigned number;
    struct end ends[2];
    struct way ways[2]; /* read from ends[way], written to ends[!way] */
    struct deferred release;
};

struct cutter {
    struct loop *loop; /* borrowed */
    struct io_watch listener;
    struct sockaddr_un path, target;
    struct cutter_plan plan;
    struct list connections;
    unsigned made, cuts;
    uint64_t passed[2];
};

static void on_release(struct deferred *deferred)
{
    free(container_of(deferred, struct connection, release));
}

static void connection_close(struct connection *connection)
{
    list_remove(&connection->link);
    for (int i = CUTTER_IN; i <= CUTTER_OUT; i++) {
        io_watch_stop(&connection->ends[i].watch);
        close(connection->ends[i].fd);
    }
    loop_defer(connection->cutter->loop, &connection->release, on_release);
}

static void on_ready(struct io_watch *watch, unsigned events);

/* Reads when the last piece is gone, writes while there is one: nothing is watched in vain. */
static void connection_watch(struct connection *connection)
{
    const struct cutter_plan *plan = &connection->cutter->plan;
    unsigned events[2] = { 0 };

    for (int way = CUTTER_IN; way <= CUTTER_OUT; way++) {
        const struct way *state = &connection->ways[way];

        if (plan->is_held[way])
            continue;
        if (state->at < state->length)
            events[!way] |= IO_WRITE;
        else if (!state->has_ended)
            events[way] |= IO_READ;
    }
    for (int i = CUTTER_IN; i <= CUTTER_OUT; i++) {
        struct end *end = &connection->ends[i];

        if (events[i])
            io_watch_start(&end->watch, connection->cutter->loop, end->fd, events[i], on_ready);
        else
            io_watch_stop(&end->watch);
    }
}

/* False when the connection is to be closed. */
static bool take(struct way *way, int fd)
{
    ssize_t length = recv(fd, way->bytes, sizeof(way->bytes), MSG_DONTWAIT);

    if (length < 0)
        return errno == EAGAIN;
    way->at = 0;
    way->length = (size_t)length;
    way->has_ended = length == 0;
    return !way->has_ended;
}

static bool pass(struct connection *connection, int which)
{
    struct cutter *cutter = connection->cutter;
    struct way *way = &connection->ways[which];
    uint64_t cut_after = connection->number % 2 && cutter->plan.then_after
                             ? cutter->plan.then_after
                             : cutter->plan.cut_after[which];
    size_t length = way->length - way->at;
    ssize_t sent;

    if (cutter->plan.piece)
        length = MIN(length, cutter->plan.piece);
    if (cut_after && way->passed + length > cut_after)
        length = cut_after > way->passed ? (size_t)(cut_after - way->passed) : 0;
    sent = send(connection->ends[!which].fd, way->bytes + way->at, length,
                MSG_DONTWAIT | MSG_NOSIGNAL);
    if (sent < 0)
        return errno == EAGAIN;
    way->at += (size_t)sent;
    way->passed += (uint64_t)sent;
    cutter->passed[which] += (uint64_t)sent;
    if (cut_after && way->passed >= cut_after) {
        cutter->cuts++;
        return false;
    }
    return true;
}

static void on_ready(struct io_watch *watch, unsigned events)
{
    struct connection *connection = container_of(watch, struct end, watch)->connection;
    bool is_open = true;

    (void)events;
    for (int i = CUTTER_IN; i <= CUTTER_OUT && is_open; i++) {
        struct way *way = &connection->ways[i];

        if (connection->cutter->plan.is_held[i])
            continue;
        if (way->at == way->length)
            is_open = take(way, connection->ends[i].fd);
        if (is_open && way->at < way->length)
            is_open = pass(connection, i);
    }
    if (is_open)
        connection_watch(connection);
    else
        connection_close(connection);
}

static void on_accept(struct io_watch *watch, unsigned events)
{
    struct cutter *cutter = container_of(watch, struct cutter, listener);
    struct connection *connection;
    int near = accept4(watch->fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
    int far;

    (void)events;
    if (near < 0)
        return;
    far = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (connect(far, (struct sockaddr *)&cutter->target, sizeof(cutter->target)) < 0) {
        close(near);
        close(far);
        return;
    }
    connection = xnew(struct connection);
    connection->cutter = cutter;
    connection->number = cutter->made;
    connection->ends[CUTTER_IN] = (struct end){ .connection = connection, .fd = near };
    connection->ends[CUTTER_OUT] = (struct end){ .connection = connection, .fd = far };
    list_init(&connection->link);
    list_append(&cutter->connections, &connection->link);
    cutter->made++;
    connection_watch(connection);
}

static void set_path(struct sockaddr_un *address, const char *path)
{
    *address = (struct sockaddr_un){ .sun_family = AF_UNIX };
    assert(strlen(path) < sizeof(address->sun_path));
    memcpy(address->sun_path, path, strlen(path));
}

struct cutter *cutter_new(struct loop *loop, const char *path, const char *target)
{
    struct cutter *cutter = xnew(struct cutter);
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

    cutter->loop = loop;
    list_init(&cutter->connections);
    set_path(&cutter->path, path);
    set_path(&cutter->target, target);
    assert(fd >= 0);
    assert(bind(fd, (struct sockaddr *)&cutter->path, sizeof(cutter->path)) == 0);
    assert(listen(fd, 16) == 0);
    io_watch_start(&cutter->listener, loop, fd, IO_READ, on_accept);
    return cutter;
}

void cutter_free(struct cutter *cutter)
{
    if (!cutter)
        return;
    cutter_cut(cutter);
    io_watch_stop(&cutter->listener);
    close(cutter->listener.fd);
    (void)unlink(cutter->path.sun_path);
    free(cutter);
}

void cutter_follow(struct cutter *cutter, const struct cutter_plan *plan)
{
    struct connection *connection;

    cutter->plan = *plan;
    list_for_each (connection, &cutter->connections, link)
        connection_watch(connection);
}

void cutter_cut(struct cutter *cutter)
{
    struct connection *connection;
    struct connection *following;

    list_for_each_safe (connection, following, &cutter->connections, link) {
        cutter->cuts++;
        connection_close(connection);
    }
}

unsigned cutter_connections(const struct cutter *cutter)
{
    return cutter->made;
}

unsigned cutter_cuts(const struct cutter *cutter)
{
    return cutter->cuts;
}

uint64_t cutter_passed(const struct cutter *cutter, enum cutter_way way)
{
    return cutter->passed[way];
}
