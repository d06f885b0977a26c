/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/notify.h"

#include "base/log.h"
#include "base/scoped.h"

#include <errno.h>
#include <inttypes.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

enum { MESSAGE_SIZE = 512 };

/* A path, or "@name" for an abstract name. */
static int connect_to(const char *name)
{
    struct sockaddr_un address = { .sun_family = AF_UNIX };
    size_t length = strlen(name);
    scoped(fd_close) int fd = -1;

    if ((name[0] != '/' && name[0] != '@') || length >= sizeof(address.sun_path)) {
        errno = EINVAL;
        return -1;
    }
    memcpy(address.sun_path, name, length);
    if (name[0] == '@')
        address.sun_path[0] = '\0';
    fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0 || connect(fd, (struct sockaddr *)&address,
                          (socklen_t)(offsetof(struct sockaddr_un, sun_path) + length)) < 0)
        return -1;
    return steal_fd(&fd);
}

void notify_open(struct notify *notify)
{
    const char *name = getenv("NOTIFY_SOCKET");

    notify->fd = -1;
    if (name && *name) {
        notify->fd = connect_to(name);
        if (notify->fd < 0)
            log_warn("the service manager cannot be reached; continuing without it",
                     kv("NOTIFY_SOCKET", name), kv("error", strerror(errno)));
    }
    unsetenv("NOTIFY_SOCKET");
}

void notify_close(struct notify *notify)
{
    fd_close(notify->fd);
    notify->fd = -1;
}

static void notify_send(struct notify *notify, const char *message)
{
    if (notify->fd < 0)
        return;
    if (write(notify->fd, message, strlen(message)) < 0)
        log_warn("the service manager was not notified", kv("error", strerror(errno)));
}

void notify_ready(struct notify *notify, const char *status)
{
    char message[MESSAGE_SIZE];

    snprintf(message, sizeof(message), "READY=1\nSTATUS=%s", status);
    notify_send(notify, message);
}

void notify_reloading(struct notify *notify)
{
    char message[MESSAGE_SIZE];
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    snprintf(message, sizeof(message), "RELOADING=1\nMONOTONIC_USEC=%" PRId64,
             (int64_t)now.tv_sec * 1000000 + now.tv_nsec / 1000);
    notify_send(notify, message);
}

void notify_stopping(struct notify *notify, int64_t timeout_ms)
{
    char message[MESSAGE_SIZE];

    snprintf(message, sizeof(message), "STOPPING=1\nEXTEND_TIMEOUT_USEC=%" PRId64,
             timeout_ms * 1000);
    notify_send(notify, message);
}
