/* SPDX-License-Identifier: Apache-2.0 */
#include "bridge/resend.h"

#include "base/alloc.h"
#include "base/scoped.h"
#include "wire/relay_frame.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

enum { SMALLEST_BYTES = 4096, KEPT_BYTES = 64 * 1024 }; /* powers of two, as RESEND_BYTES */

void resend_clear(struct resend *resend)
{
    free(resend->bytes);
    *resend = (struct resend){ 0 };
}

static void copy_in(struct resend *resend, const uint8_t *bytes, uint64_t start, size_t length)
{
    size_t place = (size_t)start & (resend->capacity - 1);
    size_t piece = MIN(length, resend->capacity - place);

    memcpy(resend->bytes + place, bytes, piece);
    if (length > piece)
        memcpy(resend->bytes, bytes + piece, length - piece);
}

static void copy_out(const struct resend *resend, uint8_t *bytes, uint64_t start, size_t length)
{
    size_t place = (size_t)start & (resend->capacity - 1);
    size_t piece = MIN(length, resend->capacity - place);

    memcpy(bytes, resend->bytes + place, piece);
    if (length > piece)
        memcpy(bytes + piece, resend->bytes, length - piece);
}

static void grow(struct resend *resend, size_t needed)
{
    struct resend larger = *resend;

    larger.capacity = resend->capacity ? resend->capacity : (size_t)SMALLEST_BYTES;
    while (larger.capacity < needed)
        larger.capacity *= 2;
    assert(larger.capacity <= RESEND_BYTES);
    larger.bytes = xmalloc(larger.capacity);
    if (resend_held(resend)) {
        struct iovec pieces[2];
        unsigned count = resend_pieces(resend, resend->first, resend->end, pieces);
        uint64_t at = resend->first;

        for (unsigned i = 0; i < count; i++) {
            copy_in(&larger, pieces[i].iov_base, at, pieces[i].iov_len);
            at += pieces[i].iov_len;
        }
    }
    free(resend->bytes);
    *resend = larger;
}

void resend_add(struct resend *resend, const void *bytes, size_t length)
{
    size_t needed = resend_held(resend) + length;

    if (!length)
        return;
    if (needed > resend->capacity)
        grow(resend, needed);
    copy_in(resend, bytes, resend->end, length);
    resend->end += length;
}

uint64_t resend_frame_end(const struct resend *resend, uint64_t start)
{
    struct relay_frame frame;

    assert(start >= resend->first && start + sizeof(frame) <= resend->end);
    copy_out(resend, (uint8_t *)&frame, start, sizeof(frame));
    return start + sizeof(frame) + frame.length;
}

bool resend_drop(struct resend *resend, uint64_t received)
{
    uint64_t at = resend->first;

    if (received < resend->first || received > resend->end)
        return false;
    while (at < received)
        at = resend_frame_end(resend, at);
    if (at != received)
        return false;
    resend->first = received;
    if (resend->first == resend->end && resend->capacity > KEPT_BYTES) {
        free(steal_ptr(&resend->bytes));
        resend->capacity = 0;
    }
    return true;
}

unsigned resend_pieces(const struct resend *resend, uint64_t start, uint64_t end,
                       struct iovec pieces[2])
{
    size_t length = (size_t)(end - start);
    size_t place;
    size_t piece;

    assert(start >= resend->first && end <= resend->end && start <= end);
    if (!length)
        return 0;
    place = (size_t)start & (resend->capacity - 1);
    piece = MIN(length, resend->capacity - place);
    pieces[0] = (struct iovec){ resend->bytes + place, piece };
    pieces[1] = (struct iovec){ resend->bytes, length - piece };
    return length > piece ? 2 : 1;
}
