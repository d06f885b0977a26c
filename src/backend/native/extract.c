#include "backend/native/extract.h"

#include "base/macros.h"
#include "base/scoped.h"
#include "base/str.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <zlib.h>

enum { MAX_ENTRIES = 4 * 1000 * 1000, MAX_OWNER = 65535, NOBODY = 65534, MAX_DEPTH = 256 };

#define WHITEOUT ".wh."
#define OPAQUE ".wh..wh..opq"

static const uint64_t max_bytes = (uint64_t)64 << 30;

/* --- removing ------------------------------------------------------------------------------ */

static int remove_below(int dir, const char *name, int depth)
{
    struct dirent *entry;
    DIR *stream;
    int fd;

    if (unlinkat(dir, name, 0) == 0 || errno == ENOENT)
        return 0;
    if (unlinkat(dir, name, AT_REMOVEDIR) == 0)
        return 0;
    fd = openat(dir, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0 || depth > MAX_DEPTH) {
        fd_close(fd);
        return -1;
    }
    (void)fchmod(fd, 0700);
    stream = fdopendir(fd);
    while (stream && (entry = readdir(stream))) {
        if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0)
            (void)remove_below(fd, entry->d_name, depth + 1);
    }
    if (stream)
        closedir(stream);
    return unlinkat(dir, name, AT_REMOVEDIR);
}

int tree_remove(int dir, const char *name)
{
    return remove_below(dir, name, 0);
}

static void remove_content(int dir)
{
    int fd = openat(dir, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *stream = fd < 0 ? NULL : fdopendir(fd);
    struct dirent *entry;

    while (stream && (entry = readdir(stream))) {
        if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0)
            (void)remove_below(dir, entry->d_name, 0);
    }
    if (stream)
        closedir(stream);
}

/* --- names --------------------------------------------------------------------------------- */

/* Cleans a name: no leading or double slashes, no ".". -1 for "..", which no honest archive has. */
static int clean_name(const char *name, char out[ARCHIVE_NAME_SIZE])
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
    if (parent < 0 && errno == ENOENT) {
        const char *last;
        char above[ARCHIVE_NAME_SIZE];
        scoped(fd_close) int grandparent = -1;

        snprintf(above, sizeof(above), "%s", path);
        grandparent = open_parent(root, above, &last);
        if (grandparent >= 0 && (mkdirat(grandparent, last, 0755) == 0 || errno == EEXIST))
            parent = open_inside(root, path, O_PATH | O_DIRECTORY);
    }
    *slash = '/';
    return parent;
}

/* --- entries ------------------------------------------------------------------------------- */

static void set_owner(const struct extract *extract, const struct archive_entry *entry, int parent,
                      const char *name)
{
    uid_t uid = entry->uid <= MAX_OWNER ? (uid_t)entry->uid : NOBODY;
    gid_t gid = entry->gid <= MAX_OWNER ? (gid_t)entry->gid : NOBODY;

    if (extract->owners)
        (void)!fchownat(parent, name, uid, gid, AT_SYMLINK_NOFOLLOW);
}

static int write_data(struct extract *extract, struct archive *reader, int fd, struct error *err)
{
    char bytes[65536];
    ssize_t got;

    while ((got = archive_read(reader, bytes, sizeof(bytes), err)) > 0) {
        extract->bytes += (uint64_t)got;
        if (extract->bytes > max_bytes)
            return error_set(err, ERR_TOO_LARGE, "the archive has more than 64 GB of files");
        if (write(fd, bytes, (size_t)got) != got)
            return error_sys(err, "write %s", reader->entry.name);
    }
    return got < 0 ? -1 : 0;
}

static int make_file(struct extract *extract, struct archive *reader, int parent, const char *name,
                     struct error *err)
{
    const struct archive_entry *entry = &reader->entry;
    struct timespec times[2] = { { .tv_nsec = UTIME_OMIT }, { .tv_sec = entry->modified } };
    scoped(fd_close) int fd = -1;

