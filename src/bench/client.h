/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * A blocking HTTP/1.1 client on one kept-alive connection: a write and a read for each exchange, so
 * that what is measured is the server. Not for anything but measuring: the loop has its own client.
 */

#include "base/buffer.h"
#include "base/error.h"
#include "wire/http/http.h"

#include <stdbool.h>
#include <stdint.h>

struct bench_client {
    char *url;     /* owned */
    char *headers; /* owned: lines that every request has */
    int fd;        /* owned; -1 until the first call, and after the server has closed it */
    struct http_parser *parser; /* owned */
    struct buffer request;
    struct buffer body; /* of the last answer */
    struct buffer input;
};

/* "unix:PATH", "http://HOST:PORT" or "HOST:PORT"; nothing is connected yet. The API key and the
 * owner of the command line (SANDGLASS_API_KEY, SANDGLASS_ON_BEHALF_OF) are sent along. */
void bench_client_init(struct bench_client *client, const char *url);
void bench_client_fini(struct bench_client *client);

static inline void scoped_bench_client_fini(struct bench_client *client)
{
    bench_client_fini(client);
}

/* Connects a socket to a URL as above; the caller owns it. */
int bench_connect(const char *url, struct error *err);

/* One exchange; the answer's body is in client->body. The status, which has to be below 400, or
 * -1. `body` is JSON or NULL. */
int bench_client_call(struct bench_client *client, enum http_method method, const char *target,
                      const char *body, struct error *err);

/* As above; the answer's body is counted and dropped. */
int bench_client_drain(struct bench_client *client, enum http_method method, const char *target,
                       const char *body, uint64_t *out_bytes, struct error *err);

/* A body of `length` bytes that are all the same. */
int bench_client_upload(struct bench_client *client, const char *target, const char *type,
                        uint64_t length, struct error *err);

/* A body of the caller's bytes. */
int bench_client_put(struct bench_client *client, const char *target, const char *type,
                     const void *bytes, size_t length, struct error *err);

/* The text between `mark` and the next quote in the last answer: a field, where parsing the whole
 * document would be the client's time in the server's measure. */
int bench_client_find(const struct bench_client *client, const char *mark, char *out, size_t size,
                      struct error *err);
