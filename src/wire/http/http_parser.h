/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Private to the HTTP codec: http_head.c, http_target.c, http_body.c and http_parser.c.
 *
 * The head is collected line by line in one arena, which is reused for the next message. Lines end
 * in the arena as C strings, and headers are kept as offsets until the head is complete, because
 * the arena may move while it grows.
 */

#include "wire/http/http.h"

enum http_state {
    HTTP_STATE_FIRST_LINE,
    HTTP_STATE_HEADERS,
    HTTP_STATE_BODY_LENGTH, /* `left` bytes */
    HTTP_STATE_BODY_TO_EOF,
    HTTP_STATE_CHUNK_SIZE, /* `digits` of it have been read into `left` */
    HTTP_STATE_CHUNK_SIZE_LF,
    HTTP_STATE_CHUNK_DATA,
    HTTP_STATE_CHUNK_CR,
    HTTP_STATE_CHUNK_LF,
    HTTP_STATE_TRAILER_START,
    HTTP_STATE_TRAILER_NAME,
    HTTP_STATE_TRAILER_VALUE,
    HTTP_STATE_TRAILER_LF,
    HTTP_STATE_LAST_LF,
    HTTP_STATE_DONE,
    HTTP_STATE_BAD,
};

struct http_span {
    uint32_t name;
    uint32_t value;
};

struct http_parser {
    enum http_kind kind;
    enum http_state state;
    struct http_limits limits;
    struct http_head head;
    int status;
    const char *reason; /* a literal */

    char *arena; /* owned */
    size_t arena_capacity;
    size_t arena_length; /* bytes of the head so far, as they came */
    size_t line_start;
    uint8_t line_bits; /* all bytes of the line, or-ed */
    size_t target;     /* offset of the request target */

    struct http_span *spans; /* owned; head.headers is filled from them at the end */
    size_t span_capacity;
    uint32_t known_seen; /* bit n: row n of the table of known headers was there */
    bool wants_close;
    bool wants_keep_alive;
    bool wants_upgrade;
    bool no_body;

    uint64_t left; /* bytes of the body or chunk still to come */
    uint64_t body_bytes;
    unsigned digits;
    size_t trailer_bytes;
    size_t trailer_count;
    char trailer_name[24]; /* its beginning, in lower case */
};

/* Character classes, in one table so that a scan is one load for each byte. */
enum {
    HTTP_CHAR_CONTROL = 1, /* CR, LF, NUL and the like, but not TAB */
    HTTP_CHAR_TOKEN = 2,   /* names of headers and methods */
    HTTP_CHAR_TARGET = 4,  /* path and query of a target, '%' not included */
    HTTP_CHAR_HOST = 8,    /* a registered name or an IPv4 address */
    HTTP_CHAR_HEX = 16,
};

extern const uint8_t http_char_class[256];

static inline bool http_char_is(char c, unsigned class)
{
    return http_char_class[(uint8_t)c] & class;
}

/* -1 for a character that is not a hexadecimal digit. */
int http_hex_digit(char c);

/* Each returns -1, and the parser returns HTTP_BAD from now on. */
int http_parser_refuse(struct http_parser *parser, int status, const char *reason);

enum http_event http_head_feed(struct http_parser *parser, const uint8_t *data, size_t length,
                               size_t *out_used);
void http_head_reset(struct http_parser *parser);

enum http_event http_body_feed(struct http_parser *parser, const uint8_t *data, size_t length,
                               size_t *out_used, const uint8_t **out_body, size_t *out_body_length);

/* The target at the end of a request line; then its parts, once the arena stands still. */
int http_target_check(struct http_parser *parser, const char *target, size_t length);
int http_target_decode(struct http_parser *parser);
int http_host_check(struct http_parser *parser, const char *host);

/* The method with that name, or HTTP_METHODS. */
enum http_method http_method_find(const char *name, size_t length);

/* Room for `length` bytes at the end of the arena. */
void http_arena_reserve(struct http_parser *parser, size_t length);
