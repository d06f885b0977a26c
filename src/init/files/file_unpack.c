/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Taking a tar archive apart inside a directory. The archive is hostile: every member is looked at
 * by itself, reached component by component without following a link, and refused with a reason if
 * it is anything but a file, a directory or a link that stays inside. A file is written under a
 * temporary name and renamed when it is whole, so a cut archive leaves no half of one.
 */

#include "init/files/file_output.h"
#include "init/files/file_work.h"
#include "init/sys.h"

#include <errno.h>
#include <string.h>
#include <sys/mman.h>

enum {
    INSIDE = RESOLVE_BENEATH_ | RESOLVE_NO_SYMLINKS_,
    DIRECTORY = O_PATH | O_DIRECTORY, /* INSIDE excludes links */
    MAX_MEMBERS = 150 * 1000,
    SEEN_PLACES = 1 << 18, /* of names; more than there may be members */
    MAX_TOLD = 200,
    UTIME_OMIT_ = 0x3ffffffe,
};

struct unpacking {
    union file_memory *memory;
    const struct protocol_file *file;
    int base;
    int socket;
    uint64_t *seen; /* hashes of the names of files; 0 is an empty slot */
    struct file_output notes;
    unsigned refused;
    uint64_t members;
    uint64_t unpacked;
    uint64_t bytes;
    int error; /* errno that ended it */
    const char *problem;

    int dir; /* of the file at hand; -1 when its content is not wanted */
    int fd;
    char name[PATH_NAME_SIZE];
    char temporary[PROTOCOL_MAX_TEMPORARY];
};

int file_unpack_open(struct file_work *work)
{
    const char *path = work->job->file_texts.path;
    int ends[2];
    long result = 0;
    int fd = sys_open(AT_FDCWD, path, O_RDONLY | O_DIRECTORY, 0, 0);

    if (fd == -ENOENT) {
        result = path_make_directory(path, 0755, false);
        fd = result < 0 ? (int)result : sys_open(AT_FDCWD, path, O_RDONLY | O_DIRECTORY, 0, 0);
    }
    if (fd < 0)
        return fd;
    result = sys(socketpair, AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends);
    if (result < 0) {
        sys_close(fd);
        return (int)result;
    }
    work->base = fd;
    work->fd = ends[0];
    work->stream = ends[1];
    return 0;
}

/* --- notes --------------------------------------------------------------------------------- */

static void refuse(struct unpacking *unpacking, const char *why)
{
    struct protocol_note note = { .kind = NOTE_REFUSED };
    const char *path = unpacking->memory->unpack.tar.path;
    size_t path_length = strnlen(path, 1024);
    struct file_output *notes = &unpacking->notes;
    long length;

    if (++unpacking->refused > MAX_TOLD)
        return;
    length = protocol_note_encode(notes->bytes + notes->filled, notes->size - notes->filled - 512,
                                  &note, path, path_length, why, strlen(why));
    if (length > 0)
        notes->filled += (size_t)length;
    else
        unpacking->refused = MAX_TOLD + 1;
}

static void stop(struct unpacking *unpacking, int error, const char *problem)
{
    if (unpacking->error)
        return;
    unpacking->error = error;
    unpacking->problem = problem;
}

static bool is_fatal(int result)
{
    return result == -ENOSPC || result == -EDQUOT || result == -EIO || result == -EROFS ||
           result == -EMFILE || result == -ENOMEM;
}

static void refuse_error(struct unpacking *unpacking, int result)
{
    if (is_fatal(result)) {
        stop(unpacking, -result, "");
        return;
    }
    switch (result) {
    case -ELOOP:
        refuse(unpacking, "the path goes through a symbolic link");
        break;
    case -ENOTDIR:
        refuse(unpacking, "a part of the path is not a directory");
        break;
    case -EISDIR:
    case -ENOTEMPTY:
    case -EEXIST:
        refuse(unpacking, "something else is in its place");
        break;
    case -EACCES:
    case -EPERM:
        refuse(unpacking, "permission denied");
        break;
    case -ENOENT:
        refuse(unpacking, "a file that it refers to does not exist");
        break;
    default:
        refuse(unpacking, "it cannot be written");
        break;
    }
}

