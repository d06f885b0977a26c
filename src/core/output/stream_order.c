#include "core/output/stream_order.h"

#include "base/alloc.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { JOURNAL_BYTES = 8 * 1024 * 1024, PUNCH_BYTES = 1024 * 1024, NO_STREAM = -1 };

/* What the file consists of: the end of a run in its stream, and which stream that is. */
#define STREAM_BIT (1ull << 63)

typedef uint64_t record;

struct journal {
    int directory; /* borrowed */
    char name[OUTPUT_NAME_SIZE];
    int file;                          /* owned; -1 until both streams have bytes */
    uint64_t count;                    /* records */
    uint64_t hole_start, hole_end;     /* records that were dropped; both 0 without */
    unsigned first;                    /* stream of the first record */
    int current;                       /* stream of the run that goes on */
    uint64_t closed[JOURNAL_STREAMS];  /* ends of the streams in the last records */
    uint64_t lengths[JOURNAL_STREAMS]; /* what came */
    bool is_broken;                    /* it could not be written: the order ends here */
};

static unsigned stream_of(const struct journal *journal, uint64_t index)
{
    return journal->first ^ (index & 1);
}

/* The end of a run in its stream. What cannot be read counts as empty, and leads nowhere. */
static uint64_t end_of(const struct journal *journal, uint64_t index)
{
    record value = 0;

    if (pread(journal->file, &value, sizeof(value), (off_t)(index * sizeof(value))) !=
        (ssize_t)sizeof(value))
        return 0;
    return value & ~STREAM_BIT;
}

/* How much of both had come when a run was over. */
static uint64_t merged_end(const struct journal *journal, uint64_t index)
{
    return end_of(journal, index) + (index ? end_of(journal, index - 1) : 0);
}

/* --- the file -------------------------------------------------------------------------------- */

static void drop_middle(struct journal *journal)
{
    uint64_t head = JOURNAL_BYTES / 2;
    uint64_t start = MAX(journal->hole_end * sizeof(record), head);
    uint64_t bytes = journal->count * sizeof(record);

    if (bytes < JOURNAL_BYTES || bytes - head < start + PUNCH_BYTES)
        return;
    if (fallocate(journal->file, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, (off_t)start,
                  PUNCH_BYTES) < 0)
        return; /* it stays larger than it should be */
    journal->hole_start = head / sizeof(record);
    journal->hole_end = (start + PUNCH_BYTES) / sizeof(record);
}

