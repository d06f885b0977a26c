/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Carries bytes between two stream sockets, both ways, until both directions have ended or one of
 * the sockets has failed. An end of input goes on as such, each direction by itself; a failure goes
 * on as a reset. A side that does not read holds the other back: a bounded amount waits here.
 */

#include "loop/loop.h"
#include "net/send_queue.h"

#include <stdbool.h>

enum stream_half {
    STREAM_HALF_OPEN,
    STREAM_HALF_ENDING, /* the input has ended; queued bytes are still to be sent */
    STREAM_HALF_ENDED,
};

struct stream_relay;
typedef void stream_relay_fn(struct stream_relay *relay);

struct stream_end {
    struct io_watch socket;  /* its fd is owned */
    struct send_queue queue; /* waits to be sent to it */
    enum stream_half half;   /* the direction towards it */
};

/* Embedded by the caller. */
struct stream_relay {
    stream_relay_fn *on_end; /* once, from the loop; stream_relay_stop() is left to the caller */
    bool has_failed;
    struct loop *loop; /* private, here and below */
    struct stream_end ends[2];
    struct deferred end;
};

/* Both descriptors are the relay's. */
void stream_relay_start(struct stream_relay *relay, struct loop *loop, int first, int second,
                        stream_relay_fn *on_end);

/* Bytes that were read before: they go to this end (0 or 1), ahead of all others. */
void stream_relay_put(struct stream_relay *relay, unsigned end, const void *data, size_t length);

/* Closes both sockets; at any time. Safe on a zeroed one. */
void stream_relay_stop(struct stream_relay *relay);
