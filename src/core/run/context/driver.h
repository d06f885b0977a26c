/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * The output of a context's driver: the bytes that its code writes, as they come, with frames
 * between them.
 *
 *     0x1e TOKEN(32) KIND(1) LENGTH(4 hex) LF PAYLOAD
 *
 * A frame is at most PIPE_BUF bytes, so that the kernel does not split it when other processes
 * write to the same pipe. Kind `p` is a part of a message and `m` its last one. The token is that
 * of the run; all other bytes are output.
 */

#include "base/buffer.h"

#include <stdbool.h>
#include <stddef.h>

enum { DRIVER_TOKEN_SIZE = 33, DRIVER_FRAME_MAXIMUM = 4096, DRIVER_INPUT_MAXIMUM = 64 * 1024 };

enum driver_event {
    DRIVER_NOTHING, /* every event was reported; the rest of the input waits for more */
    DRIVER_OUTPUT,
    DRIVER_MESSAGE,
    DRIVER_DROPPED, /* a message that was too large */
};

struct driver_parser {
    char token[DRIVER_TOKEN_SIZE];
    struct buffer input;   /* not reported yet */
    struct buffer message; /* parts of the message that is coming */
    size_t told;           /* bytes of the input that the last event reported */
    bool is_told;          /* the message was reported and is dropped next */
    bool is_over;          /* nothing more comes */
};

/* `maximum` of a message, in bytes. */
void driver_parser_init(struct driver_parser *parser, const char *token, size_t maximum);
void driver_parser_fini(struct driver_parser *parser);

/* The next input belongs to another run; input that was not reported yet stays. */
void driver_parser_set_token(struct driver_parser *parser, const char *token);

/* Room for input: the most bytes to give now. 0 only while events are left to be taken. */
size_t driver_parser_room(const struct driver_parser *parser);
void driver_parser_feed(struct driver_parser *parser, const void *data, size_t length);

/* No more input comes: bytes that looked like the beginning of a frame are output. */
void driver_parser_end(struct driver_parser *parser);

/* Data is borrowed until the next call. */
enum driver_event driver_parser_next(struct driver_parser *parser, const void **out_data,
                                     size_t *out_length);
