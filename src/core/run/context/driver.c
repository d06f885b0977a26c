/* SPDX-License-Identifier: Apache-2.0 */
#include "core/run/context/driver.h"

#include <assert.h>
#include <ctype.h>
#include <stdio.h>
#include <string.h>

enum {
    MARK = 0x1e,
    TOKEN_LENGTH = DRIVER_TOKEN_SIZE - 1,
    KIND_AT = 1 + TOKEN_LENGTH,
    LENGTH_AT = KIND_AT + 1,
    LENGTH_DIGITS = 4,
    HEAD_LENGTH = LENGTH_AT + LENGTH_DIGITS + 1,
};

void driver_parser_init(struct driver_parser *parser, const char *token, size_t maximum)
{
    *parser = (struct driver_parser){ .input = BUFFER_INIT(DRIVER_INPUT_MAXIMUM),
                                      .message = BUFFER_INIT(maximum) };
    driver_parser_set_token(parser, token);
}

void driver_parser_fini(struct driver_parser *parser)
{
    buffer_fini(&parser->input);
    buffer_fini(&parser->message);
}

void driver_parser_set_token(struct driver_parser *parser, const char *token)
{
    snprintf(parser->token, sizeof(parser->token), "%s", token);
    buffer_clear(&parser->message);
    parser->is_told = false;
}

size_t driver_parser_room(const struct driver_parser *parser)
{
    return DRIVER_INPUT_MAXIMUM - parser->input.length;
}

void driver_parser_feed(struct driver_parser *parser, const void *data, size_t length)
{
    assert(length <= driver_parser_room(parser));
    buffer_append(&parser->input, data, length);
}

void driver_parser_end(struct driver_parser *parser)
{
    parser->is_over = true;
}

/* Whether a byte fits at this index of a head. */
static bool fits(const struct driver_parser *parser, size_t at, uint8_t byte)
{
    if (at == 0)
        return byte == MARK;
    if (at < KIND_AT)
        return byte == (uint8_t)parser->token[at - 1];
    if (at == KIND_AT)
        return byte == 'p' || byte == 'm';
    if (at < LENGTH_AT + LENGTH_DIGITS)
        return isxdigit(byte);
    return byte == '\n';
}

static size_t payload_length(const uint8_t *head)
{
    size_t length = 0;

    for (size_t i = 0; i < LENGTH_DIGITS; i++) {
        uint8_t digit = head[LENGTH_AT + i];

        length = length * 16 + (size_t)(isdigit(digit) ? digit - '0' : tolower(digit) - 'a' + 10);
    }
    return length;
}

enum head { HEAD_NONE, HEAD_UNFINISHED, HEAD_COMPLETE };

/* Whether the input begins with a frame. */
static enum head look_at_head(const struct driver_parser *parser)
{
    const struct buffer *input = &parser->input;
    size_t length;

    for (size_t at = 0; at < HEAD_LENGTH; at++) {
        if (at == input->length)
            return parser->is_over ? HEAD_NONE : HEAD_UNFINISHED;
        if (!fits(parser, at, input->data[at]))
            return HEAD_NONE;
    }
    length = payload_length(input->data);
    if (HEAD_LENGTH + length > DRIVER_FRAME_MAXIMUM)
        return HEAD_NONE;
    if (HEAD_LENGTH + length > input->length)
        return parser->is_over ? HEAD_NONE : HEAD_UNFINISHED;
    return HEAD_COMPLETE;
}

/* Up to where a frame may begin, at least the first byte. */
static enum driver_event tell_output(struct driver_parser *parser, const void **out_data,
                                     size_t *out_length)
{
    const struct buffer *input = &parser->input;
    const uint8_t *mark = memchr(input->data + 1, MARK, input->length - 1);

    *out_data = input->data;
    *out_length = parser->told = mark ? (size_t)(mark - input->data) : input->length;
    return DRIVER_OUTPUT;
}

/* True when the message is complete. */
static bool take_frame(struct driver_parser *parser)
{
    const uint8_t *head = parser->input.data;
    size_t length = payload_length(head);
    bool is_last = head[KIND_AT] == 'm';

    buffer_append(&parser->message, head + HEAD_LENGTH, length);
    buffer_consume(&parser->input, HEAD_LENGTH + length);
    parser->is_told = is_last;
    return is_last;
}

enum driver_event driver_parser_next(struct driver_parser *parser, const void **out_data,
                                     size_t *out_length)
{
    buffer_consume(&parser->input, parser->told);
    parser->told = 0;
    if (parser->is_told)
        buffer_clear(&parser->message);
    parser->is_told = false;
    while (parser->input.length > 0) {
        switch (look_at_head(parser)) {
        case HEAD_NONE:
            return tell_output(parser, out_data, out_length);
        case HEAD_UNFINISHED:
            return DRIVER_NOTHING;
        case HEAD_COMPLETE:
            break;
        }
        if (!take_frame(parser))
            continue;
        *out_data = parser->message.data;
        *out_length = parser->message.length;
        return parser->message.overflowed ? DRIVER_DROPPED : DRIVER_MESSAGE;
    }
    return DRIVER_NOTHING;
}
