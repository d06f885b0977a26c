/* SPDX-License-Identifier: Apache-2.0 */
/* Everything that is known of a file, or of the entries of a directory: names of owner and
 * group, the end of a symbolic link, extended attributes. */

#include "init/files/file_output.h"
#include "init/files/file_work.h"
#include "init/path.h"
#include "init/sys.h"
#include "init/text.h"
#include "init/user.h"

#include <errno.h>
#include <string.h>

enum { DIRECTORY = O_RDONLY | O_DIRECTORY | O_NONBLOCK };

/* Names are looked up once for entries with the same owner. */
struct known_name {
    uint32_t number;
    bool is_known;
    char name[USER_NAME_SIZE];
};

struct description {
    union file_memory *memory;
    const char *attributes; /* the beginning of their names; "" for none */
    struct known_name owner, group;
    struct file_output output;
    size_t filled; /* of the text */
    uint64_t count;
};

/* --- the text -------------------------------------------------------------------------------- */

/* False when the bytes do not fit. */
static bool put(struct description *description, const void *bytes, size_t length)
{
    if (length > FILE_DESCRIPTION_SIZE - description->filled)
        return false;
    memcpy(description->memory->describe.text + description->filled, bytes, length);
    description->filled += length;
    return true;
}

static void put_text(struct description *description, const char *text)
{
    (void)put(description, text, strlen(text) + 1);
}

static const char *name_of(struct known_name *known, uint32_t number,
                           void (*find)(uint32_t number, char *out_name))
{
    if (!known->is_known || known->number != number)
        find(number, known->name);
    known->number = number;
    known->is_known = true;
    return known->name;
}

/* --- symbolic links -------------------------------------------------------------------------- */

/* The path of the descriptor's file from /proc/self/fd; 0 or -errno. */
static long read_path(int fd, char *out_path, size_t size)
{
    static const char prefix[] = "self/fd/";
    char digits[TEXT_NUMBER_SIZE];
    char name[sizeof prefix + TEXT_NUMBER_SIZE];
    long length;

    (void)text_from_u64((uint64_t)fd, digits);
    (void)text_concat(name, sizeof name, prefix, sizeof prefix - 1, digits);
    length = sys(readlinkat, FD_HELPER_PROC, name, out_path, size - 1);
    if (length <= 0)
        return length ? length : -ENOENT;
    out_path[length] = 0;
    return 0;
}

/* The final target of the link and its st_mode, 0 when it does not exist. */
static uint64_t put_target(struct description *description, int dir, const char *name)
{
    char *path = description->memory->describe.path;
    int fd = sys_open(dir, name, O_PATH, 0, 0);
    struct stat status = { 0 };
    long length;

    if (fd >= 0 && sys(fstat, fd, &status) == 0 && read_path(fd, path, PROTOCOL_MAX_PATH) == 0) {
        put_text(description, path);
    } else {
        length = sys(readlinkat, dir, name, path, PROTOCOL_MAX_PATH - 1);
        path[length < 0 ? 0 : length] = 0;
        put_text(description, path);
    }
    sys_close(fd);
    return status.st_mode;
}

/* --- extended attributes --------------------------------------------------------------------- */

static void put_attribute(struct description *description, const char *path, const char *name)
{
    size_t before = description->filled;
    char *place;
    long length;

    if (!put(description, name, strlen(name) + 1))
        return;
    place = description->memory->describe.text + description->filled;
    length =
        description->filled == FILE_DESCRIPTION_SIZE
            ? -ERANGE
            : sys(lgetxattr, path, name, place, FILE_DESCRIPTION_SIZE - description->filled - 1);
    if (length < 0 || memchr(place, 0, (size_t)length)) {
        description->filled = before;
        return;
    }
    place[length] = 0;
    description->filled += (size_t)length + 1;
}

/* Attributes have no calls that take a directory: this clone has a working directory of its own. */
static void put_attributes(struct description *description, int dir, const char *name)
{
    char *names = description->memory->describe.names;
    size_t wanted = strlen(description->attributes);
    long length;

    if (!wanted || sys(fchdir, dir) < 0)
        return;
    length = sys(llistxattr, name, names, FILE_ATTRIBUTES_SIZE);
    for (long at = 0; at < length; at += (long)strlen(names + at) + 1)
        if (!strncmp(names + at, description->attributes, wanted))
            put_attribute(description, name, names + at);
}

