/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Declarations shared by the files of a bridge:
 *
 *   bridge.c          its life: states, back-off, patience, the agent's socket
 *   bridge_link.c     one connection: handshake, frames in, frames out, heartbeats
 *   bridge_message.c  messages both ways, with their descriptors and scripts
 *   bridge_stream.c   channels: bytes both ways, windows, acknowledgements
 */

#include "base/buffer.h"
#include "base/list.h"
#include "base/log.h"
#include "bridge/bridge.h"
#include "bridge/carrier.h"
#include "bridge/resend.h"
#include "loop/loop.h"

enum bridge_state {
    BRIDGE_IDLE,     /* without a session: bridge_connect() begins one */
    BRIDGE_WAITING,  /* until the next attempt, or the thaw */
    BRIDGE_OPENING,  /* the carrier makes a stream */
    BRIDGE_GREETING, /* the relay speaks first */
    BRIDGE_LOGIN,    /* LOGIN is sent, WELCOME is to come */
    BRIDGE_UP,
    BRIDGE_OVER,   /* another sandbox, or another version: nothing is to be done any more */
    BRIDGE_CLOSED, /* by its owner */
    BRIDGE_STATES
};

/* Calls back once when the other end of a pipe or socket is closed. */
struct closing {
    void (*on_closed)(struct closing *closing);
    int fd; /* borrowed; -1 when it is not watched */
};

/* --- a channel ------------------------------------------------------------------------------- */

enum receive_state {
    RECEIVE_NONE, /* the channel has no such direction */
    RECEIVE_OPEN,
    RECEIVE_CLOSED, /* the reader is gone: bytes are dropped until END */
    RECEIVE_ENDED,  /* END has come: some bytes may not be kept yet */
    RECEIVE_DONE,   /* RELAY_ACK_END is sent */
};

enum send_state {
    SEND_NONE,
    SEND_OPEN,
    SEND_ENDING, /* the source has ended: END is to be sent */
    SEND_ENDED,  /* RELAY_ACK_END is to come */
    SEND_DONE,
};

struct channel {
    struct bridge *bridge; /* borrowed */
    struct list node;      /* among all channels of the session */
    struct list ready;     /* linked while there may be bytes to be sent */
    struct list owing;     /* linked while a frame about it is to be sent */
    struct list outside;   /* linked while a reader has not taken all that was given */
    struct io_watch watch; /* fd: our end of the pipe or socket, or the content; owned */
    uint64_t process;      /* whose stream it is; 0: of a file operation or a connection */
    uint16_t number;
    uint16_t kind;           /* enum relay_kind */
    struct channel *sibling; /* borrowed: the other output of its process; NULL without */
    struct closing closing;  /* of the reader */

    struct {
        enum receive_state state;
        bool owes_ack, owes_close;
        bool is_forgotten;     /* the rest of the process's output may be dropped */
        uint64_t got;          /* bytes that have come, by offset */
        uint64_t given;        /* of these, written to the reader */
        uint64_t kept;         /* of these, taken by the reader, or given where that is enough */
        uint64_t acked;        /* of these, acknowledged to the relay */
        uint64_t limit;        /* the relay may send up to here */
        uint32_t window;       /* granted to the relay */
        struct buffer waiting; /* bytes that did not fit into the pipe */
    } in;
    struct {
        enum send_state state;
        int32_t error;          /* for END */
        uint64_t sent;          /* by offset */
        uint64_t acked;         /* by the relay */
        uint64_t limit;         /* may be sent up to here */
        uint64_t taken;         /* of `acked`, reported to the agent */
        uint64_t length;        /* of content */
        bool closes_stdin;      /* CLOSE_STDIN follows END */
        uint64_t close_request; /* its number */
    } out;
};

/* --- one connection ---------------------------------------------------------------------------- */

enum { LINK_CONTROL_BYTES = 256, LINK_GREETING_BYTES = 1024 };

/* Why nothing is read. */
enum link_pause {
    PAUSE_NONE,
    PAUSE_AGENT, /* a message waits for room in the agent's socket */
    PAUSE_TURN,  /* others have their turn: see TURN_FRAMES and data_is_early() */
};

struct link {
    struct io_watch socket; /* fd: owned; -1 without a connection */
    int64_t heard_us;       /* the last byte from the relay */
    int64_t pinged_us;
    struct buffer partial; /* bytes that wait for the rest of their frame, or for the agent */
    size_t handshake_bytes;

    uint8_t greeting[LINK_GREETING_BYTES];
    size_t greeting_length;
    struct relay_login login;

    struct channel *data; /* whose DATA is being received; NULL without one */
    struct relay_frame data_frame;
    uint32_t data_left; /* of the payload, still to come */
    uint32_t data_skip; /* of these, used before the last cut */
    unsigned waits;     /* turns that the next frame has waited for the reader of another stream */

