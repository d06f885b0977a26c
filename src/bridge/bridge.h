/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * A bridge plays init for the core where the sandbox's init is out of reach of descriptors: the
 * agent gets one end of a SOCK_SEQPACKET pair and pipes made here, and the bridge carries their
 * content over one stream of bytes (a carrier) to the relay inside. See wire/relay_frame.h.
 *
 * One bridge serves one sandbox for as long as the daemon knows it. It reconnects with back-off and
 * resumes, so that the agent notices nothing of a cut. When the relay cannot be reached for
 * `patience_ms`, knows another session, or breaks the rules, the agent's socket is closed: its owner
 * then asks the backend whether the sandbox lives, and connects again.
 *
 * Output of processes is acknowledged when it has left the bridge's pipe. That is right only while
 * the reader takes it from the pipe into its file in the loop's thread, as core/output does.
 *
 * The relay is treated as hostile. The memory that a bridge holds for it is bounded: RESEND_BYTES
 * towards the relay, the window of each channel from it, and BRIDGE_WAITING_BYTES for all channels
 * together.
 */

#include "base/error.h"
#include "base/scoped.h"
#include "wire/relay_frame.h"

#include <stdbool.h>
#include <stdint.h>

struct bridge;
struct carrier;
struct loop;

enum {
    BRIDGE_PATIENCE_MS = 60 * 1000,
    BRIDGE_MAX_CHANNELS = 2100, /* three for each of 512 processes, 500 others, and some */
    BRIDGE_WAITING_BYTES = 256 * 1024 * 1024,
};

/* Called from the loop, never inside a call of this header. All may be NULL. */
struct bridge_handler {
    /* Connected, for the first time or again. */
    void (*on_up)(struct bridge *bridge, const uint8_t boot[RELAY_BOOT_SIZE]);
    /* The connection was lost; the bridge makes the next one by itself. For information. */
    void (*on_down)(struct bridge *bridge, const struct error *err);
    /* A relay that knows the key has another boot id than the expected one: the sandbox that was
     * known has ended; or a relay answers that has no key yet, and may not be given one. The bridge has
     * closed the agent's socket and does nothing more. */
    void (*on_other)(struct bridge *bridge, const uint8_t boot[RELAY_BOOT_SIZE]);
    /* The same for a relay that speaks no version of the frames that we do. */
    void (*on_version)(struct bridge *bridge, unsigned oldest, unsigned newest);
    /* The answer to bridge_measure(). Names end with a NUL; the numbers may be anything. */
    void (*on_usage)(struct bridge *bridge, const struct relay_usage *usage);
};

struct bridge_options {
    struct loop *loop;                    /* borrowed */
    const char *name;                     /* of the sandbox, for the log; copied */
    struct carrier *carrier;              /* taken over */
    const struct bridge_handler *handler; /* borrowed; NULL: the owner wants to know nothing */
    void *user;                           /* borrowed */
    uint8_t key[RELAY_KEY_SIZE];
    uint8_t boot[RELAY_BOOT_SIZE]; /* that is expected; zeros: any, and then always that one */
    int64_t patience_ms;           /* 0: BRIDGE_PATIENCE_MS */
    /* The sandbox was made a moment ago, and the carrier leads nowhere else: a relay without a key is
     * given ours, until the first login. See RELAY_UNBOUND. */
    bool may_bind;
};

struct bridge *bridge_new(const struct bridge_options *options);
void bridge_free(struct bridge *bridge); /* NULL is fine; no more callbacks */
SCOPED_DEFINE(bridge_free, struct bridge);
void *bridge_user(const struct bridge *bridge);

/* Begins a session: the agent's end of a socket, at once, or -1. Messages wait in it until the relay
 * is connected. The socket of a former session is closed. */
int bridge_connect(struct bridge *bridge, struct error *err);

/* While the sandbox is frozen there is no ping, no silence is too long, and nothing reconnects. */
void bridge_set_frozen(struct bridge *bridge, bool is_frozen);
bool bridge_is_up(const struct bridge *bridge);

/* Asks the relay what the sandbox uses. on_usage comes once for all calls before it, after a cut too; it
 * does not come when the session ends first. -1 without a session, or when the relay cannot tell. */
int bridge_measure(struct bridge *bridge, struct error *err);
