/* SPDX-License-Identifier: Apache-2.0 */
#include "net/listener.h"

#include "base/alloc.h"
#include "base/scoped.h"
#include "base/str.h"

#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

enum {
    BACKLOG = 1024,
    ACCEPTS_PER_TURN = 64,
    BACKOFF_US = 100 * 1000,
    LOCK_TRIES = 100,
    LOCK_PAUSE_US = 10 * 1000,
};

struct listener {
    struct io_watch socket; /* its fd is owned */
    struct timer backoff;
    struct address address;
    struct listener_events events;
    dev_t device; /* of the unix socket's file */
    ino_t inode;
    bool has_file;
};

/* --- accepting ----------------------------------------------------------------------------- */

static void on_listener_ready(struct io_watch *watch, unsigned events);

static void on_backoff_end(struct timer *timer)
{
    struct listener *listener = container_of(timer, struct listener, backoff);

    io_watch_start(&listener->socket, timer->loop, listener->socket.fd, IO_READ, on_listener_ready);
}

/* accept() takes a descriptor before it looks for a connection, so only the first failure of a turn
 * means that a client waits. */
static void listener_back_off(struct listener *listener, bool somebody_waits)
{
    io_watch_stop(&listener->socket);
    timer_arm_in(&listener->backoff, BACKOFF_US);
    if (somebody_waits)
        listener->events.on_exhausted(listener->events.context);
}

/* Errors of the connection that was about to be accepted are the peer's; the rest is ours. */
static bool errno_is_of_peer(int number)
{
    return number == ECONNABORTED || number == EINTR || number == EPROTO || number == EPERM ||
           number == ENETDOWN || number == EHOSTUNREACH || number == ENETUNREACH;
}

static void on_listener_ready(struct io_watch *watch, unsigned events UNUSED)
{
    struct listener *listener = container_of(watch, struct listener, socket);

    for (int i = 0; i < ACCEPTS_PER_TURN; i++) {
        struct address peer = { .length = sizeof(peer.storage),
                                .is_unix = listener->address.is_unix };
        int fd = accept4(watch->fd, (struct sockaddr *)&peer.storage, &peer.length,
                         SOCK_NONBLOCK | SOCK_CLOEXEC);

        if (fd >= 0) {
            listener->events.on_accept(listener->events.context, fd, &peer);
        } else if (errno == EAGAIN) {
            return;
        } else if (!errno_is_of_peer(errno)) {
            listener_back_off(listener, i == 0);
            return;
        }
    }
}

/* --- unix sockets -------------------------------------------------------------------------- */

/* Allocated. */
static char *parent_of(const char *path)
{
    char *parent = xstrdup(path);
    char *slash = strrchr(parent, '/');

    if (!slash)
        strcpy(parent, ".");
    else
        slash[slash == parent] = '\0';
    return parent;
}

static int make_parent(const char *path, struct error *err)
{
    scoped(free) char *parent = parent_of(path);

    return access(parent, F_OK) == 0 ? 0 : path_make_dirs(parent, 0755, err);
}

/* Serialises the replacement of a stale socket while the descriptor is open: two processes that
 * find the same one would remove each other's new socket. */
static int lock_parent(const char *path, struct error *err)
{
    scoped(free) char *parent = parent_of(path);
    scoped(fd_close) int fd = open(parent, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

    if (fd < 0)
        return error_sys(err, "open %s", parent);
    for (int i = 0; flock(fd, LOCK_EX | LOCK_NB) < 0; i++) {
        if (errno != EWOULDBLOCK || i == LOCK_TRIES)
            return error_sys(err, "lock %s", parent);
        (void)usleep(LOCK_PAUSE_US);
    }
    return steal_fd(&fd);
}

/* Whether a process has the socket open, listening or not: a connect with the wrong socket type
 * fails with EPROTOTYPE for an open socket and with ECONNREFUSED for a stale one. */
static bool socket_is_alive(const struct address *address)
{
    scoped(fd_close) int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);

    return fd < 0 ||
           connect(fd, (const struct sockaddr *)&address->storage, address->length) == 0 ||
           errno != ECONNREFUSED;
}

static int remove_stale_socket(const struct address *address, struct error *err)
{
    const char *path = address_path(address);
    struct stat status;

    if (lstat(path, &status) < 0)
        return errno == ENOENT ? 0 : error_sys(err, "look at %s", path);
    if (!S_ISSOCK(status.st_mode)) {
        error_set(err, ERR_CONFLICT, "%s exists and is not a socket", path);
        return error_hint(err, "remove it, or choose another path: --listen or listen");
    }
    if (status.st_uid != geteuid()) {
        error_set(err, ERR_CONFLICT, "the socket %s belongs to another user", path);
        return error_hint(err, "remove it, or choose another path: --listen or listen");
    }
    if (socket_is_alive(address)) {
        error_set(err, ERR_CONFLICT, "another process listens on %s", path);
        return error_hint(err, "stop that process, or choose another path: --listen or listen");
    }
    if (unlink(path) < 0 && errno != ENOENT)
        return error_sys(err, "remove the stale socket %s", path);
    return 0;
}

