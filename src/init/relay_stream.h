/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Channels of the relay: a channel stands for a descriptor of init and carries the bytes of its
 * directions.
 *
 * A stream is one direction of a channel, with a descriptor of its own and a ring. Output is read
 * into the ring as far as the window of the bridge goes, and is sent from there; that of a process
 * leaves the ring when it is acknowledged, other output when it is sent. Input is written to its
 * descriptor at once, and the rest waits in the ring.
 *
 * The channels of a process outlive a session: they are *detached* until the next session learns of
 * the process. The maker of a channel of a process releases it with channel_forget().
 */

#include "init/relay_link.h"

#include <stdbool.h>
#include <stdint.h>

enum channel_direction { CHANNEL_IN, CHANNEL_OUT };

enum {
    STREAM_COUNT = RELAY_BRIDGE_CHANNEL * 2, /* streams are known by channel * 2 + direction */
};

/* Events of the epoll go to stream_wake(). */
void stream_prepare(int epoll_fd, uint32_t first_tag);
void stream_wake(unsigned number, uint32_t events);

/* --- channels ------------------------------------------------------------------------------- */

/* Takes the descriptor, even on failure: 0 when there is no room for another channel. */
uint16_t channel_open(int fd, enum relay_kind kind, bool is_process);

/* The session learns of the channel: where each of its directions goes on. A descriptor is taken,
 * and used when the channel has none. */
uint64_t channel_attach(uint16_t number, int fd);
void channel_detach_all(void); /* the session is over */

/* Of the only direction of a process's channel. */
uint64_t channel_base(uint16_t number);
uint64_t channel_total(uint16_t number, bool is_terminal); /* with the bytes in the pipe */

/* The program of this terminal has ended, and nothing else will end its output. */
void channel_hang_up(uint16_t number);

/* Whether all input of the process is written to its pipe, so that the input can be ended. */
bool channel_is_flushed(uint16_t number);
void channel_end_input(uint16_t number);
void channel_tell_input(uint16_t number); /* acknowledges now: the process's end is reported next */
void channel_forget(uint16_t number);     /* the bytes are not wanted any more */

/* --- frames --------------------------------------------------------------------------------- */

enum link_result stream_take(const struct relay_frame *frame, const uint8_t *payload);

/* --- a turn of the loop --------------------------------------------------------------------- */

/* Reads and writes descriptors; true when it will have more to do at once. */
bool stream_work(void);

/* Puts frames as long as the link has little to write; true when it put one. */
bool stream_send(void);
