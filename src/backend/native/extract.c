/* SPDX-License-Identifier: Apache-2.0 */
#include "backend/native/extract.h"

#include "base/alloc.h"
#include "base/macros.h"
#include "base/scoped.h"
#include "base/str.h"
#include "wire/tar.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <zlib.h>

enum { MAX_ENTRIES = 4 * 1000 * 1000, MAX_OWNER = 65535, NOBODY = 65534, MAX_DEPTH = 128 };

#define WHITEOUT ".wh."
#define OPAQUE ".wh..wh..opq"

static const uint64_t max_bytes = (uint64_t)64 << 30;

/* --- removing ------------------------------------------------------------------------------ */

/* A tree that is being removed. Where it is too deep to go on, a directory is moved up to `top`. */
struct removal {
    int top;         /* borrowed */
    unsigned lifted; /* directories that were moved so far */
    unsigned names;  /* that were tried for them */
};

static void remove_below(struct removal *removal, int dir, const char *name, int depth);

static void remove_entries(struct removal *removal, int dir, int depth)
{
    int fd = openat(dir, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *stream = fd < 0 ? NULL : fdopendir(fd);
    struct dirent *entry;

    while (stream && (entry = readdir(stream))) {
        if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0)
            remove_below(removal, dir, entry->d_name, depth);
    }
    if (stream)
        closedir(stream);
}

/* Moves the entry to a free name: a name from the archive may be taken. */
static void lift(struct removal *removal, int dir, const char *name)
{
    char free_name[32];
    int result;

    do {
        snprintf(free_name, sizeof(free_name), ".lifted-%u", removal->names++);
        result = renameat2(dir, name, removal->top, free_name, RENAME_NOREPLACE);
    } while (result < 0 && errno == EEXIST);
    removal->lifted += result == 0;
}

static void remove_below(struct removal *removal, int dir, const char *name, int depth)
{
    scoped(fd_close) int fd = -1;

    if (unlinkat(dir, name, 0) == 0 || unlinkat(dir, name, AT_REMOVEDIR) == 0)
        return;
    fd = openat(dir, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0)
        return;
    (void)fchmod(fd, 0700);
    if (depth == MAX_DEPTH) {
        lift(removal, dir, name);
        return;
    }
    remove_entries(removal, fd, depth + 1);
    (void)unlinkat(dir, name, AT_REMOVEDIR);
}

static void remove_content(int dir)
{
    struct removal removal = { .top = dir };
    unsigned lifted;

    do {
        lifted = removal.lifted;
        remove_entries(&removal, dir, 0);
    } while (removal.lifted > lifted);
}

int tree_remove(int dir, const char *name)
{
    scoped(fd_close) int fd = -1;

    if (unlinkat(dir, name, 0) == 0 || errno == ENOENT)
        return 0;
    if (unlinkat(dir, name, AT_REMOVEDIR) == 0)
        return 0;
    fd = openat(dir, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0)
        return -1;
    (void)fchmod(fd, 0700);
    remove_content(fd);
    return unlinkat(dir, name, AT_REMOVEDIR);
}

/* --- names --------------------------------------------------------------------------------- */

/* Cleans a name: no leading or double slashes, no ".". -1 for "..", which no honest archive has. */
static int clean_name(const char *name, char out[TAR_PATH_SIZE])
{
    size_t used = 0;

    while (*name) {
        size_t length = strcspn(name, "/");

        if (length == 2 && name[0] == '.' && name[1] == '.')
            return -1;
        if (length > NAME_MAX)
            return -1;
        if (length > 0 && !(length == 1 && name[0] == '.')) {
            if (used > 0)
                out[used++] = '/';
            memcpy(out + used, name, length);
            used += length;
        }
        name += length + (name[length] == '/');
    }
    out[used] = '\0';
    return 0;
}

