/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * The relay's connection to the bridge, and the session that outlives it: frames that come in, and
 * frames that go out and are kept until the bridge has received them.
 *
 * Outgoing frames are in one buffer, by their offset in the session: received by the bridge <
 * written to the socket < appended. RECEIVED, PING, PONG and WELCOME belong to one connection and
 * go between two frames of the buffer.
 */

#include "init/relay_pool.h"
#include "wire/relay_frame.h"

#include <stdbool.h>

enum link_result {
    LINK_TAKEN,
    LINK_WANTS_MORE, /* there is no whole frame */
    LINK_WAITS,      /* give me this frame again later */
    LINK_BROKEN,     /* a rule was broken: the connection and the session end */
};

struct relay_link {
    int fd;           /* owned; -1 between two connections */
    bool has_session; /* that can be resumed */
    bool is_readable; /* as far as is known: the socket is watched for edges */
    bool is_writable;
    uint8_t session[RELAY_SESSION_SIZE];
};

extern struct relay_link relay_link;

int link_prepare(void); /* -errno when there is no memory */

/* --- sessions and connections --------------------------------------------------------------- */

void link_begin_session(const uint8_t session[RELAY_SESSION_SIZE]);
void link_end_session(void); /* closes the connection too */

/* Whether a bridge can have received so much of the session. */
bool link_can_resume(uint64_t received);
uint64_t link_received(void);

/* Takes the socket; `received` by the bridge. The welcome is the first thing that is written. */
void link_connect(int fd, uint64_t received, const struct relay_welcome *welcome);
void link_close(void); /* the connection; the session can be resumed */

/* --- receiving ------------------------------------------------------------------------------ */

/* Reads once and gives each frame about channels and each message to `on_frame`. True when there is
 * more to do at once. */
bool link_receive(enum link_result (*on_frame)(const struct relay_frame *frame,
                                               const uint8_t *payload));

/* --- sending -------------------------------------------------------------------------------- */

/* Room for frames of so many bytes, headers included. */
bool link_has_room(size_t length);
size_t link_unsent(void); /* bytes that wait for the socket */

void link_put(const struct relay_frame *frame, const void *payload);
void link_put_message(const struct relay_descriptor *descriptors, unsigned count,
                      const void *packet, size_t length);
void link_put_data(uint16_t channel, uint64_t offset, const struct ring *ring,
                   struct ring_place *place, size_t length);

/* Writes until the socket is full. True when it took bytes. */
bool link_flush(void);

/* --- time ----------------------------------------------------------------------------------- */

/* Pings or closes; `now_ms` does not count the time in which the relay did not run. Milliseconds
 * until it has to be called again, -1 for never. */
int link_tick(int64_t now_ms);
void link_trim(void); /* gives back memory that nothing is kept in */
