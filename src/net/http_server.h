/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * HTTP/1.1 server: listeners on unix sockets and TCP, connections with keep-alive and pipelining,
 * and one `struct http_exchange` for each request.
 *
 * The handler gets the exchange when the head is complete. It reads the body (whole or as a
 * stream), and answers (whole or as a stream), now or later. Exactly one of these ends an exchange:
 * http_respond(), http_respond_end(), http_exchange_abort(), or the client's leaving, which is reported
 * by on_close. After on_close the exchange is gone and must not be touched; on_close always comes,
 * once, last. No callback ever comes from inside of a call of these functions, and writing to an
 * exchange that has ended, but whose on_close has not come yet, does nothing.
 *
 * A client that closes its sending half after a complete request still gets its answer. A client
 * that is gone is noticed while the answer is idle: at once when its socket is closed, by TCP
 * keep-alive when its machine has vanished, and within a second when it first closed one half and
 * then all.
 *
 * The process ignores SIGPIPE from http_server_new() on, unless it handles it: children have to set
 * it back before they exec.
 */

#include "base/buffer.h"
#include "base/error.h"
#include "loop/loop.h"
#include "wire/http/http.h"

#include <stdbool.h>
#include <sys/types.h>

struct http_exchange;
struct http_server;
struct tls;

struct http_server_limits {
    struct http_limits message;
    unsigned connections;     /* one more replaces the longest idle one, or is answered 503 */
    int64_t head_timeout_ms;  /* first byte of a request to its complete head */
    int64_t body_timeout_ms;  /* without a byte of an expected body */
    int64_t idle_timeout_ms;  /* keep-alive without a request */
    int64_t write_timeout_ms; /* without the client taking a byte of the answer */
    /* A time of 0 is no limit. */
};

extern const struct http_server_limits http_server_default_limits;

typedef void http_request_fn(void *context, struct http_exchange *exchange);

struct http_server *http_server_new(struct loop *loop, const struct http_server_limits *limits,
                                    http_request_fn *on_request, void *context);

/* Stops listening, closes idle connections, lets running exchanges end until http_server_free(). */
void http_server_drain(struct http_server *server);

/* Closes everything; on_close comes for open exchanges. Not from a callback of the server. */
void http_server_free(struct http_server *server); /* NULL is fine */
SCOPED_DEFINE(http_server_free, struct http_server);

/* Binds the address; clients are refused until http_server_start(). The error names the address. */
int http_server_bind(struct http_server *server, const char *address, struct error *err);

/* Listens on all addresses that were bound. */
int http_server_start(struct http_server *server, struct error *err);

/* Both at once, for one address.
 *
 * "unix:PATH" or "HOST:PORT" ("[::1]:PORT"); port 0 picks one. May be called more than once. See
 * net/listener.h for the socket file. */
int http_server_listen(struct http_server *server, const char *address, struct error *err);

/* Serves a connection that was accepted elsewhere, a unix stream socket; the descriptor is the
 * server's. `group` and `member` name the peer: see struct http_peer. With `most` connections of
 * the group open it is closed. */
void http_server_adopt(struct http_server *server, int fd, const char *group, const char *member,
                       unsigned most);

/* TCP connections speak TLS from now on; unix sockets never do. Borrowed, and freed after the
 * server. */
void http_server_set_tls(struct http_server *server, struct tls *tls);

unsigned
http_server_port(const struct http_server *server); /* of the first TCP listener, 0 if none */

/* Of the listener with this number, counted from 0; 0 for a unix socket. */
unsigned http_server_port_at(const struct http_server *server, size_t index);

/* --- the request --------------------------------------------------------------------------- */

struct http_peer {
    bool is_unix;
    bool is_loopback; /* TCP of this host */
    pid_t pid;        /* unix sockets only, by SO_PEERCRED */
    uid_t uid;        /* unix sockets and TCP from this host; -1 when it is not known */
    gid_t gid;        /* unix sockets only */
    bool is_inside;   /* a process of a direct sandbox, or gone: see wire/inside.h */
    char address[64]; /* "unix" or "127.0.0.1:4242" */
    char group[64];   /* as given to http_server_adopt(); "" for connections of a listener */
    char member[64];
};

