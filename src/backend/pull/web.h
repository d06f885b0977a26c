/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * GET requests to any server, one at a time, each run to its end on a loop of its own. Redirects are
 * followed; Authorization goes only to the server that was asked first. A server that sends nothing
 * for a minute is given up.
 *
 * ERR_UNAVAILABLE and ERR_BACKEND (the connection could not be made, or broke) and ERR_TIMEOUT have
 * `retryable` set: the same request may succeed later.
 */

#include "base/buffer.h"
#include "base/error.h"
#include "wire/http/challenge.h"

#include <stdbool.h>
#include <stdint.h>

struct web;

/* With `plain` http:// is taken too; without it only https://. */
struct web *web_new(bool plain);
void web_free(struct web *web); /* NULL is fine */
SCOPED_DEFINE(web_free, struct web);

enum { WEB_TEXT_SIZE = 256 };

struct web_answer {
    int status;
    bool is_from_elsewhere;     /* not of the server that was asked first */
    struct challenge challenge; /* of a 401; one from elsewhere is not worth a password */
    int64_t range_start;        /* of a 206; -1 when it does not say */
    char type[WEB_TEXT_SIZE];   /* Content-Type */
    char digest[WEB_TEXT_SIZE]; /* Docker-Content-Digest */
};

struct web_request {
    const char *url;
    const char *accept;        /* NULL: anything */
    const char *authorization; /* NULL: none */
    uint64_t from;             /* the first byte that is wanted; 0: all */
    /* Takes the body of an answer of 2xx; other bodies are dropped. The head comes first. -1 with
     * `err` set ends the request. */
    int (*on_head)(void *user, const struct web_answer *answer, struct error *err); /* or NULL */
    int (*on_data)(void *user, const void *data, size_t length, struct error *err);
    void *user;
};

int web_get(struct web *web, const struct web_request *request, struct web_answer *out,
            struct error *err);

/* The same with a small answer, which replaces the content of the buffer. */
int web_get_document(struct web *web, const struct web_request *request, struct buffer *body,
                     struct web_answer *out, struct error *err);

/* Lets time pass. */
void web_sleep(struct web *web, int64_t ms);
