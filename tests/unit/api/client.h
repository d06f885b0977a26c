/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * A daemon in the test: the harness's world with the API in front of it, on a unix socket and on
 * TCP, and a plain client that sends what it is told and waits for the answer.
 */

#include "api/private.h"
#include "harness/fake_programs.h"
#include "harness/world.h"
#include "net/http_server.h"

#include <jansson.h>

/* `configure` changes the settings before anything is made of them; with it there is an auth. */
struct front {
    void (*configure)(struct front *front);
    struct world world;
    char path[64];
    struct tools *tools;
    struct mcp *mcp;
    struct auth *auth; /* NULL unless `configure` is set */
    struct dashboard *dashboard;
    struct api *api;
    struct faces *faces;
    struct http_server *server;
};

void front_start(struct front *front);
void front_stop(struct front *front);

struct answer {
    int status;
    char *head; /* owned */
    char *body; /* owned */
    size_t length;
    json_t *json; /* owned; NULL when the body is none */
};

/* A connection on which something was sent; the answer may come later. */
struct caller {
    int fd; /* owned */
    char *bytes;
    size_t length;
    bool closed;
};

void caller_send(struct front *front, struct caller *caller, bool tcp, const char *text,
                 size_t length);
bool caller_poll(struct front *front, struct caller *caller, struct answer *answer);
void caller_close(struct front *front, struct caller *caller);

/* A whole exchange. `headers` are lines with CRLF, "" for none; `body` NULL for none. */
struct answer call(struct front *front, const char *method, const char *target, const char *headers,
                   const char *body);
void answer_fini(struct answer *answer);

/* The same over TCP. */
struct answer call_tcp(struct front *front, const char *method, const char *target,
                       const char *headers, const char *body);

static inline void scoped_answer_fini(struct answer *answer)
{
    answer_fini(answer);
}

/* The code of an error's answer, "" otherwise. */
const char *error_code_of(const struct answer *answer);
const char *error_message_of(const struct answer *answer);