const struct http_head *http_exchange_head(const struct http_exchange *exchange);
const struct http_peer *http_exchange_peer(const struct http_exchange *exchange);
const char *http_exchange_id(const struct http_exchange *exchange); /* X-Request-Id of the answer */

/* Another id, of at most ID_SIZE - 1 bytes: for a request that has one from the node it came to. */
void http_exchange_set_id(struct http_exchange *exchange, const char *id);

/* The status of the answer once it has begun; 0 before. Also in on_close. */
int http_exchange_status(const struct http_exchange *exchange);

/* The handler's own pointer, NULL at first. */
void http_exchange_set_user(struct http_exchange *exchange, void *user);
void *http_exchange_user(const struct http_exchange *exchange);

typedef void http_close_fn(struct http_exchange *exchange);
void http_exchange_on_close(struct http_exchange *exchange, http_close_fn *on_close);

/* The whole body, at most `maximum` bytes (else 413 is answered and on_body never comes). */
typedef void http_body_fn(struct http_exchange *exchange, struct buffer *body);
void http_exchange_read_body(struct http_exchange *exchange, size_t maximum, http_body_fn *on_body);

/* The body as it comes; length 0 is the end. A paused exchange does not read from the client. */
typedef void http_data_fn(struct http_exchange *exchange, const uint8_t *data, size_t length);
void http_exchange_stream_body(struct http_exchange *exchange, http_data_fn *on_data);
void http_exchange_pause_body(struct http_exchange *exchange);
void http_exchange_resume_body(struct http_exchange *exchange);

/* --- the answer ---------------------------------------------------------------------------- */

/* Adds a header to the answer to come. Control characters in it become '?'. Content-Length,
 * Transfer-Encoding, Connection and X-Request-Id are the server's own. */
void http_respond_header(struct http_exchange *exchange, const char *name, const char *value);

/* Drops the headers that were added before. */
void http_respond_clear_headers(struct http_exchange *exchange);

/* A whole answer. `type` may be NULL for an empty body. For HEAD the body is left out. */
void http_respond(struct http_exchange *exchange, int status, const char *type, const void *body,
                  size_t length);

/* A streamed answer; `length` -1 when unknown (chunked). */
void http_respond_start(struct http_exchange *exchange, int status, const char *type,
                        int64_t length);
void http_respond_write(struct http_exchange *exchange, const void *data, size_t length);

/* `length` bytes of a regular file from `offset`; the descriptor is duplicated. Cheap: nothing is
 * copied to user space where the kernel allows. */
void http_respond_write_file(struct http_exchange *exchange, int fd, int64_t offset, size_t length);

/* The rest of the answer: `length` bytes from `offset` of a regular file, or the next `length` bytes
 * of a pipe. The descriptor is duplicated. When it ends before that, the connection is closed: the
 * client sees that the answer was cut. Nothing else may be written, and on_drain is the server's. */
void http_respond_content(struct http_exchange *exchange, int fd, int64_t offset, size_t length);
void http_respond_end(struct http_exchange *exchange); /* short of its length, it is cut off */

/* Answers 101: from now on the connection is a plain stream. on_data gets received bytes (length 0
 * is the end of input; pausing works), http_respond_write() sends, http_respond_end() ends. Only
 * after a request without a body whose head says `upgrade`. */
void http_respond_upgrade(struct http_exchange *exchange, const char *protocol,
                          http_data_fn *on_data);

/* After http_respond_upgrade(): closes the sending half once the queue is empty; input still
 * comes. */
void http_respond_half_close(struct http_exchange *exchange);

/* Bytes written but not yet taken by the client. */
size_t http_respond_pending(const struct http_exchange *exchange);

/* Called when the pending bytes have fallen below the low-water mark after having been above. */
void http_respond_on_drain(struct http_exchange *exchange, http_close_fn *on_drain);

/* Closes the connection without ending the answer, so that the client sees it was cut. */
void http_exchange_abort(struct http_exchange *exchange);

/* The same with a reset of TCP instead of its end, for clients that recognise a lost server by
 * nothing else. Unsent bytes are lost. */
void http_exchange_reset(struct http_exchange *exchange);

/* Bytes this process may hold for one connection before writers should wait for on_drain. */
enum { HTTP_HIGH_WATER = 512 * 1024, HTTP_LOW_WATER = 128 * 1024 };
