/* SPDX-License-Identifier: Apache-2.0 */
#include "core/output/stream_order.h"

#include "base/alloc.h"
#include "base/fd.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { STREAM_ORDER_BYTES = 8 * 1024 * 1024, PUNCH_BYTES = 1024 * 1024, NO_STREAM = -1 };

/* A record of the file: the end of a run in its stream, and which stream that is. */
#define STREAM_BIT (1ull << 63)

typedef uint64_t record;

struct stream_order {
    int directory; /* borrowed */
    char name[SPOOL_NAME_SIZE];
    int file;                       /* owned; -1 until both streams have bytes */
    uint64_t count;                 /* records */
    uint64_t hole_start, hole_end;  /* records that were dropped; both 0 without */
    unsigned first;                 /* stream of the first record */
    int current;                    /* stream of the run that goes on */
    uint64_t closed[STREAM_COUNT];  /* ends of the streams in the last records */
    uint64_t lengths[STREAM_COUNT]; /* bytes that came */
    bool is_broken;                 /* it could not be written: the order ends here */
};

static unsigned stream_of(const struct stream_order *order, uint64_t index)
{
    return order->first ^ (index & 1);
}

/* The end of a run in its stream. A record that cannot be read counts as an empty run, and leads
 * nowhere. */
static uint64_t end_of(const struct stream_order *order, uint64_t index)
{
    record value = 0;

    if (fd_read_at(order->file, &value, sizeof(value), (off_t)(index * sizeof(value))) !=
        sizeof(value))
        return 0;
    return value & ~STREAM_BIT;
}

/* How much of both had come when a run was over. */
static uint64_t merged_end(const struct stream_order *order, uint64_t index)
{
    return end_of(order, index) + (index ? end_of(order, index - 1) : 0);
}

/* --- the file -------------------------------------------------------------------------------- */

static void drop_middle(struct stream_order *order)
{
    uint64_t head = STREAM_ORDER_BYTES / 2;
    uint64_t start = MAX(order->hole_end * sizeof(record), head);
    uint64_t bytes = order->count * sizeof(record);

    if (bytes < STREAM_ORDER_BYTES || bytes - head < start + PUNCH_BYTES)
        return;
    if (fallocate(order->file, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, (off_t)start,
                  PUNCH_BYTES) < 0)
        return; /* it stays larger than it should be */
    order->hole_start = head / sizeof(record);
    order->hole_end = (start + PUNCH_BYTES) / sizeof(record);
}

