/* SPDX-License-Identifier: Apache-2.0 */
#include "init/pump.h"

#include "init/init.h"
#include "init/sys.h"

#include <errno.h>
#include <stdbool.h>
#include <string.h>
#include <sys/un.h>

enum {
    PIECE = 64 * 1024,
    EXIT_UNREACHABLE = 1,
    CONNECT_S = 5,
    ATTEMPTS = 200,
    BETWEEN_MS = 5,
};

enum flow_state {
    FLOW_SPLICES, /* the kernel moves the bytes */
    FLOW_COPIES,  /* it cannot, between these two */
};

/* One direction. It waits for bytes to read or for room to write. */
struct flow {
    int from;
    int to;
    enum flow_state state;
    bool wants_room;
    size_t start;
    size_t end;
    char bytes[PIECE];
};

static TABLE_SELDOM_USED struct flow inward; /* from stdin */
static TABLE_SELDOM_USED struct flow outward;

/* A terminal stays blocking, since O_NONBLOCK would hold for all programs that share it; the ends
 * of pipes and sockets are the pump's own. */
static void stop_blocking(int fd)
{
    struct stat status;
    long flags = sys(fcntl, fd, F_GETFL, 0);

    if (flags >= 0 && sys(fstat, fd, &status) >= 0 && !S_ISCHR(status.st_mode))
        (void)sys(fcntl, fd, F_SETFL, flags | O_NONBLOCK);
}

/* A relay whose backlog is full answers soon or never. A missing relay appears soon: an engine
 * starts a pump as soon as it has started init. */
static int reach(const char *path)
{
    struct sockaddr_un address = { .sun_family = AF_UNIX };
    struct timeval patience = { .tv_sec = CONNECT_S };
    size_t length = strlen(path);
    int fd = (int)sys(socket, AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    long result = -ENOENT;

    if (fd < 0 || length >= sizeof address.sun_path)
        return -1;
    memcpy(address.sun_path, path, length);
    (void)sys(setsockopt, fd, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof patience);
    for (unsigned i = 0; i < ATTEMPTS && (result == -ENOENT || result == -ECONNREFUSED); i++) {
        if (i)
            (void)sys(poll, NULL, 0, BETWEEN_MS);
        result = sys(connect, fd, &address, sizeof address);
    }
    return result < 0 ? -1 : fd;
}

/* Whether a system call moved bytes. The pump exits at the end of either side, or at an error. */
static bool has_moved(long result)
{
    if (result == 0 || (result < 0 && result != -EAGAIN && result != -EINTR))
        sys_exit(0);
    return result > 0;
}

static void copy(struct flow *flow)
{
    long length;

    if (flow->start == flow->end) {
        length = sys(read, flow->from, flow->bytes, sizeof flow->bytes);
        if (!has_moved(length))
            return;
        flow->start = 0;
        flow->end = (size_t)length;
    }
    length = sys(write, flow->to, flow->bytes + flow->start, flow->end - flow->start);
    if (has_moved(length))
        flow->start += (size_t)length;
    flow->wants_room = flow->start < flow->end;
}

/* EAGAIN does not say which end was not ready: wait for the other end than before. */
static void move(struct flow *flow)
{
    long length = -EINVAL;

    if (flow->state == FLOW_SPLICES)
        length =
            sys(splice, flow->from, NULL, flow->to, NULL, PIECE, SPLICE_F_MOVE | SPLICE_F_NONBLOCK);
    if (length == -EINVAL || length == -ENOSYS) {
        flow->state = FLOW_COPIES;
        copy(flow);
    } else if (has_moved(length)) {
        flow->wants_room = false;
    } else if (length == -EAGAIN) {
        flow->wants_room = !flow->wants_room;
    }
}

static void turn(int socket)
{
    struct pollfd polls[] = {
        { .fd = inward.wants_room ? -1 : 0, .events = POLLIN },
        { .fd = socket,
          .events =
              (short)((inward.wants_room ? POLLOUT : 0) | (outward.wants_room ? 0 : POLLIN)) },
        { .fd = 1, .events = outward.wants_room ? POLLOUT : 0 },
    };

    if (sys(poll, polls, sizeof polls / sizeof polls[0], -1) < 0)
        return;
    if (polls[2].revents & (POLLERR | POLLNVAL) || polls[0].revents & POLLNVAL)
        sys_exit(0);
    /* The relay has closed, and stdout does not take its last bytes. */
    if (outward.wants_room && !polls[2].revents && polls[1].revents & (POLLHUP | POLLERR))
        sys_exit(0);
    if (polls[0].revents || (inward.wants_room && polls[1].revents & POLLOUT))
        move(&inward);
    if ((!outward.wants_room && polls[1].revents & (POLLIN | POLLHUP | POLLERR)) ||
        (outward.wants_room && polls[2].revents))
        move(&outward);
}

void pump_run(const char *path)
{
    uint64_t broken_pipe = 1ull << (SIGPIPE - 1);
    int socket = reach(path);

    if (socket < 0)
        sys_exit(EXIT_UNREACHABLE);
    (void)sys(rt_sigprocmask, SIG_BLOCK, &broken_pipe, NULL, SIGNAL_SET_SIZE);
    stop_blocking(0);
    stop_blocking(1);
    stop_blocking(socket);
    inward.to = socket;
    outward.from = socket;
    outward.to = 1;
    for (;;)
        turn(socket);
}
