/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * The frames between a bridge, in the daemon, and a relay, inside a sandbox whose kernel is not
 * the daemon's, over one plain stream of bytes.
 *
 *     core ── agent ══ messages, descriptors ══ bridge ── carrier ~~~ bytes ~~~
 *                         [pump] ── relay ══ messages, descriptors ══ init
 *
 * Messages of wire/protocol.h between init and the daemon pass unchanged, each in a MESSAGE frame.
 * A descriptor cannot go through: in its place goes the number of a *channel*, and its bytes follow
 * in DATA frames. A channel has one or two directions; each counts its bytes from 0, for as long as
 * the channel lives.
 *
 * Two things are acknowledged, by two frames that must not be mixed up:
 *
 *   RECEIVED  the other end has read the frames up to here. This is about the connection: when it
 *             is cut, the next one goes on where the last one stopped.
 *   ACK       the bytes of a channel up to here are *kept*: from the relay it means that they are
 *             inside the sandbox, from the bridge that a daemon killed now would not lose them
 *             (output is in the spool; anything else was given to its reader). The relay holds the
 *             output of processes until then.
 *
 * The connection
 * --------------
 * The relay speaks first: GREETING. The bridge answers with LOGIN, the relay with WELCOME. Each
 * proves by a MAC over the messages of both that it knows the key of the sandbox, which these
 * messages do not carry. The handshake is bounded in size (RELAY_MAX_HANDSHAKE) and in time
 * (RELAY_HANDSHAKE_MS).
 *
 * A relay that was started before its sandbox has an owner has no key: its greeting has
 * RELAY_UNBOUND, and it takes one key, by BIND, before LOGIN on the same connection. A relay with a key
 * refuses BIND. The key goes over the stream in the clear, so a bridge binds only a sandbox that it has
 * just made, in which no program has run, over a carrier that proves where it leads. To any other
 * bridge an unbound relay is another incarnation of the sandbox.
 *
 * A *session* is one life of a bridge's knowledge, named by 16 random bytes. Frames of type
 * RELAY_MESSAGE and above are *sequenced*: each end counts the bytes of those it has sent and of
 * those it has received whole, headers included, since the session began, and keeps sent frames
 * until RECEIVED covers them. LOGIN and WELCOME have the counts, which are always at the end of a
 * frame, so a resumed session loses and doubles no frame: after the handshake each end sends again,
 * byte for byte, the frames that the other has not received. Bytes of a DATA that was cut may be
 * used before. An end sends RECEIVED at the latest when RELAY_RECEIVED_EVERY bytes have come since
 * its last one.
 *
 * LOGIN with RELAY_LOGIN_NEW begins a session: the relay closes its connection to init and makes a
 * new one (init says HELLO), drops every channel but those of processes, and begins to count at 0;
 * so does the bridge. Output of processes that was not acknowledged is sent again when LIST names
 * the process. Without the flag it resumes the session of that name; when the relay has another
 * one, WELCOME says so (is_resumed is 0) and the relay closes. The latest LOGIN always wins: an
 * older connection is closed.
 *
 * The boot id is made when the relay starts. Another one means another incarnation of the sandbox.
 *
 * PING is sent after RELAY_PING_MS without traffic from the other end and answered with PONG and
 * the same bytes; after RELAY_SILENCE_MS without any byte the connection is over. Neither side pings a
 * sandbox that is frozen.
 *
 * Channels
 * --------
 * A MESSAGE names the channels that stand for its descriptors, in their order:
 *
 *   RELAY_INPUT    bytes go in: a process's stdin, the input of a terminal
 *   RELAY_OUTPUT   bytes come out: stdout, stderr, output of a terminal, pipe of a file operation
 *   RELAY_BOTH     a stream socket: FILE_UNPACK, FILE_WRITE, CONNECT, STORAGE
 *   RELAY_CONTENT  a script, from the bridge: all of its bytes (`base` says how many) come in DATA
 *                  before the MESSAGE; the relay makes a memory file of them. There is no END: the
 *                  MESSAGE ends it, and the relay answers with RELAY_ACK_END. An empty one has no DATA
 *
 * A terminal is two channels, input first. A regular file cannot be passed: the relay closes it
 * and answers EOPNOTSUPP. Numbers from 1 are the relay's, from RELAY_BRIDGE_CHANNEL on the
 * bridge's (content only).
 *
 * Each direction goes: DATA …, END (with the total, and an errno when the source broke), then an
 * ACK with RELAY_ACK_END and that total when everything is kept or has been dropped. A sender has
 * at most acknowledged + window bytes under way, where the window is what the last ACK gave. Before
 * the first ACK it is RELAY_WINDOW, except towards an INPUT or BOTH of the relay: nothing may go
 * there before its first ACK, which follows the MESSAGE at once, because the relay gives no more
 * windows than it has memory for. The relay never shrinks a window that it has given: offset +
 * window does not decrease. CLOSE says that the receiver wants no more of a direction: the sender
 * drops its unsent bytes and sends END with the number of sent bytes as the total; the receiver
 * drops the bytes still under way. No CLOSE follows an END that has been received. A number is free
 * again when every direction of the channel has had its RELAY_ACK_END; frames about it cannot
 * follow.
 *
 * FORGET of a process ends its channels too: the relay sends END for its output and CLOSE for its
 * input, where these have not been sent. END of a process's input lets go of the relay's descriptor
 * alone, as when a daemon closes its own: only CLOSE_STDIN ends the input. CLOSE of a process's
 * output ends it for this session: unacknowledged bytes stay, as in a pipe. In the next session the
 * count goes on.
 *
 * A frame that breaks a rule ends the connection and the session: the next LOGIN has to begin one.
 *
 * Order
 * -----
 * A MESSAGE precedes the first DATA of its channels. EXITED, RAN and PROCESS carry struct
 * protocol_totals (and protocol_bases), which the relay adds when it takes them from init: the
 * bytes may come later, so that an end never waits behind output without a reader. HELLO gets
 * FEATURE_STREAMS. CLOSE_STDIN is sent by the bridge after the END of the process's input, and
 * given to init when that is all in the pipe. Messages go first, channels take turns.
 *
 * Usage
 * -----
 * MEASURE asks for USAGE: what the sandbox uses, as the relay finds it in its own cgroup and /proc. Both
 * belong to one connection. A bridge asks only a relay whose greeting has RELAY_HAS_USAGE, and asks again
 * only after the answer; USAGE that was not asked for breaks the rules. The numbers are the sandbox's own
 * word about itself.
 *
 * Both ends treat the other as hostile. Integers are little-endian, nothing here allocates.
 */