/* The folder is there: both streams have bytes. */
static bool append(struct journal *journal, unsigned stream, uint64_t end)
{
    record value = end | (stream ? STREAM_BIT : 0);

    if (journal->file < 0)
        journal->file = openat(journal->directory, journal->name,
                               O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (journal->file < 0 ||
        pwrite(journal->file, &value, sizeof(value), (off_t)(journal->count * sizeof(value))) !=
            (ssize_t)sizeof(value))
        return false;
    if (!journal->count++)
        journal->first = stream;
    journal->closed[stream] = end;
    drop_middle(journal);
    return true;
}

static void find_earlier(struct journal *journal)
{
    struct stat status;
    record value = 0;
    off_t hole;

    journal->file = openat(journal->directory, journal->name, O_RDWR | O_NOFOLLOW | O_CLOEXEC);
    if (journal->file < 0)
        return;
    if (fstat(journal->file, &status) < 0 || !S_ISREG(status.st_mode) ||
        pread(journal->file, &value, sizeof(value), 0) != (ssize_t)sizeof(value)) {
        fd_close(steal_fd(&journal->file));
        return;
    }
    journal->first = value & STREAM_BIT ? 1 : 0;
    journal->count = (uint64_t)status.st_size / sizeof(record);
    hole = lseek(journal->file, 0, SEEK_HOLE);
    if (hole >= 0 && hole < status.st_size) {
        off_t data = lseek(journal->file, hole, SEEK_DATA);

        journal->hole_start = (uint64_t)hole / sizeof(record);
        journal->hole_end = data < 0 ? journal->count : (uint64_t)data / sizeof(record);
    }
    for (uint64_t i = journal->count > 2 ? journal->count - 2 : 0; i < journal->count; i++)
        journal->closed[stream_of(journal, i)] = end_of(journal, i);
    journal->current = !stream_of(journal, journal->count - 1);
}

/* --- writing --------------------------------------------------------------------------------- */

void journal_took(struct journal *journal, unsigned stream, uint64_t length)
{
    if (length <= journal->lengths[stream] || journal->is_broken)
        return;
    if (journal->current != NO_STREAM && journal->current != (int)stream &&
        !append(journal, (unsigned)journal->current, journal->lengths[journal->current])) {
        journal->is_broken = true;
        return;
    }
    journal->current = (int)stream;
    journal->lengths[stream] = length;
}

struct journal *journal_new(int directory, const char *name,
                            const uint64_t lengths[JOURNAL_STREAMS])
{
    struct journal *journal = xnew(struct journal);
    unsigned first;

    journal->directory = directory;
    journal->file = -1;
    journal->current = NO_STREAM;
    snprintf(journal->name, sizeof(journal->name), "%s", name);
    if (lengths[0] && lengths[1])
        find_earlier(journal);
    memcpy(journal->lengths, journal->closed, sizeof(journal->lengths));
    first = journal->current == 1;
    journal_took(journal, first, lengths[first]);
    journal_took(journal, !first, lengths[!first]);
    return journal;
}

void journal_free(struct journal *journal)
{
    if (!journal)
        return;
    fd_close(journal->file);
    free(journal);
}

/* --- reading --------------------------------------------------------------------------------- */

uint64_t journal_length(const struct journal *journal)
{
    return journal->lengths[0] + journal->lengths[1];
}

bool journal_has_hole(const struct journal *journal, uint64_t *out_start, uint64_t *out_end)
{
    if (!journal->hole_end)
        return false;
    *out_start = merged_end(journal, journal->hole_start - 1);
    *out_end = journal->hole_end + 1 < journal->count ? merged_end(journal, journal->hole_end + 1)
                                                      : journal->closed[0] + journal->closed[1];
    return true;
}

/* The first record at or after `low` for which `measure` is above `value`; `high` if there is none.
 */
static uint64_t bisect(const struct journal *journal, uint64_t low, uint64_t high, uint64_t step,
                       uint64_t (*measure)(const struct journal *, uint64_t), uint64_t value)
{
    uint64_t count = high > low ? (high - low + step - 1) / step : 0, at = 0;

    while (at < count) {
        uint64_t middle = at + (count - at) / 2;

        if (measure(journal, low + middle * step) > value)
            count = middle;
        else
            at = middle + 1;
    }
    return MIN(low + at * step, high);
}

static bool find_closed(const struct journal *journal, uint64_t merged,
                        struct journal_place *out_place)
{
    uint64_t hole_start = 0, hole_end = 0, low = 0, high = journal->count, index;

    if (journal_has_hole(journal, &hole_start, &hole_end) && merged >= hole_start) {
        if (merged < hole_end)
            return false;
        low = journal->hole_end + 2;
    } else if (journal->hole_end) {
        high = journal->hole_start;
    }
    index = bisect(journal, low, high, 1, merged_end, merged);
    if (index >= high)
        return false;
    out_place->stream = stream_of(journal, index);
    out_place->other = index ? end_of(journal, index - 1) : 0;
    out_place->offset = merged - out_place->other;
    out_place->run_bytes = end_of(journal, index) - out_place->offset;
    return true;
}

bool journal_find(const struct journal *journal, uint64_t merged, struct journal_place *out_place)
{
    uint64_t closed = journal->closed[0] + journal->closed[1];
    unsigned current = journal->current == 1;

    if (merged < closed)
        return find_closed(journal, merged, out_place);
    if (merged >= journal_length(journal))
        return false;
    out_place->stream = current;
    out_place->other = journal->closed[!current];
    out_place->offset = merged - out_place->other;
    out_place->run_bytes = journal->lengths[current] - out_place->offset;
    return true;
}

uint64_t journal_merged(const struct journal *journal, unsigned stream, uint64_t offset)
{
    uint64_t skipped = journal->first == stream ? 0 : 1;
    uint64_t hole_start, hole_end, index, high = journal->count;

    if (offset >= journal->closed[stream])
        return offset + journal->closed[!stream];
    if (!journal_has_hole(journal, &hole_start, &hole_end)) {
        index = bisect(journal, skipped, high, 2, end_of, offset);
        return offset + (index ? end_of(journal, index - 1) : 0);
    }
    index = bisect(journal, skipped, journal->hole_start, 2, end_of, offset);
    if (index < journal->hole_start)
        return offset + (index ? end_of(journal, index - 1) : 0);
    index = journal->hole_end + 2;
    index += stream_of(journal, index) != stream;
    if (index >= high || end_of(journal, index - 2) > offset)
        return hole_end;
    index = bisect(journal, index, high, 2, end_of, offset);
    return offset + end_of(journal, index - 1);
}
