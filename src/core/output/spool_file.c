/* SPDX-License-Identifier: Apache-2.0 */
#include "core/output/spool_private.h"

#include "base/str.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

enum {
    LEAST_CAP_BYTES = 64 * 1024, /* of a stream; an exceeded quota does not make its cap smaller */
    PUNCH_BYTES = 4 * 1024 * 1024,
};

bool spool_may_be_sent(struct spool *spool)
{
    bool may = spool->source.fd < 0 || spool->cap_bytes >= 8 * (uint64_t)FOLIO_BYTES;

    spool->is_sent = spool->is_sent || may;
    return may;
}

/* Where a hole may begin and end. */
static uint64_t hole_floor(const struct spool *spool, uint64_t bytes)
{
    uint64_t unit = spool->is_sent ? FOLIO_BYTES : PAGE_BYTES;

    return bytes / unit * unit;
}

static uint64_t head_bytes(const struct spool *spool)
{
    return hole_floor(spool, spool->cap_bytes / 2);
}

/* Marks for the next daemon. */
void spool_write_marks(const struct spool *spool)
{
    mode_t mode = 0600 | (spool->is_marked ? S_ISVTX : 0) | (spool->is_ahead ? S_IXUSR : 0) |
                  (spool->gap.end ? S_IXGRP : 0);

    if (spool->file >= 0)
        (void)fchmod(spool->file, mode);
}

/* A daemon that died while it read a terminal has left room behind the last byte. That ends at a
 * page, and is zeros, which programs hardly write to terminals. */
static off_t cut_room(const struct spool *spool, off_t size)
{
    static char bytes[AHEAD_BYTES + PAGE_BYTES];
    off_t start = MAX(size - (off_t)sizeof(bytes), (off_t)0);
    ssize_t count;

    if (size % PAGE_BYTES || (count = pread(spool->file, bytes, sizeof(bytes), start)) <= 0)
        return size;
    while (count > 0 && bytes[count - 1] == 0)
        count--;
    (void)!ftruncate(spool->file, start + count);
    return start + count;
}

/* Finds the bytes that an earlier daemon wrote, with the hole that it punched. */
void spool_find_earlier(struct spool *spool)
{
    off_t hole, data;
    struct stat status;

    spool->file =
        openat(spool->options.directory, spool->options.name, O_RDWR | O_NOFOLLOW | O_CLOEXEC);
    if (spool->file < 0) {
        if (errno != ENOENT)
            spool_note_unread(spool);
        return;
    }
    if (fstat(spool->file, &status) < 0 || !S_ISREG(status.st_mode)) {
        fd_close(steal_fd(&spool->file));
        return;
    }
    if (status.st_mode & S_IXUSR)
        status.st_size = cut_room(spool, status.st_size);
    spool->length = spool->stored = (uint64_t)status.st_size;
    spool->is_ahead = status.st_mode & S_IXUSR;
    spool->is_marked = status.st_mode & S_ISVTX;
    if (status.st_mode & S_IXGRP)
        spool_find_gap(spool);
    hole = lseek(spool->file, 0, SEEK_HOLE);
    if (hole >= (off_t)spool->gap.start && hole < (off_t)spool->gap.end)
        hole = lseek(spool->file, (off_t)spool->gap.end, SEEK_HOLE);
    if (hole < 0 || hole >= status.st_size)
        return;
    data = lseek(spool->file, hole, SEEK_DATA);
    spool->hole_start = (uint64_t)hole;
    spool->hole_end = data < 0 ? spool->stored : (uint64_t)data;
    spool->passed = spool->hole_end;
}

/* The record counts more bytes than the file has. */
void spool_note_missing(struct spool *spool)
{
    spool->length = spool->options.recorded_bytes;
    if (spool->unread.code != ERR_NONE)
        return; /* they may be there */
    error_named(&spool->error, ERR_NO_SPACE, "output_not_kept",
                "%llu of %llu bytes are missing: the spool was full, or its file was changed",
                (unsigned long long)(spool->length - spool->stored),
                (unsigned long long)spool->length);
}