/* --- places ----------------------------------------------------------------------------------- */

static int step_into(int dir, const char *name, bool make)
{
    int fd = sys_open(dir, name, DIRECTORY, 0, INSIDE);

    if (fd == -ENOENT && make) {
        fd = (int)sys(mkdirat, dir, name, 0755);
        if (fd == 0 || fd == -EEXIST)
            fd = sys_open(dir, name, DIRECTORY, 0, INSIDE);
    }
    return fd;
}

/* The directory that the (clean) path is in, and its last component. */
static int open_parent(const struct unpacking *unpacking, const char *path, bool make,
                       char name[PATH_NAME_SIZE])
{
    int dir = sys_open(unpacking->base, ".", DIRECTORY, 0, INSIDE);

    for (;;) {
        size_t length = strcspn(path, "/");
        int next;

        memcpy(name, path, length);
        name[length] = 0;
        if (dir < 0 || !path[length])
            return dir;
        next = step_into(dir, name, make);
        sys_close(dir);
        dir = next;
        path += length + 1;
    }
}

/* Whether a name comes for the second time. Directories may. */
static bool is_repeated(const struct unpacking *unpacking, const char *path)
{
    uint64_t hash = 0xcbf29ce484222325;
    size_t place;

    for (; *path; path++)
        hash = (hash ^ (unsigned char)*path) * 0x100000001b3;
    hash |= 1;
    for (place = (hash >> 20) % SEEN_PLACES; unpacking->seen[place];
         place = (place + 1) % SEEN_PLACES)
        if (unpacking->seen[place] == hash)
            return true;
    unpacking->seen[place] = hash;
    return false;
}

/* --- members ---------------------------------------------------------------------------------- */

static void forget_file(struct unpacking *unpacking)
{
    sys_drop(&unpacking->fd);
    sys_drop(&unpacking->dir);
}

static void abandon_file(struct unpacking *unpacking)
{
    if (unpacking->dir >= 0)
        (void)sys(unlinkat, unpacking->dir, unpacking->temporary, 0);
    forget_file(unpacking);
}

static int begin_file(struct unpacking *unpacking)
{
    struct stat status;

    if (!sys(newfstatat, unpacking->dir, unpacking->name, &status, AT_SYMLINK_NOFOLLOW) &&
        S_ISDIR(status.st_mode))
        return -EISDIR;
    unpacking->fd = file_create_temporary(unpacking->dir, unpacking->temporary);
    return unpacking->fd < 0 ? unpacking->fd : 0;
}

static void end_file(struct unpacking *unpacking, const struct tar_member *member)
{
    struct timespec times[2] = { { .tv_nsec = UTIME_OMIT_ }, { .tv_sec = member->modified_s } };
    long result;

    if (unpacking->dir < 0)
        return;
    (void)sys(fchmod, unpacking->fd, member->mode & 0777);
    (void)sys(utimensat, unpacking->fd, NULL, times, 0);
    result =
        sys(renameat2, unpacking->dir, unpacking->temporary, unpacking->dir, unpacking->name, 0);
    if (result < 0) {
        abandon_file(unpacking);
        refuse_error(unpacking, (int)result);
        return;
    }
    forget_file(unpacking);
    unpacking->unpacked++;
}

static int make_directory(struct unpacking *unpacking, const struct tar_member *member)
{
    int result = (int)sys(mkdirat, unpacking->dir, unpacking->name, 0755);
    int fd;

    if (result < 0 && result != -EEXIST)
        return result;
    fd = sys_open(unpacking->dir, unpacking->name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW, 0, INSIDE);
    if (fd < 0)
        return fd;
    /* Members of the directory have still to be written, so the owner needs all rights. */
    (void)sys(fchmod, fd, (member->mode & 0777) | 0700);
    sys_close(fd);
    return 0;
}

/* Both kinds of link are made under a temporary name, as a link does not replace anything. */
static int put_in_place(struct unpacking *unpacking)
{
    int result = (int)sys(renameat2, unpacking->dir, unpacking->temporary, unpacking->dir,
                          unpacking->name, 0);

    /* Two links to one file are left as they are. */
    (void)sys(unlinkat, unpacking->dir, unpacking->temporary, 0);
    return result;
}

