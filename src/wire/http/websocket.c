/* SPDX-License-Identifier: Apache-2.0 */
#include "wire/http/websocket.h"

#include "base/macros.h"

#include <string.h>

enum { FINAL = 0x80, RESERVED = 0x70, KIND = 0x0f, MASKED = 0x80, LENGTH = 0x7f };
enum { LENGTH_16 = 126, LENGTH_64 = 127, SHORT_HEAD = 2 };

static enum websocket_kind kind_of(const struct websocket_reader *reader)
{
    return reader->head[0] & KIND;
}

static bool is_final(const struct websocket_reader *reader)
{
    return reader->head[0] & FINAL;
}

static bool is_control(enum websocket_kind kind)
{
    return kind >= WEBSOCKET_CLOSE;
}

enum websocket_kind websocket_control(const struct websocket_reader *reader)
{
    return kind_of(reader);
}

/* --- the head --------------------------------------------------------------------------------- */

/* The size of the frame's head, as far as its first two bytes determine it. */
static unsigned head_size(const struct websocket_reader *reader)
{
    unsigned length = reader->head[1] & LENGTH;

    if (reader->head_length < SHORT_HEAD)
        return SHORT_HEAD;
    return SHORT_HEAD + (length == LENGTH_16 ? 2 : length == LENGTH_64 ? 8 : 0);
}

static uint64_t content_length(const struct websocket_reader *reader)
{
    uint64_t length = 0;

    if (reader->head_length == SHORT_HEAD)
        return reader->head[1] & LENGTH;
    for (unsigned i = SHORT_HEAD; i < reader->head_length; i++)
        length = length << 8 | reader->head[i];
    return length;
}

static bool kind_is_known(enum websocket_kind kind)
{
    return kind <= WEBSOCKET_BINARY || (kind >= WEBSOCKET_CLOSE && kind <= WEBSOCKET_PONG);
}

static bool head_is_good(const struct websocket_reader *reader)
{
    enum websocket_kind kind = kind_of(reader);

    if (reader->head[0] & RESERVED || reader->head[1] & MASKED || !kind_is_known(kind) ||
        reader->left > INT64_MAX)
        return false;
    if (is_control(kind))
        return is_final(reader) && reader->left <= WEBSOCKET_CONTROL_MAXIMUM;
    return (kind == WEBSOCKET_CONTINUATION) == reader->is_in_message;
}

/* Takes bytes of the head and returns their number. */
static size_t take_head(struct websocket_reader *reader, const uint8_t *data, size_t length)
{
    size_t used = 0;

    while (used < length && reader->head_length < head_size(reader))
        reader->head[reader->head_length++] = data[used++];
    if (reader->head_length < head_size(reader))
        return used;
    reader->left = content_length(reader);
    reader->control_length = 0;
    if (!head_is_good(reader))
        reader->state = READER_BROKEN;
    else if (is_control(kind_of(reader)) || reader->is_in_message)
        reader->state = READER_CONTENT;
    else
        reader->state = READER_BEGIN;
    return used;
}

/* --- the content ------------------------------------------------------------------------------ */

static void next_frame(struct websocket_reader *reader)
{
    reader->state = READER_HEAD;
    reader->head_length = 0;
}

static enum websocket_event take_control(struct websocket_reader *reader, const uint8_t *data,
                                         size_t length, size_t *out_used, const uint8_t **out_run,
                                         size_t *out_length)
{
    size_t piece = (size_t)MIN((uint64_t)length, reader->left);

    if (piece)
        memcpy(reader->control + reader->control_length, data, piece);
    reader->control_length += (unsigned)piece;
    reader->left -= piece;
    *out_used = piece;
    if (reader->left)
        return WEBSOCKET_NEED_MORE;
    next_frame(reader);
    *out_run = reader->control;
    *out_length = reader->control_length;
    return WEBSOCKET_CONTROL;
}

static enum websocket_event take_content(struct websocket_reader *reader, const uint8_t *data,
                                         size_t length, size_t *out_used, const uint8_t **out_run,
                                         size_t *out_length)
{
    size_t piece = (size_t)MIN((uint64_t)length, reader->left);

    *out_used = piece;
    if (piece) {
        *out_run = data;
        *out_length = piece;
        reader->left -= piece;
        return WEBSOCKET_RUN;
    }
    if (reader->left)
        return WEBSOCKET_NEED_MORE;
    reader->is_in_message = !is_final(reader);
    next_frame(reader);
    return reader->is_in_message ? WEBSOCKET_NEED_MORE : WEBSOCKET_END;
}

static enum websocket_event step(struct websocket_reader *reader, const uint8_t *data,
                                 size_t length, size_t *out_used, const uint8_t **out_run,
                                 size_t *out_length)
{
    switch (reader->state) {
    case READER_HEAD:
        *out_used = take_head(reader, data, length);
        return reader->state == READER_BROKEN ? WEBSOCKET_BAD : WEBSOCKET_NEED_MORE;
    case READER_BEGIN:
        reader->state = READER_CONTENT;
        reader->is_in_message = true;
        return WEBSOCKET_BEGIN;
    case READER_CONTENT:
        return is_control(kind_of(reader))
                   ? take_control(reader, data, length, out_used, out_run, out_length)
                   : take_content(reader, data, length, out_used, out_run, out_length);
    case READER_BROKEN:
        break;
    }
    return WEBSOCKET_BAD;
}

/* The last step of a frame needs no input: it is taken before more is asked for. */
static bool is_due(const struct websocket_reader *reader)
{
    return reader->state == READER_BEGIN || (reader->state == READER_CONTENT && !reader->left);
}

enum websocket_event websocket_next(struct websocket_reader *reader, const void *data,
                                    size_t length, size_t *out_used, const uint8_t **out_run,
                                    size_t *out_length)
{
    enum websocket_event event = WEBSOCKET_NEED_MORE;
    const uint8_t *at = data;
    size_t used = 0;

    *out_run = NULL;
    *out_length = 0;
    while (event == WEBSOCKET_NEED_MORE && (used < length || is_due(reader))) {
        size_t piece = 0;

        event = step(reader, length ? at + used : at, length - used, &piece, out_run, out_length);
        used += piece;
    }
    *out_used = used;
    return event;
}

/* --- writing ---------------------------------------------------------------------------------- */

static size_t put_length(uint8_t *out, uint64_t length)
{
    unsigned bytes = length < LENGTH_16 ? 0 : length <= UINT16_MAX ? 2 : 8;

    out[0] = (uint8_t)(MASKED | (bytes == 0 ? length : bytes == 2 ? LENGTH_16 : LENGTH_64));
    for (unsigned i = 0; i < bytes; i++)
        out[1 + i] = (uint8_t)(length >> 8 * (bytes - 1 - i));
    return 1 + bytes;
}

size_t websocket_put_head(uint8_t out_head[WEBSOCKET_HEAD_MAXIMUM], enum websocket_kind kind,
                          uint64_t length, const uint8_t mask[4])
{
    size_t used = 1;

    out_head[0] = (uint8_t)(FINAL | kind);
    used += put_length(out_head + used, length);
    memcpy(out_head + used, mask, 4);
    return used + 4;
}

void websocket_mask(uint8_t *data, size_t length, const uint8_t mask[4], uint64_t at)
{
    for (size_t i = 0; i < length; i++)
        data[i] ^= mask[(at + i) % 4];
}
