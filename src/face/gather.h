/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * The answers of all nodes to one request, for routes about the whole cluster. Each live node is asked
 * the same with ?node=ID, this one too, as the caller: a node that is asked so answers for itself.
 *
 * A node that does not answer in time, or fails, is missing: answers name it.
 */

#include "base/buffer.h"
#include "base/list.h"
#include "face/request.h"
#include "loop/loop.h"

#include <stdbool.h>
#include <stddef.h>

struct gather;
struct http_call;

struct gather_answer {
    struct gather *gather;
    char *node;             /* owned */
    struct http_call *call; /* owned; NULL when it has ended */
    int status;             /* 0: none came */
    struct buffer body;
    json_t *json; /* owned: the body of a 200, where it is an object; NULL otherwise */
};

typedef void gather_fn(struct gather *gather);

/* Adds parameters for one node to those of the request; each begins with '&'. */
typedef void gather_query_fn(void *user, const char *node, struct buffer *query);

struct gather_options {
    const char *node;    /* NULL: all */
    int64_t deadline_ms; /* 0: until all have answered or are lost */
    const char *const
        *without; /* parameters of the request that are not passed on, NULL at the end;
                                   or NULL */
    gather_query_fn *put_query;  /* may be NULL */
    void *user;                  /* for that, and gather->user */
    void (*release)(void *user); /* when it goes; may be NULL */
    size_t answer_maximum;       /* bytes of one answer */
};

struct gather {
    struct request *request;       /* borrowed */
    struct gather_answer *answers; /* owned; by the ids of the nodes */
    size_t count;
    gather_fn *done;
    struct timer deadline;
    struct timer end;
    size_t open; /* calls */
    void *user;  /* of the options; so is `release` */
    void (*release)(void *user);
};

/* `done` comes once, from the loop, unless the client leaves; it calls gather_free(). Takes
 * request->state and request->on_gone until then. */
struct gather *gather_start(struct request *request, const struct gather_options *options,
                            gather_fn *done);
void gather_free(struct gather *gather);

bool gather_is_missing(const struct gather_answer *answer);

/* The first answer that refuses the request (4xx), which every node would; NULL without one. */
const struct gather_answer *gather_refusal(const struct gather *gather);

/* Answers as that one did. */
void gather_reply_refusal(struct gather *gather, const struct gather_answer *refusal);

/* Names the nodes that are missing in a header of the answer, and in a member "missing_nodes" of the
 * object that `json` is in, if there are any; `json` may be NULL. Before the answer begins. */
void gather_put_missing(struct gather *gather, struct json_writer *json);

/* Whether there are other nodes to ask. */
bool gather_is_needed(const struct request *request);
