/* SPDX-License-Identifier: Apache-2.0 */
#include "init/files/connect.h"

#include "init/credentials.h"
#include "init/files/file_work.h"
#include "init/sys.h"

#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stddef.h>
#include <string.h>
#include <sys/un.h>

static const int64_t patience_us = 10 * 1000 * 1000;

/* A server sees the credentials of its peer, so the helper takes all ids of the user, not only
 * those for files. Root keeps the capabilities of root's processes. */
static int become(const struct user *user)
{
    return user->uid ? credentials_become(user) : credentials_act_for(user, false);
}

static long wait_for_answer(int fd, int64_t deadline_us)
{
    struct pollfd poll = { .fd = fd, .events = POLLOUT };
    int error = 0;
    socklen_t length = sizeof error;
    int64_t left_us;
    long result;

    do {
        left_us = deadline_us - sys_now_us();
        result = left_us > 0 ? sys(poll, &poll, 1, left_us / 1000 + 1) : -ETIMEDOUT;
    } while (result == 0 || result == -EINTR);
    if (result > 0)
        result = sys(getsockopt, fd, SOL_SOCKET, SO_ERROR, &error, &length);
    return result < 0 ? result : -error;
}

/* A unix socket whose backlog is full answers EAGAIN at once and cannot be polled for room:
 * retry. */
static long connect_to(int fd, const void *address, size_t length, int64_t deadline_us)
{
    enum { PAUSE_MS = 10 };
    long result;

    while ((result = sys(connect, fd, address, length)) == -EAGAIN && sys_now_us() < deadline_us)
        (void)sys(poll, NULL, 0, PAUSE_MS);
    if (result == -EAGAIN)
        return -ETIMEDOUT;
    return result == -EINPROGRESS || result == -EINTR ? wait_for_answer(fd, deadline_us) : result;
}

/* The connected socket, or -errno. */
static int open_stream(const struct sockaddr *address, size_t length, int64_t deadline_us)
{
    int fd = (int)sys(socket, address->sa_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    long result = fd < 0 ? fd : connect_to(fd, address, length, deadline_us);

    if (!result)
        return fd;
    sys_close(fd);
    return (int)result;
}

/* A server may listen on either loopback alone. If both fail, the error of IPv4 counts: IPv6 may
 * not exist. */
static int connect_tcp(uint16_t port, int64_t deadline_us)
{
    uint16_t port_sent = (uint16_t)(port << 8 | port >> 8);
    struct sockaddr_in first = {
        .sin_family = AF_INET,
        .sin_port = port_sent,
        .sin_addr.s_addr = 0x0100007f, /* 127.0.0.1 as it is sent */
    };
    struct sockaddr_in6 second = {
        .sin6_family = AF_INET6,
        .sin6_port = port_sent,
        .sin6_addr.s6_addr = { [15] = 1 },
    };
    int at_once = 1;
    int fd = open_stream((const struct sockaddr *)&first, sizeof first, deadline_us);
    int other = fd < 0 ? open_stream((const struct sockaddr *)&second, sizeof second, deadline_us)
                       : -1;

    if (other >= 0)
        fd = other;
    if (fd >= 0)
        (void)sys(setsockopt, fd, IPPROTO_TCP, TCP_NODELAY, &at_once, sizeof at_once);
    return fd;
}

/* Connects from the socket's directory: the whole path may be longer than an address. */
static int connect_unix(const char *path, int64_t deadline_us)
{
    struct sockaddr_un address = { .sun_family = AF_UNIX };
    char name[PATH_NAME_SIZE];
    int dir = path_open_parent(path, false, name);
    size_t length = dir < 0 ? 0 : strlen(name);
    long result = dir < 0 ? dir : sys(fchdir, dir);

    sys_close(dir);
    if (result < 0)
        return (int)result;
    if (length >= sizeof address.sun_path)
        return -ENAMETOOLONG;
    memcpy(address.sun_path, name, length);
    return open_stream((const struct sockaddr *)&address,
                       offsetof(struct sockaddr_un, sun_path) + length + 1, deadline_us);
}

int connect_open(struct file_work *work)
{
    const struct protocol_connect *connect = work->job->connect;
    int64_t deadline_us = sys_now_us() + patience_us;
    int result = become(&work->job->memory->user);

    if (result < 0)
        return result;
    work->fd = connect->port ? connect_tcp((uint16_t)connect->port, deadline_us)
                             : connect_unix(work->job->file_texts.path, deadline_us);
    return work->fd < 0 ? work->fd : 0;
}
