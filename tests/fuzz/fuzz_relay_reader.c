/* SPDX-License-Identifier: Apache-2.0 */
/* What a bridge may send, in pieces: the relay takes the same frames however the bytes are cut, counts
 * them, and gives no payload that lies outside of what has come. */

#include "init/relay_reader.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

struct sum {
    uint64_t frames;
    uint64_t bytes;
    uint64_t received;
    bool is_broken;
};

/* False when the stream is broken. */
static bool take_all(struct relay_reader *reader, struct sum *sum)
{
    struct relay_frame frame;
    const uint8_t *payload;
    int found;

    while ((found = relay_reader_peek(reader, &frame, &payload)) == READER_HAS_FRAME) {
        assert(payload >= reader->bytes && payload + frame.length <= reader->bytes + reader->end);
        for (uint32_t i = 0; i < frame.length; i++)
            sum->bytes = sum->bytes * 31 + payload[i];
        sum->frames++;
        relay_reader_take(reader, &frame);
    }
    sum->received = reader->received;
    sum->is_broken = found == READER_IS_BROKEN;
    return !sum->is_broken;
}

static struct sum read_in_pieces(struct relay_reader *reader, const uint8_t *data, size_t size,
                                 size_t piece)
{
    struct sum sum = { 0 };

    memset(reader, 0, offsetof(struct relay_reader, bytes));
    for (size_t done = 0; done < size;) {
        size_t room;
        void *to = relay_reader_room(reader, &room);
        size_t length = size - done < piece ? size - done : piece;

        assert(room > 0);
        if (length > room)
            length = room;
        memcpy(to, data + done, length);
        relay_reader_add(reader, length);
        done += length;
        if (!take_all(reader, &sum))
            break;
    }
    return sum;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct relay_reader *reader = malloc(sizeof *reader);
    size_t piece = size ? (size_t)data[0] + 1 : 1;
    struct sum whole, pieces;

    assert(reader);
    whole = read_in_pieces(reader, data, size, size);
    pieces = read_in_pieces(reader, data, size, piece);
    assert(whole.frames == pieces.frames && whole.bytes == pieces.bytes);
    assert(whole.received == pieces.received && whole.is_broken == pieces.is_broken);
    free(reader);
    return 0;
}
