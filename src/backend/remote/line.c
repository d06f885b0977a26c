/* SPDX-License-Identifier: Apache-2.0 */
#include "backend/remote/line.h"

#include "base/alloc.h"
#include "base/fd.h"
#include "base/log.h"
#include "base/macros.h"
#include "base/str.h"
#include "loop/loop.h"
#include "wire/seal.h"

#include <arpa/inet.h>
#include <assert.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>

_Static_assert((int)RELAY_KEY_SIZE == (int)AEAD_KEY_SIZE, "the key of a sandbox seals");

enum {
    MOVES_PER_TURN = 4,
    UNANSWERED_MS = 15000, /* the network has acknowledged nothing of what was sent */
    PLACE_SIZE = INET6_ADDRSTRLEN + 16,
};

/* | state           | leads to              |
 * | LINE_CONNECTING | LINE_GREETING, gone   |
 * | LINE_GREETING   | LINE_PROVING, gone    |
 * | LINE_PROVING    | LINE_OPEN, gone       |
 * | LINE_OPEN       | gone                  | */
enum line_state {
    LINE_CONNECTING,
    LINE_GREETING, /* the gate's greeting has to come */
    LINE_PROVING,  /* the gate's proof has to come */
    LINE_OPEN,     /* the receiver has its socket */
};

struct line {
    enum line_state state;
    struct list node;
    struct line_set *set;    /* borrowed */
    struct line_call *call;  /* borrowed until it is answered, then NULL */
    struct io_watch network; /* the fd is owned */
    struct io_watch local;   /* our end of the pair; the fd is owned */
    struct timer limit;      /* of the handshake */
    int64_t timeout_ms;
    char place[PLACE_SIZE];      /* for messages */
    uint8_t key[RELAY_KEY_SIZE]; /* of the sandbox; until both keys are derived from it */
    struct seal_greeting greeting;
    size_t greeted;             /* bytes of the greeting that have come */
    struct seal_writer outward; /* to the sandbox */
    struct seal_reader inward;
};

static void on_network(struct io_watch *one, unsigned events);
static void on_local(struct io_watch *one, unsigned events);

static void line_free(struct line *line)
{
    if (line->call)
        line->call->private = NULL;
    timer_stop(&line->limit);
    io_watch_stop(&line->network);
    io_watch_stop(&line->local);
    fd_close(line->network.fd);
    fd_close(line->local.fd);
    list_remove(&line->node);
    explicit_bzero(line, sizeof(*line));
    free(line);
}

static void answer(struct line *line, int fd, const struct error *err)
{
    struct line_call *call = steal_ptr(&line->call);

    call->private = NULL;
    call->fd = fd;
    call->err = err ? *err : (struct error){ 0 };
    if (fd < 0)
        line_free(line);
    call->done(call);
}

static void refuse(struct line *line, const char *why)
{
    struct error err = { 0 };

    error_set(&err, ERR_UNAVAILABLE, "%s %s", line->place, why);
    answer(line, -1, &err);
}

static void refuse_by_errno(struct line *line, int number)
{
    struct error err = { 0 };

    errno = number;
    error_sys(&err, "connect to %s", line->place);
    err.code = ERR_UNAVAILABLE;
    answer(line, -1, &err);
}

/* --- copying ---------------------------------------------------------------------------------- */

static void watch(struct line *line, struct io_watch *one, unsigned events, io_ready_fn *on_ready)
{
    if (!events)
        io_watch_stop(one);
    else if (events != one->events)
        io_watch_start(one, line->set->loop, one->fd, events, on_ready);
}

/* Each direction waits for bytes, or for room for those that it has. */
static void watch_both(struct line *line)
{
    bool sends = !seal_writer_is_empty(&line->outward);
    bool gives = line->inward.left;
    bool is_open = line->state == LINE_OPEN;

    watch(line, &line->network, (gives ? 0U : IO_READ) | (sends ? IO_WRITE : 0U), on_network);
    if (is_open)
        watch(line, &line->local, (sends ? 0U : IO_READ) | (gives ? IO_WRITE : 0U), on_local);
}

enum moved { MOVED_SOME, MOVED_NOTHING, MOVED_END };

static enum moved moved(ssize_t result)
{
    if (result > 0)
        return MOVED_SOME;
    return result < 0 && (errno == EAGAIN || errno == EINTR) ? MOVED_NOTHING : MOVED_END;
}

static enum moved send_record(struct line *line)
{
    struct seal_writer *writer = &line->outward;
    ssize_t length = send(line->network.fd, writer->bytes + writer->start,
                          writer->end - writer->start, MSG_NOSIGNAL | MSG_DONTWAIT);

    if (length > 0)
        writer->start += (size_t)length;
    return moved(length);
}

static enum moved move_outward(struct line *line)
{
    struct seal_writer *writer = &line->outward;
    enum moved result = MOVED_SOME;

