/* SPDX-License-Identifier: Apache-2.0 */
#include "base/alloc.h"
#include "base/fd.h"
#include "base/log.h"
#include "base/str.h"
#include "store/change_code.h"
#include "store/journal/redo_format.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

enum { READ_MAXIMUM = 1024 * 1024 * 1024 };

#define ACCEPT_HINT                                                                              \
    "put the files back as they were, or restore a backup: sandglass store restore FILE; to go " \
    "on without the lost commits: sandglass store repair --accept-loss"

/* A file of the log in memory. */
struct image {
    char *path; /* owned */
    struct buffer bytes;
    struct redo_header header; /* zeroed when there is none */
    bool is_there;
    bool has_header;
    bool is_first_version;
};

struct frame_at {
    const struct image *image; /* borrowed */
    uint64_t number;
    uint64_t promised;
    size_t changes; /* where they begin */
    size_t length;
};

struct frames {
    struct frame_at *items; /* owned */
    size_t count;
    size_t capacity;
};

struct reading {
    const char *path; /* borrowed */
    const struct redo_expected *expected;
    struct image images[REDO_FILES];
    struct frames frames;   /* behind expected->last, in order */
    uint64_t promised;      /* the log has to go up to this one */
    const struct image *in; /* where the last good frame is, or NULL */
    size_t end;             /* and where that ends */
};

void redo_past_fini(struct redo_past *past)
{
    change_queue_free(&past->changes);
    *past = (struct redo_past){ 0 };
}

static void reading_fini(struct reading *reading)
{
    for (unsigned i = 0; i < REDO_FILES; i++) {
        free(reading->images[i].path);
        buffer_fini(&reading->images[i].bytes);
    }
    free(reading->frames.items);
}

static int refuse(const char *path, const char *what, struct error *err)
{
    error_named(err, ERR_INVALID, "store_damaged", "database %s %s", path, what);
    return error_hint(err, "put the database back that it belongs to; to go on without the last "
                           "changes: sandglass store repair --accept-loss");
}

/* --- files --------------------------------------------------------------------------------- */