/* The directory exists: both streams have bytes. */
static bool append(struct stream_order *order, unsigned stream, uint64_t end)
{
    record value = end | (stream ? STREAM_BIT : 0);

    if (order->file < 0)
        order->file =
            openat(order->directory, order->name, O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (order->file < 0 || pwrite(order->file, &value, sizeof(value),
                                  (off_t)(order->count * sizeof(value))) != (ssize_t)sizeof(value))
        return false;
    if (!order->count++)
        order->first = stream;
    order->closed[stream] = end;
    drop_middle(order);
    return true;
}

static void find_earlier(struct stream_order *order)
{
    struct stat status;
    record value = 0;
    off_t hole;

    order->file = openat(order->directory, order->name, O_RDWR | O_NOFOLLOW | O_CLOEXEC);
    if (order->file < 0)
        return;
    if (fstat(order->file, &status) < 0 || !S_ISREG(status.st_mode) ||
        fd_read_at(order->file, &value, sizeof(value), 0) != sizeof(value)) {
        fd_close(steal_fd(&order->file));
        return;
    }
    order->first = value & STREAM_BIT ? 1 : 0;
    order->count = (uint64_t)status.st_size / sizeof(record);
    hole = lseek(order->file, 0, SEEK_HOLE);
    if (hole >= 0 && hole < status.st_size) {
        off_t data = lseek(order->file, hole, SEEK_DATA);

        order->hole_start = (uint64_t)hole / sizeof(record);
        order->hole_end = data < 0 ? order->count : (uint64_t)data / sizeof(record);
    }
    for (uint64_t i = order->count > 2 ? order->count - 2 : 0; i < order->count; i++)
        order->closed[stream_of(order, i)] = end_of(order, i);
    order->current = !stream_of(order, order->count - 1);
}

/* --- writing --------------------------------------------------------------------------------- */

void stream_order_took(struct stream_order *order, unsigned stream, uint64_t length)
{
    if (length <= order->lengths[stream] || order->is_broken)
        return;
    if (order->current != NO_STREAM && order->current != (int)stream &&
        !append(order, (unsigned)order->current, order->lengths[order->current])) {
        order->is_broken = true;
        return;
    }
    order->current = (int)stream;
    order->lengths[stream] = length;
}

struct stream_order *stream_order_new(int directory, const char *name,
                                      const uint64_t lengths[STREAM_COUNT])
{
    struct stream_order *order = xnew(struct stream_order);
    unsigned first;

    order->directory = directory;
    order->file = -1;
    order->current = NO_STREAM;
    snprintf(order->name, sizeof(order->name), "%s", name);
    if (lengths[0] && lengths[1])
        find_earlier(order);
    memcpy(order->lengths, order->closed, sizeof(order->lengths));
    first = order->current == 1;
    stream_order_took(order, first, lengths[first]);
    stream_order_took(order, !first, lengths[!first]);
    return order;
}

void stream_order_free(struct stream_order *order)
{
    if (!order)
        return;
    fd_close(order->file);
    free(order);
}

/* --- reading --------------------------------------------------------------------------------- */

uint64_t stream_order_length(const struct stream_order *order)
{
    return order->lengths[0] + order->lengths[1];
}

bool stream_order_has_hole(const struct stream_order *order, uint64_t *out_start, uint64_t *out_end)
{
    if (!order->hole_end)
        return false;
    *out_start = merged_end(order, order->hole_start - 1);
    *out_end = order->hole_end + 1 < order->count ? merged_end(order, order->hole_end + 1)
                                                  : order->closed[0] + order->closed[1];
    return true;
}

/* The first record at or after `low` for which `measure` is above `value`; `high` if there is none.
 */
static uint64_t bisect(const struct stream_order *order, uint64_t low, uint64_t high, uint64_t step,
                       uint64_t (*measure)(const struct stream_order *, uint64_t), uint64_t value)
{
    uint64_t count = high > low ? (high - low + step - 1) / step : 0, at = 0;

    while (at < count) {
        uint64_t middle = at + (count - at) / 2;

        if (measure(order, low + middle * step) > value)
            count = middle;
        else
            at = middle + 1;
    }
    return MIN(low + at * step, high);
}

static bool find_closed(const struct stream_order *order, uint64_t merged,
                        struct stream_order_place *out_place)
{
    uint64_t hole_start = 0, hole_end = 0, low = 0, high = order->count, index;

    if (stream_order_has_hole(order, &hole_start, &hole_end) && merged >= hole_start) {
        if (merged < hole_end)
            return false;
        low = order->hole_end + 2;
    } else if (order->hole_end) {
        high = order->hole_start;
    }
    index = bisect(order, low, high, 1, merged_end, merged);
    if (index >= high)
        return false;
    out_place->stream = stream_of(order, index);
    out_place->other = index ? end_of(order, index - 1) : 0;
    out_place->offset = merged - out_place->other;
    out_place->run_bytes = end_of(order, index) - out_place->offset;
    return true;
}

bool stream_order_find(const struct stream_order *order, uint64_t merged,
                       struct stream_order_place *out_place)
{
    uint64_t closed = order->closed[0] + order->closed[1];
    unsigned current = order->current == 1;

    if (merged < closed)
        return find_closed(order, merged, out_place);
    if (merged >= stream_order_length(order))
        return false;
    out_place->stream = current;
    out_place->other = order->closed[!current];
    out_place->offset = merged - out_place->other;
    out_place->run_bytes = order->lengths[current] - out_place->offset;
    return true;
}

uint64_t stream_order_merged(const struct stream_order *order, unsigned stream, uint64_t offset)
{
    uint64_t skipped = order->first == stream ? 0 : 1;
    uint64_t hole_start, hole_end, index, high = order->count;

    if (offset >= order->closed[stream])
        return offset + order->closed[!stream];
    if (!stream_order_has_hole(order, &hole_start, &hole_end)) {
        index = bisect(order, skipped, high, 2, end_of, offset);
        return offset + (index ? end_of(order, index - 1) : 0);
    }
    index = bisect(order, skipped, order->hole_start, 2, end_of, offset);
    if (index < order->hole_start)
        return offset + (index ? end_of(order, index - 1) : 0);
    index = order->hole_end + 2;
    index += stream_of(order, index) != stream;
    if (index >= high || end_of(order, index - 2) > offset)
        return hole_end;
    index = bisect(order, index, high, 2, end_of, offset);
    return offset + end_of(order, index - 1);
}
