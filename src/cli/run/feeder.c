/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/run/feeder.h"

#include "base/alloc.h"
#include "net/http_client.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

enum {
    PIECE_BYTES = 256 * 1024,
    PAUSE_US = 500 * 1000,
    AGAIN_US = 1000 * 1000,
    END_OF_INPUT_BYTE = 0x04
};

static void feeder_read(struct feeder *feeder);
static void feeder_end(struct feeder *feeder);

static void on_readable(struct io_watch *watch, unsigned events UNUSED)
{
    feeder_read(container_of(watch, struct feeder, watch));
}

static void on_ready(struct deferred *deferred)
{
    feeder_read(container_of(deferred, struct feeder, ready));
}

static void feeder_await(struct feeder *feeder)
{
    if (feeder->pollable)
        io_watch_start(&feeder->watch, feeder->cli->loop, feeder->fd, IO_READ, on_readable);
    else
        loop_defer(feeder->cli->loop, &feeder->ready, on_ready);
}

static void on_pause_over(struct timer *timer)
{
    struct feeder *feeder = container_of(timer, struct feeder, pause);

    if (feeder->ended)
        feeder_end(feeder);
    else
        feeder_await(feeder);
}

static void on_answer_data(struct http_call *call UNUSED, const uint8_t *data UNUSED,
                           size_t length UNUSED)
{
}

static void on_answer(struct http_call *call, const struct error *err)
{
    struct feeder *feeder = http_call_user(call);

    feeder->call = NULL;
    if (feeder->ended) {
        if (feeder->terminal && (err || http_call_status(call) < 400))
            timer_arm_in(&feeder->pause, AGAIN_US);
        return;
    }
    if (err) {
        cli_note("input was lost: %s", err->message);
        timer_arm_in(&feeder->pause, PAUSE_US);
        return;
    }

    /* Refused: the program has ended or has closed its input, so the rest is dropped. */
    if (http_call_status(call) >= 400)
        feeder->ended = true;
    else
        feeder_await(feeder);
}

static const struct http_call_handler feeder_handler = {
    .on_data = on_answer_data,
    .on_end = on_answer,
};

static void feeder_send(struct feeder *feeder, const void *data, size_t length, bool last)
{
    scoped(free) char *target = session_target(feeder->session, "/executions/%s/stdin%s",
                                               feeder->execution, last ? "?eof=1" : "");

    feeder->call = http_client_request(feeder->cli->client, HTTP_POST, target,
                                       "application/octet-stream", data, (int64_t)length, NULL,
                                       &feeder_handler, feeder);
}

/* The end of a file stays; on a terminal it is a byte that ends one read, or only the line that was
 * begun, and that a program can discard. So it is repeated for as long as the program runs. */
static void feeder_end(struct feeder *feeder)
{
    static const uint8_t end_byte = END_OF_INPUT_BYTE;

    feeder->ended = true;
    if (feeder->terminal)
        feeder_send(feeder, &end_byte, 1, false);
    else
        feeder_send(feeder, "", 0, true);
}

static void feeder_read(struct feeder *feeder)
{
    ssize_t count = read(feeder->fd, feeder->piece, PIECE_BYTES);

    if (count < 0 && (errno == EINTR || errno == EAGAIN)) {
        feeder_await(feeder);
        return;
    }
    io_watch_stop(&feeder->watch);
    if (count > 0)
        feeder_send(feeder, feeder->piece, (size_t)count, false);
    else
        feeder_end(feeder);
}

bool feeder_is_pollable(int fd)
{
    scoped(fd_close) int poller = epoll_create1(EPOLL_CLOEXEC);
    struct epoll_event event = { .events = EPOLLIN };

    return epoll_ctl(poller, EPOLL_CTL_ADD, fd, &event) == 0;
}

void feeder_start(struct feeder *feeder, struct cli *cli, const char *session,
                  const char *execution, int fd, bool terminal)
{
    *feeder = (struct feeder){
        .cli = cli,
        .session = session,
        .execution = execution,
        .fd = fd,
        .terminal = terminal,
        .pollable = feeder_is_pollable(fd),
        .piece = xmalloc(PIECE_BYTES),
    };
    timer_init(&feeder->pause, cli->loop, on_pause_over);
    feeder_await(feeder);
}

void feeder_stop(struct feeder *feeder)
{
    if (!feeder->cli)
        return;
    feeder->ended = true;
    io_watch_stop(&feeder->watch);
    loop_undefer(feeder->cli->loop, &feeder->ready);
    timer_stop(&feeder->pause);
    if (feeder->call)
        http_call_cancel(feeder->call);
    free(feeder->piece);
    *feeder = (struct feeder){ 0 };
}