static int open_inside(int root, const char *path, uint64_t flags)
{
    struct open_how how = { .flags = flags | O_CLOEXEC,
                            .resolve = RESOLVE_IN_ROOT | RESOLVE_NO_MAGICLINKS };

    return (int)syscall(SYS_openat2, root, *path ? path : ".", &how, sizeof(how));
}

/* The directory at this path, whose last component `name` is made in `above` when it is missing. */
static int open_or_make(int root, const char *path, int above, const char *name)
{
    int dir = open_inside(root, path, O_PATH | O_DIRECTORY);

    if (dir < 0 && errno == ENOENT && (mkdirat(above, name, 0755) == 0 || errno == EEXIST))
        dir = open_inside(root, path, O_PATH | O_DIRECTORY);
    return dir;
}

/* The directory at this path, with those above it made when they are missing. */
static int make_directories(int root, char *path)
{
    int dir = open_inside(root, "", O_PATH | O_DIRECTORY);

    for (char *name = path, *end = path; dir >= 0 && *end; name = end + 1) {
        int above = dir;
        char kept;

        end = strchrnul(name, '/');
        kept = *end;
        *end = '\0';
        dir = open_or_make(root, path, above, name);
        *end = kept;
        fd_close(above);
    }
    return dir;
}

/* The directory that the name is in, with those above it made when they are missing. */
static int open_parent(int root, char *path, const char **out_last)
{
    char *slash = strrchr(path, '/');
    int parent;

    if (!slash) {
        *out_last = path;
        return open_inside(root, "", O_PATH | O_DIRECTORY);
    }
    *out_last = slash + 1;
    *slash = '\0';
    parent = open_inside(root, path, O_PATH | O_DIRECTORY);
    if (parent < 0 && errno == ENOENT)
        parent = make_directories(root, path);
    *slash = '/';
    return parent;
}

/* --- members -------------------------------------------------------------------------------- */

static void set_owner(const struct extract *extract, const struct tar_member *member, int parent,
                      const char *name)
{
    uid_t uid = member->uid <= MAX_OWNER ? (uid_t)member->uid : NOBODY;
    gid_t gid = member->gid <= MAX_OWNER ? (gid_t)member->gid : NOBODY;

    if (extract->owners)
        (void)!fchownat(parent, name, uid, gid, AT_SYMLINK_NOFOLLOW);
}

static int make_directory(struct extract *extract, const struct tar_member *member, int parent,
                          const char *name, struct error *err)
{
    struct stat status;

    if (fstatat(parent, name, &status, AT_SYMLINK_NOFOLLOW) == 0 && !S_ISDIR(status.st_mode) &&
        unlinkat(parent, name, 0) < 0)
        return error_sys(err, "replace %s", member->path);
    if (mkdirat(parent, name, 0700) < 0 && errno != EEXIST)
        return error_sys(err, "make %s", member->path);
    set_owner(extract, member, parent, name);
    if (fchmodat(parent, name, member->mode & 01777, 0) < 0)
        return error_sys(err, "set the mode of %s", member->path);
    return 0;
}

/* Only to a file inside that is there already. */
static int make_hard_link(struct extract *extract, const struct tar_member *member, int parent,
                          const char *name, struct error *err)
{
    scoped(fd_close) int source = -1;
    char target[TAR_PATH_SIZE];
    char path[32];
    struct stat status;

    if (clean_name(member->link, target) < 0)
        return error_set(err, ERR_INVALID, "%s links out of the archive", member->path);
    source = open_inside(extract->root, target, O_PATH | O_NOFOLLOW);
    if (source < 0 || fstat(source, &status) < 0 || !S_ISREG(status.st_mode))
        return error_set(err, ERR_INVALID, "%s links to %s, which is not a file of the archive",
                         member->path, member->link);
    if (tree_remove(parent, name) < 0)
        return error_sys(err, "replace %s", member->path);
    snprintf(path, sizeof(path), "/proc/self/fd/%d", source);
    if (linkat(AT_FDCWD, path, parent, name, AT_SYMLINK_FOLLOW) < 0)
        return error_sys(err, "link %s", member->path);
    return 0;
}