/* The file takes the mode of the socket, less the umask: no client can connect before chmod. */
static int bind_unix(struct listener *listener, int fd, struct error *err)
{
    const struct address *address = &listener->address;
    const char *path = address_path(address);
    scoped(fd_close) int lock = -1;
    struct stat status;

    if (make_parent(path, err) < 0 || (lock = lock_parent(path, err)) < 0 ||
        remove_stale_socket(address, err) < 0)
        return -1;
    if (fchmod(fd, 0660) < 0)
        return error_sys(err, "set the mode of %s", path);
    if (bind(fd, (const struct sockaddr *)&address->storage, address->length) < 0)
        return error_sys(err, "bind %s", path);
    if (lstat(path, &status) < 0)
        return error_sys(err, "look at %s", path);
    listener->device = status.st_dev;
    listener->inode = status.st_ino;
    listener->has_file = true;
    if (chmod(path, 0660) < 0)
        return error_sys(err, "set the mode of %s", path);
    return 0;
}

/* Whether the path still has the socket file that was bound. */
static bool has_own_file(const struct listener *listener)
{
    struct stat status;

    return listener->has_file && lstat(address_path(&listener->address), &status) == 0 &&
           status.st_dev == listener->device && status.st_ino == listener->inode;
}

static void unlink_own_file(const struct listener *listener)
{
    if (has_own_file(listener))
        (void)unlink(address_path(&listener->address));
}

/* --- TCP ----------------------------------------------------------------------------------- */

/* Accepted sockets inherit these. Probes find a peer that went away without a word. */
static int set_tcp_options(int fd)
{
    int on = 1;
    int idle_s = 30;
    int interval_s = 10;
    int count = 3;

    if (setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on)) < 0 ||
        setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof(on)) < 0 ||
        setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &idle_s, sizeof(idle_s)) < 0 ||
        setsockopt(fd, IPPROTO_TCP, TCP_KEEPINTVL, &interval_s, sizeof(interval_s)) < 0 ||
        setsockopt(fd, IPPROTO_TCP, TCP_KEEPCNT, &count, sizeof(count)) < 0)
        return -1;
    return setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
}

static int bind_tcp(struct listener *listener, int fd, struct error *err)
{
    struct address *address = &listener->address;
    char text[ADDRESS_TEXT_SIZE];
    int on = 1;

    address_format(address, text);
    if (set_tcp_options(fd) < 0)
        return error_sys(err, "set up %s", text);
    if (address->storage.ss_family == AF_INET6)
        (void)setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &on, sizeof(on));
    if (bind(fd, (const struct sockaddr *)&address->storage, address->length) < 0)
        return error_sys(err, "bind %s", text);
    if (getsockname(fd, (struct sockaddr *)&address->storage, &address->length) < 0)
        return error_sys(err, "read the address of %s", text);
    return 0;
}

/* --- both ---------------------------------------------------------------------------------- */

static int listener_open(struct listener *listener, struct error *err)
{
    int family = listener->address.storage.ss_family;
    int fd = socket(family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);

    if (fd < 0)
        return error_sys(err, "open a socket");
    listener->socket.fd = fd;
    return (listener->address.is_unix ? bind_unix : bind_tcp)(listener, fd, err);
}

struct listener *listener_bind(struct loop *loop, const struct address *address,
                               const struct listener_events *events, struct error *err)
{
    struct listener *listener = xnew(struct listener);

    listener->socket.fd = -1;
    listener->address = *address;
    listener->events = *events;
    timer_init(&listener->backoff, loop, on_backoff_end);
    if (listener_open(listener, err) < 0) {
        listener_free(listener);
        return NULL;
    }
    return listener;
}

int listener_start(struct listener *listener, struct error *err)
{
    char text[ADDRESS_TEXT_SIZE];

    address_format(&listener->address, text);
    if (listen(listener->socket.fd, BACKLOG) < 0)
        return error_sys(err, "listen on %s", text);
    if (listener->address.is_unix && !has_own_file(listener))
        return error_set(err, ERR_CONFLICT,
                         "the socket %s was removed or replaced by another process",
                         address_path(&listener->address));
    io_watch_start(&listener->socket, listener->backoff.loop, listener->socket.fd, IO_READ,
                   on_listener_ready);
    return 0;
}

struct listener *listener_new(struct loop *loop, const struct address *address,
                              const struct listener_events *events, struct error *err)
{
    struct listener *listener = listener_bind(loop, address, events, err);

    if (listener && listener_start(listener, err) < 0) {
        listener_free(listener);
        return NULL;
    }
    return listener;
}

void listener_free(struct listener *listener)
{
    if (!listener)
        return;
    timer_stop(&listener->backoff);
    io_watch_stop(&listener->socket);
    unlink_own_file(listener);
    fd_close(listener->socket.fd);
    free(listener);
}

unsigned listener_port(const struct listener *listener)
{
    const struct sockaddr_storage *storage = &listener->address.storage;

    if (storage->ss_family == AF_INET)
        return ntohs(((const struct sockaddr_in *)storage)->sin_port);
    if (storage->ss_family == AF_INET6)
        return ntohs(((const struct sockaddr_in6 *)storage)->sin6_port);
    return 0;
}
