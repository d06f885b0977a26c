/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * A server on the real loop and clients as bare sockets, all in one thread: the client's calls run
 * the loop until what they wait for has happened or the deadline has passed.
 */

#include "base/buffer.h"
#include "loop/loop.h"
#include "net/http_server.h"

#include <stdbool.h>
#include <stddef.h>

enum { FIXTURE_DEADLINE_MS = 60 * 1000 };

struct fixture {
    struct loop *loop;
    struct http_server *server;
    char directory[64];
    char socket_path[96];
    struct http_exchange *held; /* of a handler that answers later */
    unsigned requests;
    unsigned closes;
};

/* The limits may be NULL. Listens on a unix socket in a directory of its own and on TCP. */
void fixture_start(struct fixture *fixture, const struct http_server_limits *limits,
                   http_request_fn *on_request);
void fixture_start_by(struct fixture *fixture, const struct clock *clock,
                      const struct http_server_limits *limits, http_request_fn *on_request);
void fixture_stop(struct fixture *fixture);

/* Runs the loop until the condition holds; fails the test at the deadline. */
#define fixture_wait(fixture, condition)                                                    \
    do {                                                                                    \
        int64_t deadline_us_ = loop_now_us((fixture)->loop) + FIXTURE_DEADLINE_MS * 1000LL; \
        while (!(condition)) {                                                              \
            if (loop_now_us((fixture)->loop) > deadline_us_)                                \
                fail_msg("%s:%d: never: %s", __FILE__, __LINE__, #condition);               \
            loop_turn((fixture)->loop, 5);                                                  \
        }                                                                                   \
    } while (0)

struct peer {
    struct fixture *fixture;
    int fd;
    struct buffer received;
    bool ended; /* end of input */
    bool reset;
};

void peer_open_unix(struct peer *peer, struct fixture *fixture);
void peer_open_tcp(struct peer *peer, struct fixture *fixture);
void peer_close(struct peer *peer);

static inline void scoped_peer_close(struct peer *peer)
{
    peer_close(peer);
}

void peer_send(struct peer *peer, const void *data, size_t length); /* all of it */
void peer_send_text(struct peer *peer, const char *text);
bool peer_poll(struct peer *peer); /* reads what is there; true when something was */

bool peer_has(struct peer *peer, const char *text);
unsigned peer_count(struct peer *peer, const char *text);

/* Reads until the text has come, or the connection has ended. */
void peer_expect(struct peer *peer, const char *text);
void peer_expect_end(struct peer *peer);

/* Whole messages: the status of the first response received, which is removed; the body goes to
 * `body`, if given. */
int peer_read_response(struct peer *peer, struct buffer *body);

size_t count_open_files(void);
