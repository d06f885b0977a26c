/* SPDX-License-Identifier: Apache-2.0 */
#include "init/dial.h"

#include "init/init.h"
#include "init/path.h"
#include "init/sys.h"

#include <errno.h>
#include <string.h>

static int64_t tried_us; /* when the last attempt was */
static int delay_ms;     /* from that to the next one, but never less than the shortest */
static bool is_given_up;

int dial_next_delay_ms(int last_delay_ms, int64_t since_last_us)
{
    if (since_last_us > (int64_t)2 * DIAL_LONGEST_MS * 1000 || last_delay_ms < DIAL_SHORTEST_MS)
        return DIAL_SHORTEST_MS;
    return 2 * last_delay_ms < DIAL_LONGEST_MS ? 2 * last_delay_ms : DIAL_LONGEST_MS;
}

void dial_confirm(void)
{
    delay_ms = 0;
}

int dial_wait_ms(void)
{
    int64_t distance_ms = delay_ms < DIAL_SHORTEST_MS ? DIAL_SHORTEST_MS : delay_ms;
    int64_t left_us = tried_us + distance_ms * 1000 - sys_now_us();

    return left_us > 0 ? (int)((left_us + 999) / 1000) : 0;
}

/* A full queue of the daemon is EAGAIN, and never waited for. Once connected it may block: helpers
 * wait until their answers are sent. */
static long connect_to_daemon(int fd)
{
    struct sockaddr_un address;
    long result = path_to_address(settings.socket_path, &address);

    if (result >= 0)
        result = sys(connect, fd, &address, result);
    return result < 0 ? result : sys(fcntl, fd, F_SETFL, O_RDWR);
}

/* A mount shows a directory that was removed, without a link to it. */
static bool is_directory_removed(void)
{
    char directory[PROTOCOL_MAX_PATH];
    const char *slash = strrchr(settings.socket_path, '/');
    size_t length = slash ? (size_t)(slash - settings.socket_path) : 0;
    struct stat status;

    if (!length || length >= sizeof directory)
        return false;
    memcpy(directory, settings.socket_path, length);
    directory[length] = 0;
    return !sys(newfstatat, AT_FDCWD, directory, &status, 0) && status.st_nlink == 0;
}

bool dial_is_given_up(void)
{
    return is_given_up;
}

int dial_connect(void)
{
    int64_t now_us = sys_now_us();
    int fd = (int)sys(socket, AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    long result = fd < 0 ? fd : connect_to_daemon(fd);

    delay_ms = dial_next_delay_ms(delay_ms, now_us - tried_us);
    tried_us = now_us;
    if (result >= 0)
        return fd;
    sys_close(fd);
    is_given_up = result == -ENOENT && is_directory_removed();
    return (int)result;
}
