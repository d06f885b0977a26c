/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Private to the HTTP server: a connection and its exchange, one at a time.
 *
 * Every event of a connection (bytes, an answer from the handler, a timer) is only noted;
 * connection_settle() then does all work that is possible. It runs from the loop, never below a
 * call of the handler, so callbacks never come from inside of the call that caused them, and memory
 * can go as soon as it returns.
 *
 * How a client that left differs from one that only closed its sending half, once its request is
 * complete: a unix socket reports a hang-up for the first and not for the second. TCP shows both as
 * an end of input, so something is sent that does no harm: the first bytes of the answer, which are
 * always the same, or between two chunks a leading zero of the next chunk's size. A peer that is
 * gone answers with a reset. Connections that are not being read are checked once a second.
 */

#include "base/id.h"
#include "base/list.h"
#include "net/http_server.h"
#include "net/listener.h"
#include "net/send_queue.h"

enum exchange_sending {
    EXCHANGE_SENDS,
    EXCHANGE_ENDS, /* when everything is sent */
    EXCHANGE_ENDED,
};

struct http_exchange {
    char id[ID_SIZE];
    void *user;
    http_close_fn *on_close;
    http_close_fn *on_drain;
    http_body_fn *on_body;
    http_data_fn *on_data;
    struct buffer body;    /* the whole body, for on_body */
    struct buffer headers; /* of the answer, as they go out */
    int status;            /* of the answer; 0 before its head is written */
    int64_t answer_left;   /* bytes promised and not written yet; -1 when unknown */
    struct io_watch pipe;  /* of http_respond_content(): its fd is owned; -1 without */
    size_t pipe_left;      /* bytes that are still to come through it */
    bool active;           /* from the complete head to on_close */
    bool request_done;     /* all of the request has been read */
    bool request_told;     /* and its end was handed to the handler */
    bool paused;
    bool wants_continue; /* the client waits for 100 */
    bool started;        /* the head of the answer is written */
    bool ended;
    bool chunked;
    bool without_body;             /* HEAD, 204, 304 */
    bool raw;                      /* after 101 */
    enum exchange_sending sending; /* after 101: the half of the stream to the client */
    bool keep_alive;               /* decided with the head of the answer */
    bool above_high_water;
};

enum connection_state {
    CONNECTION_OPEN,
    CONNECTION_FLUSHING,  /* no more requests; closes when the output is empty */
    CONNECTION_LINGERING, /* all is sent; reads until the client has closed too, for a while */
};

struct http_connection {
    struct http_server *server; /* borrowed */
    struct list link;           /* in server->connections */
    struct list waiting;        /* in server->waiting while it has no exchange */
    struct io_watch socket;     /* its fd is owned */
    struct timer timer;
    struct deferred work;
    struct http_parser *parser; /* owned */
    struct http_peer peer;
    struct http_exchange exchange;
    struct send_queue send_queue;
    struct buffer input; /* read and not parsed yet */
    const uint8_t *data; /* the same while settling; may point into server->scratch */
    size_t left;
    enum connection_state state;
    bool settling;
    bool broken;      /* nothing can be sent any more */
    bool peer_ended;  /* end of input */
    bool refused;     /* over the limit: it gets the refusal and nothing else */
    bool lingers;     /* more input may come: a plain close would reset the answer */
    bool probed;      /* after the end of input */
    bool discarding;  /* the rest of a body that the handler does not read */
    bool again;       /* settling was cut short for the sake of others */
    size_t lead_sent; /* bytes of the next answer's head that are out already */
    size_t discarded; /* while lingering */
    unsigned requests;
    int64_t now_us;
    int64_t input_us;  /* last byte in, or the end of the last exchange */
    int64_t head_us;   /* first byte of the head */
    int64_t output_us; /* last byte out, or when the output stopped being empty */
    int64_t linger_us; /* since when */
};

struct http_server {
    struct loop *loop; /* borrowed */
    struct http_server_limits limits;
    http_request_fn *on_request;
    void *context; /* borrowed */
    struct list connections;
    struct list waiting; /* longest first */
    unsigned count;      /* of connections that are not refused */
    unsigned refused;
    bool draining;
    struct tls *tls;             /* borrowed; NULL without it */
    struct listener **listeners; /* owned, each too */
    size_t listener_count;
    char id[ID_SIZE]; /* of the last request */
    uint8_t *scratch; /* owned: buffer for reads */
};

enum { HTTP_INPUT_BYTES = 64 * 1024 };

void connection_open(struct http_server *server, int fd, const struct http_peer *peer,
                     bool refused);

/* Ends now: on_close comes if there is an exchange. Not while it settles. */
void connection_close(struct http_connection *connection);

/* From the loop: does all that can be done. The connection may be gone afterwards. */
void connection_settle(struct http_connection *connection);

/* From anywhere: settles at the end of the turn, unless it is settling now. */
void connection_wake(struct http_connection *connection);

/* As connection_wake(), and the time that the client has for its next byte starts now. */
void connection_expect_input(struct http_connection *connection);

/* Around parsing: load restores the unparsed input, store saves the rest. */
void connection_load_input(struct http_connection *connection);
void connection_store_input(struct http_connection *connection);

/* --- http_steps.c -------------------------------------------------------------------------- */

/* Does one thing with the input or the exchange; false when there is nothing to do. */
bool connection_step(struct http_connection *connection);

/* Parses the received part of the rest of the request; false when it is malformed. */
bool connection_skip_body(struct http_connection *connection);

/* No more requests: closes when the output is empty. */
void connection_end_requests(struct http_connection *connection);

/* Without an exchange: answers with an error, and no more requests. */
void connection_refuse(struct http_connection *connection, int status, const char *message);

/* --- http_exchange.c ----------------------------------------------------------------------- */

static inline struct http_connection *exchange_connection(const struct http_exchange *exchange)
{
    return container_of((struct http_exchange *)exchange, struct http_connection, exchange);
}

void exchange_begin(struct http_exchange *exchange);
void exchange_finish(struct http_exchange *exchange); /* calls on_close */
void exchange_fini(struct http_exchange *exchange);

/* Whether the handler wants the body now. */
bool exchange_wants_body(const struct http_exchange *exchange);
void exchange_take_body(struct http_exchange *exchange, const uint8_t *data, size_t length);
void exchange_tell_end(struct http_exchange *exchange);

/* --- http_respond.c ------------------------------------------------------------------------ */

/* Ends the exchange with an error that the server found; an answer that has begun is cut. */
void exchange_refuse(struct http_exchange *exchange, int status, const char *message);

/* The pipe of http_respond_content() is not read any more. */
void exchange_close_pipe(struct http_exchange *exchange);

/* Whether the rest of the request is short enough to be skipped before the next request. */
bool exchange_rest_is_short(const struct http_exchange *exchange);

/* Sends harmless bytes to learn whether the client is still connected. */
void exchange_probe(struct http_exchange *exchange);
