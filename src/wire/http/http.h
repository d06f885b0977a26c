/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * HTTP/1.1 as a pure function: bytes in, events out. Stricter than the libraries are, because it is
 * the front door: CRLF only, one length, no folding, no space before a colon, close on doubt.
 *
 * The same parser reads requests (server) and responses (client). It keeps only the head of the
 * message; body bytes are handed out as they stand in the caller's input, without a copy.
 *
 * Refused although the standard allows them: targets in absolute and authority form ('*' is for
 * OPTIONS alone), an empty line before a request, chunk extensions, transfer codings other than
 * exactly "chunked", header values that are not UTF-8, a port without digits in Host, and a
 * repeated header of which only one can be meant. Trailers are checked and dropped.
 */

#include "base/buffer.h"
#include "base/error.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum http_method {
    HTTP_GET,
    HTTP_HEAD,
    HTTP_POST,
    HTTP_PUT,
    HTTP_PATCH,
    HTTP_DELETE,
    HTTP_OPTIONS,
    HTTP_METHODS
};

struct http_limits {
    size_t line_bytes; /* request or status line */
    size_t head_bytes; /* all of the head */
    size_t header_count;
    uint64_t body_bytes;
};

extern const struct http_limits http_default_limits; /* 8 kB, 64 kB, 100, no limit */

struct http_header {
    const char *name; /* lower case; both borrowed from the parser */
    const char *value;
};

struct http_head {
    enum http_method method; /* requests */
    int status;              /* responses */
    const char *target;      /* requests: as sent, origin form */
    char *path;              /* decoded once: UTF-8, no control characters; the parser's */
    const char *query;       /* raw, without '?'; "" when there is none */
    struct http_header *headers;
    size_t header_count;
    bool has_body;
    bool chunked;
    int64_t content_length; /* -1 when unknown */
    bool keep_alive;
    bool expect_continue;
    bool upgrade;
    unsigned minor_version; /* 0 or 1 */
};

enum http_event {
    HTTP_NEED_MORE, /* all input consumed */
    HTTP_HEAD_DONE, /* http_parser_head() is filled, and valid until http_parser_next() */
    HTTP_BODY,      /* *out_body, *out_body_length point into the input */
    HTTP_DONE,      /* end of the message; call http_parser_next() for another */
    HTTP_BAD        /* http_parser_status() and _reason() say why; close the connection */
};

enum http_kind { HTTP_KIND_REQUEST, HTTP_KIND_RESPONSE };

struct http_parser; /* opaque */

/* The limits are copied; NULL stands for the default ones. */
struct http_parser *http_parser_new(enum http_kind kind, const struct http_limits *limits);
void http_parser_free(struct http_parser *parser); /* NULL is fine */
SCOPED_DEFINE(http_parser_free, struct http_parser);

/* Reads from `data`; *out_used says how much was consumed before the event. The end of a message
 * without a body is the event of the next call, which may have no data. */
enum http_event http_parser_feed(struct http_parser *parser, const void *data, size_t length,
                                 size_t *out_used, const uint8_t **out_body,
                                 size_t *out_body_length);

/* End of input: a response without a length ends well (HTTP_DONE), between two messages there is
 * nothing to say (HTTP_NEED_MORE); anything half read is HTTP_BAD. */
enum http_event http_parser_eof(struct http_parser *parser);

/* Ready for the next message on the connection. */
void http_parser_next(struct http_parser *parser);

/* Whether no byte of the next message has come yet. */
bool http_parser_is_idle(const struct http_parser *parser);

const struct http_head *http_parser_head(const struct http_parser *parser);

/* The status to refuse with (400, 413, 414, 417, 431, 501, 505), and why, for the error body. */
int http_parser_status(const struct http_parser *parser);
const char *http_parser_reason(const struct http_parser *parser);

/* Responses to HEAD have no body, regardless of their headers; for this message only. */
void http_parser_expect_no_body(struct http_parser *parser);

/* NULL when absent; the first when there are several. Names are given in lower case. */
const char *http_head_header(const struct http_head *head, const char *name);

/* The next parameter of a raw query, decoded ('+' is a space) into the buffers, which are cleared
 * first: 1, or 0 at the end, or -1 when malformed or too long for a buffer. */
int http_query_next(const char **query, struct buffer *name, struct buffer *value);

/* Appends the text with percent escapes, fit for a segment of a path or a value of a query; '/' is
 * escaped too. 0, or -1 when the buffer is full, which leaves it as it was. */
int http_escape(struct buffer *buffer, const char *text);

/* Appends "name: value" and CRLF; control characters become '?', so it stays one line. */
int http_put_header(struct buffer *buffer, const char *name, const char *value);

/* A header bytes=START-END for content of `size`: 1 when there is one range, 0 when all of it is
 * meant, -1 when the range lies outside. `header` may be NULL. */
int http_range(const char *header, uint64_t size, uint64_t *out_start, uint64_t *out_end);

const char *http_method_name(enum http_method method);
const char *http_status_text(int status);
