/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * A connection to a Redis server, on the loop, that reconnects by itself.
 *
 * It finds the server (by name, by its sentinels), connects, authenticates, selects the database
 * and makes sure that it talks to a master; then it is ready. Requests are answered in their order.
 * When the connection is lost, all requests that have no answer get NULL, and the link reconnects
 * with back-off.
 *
 * hiredis reads the answers. The socket is ours, so that TLS is the one of net/tls.h, names are
 * looked up by a thread, and unanswered requests are known when the connection ends.
 */

#include "base/buffer.h"
#include "base/error.h"
#include "config/redis_url.h"
#include "loop/loop.h"
#include "loop/worker.h"
#include "net/address.h"
#include "net/tls.h"

#include <hiredis/hiredis.h>

struct redis_link;
struct redis_request;

/* `reply` is NULL when the connection was lost, and borrowed otherwise. */
typedef void redis_reply_fn(struct redis_request *request, const redisReply *reply);

/* Embedded by the caller, which keeps it until the answer. */
struct redis_request {
    redis_reply_fn *on_reply;
    struct redis_link *link; /* set when it is sent; borrowed */
    struct list node;
};

struct redis_link_owner {
    void (*on_ready)(struct redis_link *link);
    /* The link is not ready, or no longer; `err` says why. Called after the requests have got their
     * NULL. */
    void (*on_away)(struct redis_link *link, const struct error *err);
    /* An answer that no request asked for: a message of a subscription. */
    void (*on_message)(struct redis_link *link, const redisReply *reply);
};

enum redis_link_state {
    LINK_STOPPED,
    LINK_WAITING,    /* until the next try */
    LINK_RESOLVING,  /* a thread looks a name up */
    LINK_CONNECTING, /* the socket connects */
    LINK_ASKING,     /* a sentinel, for the address of the master */
    LINK_GREETING,   /* the server, for the right to talk to it */
    LINK_READY,
};

/* The requests that a new connection begins with. */
enum { GREETING_AUTH, GREETING_SELECT, GREETING_ROLE, LINK_GREETINGS };

struct redis_link {
    struct loop *loop;                    /* borrowed */
    const struct redis_link_owner *owner; /* borrowed */
    const struct redis_url *url;          /* borrowed */
    struct tls *tls;                      /* owned; NULL without TLS */
    struct worker *worker;                /* owned: looks names up; NULL until it is needed */
    enum redis_link_state state;
    unsigned sentinel; /* the next one to ask */
    unsigned failures; /* in a row */
    char *target;      /* owned: "host:port" that it connects to, or "unix:path" */
    bool to_sentinel;
    struct {
        struct job job;
        char *target; /* owned: the thread's copy */
        struct address address;
        struct error err;
    } lookup;
    struct io_watch socket;
    redisReader *reader; /* owned */
    struct buffer output;
    size_t sent; /* of it */
    struct list requests;
    struct redis_request greetings[LINK_GREETINGS];
    struct redis_request asked_sentinel;
    struct timer timer;   /* until the next try, or for a step that takes too long */
    struct timer overdue; /* an answer is */
    struct error err;     /* why the last connection ended */
};

struct redis_link_options {
    struct loop *loop;                    /* borrowed */
    const struct redis_link_owner *owner; /* borrowed */
    const struct redis_url *url;          /* borrowed */
    const char *ca;                       /* PEM file; "" or NULL: the system's authorities */
};

int redis_link_init(struct redis_link *link, const struct redis_link_options *options,
                    struct error *err);
void redis_link_start(struct redis_link *link);
void redis_link_fini(
    struct redis_link *link); /* its requests get no answer; a zeroed one is fine */

/* Ends the connection, to try again soon: the server has said that it cannot serve. */
void redis_link_drop(struct redis_link *link, const struct error *err);

static inline bool redis_link_is_ready(const struct redis_link *link)
{
    return link->state == LINK_READY;
}

struct redis_word {
    const char *data;
    size_t length;
};

#define REDIS_WORD(text) ((struct redis_word){ (text), strlen(text) })

/* Only while the link is ready, or from on_ready. The words are copied. */
void redis_link_send(struct redis_link *link, struct redis_request *request,
                     const struct redis_word *words, size_t count);

/* Whether the reply is an array that begins with `count` texts. The server is not trusted: every
 * answer is checked here before it is read. NULL is fine. */
bool redis_reply_has_words(const redisReply *reply, size_t count);
