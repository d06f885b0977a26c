/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/run/outlet.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

/* A sender that ignores outlet_write()'s answer is a bug; this bounds it. */
enum { PENDING_MAXIMUM = 64 << 20 };

/* A description of our own for the same pipe or terminal; -1 when that cannot be had. */
static int open_again(int fd)
{
    char path[32];

    snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
    return open(path, O_WRONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
}

void outlet_init(struct outlet *outlet, struct loop *loop, int fd, outlet_fn *on_drained,
                 outlet_fn *on_closed)
{
    struct stat status;
    int again = -1;

    *outlet = (struct outlet){
        .loop = loop,
        .fd = fd,
        .pending = BUFFER_INIT(PENDING_MAXIMUM),
        .on_drained = on_drained,
        .on_closed = on_closed,
    };
    if (fstat(fd, &status) < 0)
        return;
    outlet->is_socket = S_ISSOCK(status.st_mode);
    if (S_ISFIFO(status.st_mode) || isatty(fd))
        again = open_again(fd);
    if (again >= 0) {
        outlet->fd = again;
        outlet->opened = true;
    }
}

void outlet_fini(struct outlet *outlet)
{
    io_watch_stop(&outlet->watch);
    if (outlet->opened)
        fd_close(outlet->fd);
    outlet->opened = false;
    buffer_fini(&outlet->pending);
}

static ssize_t write_some(const struct outlet *outlet, const void *data, size_t length)
{
    ssize_t count;

    do
        count = outlet->is_socket ? send(outlet->fd, data, length, MSG_DONTWAIT | MSG_NOSIGNAL)
                                  : write(outlet->fd, data, length);
    while (count < 0 && errno == EINTR);
    if (count < 0 && (errno == EAGAIN || errno == EWOULDBLOCK))
        return 0;
    return count;
}

static void outlet_close(struct outlet *outlet)
{
    outlet->closed_errno = errno;
    io_watch_stop(&outlet->watch);
    buffer_clear(&outlet->pending);
    outlet->closed = true;
    if (outlet->on_closed)
        outlet->on_closed(outlet);
}

static void on_writable(struct io_watch *watch, unsigned events UNUSED)
{
    struct outlet *outlet = container_of(watch, struct outlet, watch);
    ssize_t count = write_some(outlet, outlet->pending.data, outlet->pending.length);

    if (count < 0) {
        outlet_close(outlet);
        return;
    }
    buffer_consume(&outlet->pending, (size_t)count);
    if (outlet->pending.length)
        return;
    io_watch_stop(&outlet->watch);
    if (outlet->on_drained)
        outlet->on_drained(outlet);
}

bool outlet_write(struct outlet *outlet, const void *data, size_t length)
{
    ssize_t count = 0;

    if (outlet->closed)
        return true;
    while (length > 0 && outlet_is_empty(outlet)) {
        count = write_some(outlet, data, length);
        if (count <= 0)
            break;
        data = (const char *)data + count;
        length -= (size_t)count;
    }
    if (count < 0) {
        outlet_close(outlet);
        return true;
    }
    if (length == 0)
        return outlet_is_empty(outlet);
    if (buffer_append(&outlet->pending, data, length) < 0) {
        errno = ENOBUFS;
        outlet_close(outlet);
        return true;
    }
    io_watch_start(&outlet->watch, outlet->loop, outlet->fd, IO_WRITE, on_writable);
    return false;
}
