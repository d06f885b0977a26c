#pragma once

/*
 * Server-sent events: text blocks of "field: value" lines, ended by an empty line.
 *
 * Writing turns each line of the data into a field of its own, so that any text comes out as it
 * went in; reading is incremental and takes what the standard allows (LF, CR or CRLF, comments).
 */

#include "base/buffer.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* `id` and `event` may be NULL; neither has line breaks. 0, or -1 when the buffer is full, which
 * leaves it as it was. */
int sse_write(struct buffer *buffer, const char *id, const char *event, const void *data,
              size_t length);

/* A comment, which readers skip: keeps a connection warm. */
int sse_write_comment(struct buffer *buffer, const char *text);

struct sse_event {
    const char *id;    /* the last one seen, "" before any */
    const char *event; /* "message" when none was given */
    const char *data;  /* lines joined with LF */
    size_t length;     /* of the data */
};

struct sse_parser {
    struct buffer line;
    struct buffer data;
    struct buffer event;
    struct buffer id;
    bool has_data;
    bool after_cr;   /* the next LF belongs to the CR before it */
    bool dispatched; /* the event that was told has to be forgotten first */
    bool started;    /* the place for a byte order mark is behind us */
};

void sse_parser_init(struct sse_parser *parser, size_t maximum_bytes);
void sse_parser_fini(struct sse_parser *parser);

/* Reads from `data`; *out_used says how much was consumed. 1: *out_event is filled, borrowed until
 * the next call; 0: all input consumed; -1: a line or an event is longer than the maximum. */
int sse_parser_feed(struct sse_parser *parser, const void *data, size_t length, size_t *out_used,
                    struct sse_event *out_event);
