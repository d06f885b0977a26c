#pragma once

/*
 * HTTP/1.1 as a pure function: bytes in, events out. Stricter than the libraries are, because it is
 * the front door: CRLF only, one length, no folding, no space before a colon, close on doubt.
 *
 * The same parser reads requests (server) and responses (client). It keeps only the head of the
 * message; body bytes are handed out as they stand in the caller's input, without a copy.
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
    char *path;              /* decoded once; owned by the parser */
    const char *query;       /* raw, without '?'; "" when there is none */
    struct http_header *headers;
    size_t header_count;
    bool has_body;
    bool chunked;
    int64_t content_length; /* -1 when unknown */
    bool keep_alive;
    bool expect_continue;
    bool upgrade;
};

enum http_event {
    HTTP_NEED_MORE, /* all input consumed */
    HTTP_HEAD_DONE, /* parser->head is filled */
    HTTP_BODY,      /* *out_body, *out_body_length point into the input */
    HTTP_DONE,      /* end of the message; call http_parser_next() for another */
    HTTP_BAD        /* parser->status and err say why; the connection must be closed */
};

enum http_kind { HTTP_KIND_REQUEST, HTTP_KIND_RESPONSE };

struct http_parser; /* opaque */

struct http_parser *http_parser_new(enum http_kind kind, const struct http_limits *limits);
void http_parser_free(struct http_parser *parser);
SCOPED_DEFINE(http_parser_free, struct http_parser);

/* Reads from `data`; *out_used says how much was consumed before the event. */
enum http_event http_parser_feed(struct http_parser *parser, const void *data, size_t length,
                                 size_t *out_used, const uint8_t **out_body,
                                 size_t *out_body_length);

/* End of input: a response without a length ends well; anything else half read is HTTP_BAD. */
enum http_event http_parser_eof(struct http_parser *parser);

void http_parser_next(
    struct http_parser *parser); /* ready for the next message on the connection */

const struct http_head *http_parser_head(const struct http_parser *parser);
int http_parser_status(
    const struct http_parser *parser); /* the status to refuse with: 400, 413, 414, 431, 501, 505 */
const char *http_parser_reason(const struct http_parser *parser); /* why, for the error body */

/* Responses to HEAD have no body whatever their headers say. */
void http_parser_expect_no_body(struct http_parser *parser);

/* NULL when absent. Names are given in lower case. */
const char *http_head_header(const struct http_head *head, const char *name);

/* A decoded query parameter into `buffer`, which is cleared first: false when absent. -1 is
 * malformed. */
int http_query_get(const char *query, const char *name, struct buffer *value);

const char *http_method_name(enum http_method method);
const char *http_status_text(int status);
