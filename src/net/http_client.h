/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * HTTP/1.1 client on the loop, over unix sockets and TCP, one connection for each request unless it
 * is kept alive: idle connections are used again, of which one is kept unless more are asked for. For
 * the CLI, the backends that talk to an engine, and the relay to other nodes. Bodies stream both ways
 * with backpressure.
 *
 * A server that cannot be reached is ERR_UNAVAILABLE with the reason in sys_errno (ECONNREFUSED, ENOENT); an answer
 * that is malformed or cut off is ERR_BACKEND. Callbacks come from the loop, never from inside of a
 * call of these functions.
 */

#include "base/buffer.h"
#include "base/error.h"
#include "loop/loop.h"
#include "wire/http/http.h"

struct http_client;
struct http_call;

/* "unix:PATH", "http://HOST:PORT", "https://HOST:PORT" or "HOST:PORT". The loop is borrowed. */
struct http_client *http_client_new(struct loop *loop, const char *url, struct error *err);

/* As http_client_new(); with "https://" these files are used instead of the system's. Borrowed for
 * the call; NULL: none. */
struct tls_files;
struct http_client *http_client_new_with(struct loop *loop, const char *url,
                                         const struct tls_files *files, struct error *err);

/* Other files, for connections to come; on failure the old ones stay. Of a client with "https://". */
int http_client_reload_files(struct http_client *client, const struct tls_files *files,
                             struct error *err);

/* A client of one connection that is open already and is used for one request: the descriptor is
 * the client's. It never connects again. `name` is for messages, `host` for the header. */
struct http_client *http_client_new_on(struct loop *loop, int fd, const char *name,
                                       const char *host);

/* Cancels open calls without their callbacks. Not from a callback of a call. */
void http_client_free(struct http_client *client);
SCOPED_DEFINE(http_client_free, struct http_client);

/* Of http_client_fetch() from start to end; 60 s unless set, 0 is no limit. */
void http_client_set_timeout(struct http_client *client, int64_t timeout_ms);

/* Sent with every request: Authorization and the like. */
void http_client_set_header(struct http_client *client, const char *name, const char *value);

/* The server may close an idle connection at the moment a request goes out on it. A request that
 * can be repeated (no POST, no PATCH, no large body) is then sent again; with this, any other gets
 * a new connection each time instead of failing. */
void http_client_set_fresh_posts(struct http_client *client);

/* Keeps up to `count` idle connections instead of one. */
void http_client_keep_idle(struct http_client *client, size_t count);

/* The next request gets a connection of its own, whether the server still listens or not. */
void http_client_close_idle(struct http_client *client);

struct http_call_handler {
    void (*on_head)(struct http_call *call, const struct http_head *head); /* may be NULL */
    void (*on_data)(struct http_call *call, const uint8_t *data, size_t length);
    /* Streamed request body: room for more, at first and after each write; may be NULL. */
    void (*on_writable)(struct http_call *call);
    void (*on_end)(struct http_call *call,
                   const struct error *err); /* once, last; NULL is success */
};

/* `body` NULL with `body_length` -1 starts a streamed (chunked) request body, and with a length
 * above 0 a streamed one of that length; see http_call_write(). The target is in origin form, with
 * escapes where needed. After an answer of 101 the connection is a plain stream: on_data gets
 * received bytes, http_call_write() sends, http_call_end() closes the sending half, and on_end
 * comes when the other side closes. The same holds for a request with the header Upgrade and an
 * answer of 200 without a length, as older engines give it. */
struct http_call *
http_client_request(struct http_client *client, enum http_method method, const char *target,
                    const char *content_type, const void *body, int64_t body_length,
                    const char *const *extra_headers, /* name, value, …, NULL; or NULL */
                    const struct http_call_handler *handler, void *user);
void *http_call_user(const struct http_call *call);

/* After an answer of 101, in or after on_writable: the caller takes the connection over, and the bytes that came behind the
 * head are in `rest`. No callback comes any more. With TLS the client has to outlive the
 * connection. */
int http_call_release(struct http_call *call, struct buffer *rest);
int http_call_status(const struct http_call *call);
void http_call_write(struct http_call *call, const void *data, size_t length);
void http_call_end(struct http_call *call); /* of the streamed request body */
size_t http_call_pending(const struct http_call *call);
void http_call_pause(struct http_call *call); /* stop reading the answer */
void http_call_resume(struct http_call *call);
void http_call_cancel(struct http_call *call); /* no on_end comes */

/* A whole exchange, run to its end on the loop: fills `out_body` (NULL: dropped); returns the
 * status or -1. */
int http_client_fetch(struct http_client *client, enum http_method method, const char *target,
                      const char *content_type, const void *body, size_t body_length,
                      struct buffer *out_body, struct error *err);
