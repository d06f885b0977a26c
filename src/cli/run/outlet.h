/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * An outlet: our stdout or stderr as a sink that never blocks the loop, however slowly the other
 * end is read, so that signals and the other stream go on meanwhile.
 *
 * Pipes and terminals are opened anew for this: O_NONBLOCK on the descriptor we inherited would
 * change it for every process that shares it. Files never block, sockets are written with MSG_DONTWAIT.
 */

#include "base/buffer.h"
#include "loop/loop.h"

#include <stdbool.h>

struct outlet;
typedef void outlet_fn(struct outlet *outlet);

struct outlet {
    struct loop *loop; /* borrowed */
    int fd;            /* owned when `opened` */
    bool opened;
    bool is_socket;
    struct io_watch watch;
    struct buffer pending;
    outlet_fn *on_drained; /* all of it was taken, after outlet_write() said to wait */
    outlet_fn *on_closed;  /* the reader is gone, or the disk is full: once */
    bool closed;           /* further bytes are dropped */
    int closed_errno;      /* why: EPIPE, ENOSPC, … */
};

/* `fd` is borrowed. */
void outlet_init(struct outlet *outlet, struct loop *loop, int fd, outlet_fn *on_drained,
                 outlet_fn *on_closed);
void outlet_fini(struct outlet *outlet);

/* Whether more may come at once; otherwise on_drained tells. All of it is taken in any case. */
bool outlet_write(struct outlet *outlet, const void *data, size_t length);

static inline bool outlet_is_empty(const struct outlet *outlet)
{
    return outlet->pending.length == 0;
}
