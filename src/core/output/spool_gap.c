/* SPDX-License-Identifier: Apache-2.0 */
#include "core/output/spool_private.h"

#include "core/output/stream_order.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/xattr.h>
#include <unistd.h>

/*
 * Bytes that the program wrote and that never came: a sandbox that is elsewhere has let them go,
 * because they were in the spool once, and the spool has them no more (the host lost power, the file
 * was removed); or the sandbox was gone before they were under way. Offsets stay those of the
 * program: the file has a gap there, which is not read.
 *
 * The gap is noted beside the file for the next daemon, because blocks of zeros do not show where it
 * begins. A file system that takes no notes leaves zeros to be read in their place after a restart;
 * the record of the execution tells of the loss all the same.
 */

static const char GAP_NAME[] = "user.sandglass.gap";

static void set_reason(struct spool *spool, uint64_t start, uint64_t end, const char *why)
{
    struct error err;

    error_named(&err, ERR_BACKEND, "output_lost", "%llu bytes from offset %llu on are lost: %s",
                (unsigned long long)(end - start), (unsigned long long)start, why);
    error_keep(&spool->lost, &err);
}

static void explain_gap(struct spool *spool)
{
    set_reason(spool, spool->gap.start, spool->gap.end,
               "the sandbox does not have them any more, and the spool has lost them");
}

/* A second gap takes the bytes between the two as well. They do not count as kept, so they must not
 * be on the disk: a sandbox that tells of gaps again and again would fill it past every quota. */
static int drop_between(const struct spool *spool)
{
    const struct spool_range *gap = &spool->gap;

    if (gap->start == gap->end || gap->end == spool->length)
        return 0;
    return fallocate(spool->file, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, (off_t)gap->end,
                     (off_t)(spool->length - gap->end));
}

static int make_gap(struct spool *spool, uint64_t next)
{
    if (spool->error.code || spool->stored < spool->length || spool_create_file(spool) < 0)
        return -1;
    if (drop_between(spool) < 0 || ftruncate(spool->file, (off_t)next) < 0)
        return error_sys(&spool->error, "write the spool %s", spool->options.name);
    if (spool->gap.start == spool->gap.end)
        spool->gap.start = spool->length;
    spool->gap.end = next;
    spool->stored = next;
    return 0;
}

void spool_note_gap(struct spool *spool, uint64_t next)
{
    uint64_t start = spool->length;

    if (make_gap(spool, next) == 0) {
        explain_gap(spool);
        if (fsetxattr(spool->file, GAP_NAME, &spool->gap, sizeof(spool->gap), 0) == 0)
            spool_write_marks(spool);
    } else {
        set_reason(spool, start, next, "the sandbox does not have them any more");
    }
    spool->length = next;
    if (spool->order)
        stream_order_took(spool->order, spool->stream, spool->length);
}

void spool_lose_rest(struct spool *spool)
{
    set_reason(spool, spool->length, spool->finish_at,
               "the connection to the sandbox ended before they came");
    spool->length = spool->finish_at;
    spool->phase = SPOOL_FINISHED;
    if (spool->order)
        stream_order_took(spool->order, spool->stream, spool->length);
}

void spool_find_gap(struct spool *spool)
{
    struct spool_range gap;

    if (fgetxattr(spool->file, GAP_NAME, &gap, sizeof(gap)) != sizeof(gap) ||
        gap.start >= gap.end || gap.end > spool->stored)
        return;
    spool->gap = gap;
    explain_gap(spool);
}

uint64_t spool_gap_bytes(const struct spool *spool)
{
    uint64_t start = MAX(spool->gap.start, spool->hole_start);
    uint64_t end = MIN(spool->gap.end, spool->hole_end);

    return spool->gap.end - spool->gap.start - (start < end ? end - start : 0);
}
