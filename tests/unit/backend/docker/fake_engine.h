/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * A container engine of a few lines, on the loop of the test: it listens at a unix socket, reads
 * requests whole and hands them to the test, which answers with the bytes it likes. GET /_ping is
 * answered by itself unless the test says otherwise.
 */

#include "backend/docker/engine.h"
#include "base/buffer.h"

enum { FAKE_DEADLINE_MS = 20000, FAKE_CONNECTIONS = 64 };

struct fake_engine;

enum fake_connection_state { FAKE_ASKING, FAKE_RAW };

struct fake_connection {
    struct fake_engine *engine; /* borrowed */
    struct io_watch socket;     /* its fd is owned; -1: the place is free */
    enum fake_connection_state state;
    struct buffer received;
    bool ended;        /* the client has closed its sending half */
    unsigned requests; /* so far */
};

/* The request is valid until it returns. */
typedef void fake_request_fn(struct fake_connection *connection, const char *method,
                             const char *target, const char *body);

struct fake_engine {
    struct loop *loop;    /* borrowed */
    struct io_watch door; /* its fd is owned; -1: closed */
    char directory[64];
    char path[96];
    char host[128];      /* unix:///… */
    const char *version; /* of the API; NULL: /_ping is the test's to answer */
    unsigned pings;
    unsigned accepted; /* connections so far */
    fake_request_fn *on_request;
    struct fake_connection connections[FAKE_CONNECTIONS];
    struct fake_connection *last; /* the connection of the last request that the test was given */
    char last_target[512];
    char last_body[1024];
    unsigned requests; /* without pings */
};

void fake_engine_start(struct fake_engine *fake, struct loop *loop, fake_request_fn *on_request);
void fake_engine_stop(struct fake_engine *fake);
void fake_engine_close_door(struct fake_engine *fake); /* and every connection: it was killed */
void fake_engine_open_door(struct fake_engine *fake);  /* it is back */

void fake_send(struct fake_connection *connection, const void *data, size_t length);
void fake_send_text(struct fake_connection *connection, const char *text);
/* A whole answer with a length. */
void fake_answer(struct fake_connection *connection, int status, const char *type,
                 const char *body);
void fake_become_raw(struct fake_connection *connection); /* what comes stays in `received` */
void fake_hang_up(struct fake_connection *connection);

/* Turns until the condition holds. */
#define fake_wait(loop_pointer, condition)                                            \
    do {                                                                              \
        int64_t deadline_us_ = loop_now_us(loop_pointer) + FAKE_DEADLINE_MS * 1000LL; \
        while (!(condition)) {                                                        \
            if (loop_now_us(loop_pointer) > deadline_us_)                             \
                fail_msg("%s:%d: never: %s", __FILE__, __LINE__, #condition);         \
            loop_turn(loop_pointer, 5);                                               \
        }                                                                             \
    } while (0)
