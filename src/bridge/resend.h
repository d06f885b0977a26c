/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * The resend buffer of a bridge: the sequenced frames of a session that the relay has not received,
 * as a ring of bytes that grows up to RESEND_BYTES. Positions are counts of bytes since the session
 * began, and never go back.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/uio.h>

enum {
    RESEND_BYTES = 2 * 1024 * 1024,
    RESEND_DATA_BYTES = 512 * 1024,     /* DATA is added below this */
    RESEND_MESSAGE_BYTES = 1024 * 1024, /* messages below this, so that they go first */
    RESEND_CONTROL_BYTES = 1536 * 1024, /* and ACK, END and CLOSE below this */
};

struct resend {
    uint8_t *bytes; /* owned; NULL while nothing is held */
    size_t capacity;
    uint64_t first; /* the first byte that is held: the start of a frame */
    uint64_t end;   /* behind the last one: the end of a frame, unless one is being added */
};

void resend_clear(struct resend *resend); /* counts from 0 again; frees the memory */

static inline size_t resend_held(const struct resend *resend)
{
    return (size_t)(resend->end - resend->first);
}

/* The caller has checked that the bytes fit. */
void resend_add(struct resend *resend, const void *bytes, size_t length);

/* Where the frame that begins at `start` ends. */
uint64_t resend_frame_end(const struct resend *resend, uint64_t start);

/* All bytes below the offset were received. False when it is not the end of a held frame. */
bool resend_drop(struct resend *resend, uint64_t received);

/* The bytes from `start` to `end` in one or two pieces: how many. */
unsigned resend_pieces(const struct resend *resend, uint64_t start, uint64_t end,
                       struct iovec pieces[2]);
