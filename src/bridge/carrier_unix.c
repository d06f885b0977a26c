/* SPDX-License-Identifier: Apache-2.0 */
/* A carrier by a unix stream socket: its file shows up on this host, but descriptors do not pass. */

#include "base/alloc.h"
#include "bridge/carrier.h"

#include <errno.h>
#include <stdio.h>
#include <sys/socket.h>
#include <sys/un.h>

struct carrier_unix {
    struct carrier base;
    int directory; /* borrowed; -1 without */
    char *path;    /* owned */
};

static int put_address(const struct carrier_unix *unix_socket, struct sockaddr_un *address,
                       struct error *err)
{
    int length;

    address->sun_family = AF_UNIX;
    if (unix_socket->directory >= 0)
        length = snprintf(address->sun_path, sizeof(address->sun_path), "/proc/self/fd/%d/%s",
                          unix_socket->directory, unix_socket->path);
    else
        length = snprintf(address->sun_path, sizeof(address->sun_path), "%s", unix_socket->path);
    if (length < 0 || (size_t)length >= sizeof(address->sun_path))
        return error_set(err, ERR_INVALID, "the path of the relay's socket is too long: %s",
                         unix_socket->path);
    return 0;
}

/* connect() does not wait: a listener whose backlog is full refuses with EAGAIN. */
static int unix_connect(const struct carrier_unix *unix_socket, struct error *err)
{
    struct sockaddr_un address = { 0 };
    scoped(fd_close) int fd = -1;

    if (put_address(unix_socket, &address, err) < 0)
        return -1;
    fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0)
        return error_sys(err, "create a socket");
    if (connect(fd, (struct sockaddr *)&address, sizeof(address)) < 0) {
        bool is_closed = errno == ECONNREFUSED; /* init has it open as long as it lives */

        error_sys(err, "connect to the relay's socket");
        if (is_closed)
            err->code = ERR_GONE;
        return -1;
    }
    return steal_fd(&fd);
}

static void unix_open(struct carrier *carrier, struct carrier_attempt *attempt UNUSED)
{
    struct error err = { 0 };
    int fd = unix_connect(container_of(carrier, struct carrier_unix, base), &err);

    carrier_finish(carrier, fd, &err);
}

static void unix_cancel(struct carrier *carrier UNUSED, struct carrier_attempt *attempt UNUSED)
{
}

static void unix_free(struct carrier *carrier)
{
    struct carrier_unix *unix_socket = container_of(carrier, struct carrier_unix, base);

    free(unix_socket->path);
    free(unix_socket);
}

static const struct carrier_ops unix_ops = {
    .open = unix_open,
    .cancel = unix_cancel,
    .free = unix_free,
};

struct carrier *carrier_unix_new(struct loop *loop, int directory, const char *path)
{
    struct carrier_unix *unix_socket = xnew(struct carrier_unix);

    unix_socket->base = (struct carrier){ .ops = &unix_ops, .loop = loop };
    unix_socket->directory = directory;
    unix_socket->path = xstrdup(path);
    return &unix_socket->base;
}
