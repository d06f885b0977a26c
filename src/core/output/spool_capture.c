/* SPDX-License-Identifier: Apache-2.0 */
#include "base/buffer.h"
#include "base/str.h"
#include "core/output/spool.h"

#include <errno.h>
#include <unistd.h>

static int append_range(int fd, uint64_t start, uint64_t end, struct buffer *text)
{
    while (start < end) {
        size_t want = (size_t)MIN(end - start, (uint64_t)64 * 1024);
        void *place = buffer_reserve(text, want);
        ssize_t count = place ? pread(fd, place, want, (off_t)start) : -1;

        if (count < 0 && place && errno == EINTR)
            continue;
        if (count <= 0)
            return -1;
        buffer_advance(text, (size_t)count);
        start += (uint64_t)count;
    }
    return 0;
}

static bool is_continuation(uint8_t byte)
{
    return (byte & 0xc0) == 0x80;
}

/* A character cut in two by the end of the head is left out of it. */
static void trim_head(struct buffer *text, size_t from)
{
    size_t at = text->length;

    while (at > from && text->length - at < 3 && is_continuation(text->data[at - 1]))
        at--;
    if (at > from && text->data[at - 1] >= 0xc0 &&
        !str_utf8_sequence(text->data + at - 1, text->length - at + 1))
        text->length = at - 1;
}

static uint64_t skip_to_character(int fd, uint64_t start)
{
    uint8_t bytes[4];
    ssize_t count = pread(fd, bytes, sizeof(bytes), (off_t)start);
    ssize_t skipped = 0;

    while (skipped < count && is_continuation(bytes[skipped]))
        skipped++;
    return skipped < (ssize_t)sizeof(bytes) ? start + (uint64_t)skipped : start;
}

/* The first bytes before and the last bytes behind the omitted range; either may be empty. */
static void choose_ends(const struct spool *spool, size_t capture, uint64_t *out_head_end,
                        uint64_t *out_tail_start, uint64_t *out_tail_end)
{
    uint64_t hole_start, hole_end = 0, start, end = 0;

    if (!spool_extent(spool, 0, &start, &end) || start > 0)
        end = 0;
    *out_head_end = MIN(end, (uint64_t)capture / 2);
    if (spool_has_hole(spool, &hole_start, &hole_end) &&
        !spool_extent(spool, hole_end, &start, &end))
        end = hole_end;
    *out_tail_end = end;
    *out_tail_start = MAX(hole_end, end > capture / 2 ? end - capture / 2 : 0);
    *out_tail_start = MAX(*out_tail_start, *out_head_end);
}

static int put_left_out(struct buffer *text, uint64_t length)
{
    return buffer_appendf(text, "\n[… %llu bytes left out …]\n", (unsigned long long)length);
}

static int capture_ends(struct spool *spool, size_t capture, struct buffer *text,
                        bool *out_truncated)
{
    uint64_t length = spool_length(spool);
    uint64_t head_end, tail_start, tail_end, hole_start, hole_end;
    size_t from = text->length;
    int fd = spool_fd(spool);

    *out_truncated = length > capture || spool_has_hole(spool, &hole_start, &hole_end) ||
                     spool_error(spool);
    if (fd < 0)
        return length ? put_left_out(text, length) : 0;
    if (!*out_truncated)
        return append_range(fd, 0, length, text);

    choose_ends(spool, capture, &head_end, &tail_start, &tail_end);
    if (append_range(fd, 0, head_end, text) < 0)
        return -1;
    if (tail_start > head_end) {
        trim_head(text, from);
        tail_start = MIN(skip_to_character(fd, tail_start), tail_end);
    }
    length -= (text->length - from) + (tail_end - tail_start);
    if (put_left_out(text, length) < 0)
        return -1;
    return append_range(fd, tail_start, tail_end, text);
}

int spool_capture(struct spool *spool, size_t capture, struct buffer *text, bool *out_truncated)
{
    if (capture_ends(spool, capture, text, out_truncated) == 0)
        return 0;
    *out_truncated = true;
    spool_note_unread(spool);
    return -1;
}
