/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Takes frames of a bridge out of a stream of bytes that comes in pieces. It is pure: the caller
 * reads into the room that it gives. A header is checked before any byte behind it is waited for.
 */

#include "wire/relay_frame.h"

enum {
    READER_SIZE = 256 * 1024,
    READER_HAS_FRAME = 1,
    READER_WANTS_MORE = 0,
    READER_IS_BROKEN = -1,
};
_Static_assert((int)READER_SIZE >= (int)RELAY_MAX_FRAME, "a frame fits");

struct relay_reader {
    size_t start; /* of the bytes that are not taken yet */
    size_t end;
    uint64_t received; /* bytes of sequenced frames that were taken whole */
    uint8_t bytes[READER_SIZE];
};

void relay_reader_restart(struct relay_reader *reader); /* another connection: nothing half read */

/* Where to read to, and how much. Never 0 after all whole frames were taken. */
void *relay_reader_room(struct relay_reader *reader, size_t *out_size);
void relay_reader_add(struct relay_reader *reader, size_t length);

/* The next whole frame; its payload is borrowed until relay_reader_take(), which counts it. */
int relay_reader_peek(const struct relay_reader *reader, struct relay_frame *out_frame,
                      const uint8_t **out_payload);
void relay_reader_take(struct relay_reader *reader, const struct relay_frame *frame);