    if (tree_remove(parent, name) < 0)
        return error_sys(err, "replace %s", entry->name);
    fd = openat(parent, name, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (fd < 0)
        return error_sys(err, "make %s", entry->name);
    if (write_data(extract, reader, fd, err) < 0)
        return -1;
    set_owner(extract, entry, parent, name);
    if (fchmod(fd, entry->mode & 0777) < 0)
        return error_sys(err, "set the mode of %s", entry->name);
    (void)futimens(fd, times);
    return 0;
}

static int make_directory(struct extract *extract, const struct archive_entry *entry, int parent,
                          const char *name, struct error *err)
{
    struct stat status;

    if (fstatat(parent, name, &status, AT_SYMLINK_NOFOLLOW) == 0 && !S_ISDIR(status.st_mode) &&
        unlinkat(parent, name, 0) < 0)
        return error_sys(err, "replace %s", entry->name);
    if (mkdirat(parent, name, 0700) < 0 && errno != EEXIST)
        return error_sys(err, "make %s", entry->name);
    set_owner(extract, entry, parent, name);
    if (fchmodat(parent, name, entry->mode & 01777, 0) < 0)
        return error_sys(err, "set the mode of %s", entry->name);
    return 0;
}

/* Only to a file inside that is there already. */
static int make_hard_link(struct extract *extract, const struct archive_entry *entry, int parent,
                          const char *name, struct error *err)
{
    scoped(fd_close) int source = -1;
    char target[ARCHIVE_NAME_SIZE];
    char path[32];
    struct stat status;

    if (clean_name(entry->target, target) < 0)
        return error_set(err, ERR_INVALID, "%s links out of the archive", entry->name);
    source = open_inside(extract->root, target, O_PATH | O_NOFOLLOW);
    if (source < 0 || fstat(source, &status) < 0 || !S_ISREG(status.st_mode))
        return error_set(err, ERR_INVALID, "%s links to %s, which is not a file of the archive",
                         entry->name, entry->target);
    if (tree_remove(parent, name) < 0)
        return error_sys(err, "replace %s", entry->name);
    snprintf(path, sizeof(path), "/proc/self/fd/%d", source);
    if (linkat(AT_FDCWD, path, parent, name, AT_SYMLINK_FOLLOW) < 0)
        return error_sys(err, "link %s", entry->name);
    return 0;
}

static int make_other(struct extract *extract, const struct archive_entry *entry, int parent,
                      const char *name, struct error *err)
{
    int result;

    if (tree_remove(parent, name) < 0)
        return error_sys(err, "replace %s", entry->name);
    if (entry->kind == ARCHIVE_SYMBOLIC_LINK)
        result = symlinkat(*entry->target ? entry->target : ".", parent, name);
    else
        result = mkfifoat(parent, name, entry->mode & 0777);
    if (result < 0)
        return error_sys(err, "make %s", entry->name);
    set_owner(extract, entry, parent, name);
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

static int extract_entry(struct extract *extract, struct archive *reader, struct error *err)
{
    const struct archive_entry *entry = &reader->entry;
    scoped(fd_close) int parent = -1;
    char path[ARCHIVE_NAME_SIZE];
    const char *name;

    if (clean_name(entry->name, path) < 0)
        return error_set(err, ERR_INVALID, "\"%.200s\" leads out of the archive", entry->name);
    if (!*path || entry->kind == ARCHIVE_OTHER)
        return 0;
    parent = open_parent(extract->root, path, &name);
    if (parent < 0)
        return error_sys(err, "open the directory of %s", entry->name);
    if (take_whiteout(extract, parent, name))
        return 0;
    switch (entry->kind) {
    case ARCHIVE_FILE:
        return make_file(extract, reader, parent, name, err);
    case ARCHIVE_DIRECTORY:
        return make_directory(extract, entry, parent, name, err);
    case ARCHIVE_HARD_LINK:
        return make_hard_link(extract, entry, parent, name, err);
    case ARCHIVE_SYMBOLIC_LINK:
    case ARCHIVE_FIFO:
        return make_other(extract, entry, parent, name, err);
    case ARCHIVE_OTHER:
        break;
    }
    return 0;
}

int extract_archive(struct extract *extract, archive_source_fn *source, void *user,
                    struct error *err)
{
    static struct archive reader;
    int result;

    archive_init(&reader, source, user);
    while ((result = archive_next(&reader, err)) > 0) {
        if (++extract->entries > MAX_ENTRIES)
            return error_set(err, ERR_TOO_LARGE, "the archive has more than %d entries",
                             MAX_ENTRIES);
        if (extract_entry(extract, &reader, err) < 0)
            return -1;
    }
    return result;
}

static ssize_t read_gzip(void *user, void *bytes, size_t length)
{
    return gzread(user, bytes, (unsigned)MIN(length, (size_t)1 << 20));
}

int extract_file(struct extract *extract, int fd, struct error *err)
{
    int copy = fcntl(fd, F_DUPFD_CLOEXEC, 0);
    gzFile stream = copy < 0 ? NULL : gzdopen(copy, "rb");
    int result;

    if (!stream) {
        fd_close(copy);
        return error_sys(err, "open the archive");
    }
    /* Reads what is not compressed as it is. */
    result = extract_archive(extract, read_gzip, stream, err);
    if (gzclose_r(stream) != Z_OK && result == 0)
        result = error_set(err, ERR_INVALID, "the archive is damaged");
    return result;
}
