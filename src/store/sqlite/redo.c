#include "store/sqlite/redo.h"

#include "base/alloc.h"
#include "base/str.h"
#include "store/change_code.h"
#include "store/sqlite/db.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum {
    LONG_BYTES = 512 * 1024,
    ROOM_BYTES = LONG_BYTES + 64 * 1024, /* the last frame goes beyond the end */
    FRAME_MAXIMUM = 64 * 1024 * 1024,
    READ_MAXIMUM = 1024 * 1024 * 1024,
};

struct file_header {
    char magic[8];
    char id[REDO_ID_SIZE];
};

struct frame_header {
    uint64_t checksum; /* of what follows */
    uint64_t number;
    uint64_t length; /* of the changes behind it */
};

static const char magic[8] = "SGREDO1";

static char *file_path(const char *path, unsigned which)
{
    return xasprintf("%s-redo%u", path, which);
}

/* Any word that is changed changes the sum: each step can be undone. */
static uint64_t checksum(const void *data, size_t length)
{
    const uint8_t *at = data;
    uint64_t sum = length;

    for (; length >= sizeof(uint64_t); at += sizeof(uint64_t), length -= sizeof(uint64_t)) {
        uint64_t word;

        memcpy(&word, at, sizeof(word));
        sum = (sum ^ word) * 0xd6e8feb86659fd93U;
        sum ^= sum >> 32;
    }
    for (; length; at++, length--) {
        sum = (sum ^ *at) * 0xd6e8feb86659fd93U;
        sum ^= sum >> 32;
    }
    return sum;
}

/* The header and what is behind it are one piece of memory. */
static uint64_t frame_checksum(const uint8_t *frame, size_t length)
{
    return checksum(frame + sizeof(uint64_t), length - sizeof(uint64_t));
}

/* --- reading ------------------------------------------------------------------------------- */