    for (unsigned i = 0; i < MOVES_PER_TURN && result == MOVED_SOME; i++) {
        if (seal_writer_is_empty(writer)) {
            ssize_t length =
                recv(line->local.fd, seal_writer_room(writer), SEAL_MAX_CONTENT, MSG_DONTWAIT);

            result = moved(length);
            if (result != MOVED_SOME)
                return result;
            seal_writer_close(writer, (size_t)length);
        }
        result = send_record(line);
    }
    return result;
}

static enum moved receive(struct line *line)
{
    size_t room;
    uint8_t *to = seal_reader_room(&line->inward, &room);
    ssize_t length = recv(line->network.fd, to, room, MSG_DONTWAIT);

    if (length > 0)
        seal_reader_add(&line->inward, (size_t)length);
    return moved(length);
}

/* Gives the receiver what was opened, as far as it takes it. */
static enum moved give(struct line *line)
{
    struct seal_reader *reader = &line->inward;
    enum seal_result result;

    while ((result = seal_reader_next(reader)) == SEAL_WHOLE) {
        ssize_t length = send(line->local.fd, reader->bytes + reader->content, reader->left,
                              MSG_NOSIGNAL | MSG_DONTWAIT);

        if (length <= 0)
            return moved(length);
        seal_reader_take(reader, (size_t)length);
    }
    if (result == SEAL_BROKEN)
        log_warn("a sealed connection is broken: a record is not the next one",
                 kv("address", line->place));
    return result == SEAL_BROKEN ? MOVED_END : MOVED_SOME;
}

static enum moved move_inward(struct line *line)
{
    enum moved result = MOVED_SOME;

    for (unsigned i = 0; i < MOVES_PER_TURN && result == MOVED_SOME; i++) {
        if (!line->inward.left)
            result = receive(line);
        if (result == MOVED_SOME)
            result = give(line);
    }
    return result;
}

static void on_local(struct io_watch *one, unsigned events)
{
    struct line *line = container_of(one, struct line, local);

    if ((events & IO_WRITE && line->inward.left && give(line) == MOVED_END) ||
        (events & IO_READ && seal_writer_is_empty(&line->outward) &&
         move_outward(line) == MOVED_END))
        line_free(line);
    else
        watch_both(line);
}

/* --- the handshake ---------------------------------------------------------------------------- */

static void prove(struct line *line)
{
    struct seal_answer told = { .version = SEAL_VERSION };
    size_t at = sizeof(told);

    if (getrandom(told.nonce, sizeof(told.nonce), 0) != sizeof(told.nonce)) {
        refuse_by_errno(line, errno);
        return;
    }
    seal_init(&line->outward.seal, line->key, &line->greeting, &told, SEAL_TO_SANDBOX);
    seal_init(&line->inward.seal, line->key, &line->greeting, &told, SEAL_TO_DAEMON);
    explicit_bzero(line->key, sizeof(line->key));
    memcpy(line->outward.bytes, &told, at);
    line->outward.end = at + seal_close(&line->outward.seal, line->outward.bytes + at, 0);
    line->state = LINE_PROVING;
    if (send_record(line) == MOVED_END)
        refuse_by_errno(line, errno);
    else
        watch_both(line);
}

static bool is_gate(const struct seal_greeting *greeting)
{
    return !memcmp(greeting->magic, SEAL_MAGIC, sizeof(greeting->magic)) &&
           greeting->oldest <= SEAL_VERSION && greeting->newest >= SEAL_VERSION;
}

static void take_greeting(struct line *line)
{
    ssize_t length = recv(line->network.fd, (char *)&line->greeting + line->greeted,
                          sizeof(line->greeting) - line->greeted, MSG_DONTWAIT);

    switch (moved(length)) {
    case MOVED_NOTHING:
        return;
    case MOVED_END:
        refuse(line, "closes the connection before a greeting");
        return;
    case MOVED_SOME:
        break;
    }
    line->greeted += (size_t)length;
    if (line->greeted < sizeof(line->greeting))
        return;
    if (is_gate(&line->greeting))
        prove(line);
    else
        refuse(line, "is not the gate of a sandbox, or speaks another version");
}

/* The first records of content may be there already. */
static void become_open(struct line *line)
{
    int pair[2];

    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, pair) < 0) {
        refuse_by_errno(line, errno);
        return;
    }
    line->state = LINE_OPEN;
    line->local.fd = pair[0];
    if (give(line) == MOVED_END) {
        fd_close(pair[1]);
        refuse(line, "breaks the connection");
        return;
    }
    timer_stop(&line->limit);
    watch_both(line);
    answer(line, pair[1], NULL);
}

/* The proof is the first record, and empty. It is opened alone: records of content may have come together
 * with it. */
