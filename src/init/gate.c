/* SPDX-License-Identifier: Apache-2.0 */
#include "init/gate.h"

#include "init/init.h"
#include "init/path.h"
#include "init/sys.h"

#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdbool.h>
#include <string.h>
#include <sys/un.h>

enum {
    BACKLOG = 128,
    ACCEPTS_PER_TURN = 16,
    UNANSWERED_MS = 15000, /* the network has acknowledged nothing that was sent to the daemon */
    RESTING_MS = 100,      /* no descriptor is left for the next connection */
};

/* A connection before its proof. */
struct stranger {
    int fd; /* owned; -1: free */
    int64_t since_us;
    struct seal_greeting greeting;
    size_t length; /* of what has come */
    struct {
        struct seal_answer answer;
        uint8_t proof[SEAL_OVERHEAD];
    } told;
};

/* A connection that is proved, and the one to the relay that belongs to it. */
struct line {
    int network; /* owned; -1: free */
    int relay;   /* owned */
    uint64_t order;
    struct seal_reader inward;
    struct seal_writer outward;
};

static TABLE_SELDOM_USED struct stranger strangers[GATE_STRANGERS];
static TABLE_SELDOM_USED struct line lines[GATE_LINES];

static struct {
    struct gate_setup *setup; /* borrowed */
    bool is_resting;          /* accepts nothing for a moment */
    unsigned places;          /* of strangers that have to be looked at: the rest is free */
    uint64_t proved;          /* connections so far */
} gate;

/* --- the socket ------------------------------------------------------------------------------- */