static int make_other(struct extract *extract, const struct tar_member *member, int parent,
                      const char *name, struct error *err)
{
    int result;

    if (tree_remove(parent, name) < 0)
        return error_sys(err, "replace %s", member->path);
    if (member->type == TAR_LINK)
        result = symlinkat(*member->link ? member->link : ".", parent, name);
    else
        result = mkfifoat(parent, name, member->mode & 0777);
    if (result < 0)
        return error_sys(err, "make %s", member->path);
    set_owner(extract, member, parent, name);
    return 0;
}

static bool take_whiteout(const struct extract *extract, int parent, const char *name)
{
    if (!extract->whiteouts || !str_starts_with(name, WHITEOUT))
        return false;
    if (strcmp(name, OPAQUE) == 0)
        remove_content(parent);
    else if (path_is_plain_name(name + strlen(WHITEOUT)))
        (void)tree_remove(parent, name + strlen(WHITEOUT));
    return true;
}

/* One member, between TAR_MEMBER and TAR_MEMBER_END. */
struct extraction {
    struct extract *extract; /* borrowed */
    const struct tar_member *member;
    int parent; /* owned; of a file */
    int fd;     /* owned: the file that is written; -1: the data is skipped */
    char path[TAR_PATH_SIZE];
    const char *name; /* the last part of it */
};

static void close_member(struct extraction *extraction)
{
    fd_close(extraction->fd);
    fd_close(extraction->parent);
    extraction->fd = extraction->parent = -1;
}

