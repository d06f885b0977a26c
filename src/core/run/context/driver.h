#pragma once

/*
 * What the driver of a context writes: the bytes of the code it runs, as they come, with frames
 * between them.
 *
 *     0x1e TOKEN(32) KIND(1) LENGTH(4 hex) LF PAYLOAD
 *
 * A frame is at most PIPE_BUF bytes, so that the kernel does not tear it apart whoever else writes
 * to the same pipe. Kind `p` is a part of a message and `m` its last one. The token is that of the
 * run; whatever is not a frame with that token is output, byte by byte.
 */

#include "base/buffer.h"

#include <stdbool.h>
#include <stddef.h>

enum { DRIVER_TOKEN_SIZE = 33, DRIVER_FRAME_MAXIMUM = 4096, DRIVER_INPUT_MAXIMUM = 64 * 1024 };

enum driver_event {
    DRIVER_NOTHING, /* all that could be told was told; the rest waits for more */
    DRIVER_OUTPUT,
    DRIVER_MESSAGE,
    DRIVER_DROPPED, /* a message that was too large */
};

struct driver_parser {
    char token[DRIVER_TOKEN_SIZE];
    struct buffer input;   /* not told yet */
    struct buffer message; /* parts of the one that is coming */
    size_t told;           /* of the input, with the last event */
    bool is_told;          /* the message was told and goes next */
    bool is_over;          /* nothing more comes */
};

/* `maximum` of a message, in bytes. */
void driver_parser_init(struct driver_parser *parser, const char *token, size_t maximum);
void driver_parser_fini(struct driver_parser *parser);

/* What comes next belongs to another run; input that was not told yet stays. */
void driver_parser_set_token(struct driver_parser *parser, const char *token);

/* Room for input; at most so much may be given now. 0 only while events are left to be taken. */
size_t driver_parser_room(const struct driver_parser *parser);
void driver_parser_feed(struct driver_parser *parser, const void *data, size_t length);

/* No more input comes: what looked like the beginning of a frame is output. */
void driver_parser_end(struct driver_parser *parser);

/* Data is borrowed until the next call. */
enum driver_event driver_parser_next(struct driver_parser *parser, const void **out_data,
                                     size_t *out_length);