/* --- entries --------------------------------------------------------------------------------- */

/* Describes `name` in `dir`, with `path` as its name. */
static void tell(struct description *description, int dir, const char *name,
                 const struct stat *status, const char *path)
{
    struct protocol_note note = { .kind = NOTE_ENTRY };
    struct protocol_stat fixed;

    file_stat_fill(&fixed, status);
    description->filled = 0;
    (void)put(description, &fixed, sizeof fixed);
    put_text(description, name_of(&description->owner, fixed.uid, user_find_name));
    put_text(description, name_of(&description->group, fixed.gid, user_find_group_name));
    if (S_ISLNK(status->st_mode)) {
        note.number = put_target(description, dir, name);
    } else {
        put_text(description, "");
        put_attributes(description, dir, name);
    }
    file_output_note(&description->output, &note, path, description->memory->describe.text,
                     description->filled);
    description->count++;
}

/* The directory of the file, or -errno, and its name there: one component, so that no link of /proc
 * is followed on the way. A file without a name, such as "/", is "." in itself. */
static int find_place(const char *path, char name[PATH_NAME_SIZE])
{
    int dir = path_open_parent(path, false, name);

    if (dir != -EINVAL)
        return dir;
    memcpy(name, ".", 2);
    return sys_open(AT_FDCWD, path, O_PATH | O_DIRECTORY, 0, 0);
}

/* The path of the first note is the directory that relative paths begin in. */
static int tell_first(struct description *description, const char *path)
{
    char *directory = description->memory->describe.walk.path;
    char name[PATH_NAME_SIZE];
    struct stat status;
    long result = sys(getcwd, directory, PROTOCOL_MAX_PATH);
    int dir = result < 0 ? (int)result : find_place(path, name);

    if (dir < 0)
        return dir;
    result = sys(newfstatat, dir, name, &status, AT_SYMLINK_NOFOLLOW);
    if (!result)
        tell(description, dir, name, &status, directory);
    sys_close(dir);
    return (int)result;
}

static void tell_entries(struct description *description, int directory, unsigned depth)
{
    struct walk *walk = &description->memory->describe.walk;
    struct walk_entry entry;

    walk_begin(walk, directory, depth);
    while (!description->output.is_broken && walk_next(walk, &entry)) {
        if (file_is_temporary(entry.name))
            continue;
        tell(description, entry.dir, entry.name, &entry.status, entry.path);
        if (S_ISDIR(entry.status.st_mode) && walk->depth < walk->maximum)
            (void)walk_enter(walk, &entry, 0);
    }
    walk_end(walk);
}

static struct description describe(struct file_work *work)
{
    union file_memory *memory = file_memory(work);

    return (struct description){
        .memory = memory,
        .attributes = work->job->file_texts.third,
        .output = { .fd = work->stream,
                    .bytes = memory->describe.output,
                    .size = sizeof memory->describe.output },
    };
}

static void end(struct description *description)
{
    struct protocol_note last = { .kind = NOTE_LAST, .number = description->count };

    file_output_note(&description->output, &last, NULL, NULL, 0);
    file_output_flush(&description->output);
}

static void write_all(struct file_work *work)
{
    struct description description = describe(work);

    if (tell_first(&description, work->job->file_texts.path) == 0)
        tell_entries(&description, work->base, work->job->file->depth);
    end(&description);
}

/* The note of a single file fits into the pipe, so it is written before the answer. */
static int describe_one(struct file_work *work)
{
    struct description description = describe(work);
    int result = tell_first(&description, work->job->file_texts.path);

    end(&description);
    return result;
}

int file_describe_open(struct file_work *work)
{
    uint32_t depth = work->job->file->depth;
    int ends[2];
    long result = 0;

    if (depth) {
        result = sys_open(AT_FDCWD, work->job->file_texts.path, DIRECTORY, 0, 0);
        if (result < 0)
            return (int)result;
        work->base = (int)result;
    }
    result = sys(pipe2, ends, O_CLOEXEC);
    if (result < 0)
        return (int)result;
    work->fd = ends[0];
    work->stream = ends[1];
    if (depth)
        work->go_on = write_all;
    return depth ? 0 : describe_one(work);
}
