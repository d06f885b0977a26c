/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * A carrier gives a bridge one stream of bytes to the relay of its sandbox, as often as the bridge
 * asks, for example by a unix socket or by the exec of an engine. It knows nothing of frames and
 * holds no reference to a stream that it has given.
 *
 * One attempt runs at a time. It is answered once, from the loop and never inside the call that
 * began it, with a connected stream socket that does not block, or with an error: ERR_GONE when no
 * later attempt can succeed. The pieces that carriers share are in carrier.c; an implementation has
 * its own table.
 */

#include "base/error.h"
#include "base/scoped.h"
#include "loop/loop.h"

struct carrier;
struct carrier_attempt;

typedef void carrier_done_fn(struct carrier_attempt *attempt);

/* Embedded by the caller and kept until `done` or carrier_cancel(). */
struct carrier_attempt {
    carrier_done_fn *done;
    int fd; /* the receiver's to own; -1 when it failed */
    struct error err;

    /* the carrier's own */
    struct carrier *carrier;
    struct deferred answer;
};

struct carrier_ops {
    /* Begins; carrier_finish() follows, now or later. */
    void (*open)(struct carrier *carrier, struct carrier_attempt *attempt);
    void (*cancel)(struct carrier *carrier, struct carrier_attempt *attempt);
    void (*free)(struct carrier *carrier);
};

/* The base of every implementation. */
struct carrier {
    const struct carrier_ops *ops;
    struct loop *loop;               /* borrowed */
    struct carrier_attempt *attempt; /* borrowed: the attempt under way; NULL without */
};

void carrier_open(struct carrier *carrier, struct carrier_attempt *attempt, carrier_done_fn *done);

/* `done` will not come. An attempt that is not under way is left alone. */
void carrier_cancel(struct carrier_attempt *attempt);
void carrier_free(struct carrier *carrier); /* NULL is fine; cancels the attempt */
SCOPED_DEFINE(carrier_free, struct carrier);

/* For implementations: the attempt has ended. Takes the descriptor over; when it is -1, `err` says
 * why. `done` is called at the end of the current callback. */
void carrier_finish(struct carrier *carrier, int fd, const struct error *err);

/* --- a unix socket --------------------------------------------------------------------------- */

/*
 * `path` is copied. With a directory (borrowed; -1 without) it is relative to that, so that it may
 * be longer than the address of a socket.
 */
struct carrier *carrier_unix_new(struct loop *loop, int directory, const char *path);

/* --- a stream that another module makes ------------------------------------------------------ */

/*
 * For streams that an engine hands over, and for tests. `open` is called for each attempt, and
 * answered with carrier_finish(), from inside or later, unless `cancel` has been called meanwhile.
 */
struct carrier_stream {
    void (*open)(struct carrier *carrier, void *context);
    void (*cancel)(struct carrier *carrier, void *context); /* may be NULL */
};

/* Both are borrowed. */
struct carrier *carrier_stream_new(struct loop *loop, const struct carrier_stream *calls,
                                   void *context);
