/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * TCP ports inside of a sandbox: which ones programs listen on, and a byte stream to one of them.
 *
 * Init makes the connection, to the loopback inside, so that it needs no network between the host
 * and the sandbox, and works on every backend. A server that listens on IPv6 alone is found too.
 *
 * Bytes are use, and an open connection is not: while bytes flow the stream holds the session, and
 * PORT_QUIET_MS after the last one the idle clock starts. A stream that is quiet ends when the
 * sandbox does.
 */

#include "agent/agent.h"
#include "agent/listing.h"
#include "base/error.h"
#include "core/session/session.h"
#include "loop/loop.h"

#include <stdbool.h>
#include <stdint.h>

struct core;

enum { PORT_MAXIMUM = 65535, PORT_QUIET_MS = 5000 };

/* --- what listens ---------------------------------------------------------------------------- */

struct port_list;
typedef void port_list_fn(struct port_list *list);

/* Embedded by the caller. */
struct port_list {
    struct error err;
    uint16_t *ports; /* owned: sorted, each once */
    size_t count;
    bool is_cut; /* there are more than init lists */

    port_list_fn *done; /* private, here and below */
    struct listing listing;
    struct timer timer; /* the answer is due, or known already */
};

/* Looking is no use: without a sandbox the list is empty, and none is started. `done` comes once,
 * from the loop; port_list_stop() in, before or after it. */
void port_list_start(struct port_list *list, struct core *core, struct session *session,
                     port_list_fn *done);
void port_list_stop(struct port_list *list);

/* --- a stream -------------------------------------------------------------------------------- */

struct port_stream;
typedef void port_stream_fn(struct port_stream *stream);

enum port_stream_state {
    PORT_STREAM_CLOSED,
    PORT_STREAM_WAITING,    /* for the sandbox */
    PORT_STREAM_CHECKING,   /* whether the port is one of the sandbox's own */
    PORT_STREAM_CONNECTING, /* init does */
    PORT_STREAM_OPEN,
};

/* Embedded by the caller. */
struct port_stream {
    struct error err; /* in on_open: why there is no stream; in on_lost: why it is over */
    int fd; /* in on_open: the connection, which the callee takes; MSG_DONTWAIT on every call */
    uint64_t generation; /* of the sandbox that it leads to */

    port_stream_fn *on_open, *on_lost; /* private, here and below */
    enum port_stream_state state;
    struct session *session;
    unsigned port;
    struct session_hold hold; /* weak once it is open */
    struct session_hold use;  /* while bytes flow */
    struct timer quiet;       /* ends that */
    int64_t last_bytes_us;
    struct agent_request request;
    struct port_list own; /* where the sandbox shares the network of the host */
};

/* `generation` 0: of any sandbox. on_open comes once, from the loop; on_lost at most once after it,
 * when the sandbox is gone. A session without a sandbox gets none: nothing would listen in it
 * (ERR_BACKEND "port_closed", as for a port that nothing listens on). port_stream_close() at any
 * time, and always. */
void port_stream_open(struct port_stream *stream, struct session *session, unsigned port,
                      uint64_t generation, port_stream_fn *on_open, port_stream_fn *on_lost);

/* Bytes have passed, in either direction. */
void port_stream_note_bytes(struct port_stream *stream);
void port_stream_close(struct port_stream *stream);
