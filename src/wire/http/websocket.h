/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Frames of a WebSocket (RFC 6455), as a client reads and writes them: bytes in, events out. The
 * opening handshake is the caller's.
 *
 * The reader knows no socket and copies nothing but control frames: the content of a message is
 * handed out in runs of the caller's input, at any length. Refused are frames that a server may not
 * send: masked ones, reserved bits, unknown kinds, a control frame that is long or cut, a
 * continuation of nothing, a length of 2^63 or more.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum websocket_kind {
    WEBSOCKET_CONTINUATION = 0,
    WEBSOCKET_TEXT = 1,
    WEBSOCKET_BINARY = 2,
    WEBSOCKET_CLOSE = 8,
    WEBSOCKET_PING = 9,
    WEBSOCKET_PONG = 10,
};

enum websocket_event {
    WEBSOCKET_NEED_MORE, /* all input consumed */
    WEBSOCKET_BEGIN,     /* a message begins; *out_length is 0 */
    WEBSOCKET_RUN,       /* bytes of the message: *out_run, *out_length */
    WEBSOCKET_END,       /* the message is complete */
    WEBSOCKET_CONTROL,   /* a frame of websocket_control(), whose content is the run */
    WEBSOCKET_BAD,       /* close the connection */
};

enum { WEBSOCKET_HEAD_MAXIMUM = 14, WEBSOCKET_CONTROL_MAXIMUM = 125 };

/* A zeroed reader is ready. */
struct websocket_reader {
    enum { READER_HEAD, READER_BEGIN, READER_CONTENT, READER_BROKEN } state;
    uint8_t head[WEBSOCKET_HEAD_MAXIMUM];
    unsigned head_length;
    bool is_in_message; /* its last frame has not come */
    uint64_t left;      /* of the content of the frame */
    uint8_t control[WEBSOCKET_CONTROL_MAXIMUM];
    unsigned control_length;
};

/* Reads from `data`; *out_used says how much was consumed before the event. A run is valid as long as
 * the input is, that of a control frame until the next call. */
enum websocket_event websocket_next(struct websocket_reader *reader, const void *data,
                                    size_t length, size_t *out_used, const uint8_t **out_run,
                                    size_t *out_length);

/* Of the last WEBSOCKET_CONTROL. */
enum websocket_kind websocket_control(const struct websocket_reader *reader);

/* The head of a whole message or control frame from a client; returns its length. */
size_t websocket_put_head(uint8_t out_head[WEBSOCKET_HEAD_MAXIMUM], enum websocket_kind kind,
                          uint64_t length, const uint8_t mask[4]);

/* Applies the mask in place; `at` is how many bytes of the content come before. */
void websocket_mask(uint8_t *data, size_t length, const uint8_t mask[4], uint64_t at);