static int listen_at(int family, const void *address, socklen_t length)
{
    int one = 1, zero = 0;
    int fd = (int)sys(socket, family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    long result;

    if (fd < 0)
        return fd;
    (void)sys(setsockopt, fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    if (family == AF_INET6)
        (void)sys(setsockopt, fd, IPPROTO_IPV6, IPV6_V6ONLY, &zero, sizeof zero);
    result = sys(bind, fd, address, length);
    if (result >= 0)
        result = sys(listen, fd, BACKLOG);
    if (result >= 0)
        return fd;
    sys_close(fd);
    return (int)result;
}

/* A socket of IPv6 takes connections of both kinds; some kernels have no IPv6. */
int gate_listen(uint16_t port)
{
    uint16_t swapped = (uint16_t)(port << 8 | port >> 8);
    struct sockaddr_in6 both = { .sin6_family = AF_INET6, .sin6_port = swapped };
    struct sockaddr_in old = { .sin_family = AF_INET, .sin_port = swapped };
    int fd = listen_at(AF_INET6, &both, sizeof both);

    return fd == -EAFNOSUPPORT || fd == -EADDRNOTAVAIL ? listen_at(AF_INET, &old, sizeof old) : fd;
}

/* --- strangers -------------------------------------------------------------------------------- */

static void drop_stranger(struct stranger *stranger)
{
    sys_drop(&stranger->fd);
}

/* A free place; that of the oldest one where there is none. */
static struct stranger *make_room(void)
{
    struct stranger *oldest = &strangers[0];

    for (unsigned i = 0; i < GATE_STRANGERS; i++) {
        if (i >= gate.places || strangers[i].fd < 0)
            return &strangers[i];
        if (strangers[i].since_us < oldest->since_us)
            oldest = &strangers[i];
    }
    drop_stranger(oldest);
    return oldest;
}

static void greet(struct stranger *stranger)
{
    struct seal_greeting *greeting = &stranger->greeting;

    *greeting = (struct seal_greeting){ .magic = SEAL_MAGIC,
                                        .oldest = SEAL_VERSION,
                                        .newest = SEAL_VERSION };
    if (sys(getrandom, greeting->nonce, sizeof greeting->nonce, 0) != sizeof greeting->nonce ||
        sys(write, stranger->fd, greeting, sizeof *greeting) != sizeof *greeting)
        drop_stranger(stranger);
}

static void set_option(int fd, int option, int value)
{
    (void)sys(setsockopt, fd, IPPROTO_TCP, option, &value, sizeof value);
}

/* False when there is none, for now. */
static bool accept_stranger(void)
{
    int fd = (int)sys(accept4, gate.setup->listen_fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
    struct stranger *stranger;

    if (fd < 0) {
        gate.is_resting = fd != -EAGAIN && fd != -EINTR && fd != -ECONNABORTED;
        return false;
    }
    set_option(fd, TCP_NODELAY, 1);
    set_option(fd, TCP_USER_TIMEOUT, UNANSWERED_MS);
    stranger = make_room();
    *stranger = (struct stranger){ .fd = fd, .since_us = sys_now_us() };
    if (gate.places <= (unsigned)(stranger - strangers))
        gate.places = (unsigned)(stranger - strangers) + 1;
    greet(stranger);
    return true;
}

static int connect_to_relay(void)
{
    struct sockaddr_un address;
    int length = path_to_address(gate.setup->path, &address);
    int fd = length < 0 ? -1
                        : (int)sys(socket, AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

    if (fd >= 0 && sys(connect, fd, &address, length) < 0)
        sys_drop(&fd);
    return fd;
}

/* --- lines ------------------------------------------------------------------------------------ */

/* The keys do not outlast the connection. Pages of the buffers are not touched for that. */
static void drop_line(struct line *line)
{
    sys_drop(&line->network);
    sys_drop(&line->relay);
    explicit_bzero(&line->inward, offsetof(struct seal_reader, bytes));
    explicit_bzero(&line->outward, offsetof(struct seal_writer, bytes));
}

static struct line *make_line(void)
{
    struct line *oldest = &lines[0];

    for (unsigned i = 0; i < GATE_LINES; i++) {
        if (lines[i].network < 0)
            return &lines[i];
        if (lines[i].order < oldest->order)
            oldest = &lines[i];
    }
    drop_line(oldest);
    return oldest;
}

/* The seal has opened the proof: its next record is the first with content. */
static void admit(struct stranger *stranger, const struct seal *inward)
{
    int relay = connect_to_relay();
    struct line *line;

    if (relay < 0) {
        drop_stranger(stranger);
        return;
    }
    line = make_line();
    line->network = stranger->fd;
    stranger->fd = -1;
    line->relay = relay;
    line->order = ++gate.proved;
    line->inward.seal = *inward;
    seal_init(&line->outward.seal, gate.setup->key, &stranger->greeting, &stranger->told.answer,
              SEAL_TO_DAEMON);
    seal_writer_close(&line->outward, 0); /* the gate's own proof */
}

static void judge(struct stranger *stranger)
{
    struct seal inward;
    size_t length;

    seal_init(&inward, gate.setup->key, &stranger->greeting, &stranger->told.answer,
              SEAL_TO_SANDBOX);
    if (stranger->told.answer.version == SEAL_VERSION &&
        seal_open(&inward, stranger->told.proof, sizeof stranger->told.proof, &length) ==
            SEAL_WHOLE)
        admit(stranger, &inward);
    else
        drop_stranger(stranger);
    explicit_bzero(&inward, sizeof inward);
}

/* Reads no further than the proof: the bytes behind it belong to the line. */
static void hear_stranger(struct stranger *stranger)
{
    long length = sys(read, stranger->fd, (char *)&stranger->told + stranger->length,
                      sizeof stranger->told - stranger->length);

    if (length == -EAGAIN || length == -EINTR)
        return;
    if (length <= 0) {
        drop_stranger(stranger);
        return;
    }
    stranger->length += (size_t)length;
    if (stranger->length == sizeof stranger->told)
        judge(stranger);
}

/* --- copying ---------------------------------------------------------------------------------- */

/* Whether a system call has moved bytes; an end or a failure drops the line. */
static bool has_moved(struct line *line, long result)
{
    if (result == 0 || (result < 0 && result != -EAGAIN && result != -EINTR))
        drop_line(line);
    return result > 0;
}

static void receive(struct line *line)
{
    size_t room;
    uint8_t *to = seal_reader_room(&line->inward, &room);
    long length = sys(read, line->network, to, room);

    if (has_moved(line, length))
        seal_reader_add(&line->inward, (size_t)length);
}

static void move_inward(struct line *line)
{
    enum seal_result result = SEAL_PARTIAL;
    long length = 1;

    if (!line->inward.left)
        receive(line);
    while (line->network >= 0 && length > 0 &&
           (result = seal_reader_next(&line->inward)) == SEAL_WHOLE) {
        length =
            sys(write, line->relay, line->inward.bytes + line->inward.content, line->inward.left);
        if (has_moved(line, length))
            seal_reader_take(&line->inward, (size_t)length);
    }
    if (result == SEAL_BROKEN)
        drop_line(line);
}

static void move_outward(struct line *line)
{
    struct seal_writer *writer = &line->outward;
    long length;

    if (seal_writer_is_empty(writer)) {
        length = sys(read, line->relay, seal_writer_room(writer), SEAL_MAX_CONTENT);
        if (!has_moved(line, length))
            return;
        seal_writer_close(writer, (size_t)length);
    }
    length = sys(write, line->network, writer->bytes + writer->start, writer->end - writer->start);
    if (has_moved(line, length))
        writer->start += (size_t)length;
}

/* --- the loop --------------------------------------------------------------------------------- */

enum { POLL_LINES = 1, POLL_STRANGERS = POLL_LINES + 2 * GATE_LINES };

static TABLE_SELDOM_USED struct pollfd polls[POLL_STRANGERS + GATE_STRANGERS];

/* A side that is neither read nor written is polled for its end alone. */
static void poll_line(const struct line *line, struct pollfd two[2])
{
    bool sends = !seal_writer_is_empty(&line->outward);
    bool gives = line->inward.left;

    two[0].fd = line->network;
    two[0].events = (short)((gives ? 0 : POLLIN) | (sends ? POLLOUT : 0));
    two[1].fd = line->network < 0 ? -1 : line->relay;
    two[1].events = (short)((sends ? 0 : POLLIN) | (gives ? POLLOUT : 0));
}

/* An end of one side while the other does not take what is left of it ends the line: bridge and relay
 * send again what was lost. */
static void handle_line(struct line *line, const struct pollfd two[2])
{
    const short end = POLLHUP | POLLERR | POLLNVAL;
    int network = two[0].revents, relay = two[1].revents;

    if ((network & end && !(two[0].events & POLLIN)) ||
        (relay & end && !(two[1].events & POLLIN))) {
        drop_line(line);
        return;
    }
    if (network & (POLLIN | end) || (two[1].events & POLLOUT && relay & POLLOUT))
        move_inward(line);
    if (line->network >= 0 &&
        (relay & (POLLIN | end) || (two[0].events & POLLOUT && network & POLLOUT)))
        move_outward(line);
}

/* Drops strangers that take too long, and finds how many places have to be looked at. Returns the
 * milliseconds until the next one is late, -1 without. */
static int tick(void)
{
    int64_t now_us = sys_now_us();
    int64_t next_us = -1;

    while (gate.places && strangers[gate.places - 1].fd < 0)
        gate.places--;
    for (unsigned i = gate.places; i-- > 0;) {
        int64_t left_us = strangers[i].since_us + SEAL_HANDSHAKE_MS * 1000LL - now_us;

        if (strangers[i].fd < 0)
            continue;
        if (left_us <= 0)
            drop_stranger(&strangers[i]);
        else if (next_us < 0 || left_us < next_us)
            next_us = left_us;
    }
    if (gate.is_resting)
        return RESTING_MS;
    return next_us < 0 ? -1 : (int)(next_us / 1000) + 1;
}

static void turn(void)
{
    int timeout_ms = tick();

    polls[0] =
        (struct pollfd){ .fd = gate.is_resting ? -1 : gate.setup->listen_fd, .events = POLLIN };
    for (unsigned i = 0; i < gate.places; i++)
        polls[POLL_STRANGERS + i] = (struct pollfd){ .fd = strangers[i].fd, .events = POLLIN };
    for (unsigned i = 0; i < GATE_LINES; i++)
        poll_line(&lines[i], polls + POLL_LINES + (size_t)2 * i);
    if (sys(poll, polls, POLL_STRANGERS + gate.places, timeout_ms) < 0)
        return;
    gate.is_resting = false;
    for (unsigned i = 0; i < GATE_LINES; i++)
        if (lines[i].network >= 0)
            handle_line(&lines[i], polls + POLL_LINES + (size_t)2 * i);
    for (unsigned i = 0; i < gate.places; i++)
        if (polls[POLL_STRANGERS + i].revents)
            hear_stranger(&strangers[i]);
    if (polls[0].revents)
        for (unsigned i = 0; i < ACCEPTS_PER_TURN && accept_stranger(); i++)
            ;
}

void gate_run(struct gate_setup *setup)
{
    gate.setup = setup;
    for (unsigned i = 0; i < GATE_LINES; i++)
        lines[i].network = lines[i].relay = -1;
    for (;;)
        turn();
}
