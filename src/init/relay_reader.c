/* SPDX-License-Identifier: Apache-2.0 */
#include "init/relay_reader.h"

#include <string.h>

void relay_reader_restart(struct relay_reader *reader)
{
    reader->start = reader->end = 0;
}

void *relay_reader_room(struct relay_reader *reader, size_t *out_size)
{
    if (reader->start && sizeof reader->bytes - reader->end < RELAY_MAX_FRAME) {
        memmove(reader->bytes, reader->bytes + reader->start, reader->end - reader->start);
        reader->end -= reader->start;
        reader->start = 0;
    }
    *out_size = sizeof reader->bytes - reader->end;
    return reader->bytes + reader->end;
}

void relay_reader_add(struct relay_reader *reader, size_t length)
{
    reader->end += length;
}

int relay_reader_peek(const struct relay_reader *reader, struct relay_frame *out_frame,
                      const uint8_t **out_payload)
{
    size_t length = reader->end - reader->start;
    const uint8_t *bytes = reader->bytes + reader->start;

    if (length < sizeof *out_frame)
        return READER_WANTS_MORE;
    memcpy(out_frame, bytes, sizeof *out_frame);
    if (relay_check(out_frame, RELAY_OF_BRIDGE))
        return READER_IS_BROKEN;
    if (length - sizeof *out_frame < out_frame->length)
        return READER_WANTS_MORE;
    *out_payload = bytes + sizeof *out_frame;
    return READER_HAS_FRAME;
}

void relay_reader_take(struct relay_reader *reader, const struct relay_frame *frame)
{
    size_t length = sizeof *frame + frame->length;

    reader->start += length;
    if (reader->start == reader->end)
        reader->start = reader->end = 0;
    if (relay_is_sequenced(frame))
        reader->received += length;
}