static int make_folder(const struct spool *spool)
{
    char folder[SPOOL_NAME_SIZE];
    char *slash;

    memcpy(folder, spool->options.name, sizeof(folder));
    slash = strrchr(folder, '/');
    if (!slash)
        return -1;
    *slash = '\0';
    return mkdirat(spool->options.directory, folder, 0700);
}

int spool_create_file(struct spool *spool)
{
    const char *name = spool->options.name;
    int flags = O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC;

    if (spool->file >= 0)
        return 0;
    spool->file = openat(spool->options.directory, name, flags, 0600);
    if (spool->file < 0 && errno == ENOENT && make_folder(spool) == 0)
        spool->file = openat(spool->options.directory, name, flags, 0600);
    return spool->file < 0 ? error_sys(&spool->error, "create the spool %s", name) : 0;
}

/* Whether bytes that no reader has passed must not be lost. The program's own bytes count: a child
 * that it left in the background does not block the spool for ever. */
bool spool_is_blocking(const struct spool *spool)
{
    return spool->options.full == SPOOL_BLOCK && spool->phase != SPOOL_FINISHED;
}

/* How far the middle may be dropped: the tail stays, and the bytes that a follower has yet to read.
 * Bytes that were sent to it but perhaps not received stay too: a client that is cut off asks for
 * them again. */
static uint64_t drop_limit(const struct spool *spool)
{
    uint64_t tail = spool->cap_bytes - head_bytes(spool);
    uint64_t limit = spool->stored > tail ? spool->stored - tail : 0;
    uint64_t margin = MIN(spool->cap_bytes / 4, (uint64_t)ON_ITS_WAY_BYTES);
    const struct spool_follower *follower;

    list_for_each (follower, &spool->followers, node)
        limit = MIN(limit, follower->offset > margin ? follower->offset - margin : 0);
    if (spool_is_blocking(spool))
        limit = MIN(limit, spool->passed > margin ? spool->passed - margin : 0);
    return hole_floor(spool, limit);
}

/* One hole: the ranges of two punches touch. */
static void punch(struct spool *spool, uint64_t start, uint64_t end)
{
    if (fallocate(spool->file, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, (off_t)start,
                  (off_t)(end - start)) < 0) {
        error_sys(&spool->error, "drop the middle of the spool %s", spool->options.name);
        return;
    }
    spool->hole_start = spool->hole_end ? MIN(spool->hole_start, start) : start;
    spool->hole_end = MAX(spool->hole_end, end);
}

/* In big steps, because each one costs about the same. */
void spool_drop_middle(struct spool *spool)
{
    uint64_t start = MAX(spool->hole_end, head_bytes(spool));
    uint64_t limit = drop_limit(spool);
    uint64_t step = MIN(MAX(spool->cap_bytes / 8, (uint64_t)PAGE_BYTES), (uint64_t)PUNCH_BYTES);

    if (limit >= start + step)
        punch(spool, start, limit);
}

/* Half as many bytes are kept from now on; of the head, too, unless a follower has yet to read it.
 */
static void shrink(struct spool *spool)
{
    uint64_t head, limit;

    spool->cap_bytes = MAX(spool->cap_bytes / 2, (uint64_t)LEAST_CAP_BYTES);
    head = head_bytes(spool);
    limit = drop_limit(spool);
    if (spool->file >= 0 && !spool->error.code && head < limit &&
        (!spool->hole_end || (head < spool->hole_start && limit >= spool->hole_start)))
        punch(spool, head, limit);
    else if (spool->file >= 0 && !spool->error.code)
        spool_drop_middle(spool);
}

static uint64_t kept_bytes(const struct spool *spool)
{
    return spool->stored - (spool->hole_end - spool->hole_start) - spool_gap_bytes(spool);
}

static bool tell_kept(struct spool *spool)
{
    uint64_t kept = kept_bytes(spool);
    int64_t more = (int64_t)(kept - spool->told_bytes);

    spool->told_bytes = kept;
    return more && spool->options.on_kept && spool->options.on_kept(spool->options.context, more);
}

/* A cap that is over its least only becomes smaller when it has to. */
void spool_keep_quota(struct spool *spool)
{
    while (tell_kept(spool) && spool->cap_bytes > LEAST_CAP_BYTES)
        shrink(spool);
}
