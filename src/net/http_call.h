#pragma once

/*
 * Inside of the HTTP client: one call and its connection. As in the server, what happens is noted
 * and then settled from the loop.
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
    char *name;            /* owned: who the server has to be, for TLS */
    char *host;            /* owned: for the Host header */
    char *url;             /* owned: for messages */
    struct buffer headers; /* of every request, as they go out */
    struct list calls;     /* open ones, owned */
    int idle_fd;           /* owned: a connection to use again, or -1 */
    int64_t timeout_ms;    /* of a fetch */
    uint8_t *scratch;      /* owned: what is read goes here first */
};

struct http_call {
    struct http_client *client; /* borrowed */
    struct list link;
    struct http_call_handler handler;
    void *user;
    enum http_method method;
    struct io_watch socket; /* its fd is owned */
    struct timer timer;     /* for connecting */
    int64_t connect_by_us;
    struct deferred work;
    struct http_parser *parser; /* owned */
    struct send_queue send_queue;
    struct buffer again; /* the request, while it may have to be sent once more */
    struct buffer input; /* read and not parsed yet */
    const uint8_t *data; /* the same while settling; may point into client->scratch */
    size_t left;
    int status;
    struct error err;
    bool connecting;
    bool backlogged; /* and it waits for the timer to try again */
    bool reused;     /* the connection had served another call */
    bool streamed;   /* the request body comes by http_call_write() */
    bool body_ended; /* and has ended */
    bool wants_room; /* on_writable is due when there is room */
    bool has_head;   /* of the final answer */
    bool raw;        /* after 101 */
    bool paused;
    bool peer_ended;   /* end of input */
    bool peer_reset;   /* by an error */
    bool write_failed; /* the answer may still come */
    bool settling;
    bool finished;
    bool cancelled;
};

enum { HTTP_CALL_INPUT_BYTES = 64 * 1024 };

/* --- http_call.c --------------------------------------------------------------------------- */

void call_wake(struct http_call *call);
void call_free(struct http_call *call);

/* Ends the call; on_end comes from the loop. `err` NULL is success. */
void call_finish(struct http_call *call, const struct error *err);

/* --- http_connect.c ------------------------------------------------------------------------ */

/* Takes the idle connection, or starts a new one. */
void call_connect(struct http_call *call);
void call_connect_ready(struct http_call *call); /* the socket became writable */
void call_connected(struct http_call *call);     /* told to http_call.c */

/* Keeps the connection for the next call if that is sound. */
void call_give_back(struct http_call *call);