static int make_link(struct unpacking *unpacking, const struct tar_member *member)
{
    int result;

    file_make_temporary_name(unpacking->temporary);
    result = (int)sys(symlinkat, member->link, unpacking->dir, unpacking->temporary);
    return result < 0 ? result : put_in_place(unpacking);
}

static int make_hard_link(struct unpacking *unpacking)
{
    char name[PATH_NAME_SIZE];
    int dir = open_parent(unpacking, unpacking->memory->unpack.other, false, name);
    struct stat status;
    int result;

    if (dir < 0)
        return dir;
    result = (int)sys(newfstatat, dir, name, &status, AT_SYMLINK_NOFOLLOW);
    if (!result && !S_ISREG(status.st_mode))
        result = -EPERM;
    file_make_temporary_name(unpacking->temporary);
    if (!result)
        result = (int)sys(linkat, dir, name, unpacking->dir, unpacking->temporary, 0);
    sys_close(dir);
    return result < 0 ? result : put_in_place(unpacking);
}

/* Why the header of a member is refused; NULL when it is accepted. */
static const char *find_problem(struct unpacking *unpacking, const struct tar_member *member)
{
    char *path = unpacking->memory->unpack.path;
    const char *problem = NULL;

    if (member->has_nul)
        return "the path has a NUL in it";
    if (member->is_too_long)
        return "the path is too long";
    if (member->is_sparse)
        return "it is stored as a sparse file";
    problem = tar_clean_path(member->path, path);
    if (problem)
        return problem;
    switch (member->type) {
    case TAR_FILE:
    case TAR_DIRECTORY:
        return NULL;
    case TAR_LINK:
        return tar_link_problem(path, member->link);
    case TAR_HARD_LINK:
        return tar_clean_path(member->link, unpacking->memory->unpack.other)
                   ? "the link leads out of the directory"
                   : NULL;
    case TAR_CHARACTER_DEVICE:
    case TAR_BLOCK_DEVICE:
        return "it is a device";
    case TAR_FIFO:
        return "it is a named pipe";
    case TAR_OTHER:
        break;
    }
    return "it is neither a file nor a directory nor a link";
}

static int make_member(struct unpacking *unpacking, const struct tar_member *member)
{
    switch (member->type) {
    case TAR_FILE:
        return begin_file(unpacking);
    case TAR_DIRECTORY:
        return make_directory(unpacking, member);
    case TAR_LINK:
        return make_link(unpacking, member);
    default:
        return make_hard_link(unpacking);
    }
}

/* The directory itself, which archives of "." begin with, is there already. */
static bool is_base(const struct tar_member *member)
{
    return member->type == TAR_DIRECTORY && strspn(member->path, "./") == strlen(member->path) &&
           !strstr(member->path, "..") && member->path[0] == '.';
}

/* Content that is left out counts too, so that more may have come already than may be. */
static bool is_too_large(const struct unpacking *unpacking, const struct tar_member *member)
{
    uint64_t most = unpacking->file->bytes;

    return most && member->type == TAR_FILE &&
           (unpacking->bytes > most || member->size > most - unpacking->bytes);
}

static void begin_member(struct unpacking *unpacking, const struct tar_member *member)
{
    const char *problem;
    int result;

    if (++unpacking->members > MAX_MEMBERS)
        stop(unpacking, E2BIG, "the archive has too many members");
    else if (is_too_large(unpacking, member))
        stop(unpacking, EFBIG, "the archive is larger than it may be");
    if (unpacking->error || is_base(member))
        return;
    problem = find_problem(unpacking, member);
    if (!problem && member->type != TAR_DIRECTORY &&
        is_repeated(unpacking, unpacking->memory->unpack.path))
        problem = "the name comes twice";
    if (problem) {
        refuse(unpacking, problem);
        return;
    }
    unpacking->dir = open_parent(unpacking, unpacking->memory->unpack.path, true, unpacking->name);
    result = unpacking->dir < 0 ? unpacking->dir : make_member(unpacking, member);
    if (result < 0)
        refuse_error(unpacking, result);
    if (result < 0 || member->type != TAR_FILE) {
        unpacking->unpacked += result == 0;
        forget_file(unpacking);
    }
}