    uint64_t written;       /* sequenced bytes that this connection has taken */
    uint64_t frame_end;     /* of the frame that `written` is in; equal at the end of one */
    uint64_t received_told; /* by RECEIVED */
    bool owes_ping, owes_pong;
    bool tells_usage;  /* the relay can */
    bool has_measured; /* MEASURE is sent, USAGE is to come */
    uint64_t ping_number;
    uint8_t pong[8];
    uint8_t control[LINK_CONTROL_BYTES]; /* frames without a sequence, being sent */
    size_t control_length, control_sent;
    bool is_ending;    /* the relay does not read any more; its last bytes are still to be read */
    bool was_reset;    /* the relay has closed without reading all bytes */
    bool has_spoken;   /* the last bytes sent are no frame of the session */
    bool has_progress; /* some frame got through, in either direction */
    enum link_pause pause;
    unsigned frames; /* that may be taken in this turn */
};

/* The rest of a DATA frame that was cut: the session continues with the same frame. */
struct torn {
    bool is_torn;
    struct relay_frame frame;
};

/*
 * The START that was last passed on stays in the agent's socket until the relay is known to have it,
 * or a while has passed, and the messages behind it wait. When the relay dies before it has read
 * the START, the socket is closed with the message unread: so the agent knows that the program has
 * not started, and that it may be started elsewhere.
 */
struct held {
    bool is_held;
    bool is_unread;   /* the connection was lost, and the relay has not read all of it */
    uint64_t request; /* its number */
    uint64_t end;     /* of its frame in the session; 0 while it waits for its script */
    struct timer limit;
};

struct bridge {
    struct loop *loop;                    /* borrowed */
    const struct bridge_handler *handler; /* borrowed */
    void *user;                           /* borrowed */
    char *name;                           /* owned */
    struct carrier *carrier;              /* owned */
    uint8_t key[RELAY_KEY_SIZE];
    bool may_bind; /* see struct bridge_options */
    uint8_t boot[RELAY_BOOT_SIZE];
    int64_t patience_us;

    enum bridge_state state;
    struct error *refusal; /* owned; of a relay of another version; NULL otherwise */
    bool is_frozen;
    unsigned failures;  /* in a row */
    int64_t hurried_us; /* when a connection was made again at once */
    struct log_repeat failure_log, violation_log;
    struct carrier_attempt attempt;
    struct link link;
    struct timer step;      /* the deadline of the state, or the next heartbeat */
    struct timer next_turn; /* ends PAUSE_TURN */
    struct timer patience;  /* armed while a session has no connection */
    struct deferred news;   /* calls the handler */
    struct deferred pump;   /* sends pending frames */
    struct deferred release;
    struct {
        bool up, down, other, version, usage;
        unsigned oldest, newest;
        uint8_t boot[RELAY_BOOT_SIZE];
        struct error err;
    } report;

    bool wants_usage;         /* in this session */
    struct relay_usage usage; /* that was told last */

    struct io_watch agent; /* fd: owned; -1 without a session */
    struct closing agent_closing;
    struct io_watch closings; /* fd: owned: an epoll of descriptors whose other end may be closed */

    /* the session */
    uint8_t session[RELAY_SESSION_SIZE];
    bool is_begun;     /* the relay knows it */
    uint64_t received; /* sequenced bytes, in whole frames */
    struct resend resend;
    struct torn torn;
    struct channel **channels[RELAY_CHANNELS / 64]; /* owned: by number, in pages of 64 */
    unsigned channel_count;
    struct list all, ready, owing, owing_later, outside;
    struct timer later;      /* ends the wait of `owing_later` */
    size_t waiting_bytes;    /* of all channels */
    struct channel *content; /* of the START that waits for it; NULL without */
    struct buffer start;     /* the message */
    bool owes_taken;         /* the agent's socket had no room for a TAKEN */
    struct held held;
    struct turn_watch turns; /* looks at the pipes */
    struct timer look;       /* instead of that, while nothing moves */
    unsigned still_looks;    /* in a row that found nothing */

    struct list orphans; /* of processes: descriptors whose session has ended, until the other end
                            closes */
};

/* --- bridge.c -------------------------------------------------------------------------------- */

/* The connection is over; the session goes on with the next one. */
void bridge_down(struct bridge *bridge, const struct error *err);

/* The relay breaks the rules: connection and session are over. Returns -1. */
int bridge_violation(struct bridge *bridge, const char *what);

/* The session is over: the agent's socket is closed. */
void bridge_end_session(struct bridge *bridge, const char *why);

/* The relay has answered LOGIN with a proof that it knows the key. */
void bridge_welcomed(struct bridge *bridge, const struct relay_greeting *greeting,
                     const struct relay_welcome *welcome);
