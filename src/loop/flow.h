/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Fair shares of a turn of the loop for work that never ends by itself: bytes that programs write.
 *
 * Sources that belong together, such as all streams of one session, are one flow. A flow may take
 * FLOW_BYTES in a turn, and all flows together stop when FLOWS_BYTES or FLOWS_US of the turn are
 * used up. A source that has no share left waits here and is served FLOWS_PAUSE_US later: flows in
 * rotation, and in rotation the sources of a flow. Timers, requests and other flows are served
 * between two shares of a flow, however many bytes it has. A single source does not wait.
 *
 * A source asks before it takes bytes, reports their number afterwards, and does not watch its
 * descriptor while it waits. Without a flow (`flows` NULL) there is no limit.
 */

#include "base/list.h"
#include "loop/loop.h"

#include <stdbool.h>
#include <stdint.h>

enum {
    FLOW_BYTES = 512 * 1024,
    FLOWS_BYTES = 2 * 1024 * 1024,
    FLOWS_US = 300,
    FLOWS_PAUSE_US = 1000,
};

struct flow;
struct flows;
struct flow_source;
typedef void flow_serve_fn(struct flow_source *source);

/* Embedded by the reader of the bytes. */
struct flow_source {
    struct flow *flow; /* a reference; NULL without one */
    struct list node;  /* linked while it waits */
    uint64_t served;   /* in which turn, the last time */
    flow_serve_fn *on_served;
};

struct flows *flows_new(struct loop *loop);
void flows_free(struct flows *flows); /* NULL is fine; all sources must have left */
SCOPED_DEFINE(flows_free, struct flows);

/* Sources with the same name share one flow. The name is copied. */
void flow_join(struct flow_source *source, struct flows *flows, const char *name,
               flow_serve_fn *on_served);
void flow_leave(struct flow_source *source); /* no effect before flow_join() */

/* How many bytes may be taken now. At 0 the source waits, and on_served() comes in a later turn. */
uint64_t flow_ask(struct flow_source *source);

/* So much was taken. Returns true when the source has to wait before it takes the rest: others are
 * waiting, and `has_more`. */
bool flow_took(struct flow_source *source, uint64_t bytes, bool has_more);

/* The source waits even if no other source does. False without a flow. */
bool flow_wait(struct flow_source *source);

/* The source waits no longer, for instance because its descriptor is closed. */
void flow_stop_waiting(struct flow_source *source);
