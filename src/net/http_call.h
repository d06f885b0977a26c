/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Private to the HTTP client: one call and its connection. As in the server, events are noted and
 * then settled from the loop.
 */

#include "base/list.h"
#include "net/address.h"
#include "net/http_client.h"
#include "net/send_queue.h"
#include "net/tls.h"

struct http_client {
    struct loop *loop; /* borrowed */
    struct address address;
    struct tls *tls;       /* owned; NULL without it */
    char *name;            /* owned: expected name of the server, for TLS */
    char *host;            /* owned: for the Host header */
    char *url;             /* owned: for messages */
    struct buffer headers; /* of every request, as they go out */
    struct list calls;     /* open ones, owned */
    int *idle;             /* owned: connections to use again, the last one first */
    size_t idle_count;
    size_t idle_maximum;
    bool is_given;      /* the connection was made elsewhere; there is no address */
    bool fresh_posts;   /* idle connections are for requests that may be repeated */
    int64_t timeout_ms; /* of a fetch */
    uint8_t *scratch;   /* owned: buffer for reads */
};

/* The state of a call. The only way back is from ASKING to CONNECTING: see call_retry(). */
enum call_state {
    CALL_CONNECTING, /* connect() is under way, or nothing has begun */
    CALL_BACKLOGGED, /* the server's backlog is full: the timer tries again */
    CALL_ASKING,     /* connected; the head of the final answer has not come */
    CALL_ANSWERED,   /* the head has come, and the body follows */
    CALL_RAW,        /* after 101: a plain stream both ways */
    CALL_FINISHED,   /* on_end is due, from the loop */
    CALL_CANCELLED,  /* freed as soon as no function of the call is on the stack */
};

/* The sending half. */
enum call_sending {
    SENDING_ENDED,      /* the whole body is queued */
    SENDING_OPEN,       /* http_call_write() may add to it */
    SENDING_WANTS_ROOM, /* and on_writable is due when there is room */
    SENDING_FAILED,     /* the server reads no more; its answer may still come */
};

enum call_input { INPUT_OPEN, INPUT_ENDED, INPUT_RESET };

struct call_connection {
    struct io_watch socket; /* its fd is owned */
    struct timer timer;     /* for connecting */
    int64_t deadline_us;    /* of connecting */
    bool reused;            /* the connection had served another call */
};

struct call_request {
    enum http_method method;
    bool streamed; /* the body comes by http_call_write() */
    bool chunked;  /* and its length is not known */
    bool upgrades; /* asks for a plain stream */
    enum call_sending sending;
    struct send_queue queue;
    struct buffer again; /* the request, while it may have to be sent once more */
};

struct call_answer {
    struct http_parser *parser; /* owned */
    int status;                 /* 0 before the head of the final answer */
    bool paused;                /* by the owner of the call: nothing is read */
    enum call_input input;
    struct buffer unparsed; /* read and not parsed yet */
    const uint8_t *data;    /* the same while settling; may point into client->scratch */
    size_t left;
};

struct http_call {
    struct http_client *client; /* borrowed */
    struct list link;
    struct http_call_handler handler;
    void *user;
    enum call_state state; /* changed by call_enter() only */
    bool settling;         /* a function of the call is on the stack: the call may not be freed */
    struct deferred work;
    struct call_connection connection;
    struct call_request request;
    struct call_answer answer;
    struct error err;
};

enum { HTTP_CALL_INPUT_BYTES = 64 * 1024 };

/* --- http_call.c --------------------------------------------------------------------------- */

void call_wake(struct http_call *call);

/* Goes to the next state, which has to be a successor of this one. */
void call_enter(struct http_call *call, enum call_state state);

static inline bool call_is_connecting(const struct http_call *call)
{
    return call->state == CALL_CONNECTING || call->state == CALL_BACKLOGGED;
}

/* Whether the request changes nothing, or nothing more, when it is sent once more. */
bool call_may_repeat(const struct http_call *call);

void call_free(struct http_call *call);

/* Ends the call; on_end comes from the loop. `err` NULL is success. */
void call_finish(struct http_call *call, const struct error *err);

/* --- http_connect.c ------------------------------------------------------------------------ */

/* Takes an idle connection, or starts a new one. */
void call_connect(struct http_call *call);
void call_connect_ready(struct http_call *call); /* the socket became writable */
void call_connected(struct http_call *call);     /* reported to http_call.c */

/* Keeps the connection for the next call if that is sound. */
void call_give_back(struct http_call *call);