static void take_content(struct unpacking *unpacking, const char *data, size_t length)
{
    unpacking->bytes += length;
    while (length && unpacking->fd >= 0) {
        long result = sys(write, unpacking->fd, data, length);

        if (result == -EINTR)
            continue;
        if (result < 0) {
            abandon_file(unpacking);
            refuse_error(unpacking, (int)result);
            return;
        }
        data += result;
        length -= (size_t)result;
    }
}

/* --- the archive ------------------------------------------------------------------------------ */

/* True at the end of the archive. */
static bool take_input(struct unpacking *unpacking, size_t filled)
{
    struct tar_parser *tar = &unpacking->memory->unpack.tar;
    size_t at = 0;

    while (!unpacking->error) {
        const void *piece = NULL;
        size_t piece_length = 0;
        size_t used = 0;
        enum tar_event event = tar_parser_feed(tar, unpacking->memory->unpack.input + at,
                                               filled - at, &used, &piece, &piece_length);

        at += used;
        switch (event) {
        case TAR_NEED_MORE:
            return false;
        case TAR_MEMBER:
            begin_member(unpacking, &tar->member);
            break;
        case TAR_DATA:
            take_content(unpacking, piece, piece_length);
            break;
        case TAR_MEMBER_END:
            end_file(unpacking, &tar->member);
            break;
        case TAR_END:
            return true;
        case TAR_BAD:
            stop(unpacking, EBADMSG, tar->problem);
            break;
        }
    }
    return true;
}

static void drain(struct unpacking *unpacking)
{
    long count;

    do
        count = sys(read, unpacking->socket, unpacking->memory->unpack.input, FILE_INPUT_SIZE);
    while (count > 0 || count == -EINTR);
}

static void read_archive(struct unpacking *unpacking)
{
    for (;;) {
        long count = sys(read, unpacking->socket, unpacking->memory->unpack.input, FILE_INPUT_SIZE);

        if (count == -EINTR)
            continue;
        if (count <= 0) {
            if (!tar_parser_is_between(&unpacking->memory->unpack.tar))
                stop(unpacking, EBADMSG, "the archive ends in the middle of a member");
            return;
        }
        if (take_input(unpacking, (size_t)count))
            return;
    }
}

static void tell_end(struct unpacking *unpacking)
{
    struct protocol_note last = {
        .kind = NOTE_LAST,
        .flags = unpacking->refused > MAX_TOLD ? NOTE_CUT : 0,
        .error = unpacking->error,
        .number = unpacking->unpacked,
        .amount = unpacking->bytes,
    };

    file_output_note(&unpacking->notes, &last, NULL, unpacking->problem,
                     strlen(unpacking->problem));
    file_output_flush(&unpacking->notes);
}

void file_unpack_read(struct file_work *work)
{
    union file_memory *memory = file_memory(work);
    struct unpacking unpacking = {
        .memory = memory,
        .file = work->job->file,
        .base = work->base,
        .socket = work->stream,
        .notes = { .fd = work->stream, .bytes = memory->unpack.notes, .size = FILE_NOTES_SIZE },
        .problem = "",
        .dir = -1,
        .fd = -1,
    };
    size_t size = SEEN_PLACES * sizeof *unpacking.seen;
    long seen = sys(mmap, NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    tar_parser_init(&memory->unpack.tar);
    if (seen < 0 && seen > -4096) {
        stop(&unpacking, ENOMEM, "");
        tell_end(&unpacking);
        return;
    }
    unpacking.seen = (uint64_t *)seen;
    read_archive(&unpacking);
    abandon_file(&unpacking);
    /* An archive that is over may still have blocks behind its end: they are not unread when this
     * end closes, which would take the answer with it. */
    if (!unpacking.error)
        drain(&unpacking);
    tell_end(&unpacking);
    if (unpacking.error)
        drain(&unpacking);
    (void)sys(munmap, seen, size);
}