#include "wire/protocol.h"
#include "wire/sha256.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    RELAY_VERSION = 1,
    RELAY_KEY_SIZE = 32,
    RELAY_BOOT_SIZE = 16,
    RELAY_SESSION_SIZE = 16,
    RELAY_NONCE_SIZE = 16,
    RELAY_MAX_DATA = 65536 - 16, /* bytes of one DATA, so that a frame has 64 KiB at most */
    RELAY_MAX_HANDSHAKE = 4096,  /* bytes before WELCOME, in each direction */
    RELAY_MAX_CONTENTS = 8,      /* from the bridge, at one time */
    RELAY_CHANNELS = 4096,
    RELAY_BRIDGE_CHANNEL = 2048,
    RELAY_WINDOW = 256 * 1024,
    RELAY_MAX_WINDOW = 4 * 1024 * 1024,
    RELAY_RECEIVED_EVERY = 256 * 1024,
    RELAY_RESEND = 1024 * 1024, /* least room of each end for frames not yet received */
    RELAY_PING_MS = 5000,
    RELAY_SILENCE_MS = 15000,
    RELAY_HANDSHAKE_MS = 5000,
    RELAY_EXIT_CODE = 70, /* of a relay that cannot go on, and of init without its relay */
};

enum relay_type {
    RELAY_GREETING = 1,
    RELAY_LOGIN,
    RELAY_WELCOME,
    RELAY_RECEIVED, /* offset: how many bytes of sequenced frames have been received */
    RELAY_PING,
    RELAY_PONG,
    RELAY_MEASURE,
    RELAY_USAGE,
    RELAY_BIND, /* the key of the sandbox */

    RELAY_MESSAGE = 16,
    RELAY_DATA,  /* offset: of the first byte in its direction */
    RELAY_ACK,   /* offset: everything below is kept */
    RELAY_END,   /* offset: the length of the direction */
    RELAY_CLOSE, /* the receiver of the other end's direction wants no more */
};

enum relay_flags {
    RELAY_MAY_IGNORE = 1 << 0, /* of a type that a reader does not know */
    RELAY_ACK_END = 1 << 1,    /* ACK: the end is known too, and nothing more will be said */
};

struct relay_frame {
    uint32_t length; /* of the payload */
    uint8_t type;
    uint8_t flags;
    uint16_t channel; /* 0 where none is meant */
    uint64_t offset;
};

enum relay_features {
    RELAY_HAS_USAGE = 1 << 0,
    RELAY_UNBOUND = 1 << 1, /* the relay has no key, and takes one */
};

