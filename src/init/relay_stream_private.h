/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Private to the three files of the relay's streams: relay_stream.c has the streams and their
 * descriptors, relay_channel.c how channels come and go, relay_exchange.c the frames about them.
 */

#include "init/relay_stream.h"

enum {
    STREAM_PIECE = 64 * 1024, /* of one stream in its turn */
    STREAM_RING_LIMIT = 1024 * 1024,
    INPUT_GUARANTEE = 2, /* blocks: a window of one block can span two */
    OUTPUT_GUARANTEE = 1,
};

enum stream_state {
    STREAM_FREE,
    STREAM_DETACHED, /* of a process that this session does not know: no frame is about it */
    STREAM_OPEN,
    STREAM_REFUSED, /* input without a reader: CLOSE was sent, bytes are dropped until END */
    STREAM_ENDING,  /* input: END has come; output: `limit` is known */
    STREAM_TOLD,    /* output: END was sent */
    STREAM_DONE,    /* nothing more is said about it in this session */
};

enum stream_tell { TELL_ACK = 1 << 0, TELL_CLOSE = 1 << 1 };

enum queue_kind {
    QUEUE_WORK,    /* something may be read or written */
    QUEUE_STARVED, /* as soon as the pool has room */
    QUEUE_TELL,    /* an ACK, an END or a CLOSE is due */
    QUEUE_SEND,    /* bytes may be sent */
    QUEUES
};

struct stream {
    int fd; /* owned; -1 when the source or the target is gone */
    enum stream_state state;
    uint8_t tell;
    uint8_t queued; /* bits by queue */
    bool is_ready;  /* the descriptor can be read or written, as far as is known */
    uint8_t greed;  /* output: blocks to read at once */
    bool is_large;  /* output: its pipe was enlarged */
    uint16_t next[QUEUES];
    struct ring ring;

    uint64_t end;            /* bytes that have come into the ring, or to the input */
    uint64_t kept;           /* output: acknowledged; input: the bridge may send up to here */
    uint64_t sent;           /* output */
    uint64_t limit;          /* output: the total, when it ends */
    uint32_t window;         /* output: as the bridge gave it */
    int error;               /* of the source; of an input: its reader is gone */
    struct ring_place place; /* output: of `sent` in the ring */
};

struct channel {
    enum relay_kind kind; /* 0: free */
    bool is_process;      /* and not forgotten */
    bool is_other;        /* was made for something else */
    struct stream streams[2];
};

extern struct channel relay_channels[RELAY_BRIDGE_CHANNEL];

/* --- relay_stream.c ------------------------------------------------------------------------- */

struct stream *stream_at(unsigned number);
struct channel *stream_channel(const struct stream *stream);
uint16_t channel_number(const struct stream *stream);
bool stream_is_output(const struct stream *stream);

/* A stream is in a queue once. A dequeued stream may have no work left, or may be a new one with
 * the same number. NULL at the end. */
void stream_enqueue(enum queue_kind kind, struct stream *stream);
struct stream *stream_dequeue(enum queue_kind kind);
void stream_tell(struct stream *stream, unsigned what); /* enum stream_tell */

/* Takes the descriptor; it is in the poll until the stream lets it go. */
int stream_watch(struct stream *stream, int fd);
void stream_let_go(struct stream *stream);

/* Reads up to `room` bytes from the source; true when there may be more. */
bool stream_read(struct stream *stream, size_t room);

/* The window of an input: as much as its memory allows, and never less than was given before; an
 * input that is used up faster than it is given gets twice as much. */
void stream_grant(struct stream *stream);
void stream_widen(struct stream *stream);

void stream_refuse(struct stream *stream); /* input that has no reader, or is not wanted any more */
void stream_stop(struct stream *stream);   /* output goes no further than it has come */
void stream_drop(struct stream *stream);   /* and its buffered bytes are discarded */
void stream_hang_up(
    struct stream *stream); /* nothing more is read; buffered bytes are still sent */

/* --- relay_channel.c ------------------------------------------------------------------------ */

/* Frees the number of a channel when no frame about it can follow. */
void channel_settle(struct channel *channel);
