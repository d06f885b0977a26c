/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * A sealed TCP connection to the gate of a sandbox, as a stream. The receiver holds one end of a
 * socket pair; the other is ours, and bytes go between it and the network in records of
 * wire/seal.h. It is given when both ends have proved that they know the key of the sandbox, so a
 * host that merely has the address gets nothing.
 *
 *     receiver ── socket ══ records ── network ── gate ── relay
 *
 * The stream ends when the connection or the receiver does. Bytes on their way may be lost then, as
 * with every carrier.
 */

#include "base/error.h"
#include "base/list.h"
#include "wire/relay_frame.h"

#include <stdint.h>

struct line_call;
struct loop;
typedef void line_fn(struct line_call *call);

/* All lines of a backend. */
struct line_set {
    struct loop *loop; /* borrowed */
    struct list list;
};

void line_set_init(struct line_set *set, struct loop *loop);
void line_set_fini(struct line_set *set); /* ends all of them; calls under way are not answered */

/* In the caller's memory until `done`; zeroed it is not under way. */
struct line_call {
    line_fn *done;
    int fd;           /* the receiver's to own, does not block; -1 when it failed */
    struct error err; /* ERR_NONE on success */

    void *private; /* the module's own; NULL while it is not under way */
};

/* `address` is of IPv4 or IPv6; the key is not kept. `done` comes from the loop, or at once when not
 * even an attempt can be made. */
void line_open(struct line_set *set, struct line_call *call, const char *address, unsigned port,
               const uint8_t key[RELAY_KEY_SIZE], int64_t timeout_ms, line_fn *done);

/* Before `done`; a stream that was given is ended by closing it. */
void line_cancel(struct line_call *call);
