/* SPDX-License-Identifier: Apache-2.0 */
/* The parser as its callers see it: one state machine over the head and the body. */

#include "wire/http/http_parser.h"

#include "base/alloc.h"

#include <stdlib.h>

const struct http_limits http_default_limits = {
    .line_bytes = 8 * 1024,
    .head_bytes = 64 * 1024,
    .header_count = 100,
    .body_bytes = UINT64_MAX,
};

int http_parser_refuse(struct http_parser *parser, int status, const char *reason)
{
    parser->state = HTTP_STATE_BAD;
    parser->status = status;
    parser->reason = reason;
    return -1;
}

struct http_parser *http_parser_new(enum http_kind kind, const struct http_limits *limits)
{
    struct http_parser *parser = xnew(struct http_parser);

    parser->kind = kind;
    parser->limits = limits ? *limits : http_default_limits;
    http_head_reset(parser);
    return parser;
}

void http_parser_free(struct http_parser *parser)
{
    if (!parser)
        return;
    free(parser->arena);
    free(parser->spans);
    free(parser->head.headers);
    free(parser);
}

enum http_event http_parser_feed(struct http_parser *parser, const void *data, size_t length,
                                 size_t *out_used, const uint8_t **out_body,
                                 size_t *out_body_length)
{
    *out_used = 0;
    switch (parser->state) {
    case HTTP_STATE_FIRST_LINE:
    case HTTP_STATE_HEADERS:
        return http_head_feed(parser, data, length, out_used);
    case HTTP_STATE_BAD:
        return HTTP_BAD;
    default:
        return http_body_feed(parser, data, length, out_used, out_body, out_body_length);
    }
}

enum http_event http_parser_eof(struct http_parser *parser)
{
    if (parser->state == HTTP_STATE_BODY_TO_EOF)
        parser->state = HTTP_STATE_DONE;
    if (parser->state == HTTP_STATE_DONE)
        return HTTP_DONE;
    if (http_parser_is_idle(parser))
        return HTTP_NEED_MORE;
    if (parser->state != HTTP_STATE_BAD)
        http_parser_refuse(parser, 400, "the message is incomplete");
    return HTTP_BAD;
}

void http_parser_next(struct http_parser *parser)
{
    http_head_reset(parser);
}

bool http_parser_is_idle(const struct http_parser *parser)
{
    return parser->state == HTTP_STATE_FIRST_LINE && parser->arena_length == 0;
}

const struct http_head *http_parser_head(const struct http_parser *parser)
{
    return &parser->head;
}

int http_parser_status(const struct http_parser *parser)
{
    return parser->status;
}

const char *http_parser_reason(const struct http_parser *parser)
{
    return parser->reason;
}

void http_parser_expect_no_body(struct http_parser *parser)
{
    parser->no_body = true;
}
