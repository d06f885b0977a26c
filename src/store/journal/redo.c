/* SPDX-License-Identifier: Apache-2.0 */
#include "store/journal/redo.h"

#include "base/alloc.h"
#include "base/str.h"
#include "store/change_code.h"
#include "store/journal/redo_format.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <libgen.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum {
    LONG_BYTES = 512 * 1024,
    ROOM_BYTES = LONG_BYTES + 64 * 1024, /* the last frame goes beyond the end */
    FRAME_MAXIMUM = 64 * 1024 * 1024,
};

char *redo_file_path(const char *path, unsigned which)
{
    return xasprintf("%s-redo%u", path, which);
}

char *redo_mark_path(const char *path)
{
    return xasprintf("%s-redomark", path);
}

/* --- files --------------------------------------------------------------------------------- */

bool redo_exists(const char *path)
{
    bool exists = false;

    for (unsigned i = 0; i < REDO_FILES; i++) {
        scoped(free) char *name = redo_file_path(path, i);
        struct stat info;

        exists = exists || (lstat(name, &info) == 0 && info.st_size > 0);
    }
    return exists;
}

int redo_remove(const char *path, struct error *err)
{
    scoped(free) char *mark = redo_mark_path(path);

    for (unsigned i = 0; i < REDO_FILES; i++) {
        scoped(free) char *name = redo_file_path(path, i);

        if (unlink(name) < 0 && errno != ENOENT)
            return error_sys(err, "remove %s", name);
    }
    return unlink(mark) < 0 && errno != ENOENT ? error_sys(err, "remove %s", mark) : 0;
}

static int set_file_aside(const char *name, struct error *err)
{
    scoped(free) char *aside = xasprintf("%s.damaged", name);

    if (rename(name, aside) < 0 && errno != ENOENT)
        return error_sys(err, "rename %s to %s", name, aside);
    return 0;
}

int redo_set_aside(const char *path, struct error *err)
{
    scoped(free) char *mark = redo_mark_path(path);

    for (unsigned i = 0; i < REDO_FILES; i++) {
        scoped(free) char *name = redo_file_path(path, i);

        if (set_file_aside(name, err) < 0)
            return -1;
    }
    return set_file_aside(mark, err);
}

int sync_directory_of(const char *path, struct error *err)
{
    scoped(free) char *copy = xstrdup(path);
    scoped(fd_close) int fd = open(dirname(copy), O_RDONLY | O_DIRECTORY | O_CLOEXEC);

    if (fd < 0 || fsync(fd) < 0)
        return error_sys(err, "sync the directory of %s", path);
    return 0;
}

/* --- writing ------------------------------------------------------------------------------- */

static int write_at(const struct redo_file *file, const void *data, size_t length, off_t offset,
                    struct error *err)
{
    ssize_t written = pwrite(file->fd, data, length, offset);

    if (written >= 0 && (size_t)written < length)
        errno = ENOSPC;
    return written == (ssize_t)length ? 0 : error_sys(err, "write %s", file->path);
}

/* Preallocates the file: a flush is cheaper when neither size nor blocks change. Zeros are no
 * frame. On a full disk the file is truncated and grows later, so that the database can use the
 * space. */
static void make_room(const struct redo_file *file)
{
    scoped(free) char *zeros = xcalloc(1, ROOM_BYTES);

    if (pwrite(file->fd, zeros, ROOM_BYTES, 0) != ROOM_BYTES)
        (void)!ftruncate(file->fd, 0);
}

static struct redo_header header_of(const struct redo *redo)
{
    struct redo_header header = {
        .magic = REDO_MAGIC, .base = redo->base, .boot = redo->boot, .flushed = redo->flushes
    };

    memcpy(header.id, redo->id, sizeof(header.id));
    header.checksum = checksum(&header, offsetof(struct redo_header, checksum));
    return header;
}