static int begin_file(struct extraction *extraction, struct error *err)
{
    if (tree_remove(extraction->parent, extraction->name) < 0)
        return error_sys(err, "replace %s", extraction->member->path);
    extraction->fd = openat(extraction->parent, extraction->name,
                            O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    return extraction->fd < 0 ? error_sys(err, "make %s", extraction->member->path) : 0;
}

static int write_file(struct extraction *extraction, const void *piece, size_t length,
                      struct error *err)
{
    struct extract *extract = extraction->extract;

    if (extraction->fd < 0)
        return 0;
    extract->bytes += length;
    if (extract->bytes > max_bytes)
        return error_set(err, ERR_TOO_LARGE, "the archive has more than 64 GB of files");
    if (write(extraction->fd, piece, length) != (ssize_t)length)
        return error_sys(err, "write %s", extraction->member->path);
    return 0;
}

static int end_file(struct extraction *extraction, struct error *err)
{
    const struct tar_member *member = extraction->member;
    struct timespec times[2] = { { .tv_nsec = UTIME_OMIT }, { .tv_sec = member->modified_s } };

    if (extraction->fd < 0)
        return 0;
    set_owner(extraction->extract, member, extraction->parent, extraction->name);
    if (fchmod(extraction->fd, member->mode & 0777) < 0)
        return error_sys(err, "set the mode of %s", member->path);
    (void)futimens(extraction->fd, times);
    return 0;
}

static int make_member(struct extraction *extraction, struct error *err)
{
    const struct tar_member *member = extraction->member;
    int parent = extraction->parent;
    const char *name = extraction->name;

    switch (member->type) {
    case TAR_FILE:
        return begin_file(extraction, err);
    case TAR_DIRECTORY:
        return make_directory(extraction->extract, member, parent, name, err);
    case TAR_HARD_LINK:
        return make_hard_link(extraction->extract, member, parent, name, err);
    case TAR_LINK:
    case TAR_FIFO:
        return make_other(extraction->extract, member, parent, name, err);
    case TAR_CHARACTER_DEVICE:
    case TAR_BLOCK_DEVICE:
    case TAR_OTHER:
        break;
    }
    return 0;
}

static bool is_skipped(const struct tar_member *member)
{
    return member->type == TAR_CHARACTER_DEVICE || member->type == TAR_BLOCK_DEVICE ||
           member->type == TAR_OTHER;
}

static int begin_member(struct extraction *extraction, struct error *err)
{
    const struct tar_member *member = extraction->member;

    if (++extraction->extract->entries > MAX_ENTRIES)
        return error_set(err, ERR_TOO_LARGE, "the archive has more than %d entries", MAX_ENTRIES);
    if (member->is_too_long || member->has_nul)
        return error_set(err, ERR_INVALID, "the archive has a malformed header");
    if (clean_name(member->path, extraction->path) < 0)
        return error_set(err, ERR_INVALID, "\"%.200s\" leads out of the archive", member->path);
    if (!*extraction->path || is_skipped(member))
        return 0;
    extraction->parent =
        open_parent(extraction->extract->root, extraction->path, &extraction->name);
    if (extraction->parent < 0)
        return error_sys(err, "open the directory of %s", member->path);
    if (take_whiteout(extraction->extract, extraction->parent, extraction->name))
        return 0;
    return make_member(extraction, err);
}

/* --- the archive ----------------------------------------------------------------------------- */

/* All of a piece of the archive: 1 at its end, 0 when more is to come. */
static int feed(struct tar_parser *parser, struct extraction *extraction, const char *bytes,
                size_t length, struct error *err)
{
    for (;;) {
        const void *piece = NULL;
        size_t piece_length = 0;
        size_t used = 0;
        int result = 0;
        enum tar_event event = tar_parser_feed(parser, bytes, length, &used, &piece, &piece_length);

        bytes += used;
        length -= used;
        switch (event) {
        case TAR_NEED_MORE:
            return 0;
        case TAR_MEMBER:
            result = begin_member(extraction, err);
            break;
        case TAR_DATA:
            result = write_file(extraction, piece, piece_length, err);
            break;
        case TAR_MEMBER_END:
            result = end_file(extraction, err);
            close_member(extraction);
            break;
        case TAR_END:
            return 1;
        case TAR_BAD:
            return error_set(err, ERR_INVALID, "the archive cannot be read: %s", parser->problem);
        }
        if (result < 0)
            return -1;
    }
}

static void report(struct extract *extract, gzFile stream)
{
    z_off_t offset = gzoffset(stream);

    /* A pipe has no offset. */
    extract->progress.done = (uint64_t)(offset < 0 ? gztell(stream) : offset);
    if (extract->on_progress)
        extract->on_progress(extract->user, &extract->progress);
}

static int extract_stream(struct extract *extract, gzFile stream, struct error *err)
{
    scoped(free) struct tar_parser *parser = xnew(struct tar_parser);
    struct extraction extraction = {
        .extract = extract, .member = &parser->member, .parent = -1, .fd = -1
    };
    char bytes[65536];
    int result = 0;
    int got;

    tar_parser_init(parser);
    do {
        got = gzread(stream, bytes, sizeof(bytes));
        if (got < 0)
            result = error_set(err, ERR_INVALID, "the archive cannot be read");
        else if (got > 0)
            result = feed(parser, &extraction, bytes, (size_t)got, err);
        else if (!tar_parser_is_between(parser))
            result = error_set(err, ERR_INVALID, "the archive is truncated");
        report(extract, stream);
    } while (got > 0 && result == 0);
    close_member(&extraction);
    return result < 0 ? -1 : 0;
}

int extract_file(struct extract *extract, int fd, struct error *err)
{
    int copy = fcntl(fd, F_DUPFD_CLOEXEC, 0);
    gzFile stream = copy < 0 ? NULL : gzdopen(copy, "rb");
    struct stat status;
    int result;

    if (!stream) {
        fd_close(copy);
        return error_sys(err, "open the archive");
    }
    extract->progress.total =
        fstat(fd, &status) == 0 && S_ISREG(status.st_mode) ? (uint64_t)status.st_size : 0;
    /* zlib reads uncompressed input as it is. */
    result = extract_stream(extract, stream, err);
    if (gzclose_r(stream) != Z_OK && result == 0)
        result = error_set(err, ERR_INVALID, "the archive is damaged");
    return result;
}
