/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Waiting for something that an execution does: a text in its output, or a port that it serves.
 *
 * It ends with one of three: the condition is met, the execution has ended without that, or the
 * time is over; or with an error, when the sandbox cannot tell. Ports are asked of its init, again
 * and again with growing pauses, and at the end of the execution once more.
 */

#include "agent/listing.h"
#include "core/output/spool.h"
#include "core/output/stream_order.h"
#include "loop/loop.h"
#include "service/executions.h"

#include <stdbool.h>
#include <stdint.h>

struct condition;
typedef void condition_fn(struct condition *condition);

/* The condition to wait for: `text` or `port`. Borrowed until the end. */
struct condition_wish {
    const char *text;   /* NULL without one */
    const char *stream; /* "stdout" or "stderr"; NULL: both */
    uint64_t offset;    /* where the search begins */
    unsigned port;      /* 0 without one */
    int64_t timeout_ms;
};

/* Embedded by the caller. */
struct condition {
    struct execution *execution; /* a reference; NULL for one that is not in memory */
    bool is_met;
    struct error err;   /* the sandbox cannot tell; ERR_NONE otherwise */
    const char *reason; /* "ended" or "timeout" when it is not met */
    const char *stream; /* with a text that was found: where, */
    uint64_t offset;    /* and its first byte */
    int64_t began_us;

    condition_fn *done; /* private, here and below */
    struct condition_wish wish;
    struct execution_watcher watcher;
    struct timer deadline, poll;
    int64_t poll_us;
    struct listing ports;
    enum condition_look {
        LOOK_NONE,    /* the ports have not been asked for yet */
        LOOK_ASKED,   /* for the first time */
        LOOK_BETWEEN, /* the next one comes with `poll` */
        LOOK_AGAIN,   /* asked again */
    } look;
    bool is_last_look; /* nothing comes after it */
    struct condition_search {
        struct spool *spool; /* borrowed; NULL when it is not searched */
        uint64_t offset;     /* so far it has been searched */
    } searches[STREAM_COUNT];
};

/* `done` comes once, inside of the call when the answer is known already. condition_stop() in or before it;
 * the execution's own memory is valid until then, or during the call for one with a record only. */
void condition_start(struct condition *condition, const struct found_execution *found,
                     const struct condition_wish *wish, condition_fn *done);
void condition_stop(struct condition *condition);