struct relay_greeting { /* bytes after it are left alone */
    char magic[4];      /* RELAY_MAGIC */
    uint16_t oldest;    /* versions that the relay speaks */
    uint16_t newest;
    uint32_t features; /* enum relay_features; bits that are not known are left alone */
    uint32_t reserved;
    uint8_t boot[RELAY_BOOT_SIZE];
    uint8_t nonce[RELAY_NONCE_SIZE];
};

#define RELAY_MAGIC "SGRL"

enum relay_login_flags { RELAY_LOGIN_NEW = 1 << 0 };

struct relay_login {
    uint16_t version; /* that the bridge has chosen */
    uint16_t flags;
    uint32_t reserved;
    uint64_t received; /* 0 in a new session */
    uint8_t session[RELAY_SESSION_SIZE];
    uint8_t nonce[RELAY_NONCE_SIZE];
    uint8_t mac[SHA256_SIZE];
};

struct relay_welcome {
    uint32_t is_resumed; /* or begun, as LOGIN asked: 1; 0: the relay has another session */
    uint32_t reserved;
    uint64_t received; /* 0 in a new session */
    uint8_t mac[SHA256_SIZE];
};

enum { RELAY_PROCESSES = 8 };

struct relay_process {
    uint64_t cpu_us;
    uint32_t number; /* as the sandbox counts; 0: none */
    char name[20];   /* ends with a NUL */
};

/* 0 where it is not known. */
struct relay_usage {
    uint64_t cpu_us;
    uint64_t memory_bytes;
    uint64_t memory_peak_bytes;
    uint32_t pids;
    uint32_t oom_kills;
    struct relay_process processes[RELAY_PROCESSES]; /* the busiest first */
};

struct relay_ack {
    uint32_t window; /* so many bytes beyond the offset may be under way */
    uint32_t reserved;
};

struct relay_end {
    int32_t error; /* errno of the source; 0 at its proper end */
    uint32_t reserved;
};

enum relay_kind { RELAY_INPUT = 1, RELAY_OUTPUT, RELAY_BOTH, RELAY_CONTENT, RELAY_KINDS };

/* A channel that stands for a descriptor. */
struct relay_descriptor {
    uint16_t channel;
    uint16_t kind;
    uint32_t reserved;
    uint64_t base; /* the offset at which each direction of it goes on; of CONTENT: its length */
};

/* MESSAGE: this, then `count` descriptors, then one packet of wire/protocol.h. */
struct relay_message {
    uint32_t count;
    uint32_t reserved;
};

enum {
    RELAY_MAX_MESSAGE = sizeof(struct relay_message) +
                        PROTOCOL_MAX_FDS * sizeof(struct relay_descriptor) + PROTOCOL_MAX_MESSAGE,
    RELAY_MAX_FRAME = sizeof(struct relay_frame) + RELAY_MAX_MESSAGE,
};

/* The ends of the connection. */
enum relay_side { RELAY_OF_BRIDGE, RELAY_OF_RELAY };

static inline bool relay_is_sequenced(const struct relay_frame *frame)
{
    return frame->type >= RELAY_MESSAGE;
}

/* Whether this header may come from that side: its type, its channel and its length, before
 * anything of the payload is read. NULL, or the fault. An unknown type that may be ignored is
 * valid. */
const char *relay_check(const struct relay_frame *frame, enum relay_side from);

/* --- the handshake -------------------------------------------------------------------------- */

/* `greeting` is the whole payload as it was sent, with any bytes behind the struct. */
void relay_sign_login(const uint8_t key[RELAY_KEY_SIZE], const void *greeting,
                      size_t greeting_length, struct relay_login *login);
bool relay_verify_login(const uint8_t key[RELAY_KEY_SIZE], const void *greeting,
                        size_t greeting_length, const struct relay_login *login);
void relay_sign_welcome(const uint8_t key[RELAY_KEY_SIZE], const void *greeting,
                        size_t greeting_length, const struct relay_login *login,
                        struct relay_welcome *welcome);
bool relay_verify_welcome(const uint8_t key[RELAY_KEY_SIZE], const void *greeting,
                          size_t greeting_length, const struct relay_login *login,
                          const struct relay_welcome *welcome);

/* --- MESSAGE -------------------------------------------------------------------------------- */

struct relay_message_view {
    struct relay_descriptor descriptors[PROTOCOL_MAX_FDS];
    unsigned count;
    const void *packet; /* borrowed; aligned to 8 bytes when the payload is */
    size_t length;
};

/* -1 when the payload is malformed; the packet in it is not checked. */
int relay_message_decode(const void *payload, size_t length, enum relay_side from,
                         struct relay_message_view *out_message);

/* Writes the part of the payload before the packet; returns its length. */
size_t relay_message_prefix(void *buffer, const struct relay_descriptor *descriptors,
                            unsigned count);