static int read_whole(const char *path, struct buffer *out, struct error *err)
{
    scoped(fd_close) int fd = open(path, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
    struct stat info;
    uint8_t *place;
    ssize_t got;

    if (fd < 0 && errno == ENOENT)
        return 0;
    if (fd < 0 || fstat(fd, &info) < 0)
        return error_sys(err, "open %s", path);
    while (out->length < (size_t)info.st_size) {
        place = buffer_reserve(out, (size_t)info.st_size - out->length);
        if (!place)
            return error_set(err, ERR_INTERNAL, "%s is too long to be read", path);
        got = read(fd, place, (size_t)info.st_size - out->length);
        if (got < 0)
            return error_sys(err, "read %s", path);
        if (got == 0)
            break;
        buffer_advance(out, (size_t)got);
    }
    return 0;
}

static int refuse(const char *path, const char *what, struct error *err)
{
    error_named(err, ERR_INVALID, "store_damaged", "database %s %s", path, what);
    return error_hint(err, "put the database back that it belongs to; to go on without the last "
                           "changes, move the -redo0 and -redo1 files away, then run: sandglass "
                           "sweep");
}

/* The frame at `at`; false at the end of what was written completely. */
static bool read_frame(const struct buffer *file, size_t at, struct frame_header *out_header)
{
    if (file->length < at + sizeof(*out_header))
        return false;
    memcpy(out_header, file->data + at, sizeof(*out_header));
    return out_header->length <= file->length - at - sizeof(*out_header) &&
           out_header->checksum ==
               frame_checksum(file->data + at, sizeof(*out_header) + out_header->length);
}

static bool decode_frame(const uint8_t *data, size_t length, struct change_queue *out_changes)
{
    while (length) {
        size_t used = 0;
        struct change *change = change_decode(data, length, &used);

        if (!change)
            return false;
        change_queue_append(out_changes, change);
        data += used;
        length -= used;
    }
    return true;
}

/* Frames of one file that are behind `*last`, as far as they go on from there. */
static int take_frames(const char *path, const struct buffer *file, uint64_t *last,
                       struct change_queue *out_changes, struct error *err)
{
    struct frame_header header;
    uint64_t before = 0;

    for (size_t at = sizeof(struct file_header); read_frame(file, at, &header);
         at += sizeof(header) + header.length) {
        if (before && header.number != before + 1)
            break; /* left from earlier use */
        before = header.number;
        if (header.number <= *last)
            continue;
        if (header.number != *last + 1)
            break;
        if (!decode_frame(file->data + at + sizeof(header), header.length, out_changes))
            return refuse(path, "has a log that cannot be understood", err);
        *last = header.number;
    }
    return 0;
}

static uint64_t first_number(const struct buffer *file)
{
    struct frame_header header;

    return read_frame(file, sizeof(struct file_header), &header) ? header.number : UINT64_MAX;
}

static int check_header(const char *path, const char *id, const struct buffer *file,
                        struct error *err)
{
    static const struct file_header nothing;
    struct file_header header;

    if (file->length < sizeof(header))
        return 0; /* it was just being made */
    memcpy(&header, file->data, sizeof(header));
    if (memcmp(&header, &nothing, sizeof(header)) == 0)
        return 0; /* and the power failed: its length came to the disk before its content */
    if (memcmp(header.magic, magic, sizeof(magic)) != 0)
        return refuse(path, "has a log of another format", err);
    if (strncmp(header.id, id, sizeof(header.id)) != 0)
        return refuse(path, "has the log of another database beside it", err);
    return 0;
}

int redo_read(const char *path, const char *id, uint64_t *last, struct change_queue *out_changes,
              struct error *err)
{
    scoped(buffer_fini) struct buffer first = BUFFER_INIT(READ_MAXIMUM);
    scoped(buffer_fini) struct buffer second = BUFFER_INIT(READ_MAXIMUM);
    struct buffer *files[REDO_FILES] = { &first, &second };
    bool swapped;

    for (unsigned i = 0; i < REDO_FILES; i++) {
        scoped(free) char *name = file_path(path, i);

        if (read_whole(name, files[i], err) < 0 || check_header(path, id, files[i], err) < 0)
            return -1;
    }
    swapped = first_number(&second) < first_number(&first);
    if (first_number(files[swapped]) != UINT64_MAX && first_number(files[swapped]) > *last + 1)
        return refuse(path, "is older than its log", err);
    if (take_frames(path, files[swapped], last, out_changes, err) < 0)
        return -1;
    return take_frames(path, files[!swapped], last, out_changes, err);
}

bool redo_exists(const char *path)
{
    bool exists = false;

    for (unsigned i = 0; i < REDO_FILES; i++) {
        scoped(free) char *name = file_path(path, i);
        struct stat info;

        exists = exists || (lstat(name, &info) == 0 && info.st_size > 0);
    }
    return exists;
}

int redo_remove(const char *path, struct error *err)
{
    for (unsigned i = 0; i < REDO_FILES; i++) {
        scoped(free) char *name = file_path(path, i);

        if (unlink(name) < 0 && errno != ENOENT)
            return error_sys(err, "remove %s", name);
    }
    return 0;
}

/* --- writing ------------------------------------------------------------------------------- */

void redo_open(struct redo *redo, const char *path, const char *id, uint64_t last)
{
    *redo = (struct redo){ .last = last, .settled = last, .frame = BUFFER_INIT(FRAME_MAXIMUM) };
    snprintf(redo->id, sizeof(redo->id), "%s", id);
    for (unsigned i = 0; i < REDO_FILES; i++)
        redo->files[i] = (struct redo_file){ .path = file_path(path, i), .fd = -1 };
}

void redo_close(struct redo *redo, bool remove_files)
{
    for (unsigned i = 0; i < REDO_FILES; i++) {
        if (!redo->files[i].path)
            continue;
        if (remove_files)
            (void)unlink(redo->files[i].path);
        fd_close(redo->files[i].fd);
        free(redo->files[i].path);
    }
    buffer_fini(&redo->frame);
    *redo = (struct redo){ 0 };
}

static int write_at(const struct redo_file *file, const void *data, size_t length, off_t offset,
                    struct error *err)
{
    ssize_t written = pwrite(file->fd, data, length, offset);

    if (written >= 0 && (size_t)written < length)
        errno = ENOSPC;
    return written == (ssize_t)length ? 0 : error_sys(err, "write %s", file->path);
}

/* A flush of a file that does not grow, and whose blocks have been written before, has nothing to
 * record about it. Zeros are no frame. Without room for them it grows, and leaves what there is to
 * the database. */
static void make_room(const struct redo_file *file)
{
    scoped(free) char *zeros = xcalloc(1, ROOM_BYTES);

    if (pwrite(file->fd, zeros, ROOM_BYTES, 0) != ROOM_BYTES)
        (void)!ftruncate(file->fd, 0);
}

static int make_file(struct redo *redo, struct redo_file *file, struct error *err)
{
    struct file_header header = { 0 };

    if (file->fd >= 0)
        return 0;
    file->fd = open(file->path, O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (file->fd < 0)
        return error_sys(err, "open %s", file->path);
    make_room(file);
    memcpy(header.magic, magic, sizeof(magic));
    memcpy(header.id, redo->id, sizeof(header.id));
    if (write_at(file, &header, sizeof(header), 0, err) < 0) {
        fd_close(steal_fd(&file->fd));
        return -1;
    }
    file->end = sizeof(header);
    file->is_new = true;
    return 0;
}

static struct redo_file *file_to_write(struct redo *redo)
{
    struct redo_file *other = &redo->files[!redo->current];

    if (redo->files[redo->current].end >= LONG_BYTES && other->last <= redo->settled) {
        redo->current = !redo->current;
        other->end = sizeof(struct file_header);
    }
    return &redo->files[redo->current];
}

static int encode_frame(struct redo *redo, const struct change_queue *changes)
{
    struct buffer *frame = &redo->frame;
    struct frame_header header = { .number = redo->last + 1 };

    buffer_clear(frame);
    buffer_append(frame, &header, sizeof(header));
    for (const struct change *change = changes->first; change; change = change->next)
        if (change_encode(change, frame) < 0)
            return -1;
    header.length = frame->length - sizeof(header);
    memcpy(frame->data, &header, sizeof(header));
    header.checksum = frame_checksum(frame->data, frame->length);
    memcpy(frame->data, &header, sizeof(header));
    return 0;
}

int redo_append(struct redo *redo, const struct change_queue *changes, struct error *err)
{
    struct redo_file *file = file_to_write(redo);

    if (make_file(redo, file, err) < 0)
        return -1;
    if (encode_frame(redo, changes) < 0)
        return error_set(err, ERR_TOO_LARGE, "the changes are too many for %s", file->path);
    if (write_at(file, redo->frame.data, redo->frame.length, file->end, err) < 0)
        return -1;
    file->end += (off_t)redo->frame.length;
    file->last = ++redo->last;
    return 0;
}

void redo_note_appended(struct redo *redo)
{
    redo->files[redo->current].dirty = true;
}

/* --- flushing ------------------------------------------------------------------------------ */

struct redo_flush redo_flush_begin(struct redo *redo)
{
    struct redo_flush flush = { .name = NULL };

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
    return flush->name ? sync_directory_of(flush->name, err) : 0;
}

bool redo_is_long(const struct redo *redo, uint64_t settled)
{
    return redo->files[redo->current].end >= LONG_BYTES / 2 &&
           redo->files[!redo->current].last > settled;
}