static void take_proof(struct line *line)
{
    struct seal_reader *reader = &line->inward;
    enum moved result = receive(line);
    size_t length = 0;

    if (result == MOVED_NOTHING)
        return;
    if (result == MOVED_END) {
        refuse(line, "refuses the key, or closes the connection");
        return;
    }
    switch (seal_open(&reader->seal, reader->bytes, reader->end, &length)) {
    case SEAL_PARTIAL:
        return;
    case SEAL_WHOLE:
        reader->start = length + SEAL_OVERHEAD;
        if (length == 0)
            become_open(line);
        else
            refuse(line, "gives no proof");
        return;
    case SEAL_BROKEN:
        refuse(line, "does not know the key of the sandbox");
        return;
    }
}

/* --- the connection --------------------------------------------------------------------------- */

static void on_connected(struct line *line)
{
    int number = 0;
    socklen_t length = sizeof(number);

    if (getsockopt(line->network.fd, SOL_SOCKET, SO_ERROR, &number, &length) < 0)
        number = errno;
    if (number) {
        refuse_by_errno(line, number);
        return;
    }
    line->state = LINE_GREETING;
    watch_both(line);
}

static void copy(struct line *line, unsigned events)
{
    if ((events & IO_WRITE && !seal_writer_is_empty(&line->outward) &&
         move_outward(line) == MOVED_END) ||
        (events & IO_READ && !line->inward.left && move_inward(line) == MOVED_END))
        line_free(line);
    else
        watch_both(line);
}

static void on_network(struct io_watch *one, unsigned events)
{
    struct line *line = container_of(one, struct line, network);

    switch (line->state) {
    case LINE_CONNECTING:
        on_connected(line);
        return;
    case LINE_GREETING:
        take_greeting(line);
        return;
    case LINE_PROVING:
        if (events & IO_WRITE && !seal_writer_is_empty(&line->outward) &&
            send_record(line) == MOVED_END) {
            refuse_by_errno(line, errno);
            return;
        }
        watch_both(line);
        if (events & IO_READ)
            take_proof(line);
        return;
    case LINE_OPEN:
        copy(line, events);
        return;
    }
}

static void on_limit(struct timer *timer)
{
    struct line *line = container_of(timer, struct line, limit);
    char limit[STR_UNIT_SIZE];
    char why[STR_UNIT_SIZE + 40];

    str_format_duration(line->timeout_ms, limit);
    snprintf(why, sizeof(why), "does not answer within %s", limit);
    refuse(line, why);
}

static socklen_t parse(const char *address, unsigned port, struct sockaddr_storage *out)
{
    struct sockaddr_in *old = (struct sockaddr_in *)(void *)out;
    struct sockaddr_in6 *new = (struct sockaddr_in6 *)(void *)out;

    *out = (struct sockaddr_storage){ 0 };
    if (inet_pton(AF_INET, address, &old->sin_addr) == 1) {
        old->sin_family = AF_INET;
        old->sin_port = htons((uint16_t)port);
        return sizeof(*old);
    }
    if (inet_pton(AF_INET6, address, &new->sin6_addr) != 1)
        return 0;
    new->sin6_family = AF_INET6;
    new->sin6_port = htons((uint16_t)port);
    return sizeof(*new);
}

static void connect_to(struct line *line, const struct sockaddr_storage *place, socklen_t length)
{
    static const int yes = 1, unanswered_ms = UNANSWERED_MS;
    int fd = socket(place->ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);

    line->network.fd = fd;
    if (fd < 0) {
        refuse_by_errno(line, errno);
        return;
    }
    (void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof(yes));
    (void)setsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &unanswered_ms, sizeof(unanswered_ms));
    if (connect(fd, (const struct sockaddr *)place, length) < 0 && errno != EINPROGRESS) {
        refuse_by_errno(line, errno);
        return;
    }
    io_watch_start(&line->network, line->set->loop, fd, IO_WRITE, on_network);
    timer_arm_in(&line->limit, line->timeout_ms * 1000);
}

void line_open(struct line_set *set, struct line_call *call, const char *address, unsigned port,
               const uint8_t key[RELAY_KEY_SIZE], int64_t timeout_ms, line_fn *done)
{
    struct line *line = xnew(struct line);
    struct sockaddr_storage place;
    socklen_t length = parse(address, port, &place);

    assert(!call->private && timeout_ms > 0);
    *call = (struct line_call){ .done = done, .fd = -1, .private = line };
    line->set = set;
    line->call = call;
    line->timeout_ms = timeout_ms;
    line->network.fd = line->local.fd = -1;
    memcpy(line->key, key, sizeof(line->key));
    snprintf(line->place, sizeof(line->place), strchr(address, ':') ? "[%.45s]:%u" : "%.45s:%u",
             address, port);
    timer_init(&line->limit, set->loop, on_limit);
    list_append(&set->list, &line->node);
    if (length)
        connect_to(line, &place, length);
    else
        refuse(line, "is no address");
}

void line_cancel(struct line_call *call)
{
    if (call->private)
        line_free(call->private);
}

void line_set_init(struct line_set *set, struct loop *loop)
{
    set->loop = loop;
    list_init(&set->list);
}

void line_set_fini(struct line_set *set)
{
    struct line *line;

    while ((line = list_first(&set->list, struct line, node)))
        line_free(line);
}