void bridge_refuse_other(struct bridge *bridge, const struct relay_greeting *greeting);
void bridge_refuse_version(struct bridge *bridge, const struct relay_greeting *greeting);
void bridge_set_state(struct bridge *bridge, enum bridge_state state);
bool bridge_has_link(const struct bridge *bridge);

/* Schedules the sending of pending frames at the end of this callback. */
void bridge_wake(struct bridge *bridge);
void bridge_tell_usage(struct bridge *bridge); /* its owner, of what is in `usage` */
void bridge_watch_agent(struct bridge *bridge);

/* --- bridge_link.c --------------------------------------------------------------------------- */

void link_start(struct bridge *bridge, int fd);
void link_stop(struct bridge *bridge);
void link_heartbeat(struct bridge *bridge); /* the step timer has expired */

/* From `received` on the session goes on: see WELCOME. False when that cannot be. */
bool link_resume(struct bridge *bridge, uint64_t received);

/* Adds a sequenced frame; the caller has made sure that there is room. */
void link_add(struct bridge *bridge, const struct relay_frame *frame, const void *payload);
void link_flush(struct bridge *bridge);

/* The reason for a pause is gone: frames that wait are taken. */
void link_unpause(struct bridge *bridge, enum link_pause reason);

/* --- bridge_message.c ------------------------------------------------------------------------ */

enum message_result { MESSAGE_GIVEN, MESSAGE_WAITS, MESSAGE_FAILED };

enum message_result message_from_relay(struct bridge *bridge, const void *payload, size_t length);

/* Whether a message of the agent can be taken now. */
bool message_has_room(struct bridge *bridge);

/* Reads the agent's messages; false when its socket has ended. */
bool message_from_agent(struct bridge *bridge);

/* The relay has the START, or the wait for that has ended. */
void message_release_held(struct bridge *bridge);

/* The relay has received so much of the session. */
void message_note_received(struct bridge *bridge, uint64_t received);

/* The connection is about to be closed: has the relay read the START? */
void message_note_loss(struct bridge *bridge);
void message_init_held(struct bridge *bridge);

/* All of the content is sent: START can follow. */
void message_send_start(struct bridge *bridge);
void message_send_close_stdin(struct bridge *bridge, uint64_t process, uint64_t request);

/* The relay has acknowledged input: sends TAKEN to the agent, now or when its socket has room. */
void message_tell_taken(struct channel *channel);
void message_send_taken(struct bridge *bridge); /* the TAKEN that had to wait */

/* --- bridge_stream.c ------------------------------------------------------------------------- */

/* NULL when there is no such channel. */
struct channel *channel_find(struct bridge *bridge, uint16_t number);

/* Takes the descriptor over. The number is free. */
struct channel *channel_new(struct bridge *bridge, const struct relay_descriptor *descriptor,
                            uint64_t process, int fd);

/* Both are outputs of one process. */
void channel_set_siblings(struct channel *one, struct channel *other);
void channel_free(struct channel *channel);

/* The session is over. Descriptors of processes stay open until the other end closes: neither the
 * end of output nor that of input was reported. */
void channels_drop(struct bridge *bridge);

/* The agent lets init forget the process. */
void channels_forget(struct bridge *bridge, uint64_t process);

/* The process's input, if it is open; NULL without. */
struct channel *channel_input_of(struct bridge *bridge, uint64_t process);

/* The bytes in the pipe now are the last; CLOSE_STDIN follows them. */
void channel_close_stdin(struct channel *channel, uint64_t request);

/* The agent knows how much of the input was taken. Frees a channel that waited for that alone. */
void channel_taken(struct channel *channel);

/* There may be bytes to be sent. */
void channel_set_ready(struct channel *channel);

/* Each returns 0, or -1 when the frame breaks a rule and the session is over. `is_again`: some of
 * its bytes may have been used before a cut. */
int stream_data_begin(struct bridge *bridge, const struct relay_frame *frame, bool is_again);

/* Bytes of the process's other stream came before, and their reader has not had its turn. */
bool stream_is_early(struct bridge *bridge, uint16_t number);
int stream_data(struct channel *channel, const uint8_t *bytes, size_t length);
int stream_ack(struct bridge *bridge, const struct relay_frame *frame, const void *payload);
int stream_end(struct bridge *bridge, const struct relay_frame *frame, const void *payload);
int stream_close(struct bridge *bridge, const struct relay_frame *frame, const void *payload);

/* Adds frames about channels and their bytes, as far as there is room. */
void streams_send(struct bridge *bridge);

void streams_init(struct bridge *bridge);
int streams_prepare(struct bridge *bridge, struct error *err); /* before the first session */
void streams_fini(struct bridge *bridge);
void closing_watch(struct bridge *bridge, struct closing *closing, int fd,
                   void (*on_closed)(struct closing *closing));
void closing_stop(struct bridge *bridge, struct closing *closing);
