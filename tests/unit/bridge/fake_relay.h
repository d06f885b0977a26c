/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * A relay that the test plays: the other end of a carrier, and the agent's end of the bridge. All of
 * it is in one thread: the stage turns the loop until the bridge has said enough.
 */

#include "base/buffer.h"
#include "bridge/bridge.h"
#include "bridge/carrier.h"
#include "loop/loop.h"

#include <stdbool.h>
#include <stdint.h>

struct stage {
    struct simulated_clock clock;
    struct loop *loop;
    struct carrier *carrier; /* borrowed from the bridge */
    struct bridge *bridge;
    int agent; /* the agent's end */
    int relay; /* the relay's end of the stream; -1 without a connection */

    unsigned opened; /* attempts of the bridge */
    bool refuses;    /* attempts fail */
    bool is_gone;    /* and will always fail */
    bool holds;      /* attempts are not answered */
    unsigned ups, downs, others, versions, usages;
    struct relay_usage usage; /* that was told last */
    uint8_t told_boot[RELAY_BOOT_SIZE];

    /* what the relay knows */
    uint8_t key[RELAY_KEY_SIZE];
    uint8_t boot[RELAY_BOOT_SIZE];
    uint16_t oldest, newest;
    uint32_t features;
    uint8_t greeting[sizeof(struct relay_greeting) + 8];
    struct relay_login login; /* the last */
    struct buffer in;         /* bytes from the bridge that are not taken */
    struct buffer sent;       /* sequenced bytes of the session, all of them */
    uint64_t received;        /* sequenced bytes from the bridge */
    uint64_t received_told;   /* by RECEIVED */
    struct relay_frame frame; /* the last that was taken */
    uint8_t payload[RELAY_MAX_MESSAGE];
    bool breaks_mac;
};

/* Connects nothing yet: bridge_connect() is called, and its socket is stage->agent. */
void stage_init(struct stage *stage);
void stage_init_binding(struct stage *stage); /* with a bridge that may give the relay its key */
void stage_fini(struct stage *stage);
void stage_connect(struct stage *stage); /* a new session */

/* Moves the clock until the bridge asks for a stream. */
void stage_wait_for_attempt(struct stage *stage);

/* Turns of the loop without a wait. */
void turns(struct stage *stage);

/* The handshake: the relay greets, the bridge logs in, the relay welcomes it. */
void relay_greet(struct stage *stage);
void relay_take_login(struct stage *stage);
void relay_welcome(struct stage *stage, bool is_resumed, uint64_t received);
void relay_up(struct stage *stage);     /* all of it, of a new session */
void relay_resume(struct stage *stage); /* all of it, and everything again that is not received */
void relay_cut(struct stage *stage);    /* the stream is closed */

/* Sends a frame. Sequenced ones are remembered. */
void relay_say(struct stage *stage, enum relay_type type, uint8_t flags, uint16_t channel,
               uint64_t offset, const void *payload, size_t length);
void relay_say_bytes(struct stage *stage, const void *bytes, size_t length); /* as they are */
void relay_say_data(struct stage *stage, uint16_t channel, uint64_t offset, const void *bytes,
                    size_t length);
void relay_say_ack(struct stage *stage, uint16_t channel, uint64_t offset, uint32_t window,
                   uint8_t flags);
void relay_say_end(struct stage *stage, uint16_t channel, uint64_t offset);
void relay_say_message(struct stage *stage, const struct relay_descriptor *descriptors,
                       unsigned count, const void *packet, size_t length);

/* The next frame of the bridge: false when there is none. */
bool relay_hear(struct stage *stage);

/* The next frame is of this type and about this channel. RECEIVED, PING and PONG are left out,
 * unless one of them is asked for. */
void relay_expect(struct stage *stage, enum relay_type type, uint16_t channel);
void relay_expect_nothing(struct stage *stage);

/* A process with two or three channels, as STARTED tells of it. */
void relay_start_process(struct stage *stage, uint64_t process, uint16_t first_channel,
                         bool has_input);

/* The agent's end: a message and its descriptors, or how many bytes it has; -1 without one. */
long agent_take(struct stage *stage, void *packet, size_t size, int fds[PROTOCOL_MAX_FDS],
                unsigned *out_count);
void agent_say(struct stage *stage, const void *packet, size_t length, int fd);
bool agent_is_closed(struct stage *stage);

/* Takes the STARTED of relay_start_process(): its descriptors. */
unsigned agent_take_started(struct stage *stage, int fds[PROTOCOL_MAX_FDS]);

/* The byte that a stream has at an offset. */
uint8_t byte_at(uint64_t offset);
void fill(uint8_t *bytes, uint64_t offset, size_t length);
