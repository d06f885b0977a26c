/* SPDX-License-Identifier: Apache-2.0 */
/* The body of a message: by length, by chunks with their trailers, or to the end of the input. */

#include "base/macros.h"
#include "wire/http/http_parser.h"

#include <ctype.h>
#include <string.h>

enum { CHUNK_DIGITS = 16 };

static int body_count(struct http_parser *parser, uint64_t bytes)
{
    if (bytes > parser->limits.body_bytes || parser->body_bytes > parser->limits.body_bytes - bytes)
        return http_parser_refuse(parser, 413, "the body is too large");
    parser->body_bytes += bytes;
    return 0;
}

static int chunk_size_finish(struct http_parser *parser)
{
    if (parser->left > INT64_MAX)
        return http_parser_refuse(parser, 400, "a chunk is too large");
    if (body_count(parser, parser->left) < 0)
        return -1;
    parser->state = parser->left ? HTTP_STATE_CHUNK_DATA : HTTP_STATE_TRAILER_START;
    parser->digits = 0;
    return 0;
}

static int chunk_size_byte(struct http_parser *parser, uint8_t byte)
{
    int digit = http_hex_digit((char)byte);

    if (byte == '\r' && parser->digits) {
        parser->state = HTTP_STATE_CHUNK_SIZE_LF;
        return 0;
    }
    if (digit < 0)
        return http_parser_refuse(parser, 400, "a chunk size is malformed");
    if (parser->digits++ == CHUNK_DIGITS)
        return http_parser_refuse(parser, 400, "a chunk size is too long");
    parser->left = parser->left << 4 | (unsigned)digit;
    return 0;
}

/* Trailers are dropped. A trailer with a header of framing, routing or authentication is refused: a
 * proxy before us may have used it. */
static bool is_framing(const struct http_parser *parser)
{
    static const char *const names[] = { "content-length", "transfer-encoding", "host",
                                         "authorization",  "x-api-key",         "content-type" };

    for (size_t i = 0; i < ARRAY_LENGTH(names); i++)
        if (strcmp(names[i], parser->trailer_name) == 0)
            return true;
    return false;
}

/* As much of the name as the longest of these has, and one more. */
static void note_trailer_name(struct http_parser *parser, uint8_t byte)
{
    size_t length = strlen(parser->trailer_name);

    if (length + 1 < sizeof(parser->trailer_name))
        parser->trailer_name[length] = (char)tolower(byte);
}

static int trailer_byte(struct http_parser *parser, uint8_t byte)
{
    bool is_token = http_char_class[byte] & HTTP_CHAR_TOKEN;

    if (++parser->trailer_bytes > parser->limits.line_bytes)
        return http_parser_refuse(parser, 431, "the trailers are too long");
    switch (parser->state) {
    case HTTP_STATE_TRAILER_START:
        if (byte == '\r') {
            parser->state = HTTP_STATE_LAST_LF;
            return 0;
        }
        if (parser->trailer_count++ == parser->limits.header_count)
            return http_parser_refuse(parser, 431, "too many trailers");
        parser->state = HTTP_STATE_TRAILER_NAME;
        memset(parser->trailer_name, 0, sizeof(parser->trailer_name));
        note_trailer_name(parser, byte);
        break;
    case HTTP_STATE_TRAILER_NAME:
        if (byte == ':') {
            parser->state = HTTP_STATE_TRAILER_VALUE;
            return is_framing(parser)
                       ? http_parser_refuse(parser, 400, "a trailer belongs into the head")
                       : 0;
        }
        note_trailer_name(parser, byte);
        break;
    default:
        if (byte == '\r')
            parser->state = HTTP_STATE_TRAILER_LF;
        else if (http_char_class[byte] & HTTP_CHAR_CONTROL || byte >= 0x80)
            return http_parser_refuse(parser, 400, "a trailer is malformed");
        return 0;
    }
    return is_token ? 0 : http_parser_refuse(parser, 400, "a trailer name is malformed");
}

static int expect_byte(struct http_parser *parser, uint8_t byte, uint8_t expected,
                       enum http_state following)
{
    if (byte != expected)
        return http_parser_refuse(parser, 400, "a chunk does not end in CRLF");
    parser->state = following;
    return 0;
}

/* One byte of the framing around the chunks. */
static int framing_byte(struct http_parser *parser, uint8_t byte)
{
    switch (parser->state) {
    case HTTP_STATE_CHUNK_SIZE:
        return chunk_size_byte(parser, byte);
    case HTTP_STATE_CHUNK_SIZE_LF:
        if (byte != '\n')
            return http_parser_refuse(parser, 400, "a chunk size does not end in CRLF");
        return chunk_size_finish(parser);
    case HTTP_STATE_CHUNK_CR:
        return expect_byte(parser, byte, '\r', HTTP_STATE_CHUNK_LF);
    case HTTP_STATE_CHUNK_LF:
        return expect_byte(parser, byte, '\n', HTTP_STATE_CHUNK_SIZE);
    case HTTP_STATE_TRAILER_LF:
        return expect_byte(parser, byte, '\n', HTTP_STATE_TRAILER_START);
    case HTTP_STATE_LAST_LF:
        return expect_byte(parser, byte, '\n', HTTP_STATE_DONE);
    default:
        return trailer_byte(parser, byte);
    }
}

static bool state_has_data(const struct http_parser *parser)
{
    return parser->state == HTTP_STATE_BODY_LENGTH || parser->state == HTTP_STATE_BODY_TO_EOF ||
           parser->state == HTTP_STATE_CHUNK_DATA;
}

static enum http_event body_data(struct http_parser *parser, const uint8_t *data, size_t length,
                                 size_t *out_used, const uint8_t **out_body,
                                 size_t *out_body_length)
{
    size_t step = length;

    if (parser->state == HTTP_STATE_BODY_TO_EOF) {
        if (body_count(parser, step) < 0)
            return HTTP_BAD;
    } else {
        step = (size_t)MIN((uint64_t)length, parser->left);
        parser->left -= step;
        if (!parser->left)
            parser->state = parser->state == HTTP_STATE_CHUNK_DATA ? HTTP_STATE_CHUNK_CR
                                                                   : HTTP_STATE_DONE;
    }
    *out_body = data;
    *out_body_length = step;
    *out_used += step;
    return HTTP_BODY;
}

enum http_event http_body_feed(struct http_parser *parser, const uint8_t *data, size_t length,
                               size_t *out_used, const uint8_t **out_body, size_t *out_body_length)
{
    *out_used = 0;
    while (parser->state != HTTP_STATE_DONE && *out_used < length) {
        if (state_has_data(parser))
            return body_data(parser, data + *out_used, length - *out_used, out_used, out_body,
                             out_body_length);
        if (framing_byte(parser, data[*out_used]) < 0)
            return HTTP_BAD;
        *out_used += 1;
    }
    return parser->state == HTTP_STATE_DONE ? HTTP_DONE : HTTP_NEED_MORE;
}
