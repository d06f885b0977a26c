#include "core/output/spool_private.h"

#include "base/str.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

enum {
    LEAST_CAP_BYTES = 64 * 1024, /* of a stream, whatever quota is exceeded */
    PUNCH_BYTES = 4 * 1024 * 1024,
};

bool output_may_be_sent(struct output *output)
{
    bool may = output->source.fd < 0 || output->cap_bytes >= 8 * (uint64_t)FOLIO_BYTES;

    output->is_sent = output->is_sent || may;
    return may;
}

/* Where a hole may begin and end. */
static uint64_t hole_floor(const struct output *output, uint64_t bytes)
{
    uint64_t unit = output->is_sent ? FOLIO_BYTES : PAGE_BYTES;

    return bytes / unit * unit;
}

static uint64_t head_bytes(const struct output *output)
{
    return hole_floor(output, output->cap_bytes / 2);
}

/* Marks for the next daemon. */
void output_write_marks(const struct output *output)
{
    mode_t mode = 0600 | (output->is_marked ? S_ISVTX : 0) | (output->is_ahead ? S_IXUSR : 0);

    if (output->file >= 0)
        (void)fchmod(output->file, mode);
}

/* A daemon that died while it read a terminal has left room behind the last byte. That ends at a
 * page, and is zeros, which programs hardly write to terminals. */
static off_t cut_room(const struct output *output, off_t size)
{
    static char bytes[AHEAD_BYTES + PAGE_BYTES];
    off_t start = MAX(size - (off_t)sizeof(bytes), (off_t)0);
    ssize_t count;

    if (size % PAGE_BYTES || (count = pread(output->file, bytes, sizeof(bytes), start)) <= 0)
        return size;
    while (count > 0 && bytes[count - 1] == 0)
        count--;
    (void)!ftruncate(output->file, start + count);
    return start + count;
}

/* What an earlier daemon wrote, with the hole that it punched. */
void output_find_earlier(struct output *output)
{
    off_t hole, data;
    struct stat status;

    output->file =
        openat(output->options.directory, output->options.name, O_RDWR | O_NOFOLLOW | O_CLOEXEC);
    if (output->file < 0)
        return;
    if (fstat(output->file, &status) < 0 || !S_ISREG(status.st_mode)) {
        fd_close(steal_fd(&output->file));
        return;
    }
    if (status.st_mode & S_IXUSR)
        status.st_size = cut_room(output, status.st_size);
    output->length = output->stored = (uint64_t)status.st_size;
    output->is_ahead = status.st_mode & S_IXUSR;
    output->is_marked = status.st_mode & S_ISVTX;
    hole = lseek(output->file, 0, SEEK_HOLE);
    if (hole < 0 || hole >= status.st_size)
        return;
    data = lseek(output->file, hole, SEEK_DATA);
    output->hole_start = (uint64_t)hole;
    output->hole_end = data < 0 ? output->stored : (uint64_t)data;
    output->passed = output->hole_end;
}

/* The record knows of more than the file has. */
void output_note_missing(struct output *output)
{
    output->length = output->options.recorded_bytes;
    error_named(&output->error, ERR_NO_SPACE, "output_not_kept",
                "%llu of %llu bytes were not kept: the spool had no room for them",
                (unsigned long long)(output->length - output->stored),
                (unsigned long long)output->length);
}

static int make_folder(const struct output *output)
{
    char folder[OUTPUT_NAME_SIZE];
    char *slash;

    memcpy(folder, output->options.name, sizeof(folder));
    slash = strrchr(folder, '/');
    if (!slash)
        return -1;
    *slash = '\0';
    return mkdirat(output->options.directory, folder, 0700);
}

int output_create_file(struct output *output)
{
    const char *name = output->options.name;
    int flags = O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC;

    if (output->file >= 0)
        return 0;
    output->file = openat(output->options.directory, name, flags, 0600);
    if (output->file < 0 && errno == ENOENT && make_folder(output) == 0)
        output->file = openat(output->options.directory, name, flags, 0600);
    return output->file < 0 ? error_sys(&output->error, "create the spool %s", name) : 0;
}

/* Whether nothing may be lost that no reader has passed. The program's own bytes count: a child
 * that it left in the background blocks nobody for ever. */
bool output_is_blocking(const struct output *output)
{
    return output->options.full == OUTPUT_BLOCK && !output->finished;
}

/* How far the middle may be dropped: the tail stays, and what a follower has yet to read. What was
 * sent to it but perhaps not received stays too: a client that is cut off asks for it again. */
static uint64_t drop_limit(const struct output *output)
{
    uint64_t tail = output->cap_bytes - head_bytes(output);
    uint64_t limit = output->stored > tail ? output->stored - tail : 0;
    uint64_t margin = MIN(output->cap_bytes / 4, (uint64_t)ON_ITS_WAY_BYTES);
    const struct output_follower *follower;

    list_for_each (follower, &output->followers, node)
        limit = MIN(limit, follower->offset > margin ? follower->offset - margin : 0);
    if (output_is_blocking(output))
        limit = MIN(limit, output->passed > margin ? output->passed - margin : 0);
    return hole_floor(output, limit);
}

/* One hole: the ranges of two punches touch. */
static void punch(struct output *output, uint64_t start, uint64_t end)
{
    if (fallocate(output->file, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, (off_t)start,
                  (off_t)(end - start)) < 0) {
        error_sys(&output->error, "drop the middle of the spool %s", output->options.name);
        return;
    }
    output->hole_start = output->hole_end ? MIN(output->hole_start, start) : start;
    output->hole_end = MAX(output->hole_end, end);
}

/* In big steps, because each one costs about the same. */
void output_drop_middle(struct output *output)
{
    uint64_t start = MAX(output->hole_end, head_bytes(output));
    uint64_t limit = drop_limit(output);
    uint64_t step = MIN(MAX(output->cap_bytes / 8, (uint64_t)PAGE_BYTES), (uint64_t)PUNCH_BYTES);

    if (limit >= start + step)
        punch(output, start, limit);
}

/* Half as much is kept from now on; of the head, too, unless a follower has yet to read it. */
static void shrink(struct output *output)
{
    uint64_t head, limit;

    output->cap_bytes = MAX(output->cap_bytes / 2, (uint64_t)LEAST_CAP_BYTES);
    head = head_bytes(output);
    limit = drop_limit(output);
    if (output->file >= 0 && !output->error.code && head < limit &&
        (!output->hole_end || (head < output->hole_start && limit >= output->hole_start)))
        punch(output, head, limit);
    else if (output->file >= 0 && !output->error.code)
        output_drop_middle(output);
}

static uint64_t kept_bytes(const struct output *output)
{
    return output->stored - (output->hole_end - output->hole_start);
}

static bool tell_kept(struct output *output)
{
    uint64_t kept = kept_bytes(output);
    int64_t more = (int64_t)(kept - output->told_bytes);

    output->told_bytes = kept;
    return more && output->options.on_kept &&
           output->options.on_kept(output->options.context, more);
}

/* A cap that is over its least only becomes smaller when it has to. */
void output_keep_quota(struct output *output)
{
    while (tell_kept(output) && output->cap_bytes > LEAST_CAP_BYTES)
        shrink(output);
}