static int make_file(struct redo *redo, struct redo_file *file, struct error *err)
{
    struct redo_header header = header_of(redo);

    if (file->fd >= 0)
        return 0;
    file->fd = open(file->path, O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (file->fd < 0)
        return error_sys(err, "open %s", file->path);
    make_room(file);
    if (write_at(file, &header, sizeof(header), 0, err) < 0) {
        fd_close(steal_fd(&file->fd));
        return -1;
    }
    file->end = sizeof(header);
    file->is_new = true;
    return 0;
}

/* A failure costs nothing but evidence. */
static void write_mark(const struct redo *redo, uint64_t promised)
{
    struct redo_mark mark = { .header = header_of(redo), .promised = promised };

    mark.checksum = checksum(&mark, offsetof(struct redo_mark, checksum));
    (void)!pwrite(redo->mark, &mark, sizeof(mark), 0);
}

static int make_files(struct redo *redo, bool sync, struct error *err)
{
    struct redo_file *first = &redo->files[0];

    redo->mark = open(redo->mark_path, O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (redo->mark < 0)
        return error_sys(err, "open %s", redo->mark_path);
    if (make_file(redo, first, err) < 0)
        return -1;
    if (!sync)
        return 0;
    if (fdatasync(first->fd) < 0)
        return error_sys(err, "flush %s", first->path);
    first->is_new = false;
    return sync_directory_of(first->path, err);
}

int redo_open(struct redo *redo, const struct redo_options *options, struct error *err)
{
    *redo = (struct redo){
        .mark_path = redo_mark_path(options->path),
        .mark = -1,
        .base = options->last,
        .boot = redo_boot(options->boot_id),
        .flushes = options->flushes,
        .last = options->last,
        .settled = options->last,
        .promised = options->last,
        .noted = options->last,
        .flushed = options->last,
        .frame = BUFFER_INIT(FRAME_MAXIMUM),
    };
    snprintf(redo->id, sizeof(redo->id), "%s", options->id);
    for (unsigned i = 0; i < REDO_FILES; i++)
        redo->files[i] = (struct redo_file){ .path = redo_file_path(options->path, i), .fd = -1 };
    if (make_files(redo, options->sync, err) == 0)
        return 0;
    redo_close(redo, true);
    return -1;
}

void redo_close(struct redo *redo, bool remove_files)
{
    if (!redo->mark_path)
        return;
    for (unsigned i = 0; i < REDO_FILES; i++) {
        if (remove_files)
            (void)unlink(redo->files[i].path);
        fd_close(redo->files[i].fd);
        free(redo->files[i].path);
    }
    if (remove_files)
        (void)unlink(redo->mark_path);
    fd_close(redo->mark);
    free(redo->mark_path);
    buffer_fini(&redo->frame);
    *redo = (struct redo){ 0 };
}

static struct redo_file *file_to_write(struct redo *redo)
{
    struct redo_file *other = &redo->files[!redo->current];

    if (redo->files[redo->current].end >= LONG_BYTES && other->last <= redo->settled) {
        redo->current = !redo->current;
        other->end = sizeof(struct redo_header);
    }
    return &redo->files[redo->current];
}

/* Zeros behind the frame mark it as the last one. */
static int encode_frame(struct redo *redo, const struct change_queue *changes, size_t *out_length)
{
    static const struct redo_frame nothing;
    struct buffer *frame = &redo->frame;
    struct redo_frame header = { .number = redo->last + 1, .promised = redo->promised };
    size_t padding;

    buffer_clear(frame);
    buffer_append(frame, &header, sizeof(header));
    for (const struct change *change = changes->first; change; change = change->next)
        if (change_encode(change, frame) < 0)
            return -1;
    header.length = frame->length - sizeof(header);
    memcpy(frame->data, &header, sizeof(header));
    header.checksum = redo_frame_checksum(frame->data, frame->length);
    memcpy(frame->data, &header, sizeof(header));
    padding = -frame->length % REDO_ALIGNMENT;
    *out_length = frame->length + padding;
    return buffer_append(frame, &nothing, padding) < 0 ||
                   buffer_append(frame, &nothing, sizeof(nothing)) < 0
               ? -1
               : 0;
}

/* Overwrites an incomplete frame, so that it is not taken for a damaged one. */
static void clear_end(const struct redo_file *file)
{
    static const struct redo_frame nothing;

    (void)!pwrite(file->fd, &nothing, sizeof(nothing), file->end);
}

void redo_will_append(struct redo *redo, uint64_t settled)
{
    /* The database cannot have more than was appended, and every append before was noted. */
    assert(settled <= redo->last && redo->noted == redo->last);
    redo->settled = settled;
    redo->promised = redo->flushes ? redo->flushed : redo->last;
}

int redo_append(struct redo *redo, const struct change_queue *changes, struct error *err)
{
    struct redo_file *file = file_to_write(redo);
    size_t length;

    if (make_file(redo, file, err) < 0)
        return -1;
    if (encode_frame(redo, changes, &length) < 0)
        return error_set(err, ERR_TOO_LARGE, "the changes are too many for %s", file->path);
    if (write_at(file, redo->frame.data, redo->frame.length, file->end, err) < 0) {
        clear_end(file);
        return -1;
    }
    file->end += (off_t)length;
    file->last = ++redo->last;
    if (!redo->flushes)
        write_mark(redo, redo->last);
    return 0;
}

void redo_note_appended(struct redo *redo)
{
    redo->files[redo->current].dirty = true;
    redo->noted = redo->last;
}

/* --- flushing ------------------------------------------------------------------------------ */

struct redo_flush redo_flush_begin(struct redo *redo)
{
    struct redo_flush flush = { .redo = redo, .last = redo->noted };

    for (unsigned i = 0; i < REDO_FILES; i++) {
        struct redo_file *file = &redo->files[i];

        flush.fds[i] = file->dirty ? file->fd : -1;
        if (file->dirty && file->is_new) {
            flush.name = file->path;
            file->is_new = false;
        }
        file->dirty = false;
    }
    return flush;
}

int redo_flush_run(const struct redo_flush *flush, struct error *err)
{
    for (unsigned i = 0; i < REDO_FILES; i++)
        if (flush->fds[i] >= 0 && fdatasync(flush->fds[i]) < 0)
            return error_sys(err, "flush the redo log");
    if (flush->name && sync_directory_of(flush->name, err) < 0)
        return -1;
    write_mark(flush->redo, flush->last);
    return 0;
}

void redo_note_flushed(struct redo *redo, const struct redo_flush *flush)
{
    assert(flush->last >= redo->flushed);
    redo->flushed = flush->last;
}

bool redo_is_long(const struct redo *redo, uint64_t settled)
{
    return redo->files[redo->current].end >= LONG_BYTES / 2 &&
           redo->files[!redo->current].last > settled;
}