static int read_whole(struct image *image, struct error *err)
{
    scoped(fd_close) int fd = open(image->path, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    struct buffer *out = &image->bytes;
    struct stat info;
    uint8_t *place;
    ssize_t got;

    if (fd < 0 && errno == ENOENT)
        return 0;
    if (fd < 0 || fstat(fd, &info) < 0)
        return error_sys(err, "open %s", image->path);
    if (!S_ISREG(info.st_mode)) {
        error_named(err, ERR_INVALID, "store_damaged", "redo log %s is not a regular file",
                    image->path);
        return error_hint(err, ACCEPT_HINT);
    }
    image->is_there = true;
    while (out->length < (size_t)info.st_size) {
        place = buffer_reserve(out, (size_t)info.st_size - out->length);
        if (!place)
            return error_set(err, ERR_INTERNAL, "%s is too long to be read", image->path);
        got = read(fd, place, (size_t)info.st_size - out->length);
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            return error_sys(err, "read %s", image->path);
        if (got == 0)
            break;
        buffer_advance(out, (size_t)got);
    }
    return 0;
}

/* A file that was just being made when the power failed has a length and no content. */
static bool is_blank(const struct image *image)
{
    static const struct redo_header nothing;
    size_t length = MIN(image->bytes.length, sizeof(nothing));

    return length == 0 || memcmp(image->bytes.data, &nothing, length) == 0;
}

static int check_owner(const struct reading *reading, const char *id, struct error *err)
{
    if (strncmp(id, reading->expected->id, REDO_ID_SIZE) == 0)
        return 0;
    return refuse(reading->path, "has the log of another database beside it", err);
}

static int read_first_version(const struct reading *reading, struct image *image, struct error *err)
{
    struct redo_header_1 header;

    memcpy(&header, image->bytes.data, sizeof(header));
    image->is_first_version = image->has_header = true;
    image->header.base = UINT64_MAX; /* not known */
    return check_owner(reading, header.id, err);
}

/* 0 also when there is no header; the caller decides whether that is damage. */
static int read_header(const struct reading *reading, struct image *image, struct error *err)
{
    struct redo_header *header = &image->header;

    if (is_blank(image))
        return 0;
    if (image->bytes.length >= sizeof(struct redo_header_1) &&
        memcmp(image->bytes.data, REDO_MAGIC_1, sizeof(REDO_MAGIC_1)) == 0)
        return read_first_version(reading, image, err);
    if (image->bytes.length < sizeof(*header))
        return 0;
    memcpy(header, image->bytes.data, sizeof(*header));
    image->has_header = header->checksum ==
                        checksum(header, offsetof(struct redo_header, checksum));
    if (image->has_header)
        return check_owner(reading, header->id, err);
    if (memcmp(header->magic, "SGREDO", 6) != 0 && reading->expected->base < 0)
        return refuse(reading->path, "has a log of another format", err);
    return 0;
}

/* --- frames -------------------------------------------------------------------------------- */

static size_t round_up(size_t length)
{
    return (length + REDO_ALIGNMENT - 1) / REDO_ALIGNMENT * REDO_ALIGNMENT;
}

/* The frame at `at`; false when there is none that is sound. */
static bool read_frame(const struct image *image, size_t at, struct frame_at *out_frame)
{
    size_t size = image->is_first_version ? REDO_FRAME_1_SIZE : sizeof(struct redo_frame);
    const struct buffer *bytes = &image->bytes;
    struct redo_frame frame = { 0 };

    if (bytes->length < at + size)
        return false;
    memcpy(&frame, bytes->data + at, size);
    if (!frame.number || frame.length > bytes->length - at - size ||
        frame.checksum != redo_frame_checksum(bytes->data + at, size + frame.length))
        return false;
    *out_frame = (struct frame_at){ .image = image,
                                    .number = frame.number,
                                    .promised = frame.promised,
                                    .changes = at + size,
                                    .length = frame.length };
    return true;
}

static void add_frame(struct frames *frames, const struct frame_at *frame)
{
    if (frames->count == frames->capacity) {
        frames->capacity = frames->capacity ? frames->capacity * 2 : 64;
        frames->items = xrealloc(frames->items, frames->capacity, sizeof(*frames->items));
    }
    frames->items[frames->count++] = *frame;
}

/* Promises that were not made by a flush hold as long as the machine runs. */
static bool promises_hold(const struct reading *reading, const struct redo_header *header)
{
    return header->flushed ||
           (header->boot && header->boot == redo_boot(reading->expected->boot_id));
}

/* Finds all valid frames of a file, also behind an invalid one. */
static void find_frames(struct reading *reading, const struct image *image)
{
    size_t step = image->is_first_version ? 1 : REDO_ALIGNMENT;
    size_t at = image->is_first_version ? sizeof(struct redo_header_1) : sizeof(struct redo_header);
    struct frame_at frame;

    while (at < image->bytes.length) {
        if (!read_frame(image, at, &frame)) {
            at += step;
            continue;
        }
        at = frame.changes + frame.length;
        if (!image->is_first_version)
            at = round_up(at);
        if (frame.number <= reading->expected->last)
            continue;
        add_frame(&reading->frames, &frame);
        if (promises_hold(reading, &image->header))
            reading->promised = MAX(reading->promised, frame.promised);
    }
}

static int by_number(const void *a, const void *b)
{
    const struct frame_at *first = a;
    const struct frame_at *second = b;

    return (first->number > second->number) - (first->number < second->number);
}

static void read_mark(struct reading *reading)
{
    scoped(free) char *path = redo_mark_path(reading->path);
    scoped(fd_close) int fd = open(path, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    struct redo_mark mark;

    if (fd < 0 || fd_read_at(fd, &mark, sizeof(mark), 0) != sizeof(mark) ||
        mark.checksum != checksum(&mark, offsetof(struct redo_mark, checksum)) ||
        strncmp(mark.header.id, reading->expected->id, REDO_ID_SIZE) != 0)
        return;
    if (promises_hold(reading, &mark.header))
        reading->promised = MAX(reading->promised, mark.promised);
}

static int decode_frame(const struct reading *reading, const struct frame_at *frame,
                        struct change_queue *out_changes, struct error *err)
{
    const uint8_t *data = frame->image->bytes.data + frame->changes;
    size_t length = frame->length;

    while (length) {
        size_t used = 0;
        struct change *change = change_decode(data, length, &used);

        if (!change)
            return refuse(reading->path, "has a log that cannot be understood", err);
        change_queue_append(out_changes, change);
        data += used;
        length -= used;
    }
    return 0;
}

/* Takes the consecutive frames from expected->last on. */
static int take_frames(struct reading *reading, struct redo_past *past, struct error *err)
{
    for (size_t i = 0; i < reading->frames.count; i++) {
        const struct frame_at *frame = &reading->frames.items[i];

        if (frame->number <= past->last)
            continue;
        if (frame->number != past->last + 1)
            break;
        if (decode_frame(reading, frame, &past->changes, err) < 0)
            return -1;
        past->last = frame->number;
        reading->in = frame->image;
        reading->end = round_up(frame->changes + frame->length);
    }
    return 0;
}

/* --- damage -------------------------------------------------------------------------------- */

static void note_loss(const struct reading *reading, struct redo_past *past)
{
    const struct image *image = reading->in ? reading->in : &reading->images[0];

    error_named(&past->damage, ERR_INVALID, "store_damaged",
                "redo log %s of database %s is damaged: commits %llu to %llu are missing, which "
                "were acknowledged as durable",
                image->path, reading->path, (unsigned long long)past->last + 1,
                (unsigned long long)reading->promised);
    error_hint(&past->damage, ACCEPT_HINT);
}

static void note_bad_file(const struct reading *reading, const struct image *image,
                          const char *what, struct redo_past *past)
{
    error_named(&past->damage, ERR_INVALID, "store_damaged",
                "redo log %s of database %s %s: commits after number %llu may be lost", image->path,
                reading->path, what, (unsigned long long)past->last);
    error_hint(&past->damage, ACCEPT_HINT);
}

/* The first file is made, and flushed, before the database says that there is a log. */
static void check_files(const struct reading *reading, struct redo_past *past)
{
    for (unsigned i = 0; i < REDO_FILES && past->damage.code == ERR_NONE; i++) {
        const struct image *image = &reading->images[i];
        bool is_needed = reading->expected->base >= 0 && i == 0;

        if (is_needed && !image->is_there)
            note_bad_file(reading, image, "is missing", past);
        else if (is_needed && image->bytes.length == 0)
            note_bad_file(reading, image, "is empty", past);
        else if (!image->has_header && (is_needed || !is_blank(image)))
            note_bad_file(reading, image, "has a damaged header", past);
        else if (image->has_header && !image->is_first_version && reading->expected->base >= 0 &&
                 image->header.base != (uint64_t)reading->expected->base)
            note_bad_file(reading, image, "is one of an earlier time", past);
    }
}

/* Whether only zeros follow the last frame: no commit was under way. */
static bool ends_clean(const struct reading *reading)
{
    static const struct redo_frame nothing;
    const struct buffer *bytes = reading->in ? &reading->in->bytes : NULL;

    if (!bytes || reading->in->is_first_version || reading->end >= bytes->length)
        return true;
    return memcmp(bytes->data + reading->end, &nothing,
                  MIN(sizeof(nothing), bytes->length - reading->end)) == 0;
}

static int check_age(const struct reading *reading, const struct redo_past *past, struct error *err)
{
    const struct frames *frames = &reading->frames;
    const struct image *image = frames->count ? frames->items[0].image : NULL;

    if (!image || frames->items[0].number == past->last + 1)
        return 0;
    if (image->is_first_version || image->header.base > reading->expected->last)
        return refuse(reading->path, "is older than its log", err);
    return 0;
}

static void judge(const struct reading *reading, struct redo_past *past)
{
    const struct frames *frames = &reading->frames;

    check_files(reading, past);
    if (past->damage.code == ERR_NONE && reading->promised > past->last)
        note_loss(reading, past);
    if (frames->count)
        past->dropped = frames->items[frames->count - 1].number - past->last;
    past->is_cut = !ends_clean(reading);
}

static int read_all(struct reading *reading, struct redo_past *past, struct error *err)
{
    for (unsigned i = 0; i < REDO_FILES; i++) {
        struct image *image = &reading->images[i];

        image->path = redo_file_path(reading->path, i);
        image->bytes = (struct buffer)BUFFER_INIT(READ_MAXIMUM);
        if (read_whole(image, err) < 0 || read_header(reading, image, err) < 0)
            return -1;
        if (image->has_header)
            find_frames(reading, image);
    }
    read_mark(reading);
    if (reading->frames.count)
        qsort(reading->frames.items, reading->frames.count, sizeof(*reading->frames.items),
              by_number);
    if (check_age(reading, past, err) < 0 || take_frames(reading, past, err) < 0)
        return -1;
    judge(reading, past);
    return 0;
}

int redo_read(const char *path, const struct redo_expected *expected, struct redo_past *out_past,
              struct error *err)
{
    struct reading reading = { .path = path, .expected = expected };
    struct redo_past past = { .last = expected->last };
    int result = read_all(&reading, &past, err);

    reading_fini(&reading);
    if (result < 0)
        redo_past_fini(&past);
    else
        *out_past = past;
    return result;
}
