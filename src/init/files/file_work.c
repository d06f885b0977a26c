/* SPDX-License-Identifier: Apache-2.0 */
#include "init/files/file_work.h"

#include "init/sys.h"

#include <errno.h>
#include <string.h>
#include <sys/statfs.h>

#define TEMPORARY_PREFIX ".sandglass-"

enum { RANDOM_BYTES = 8, TEMPORARY_TRIES = 4, RENAME_NOREPLACE_ = 1, ATTRIBUTE_NAME_SIZE = 256 };

void file_stat_fill(struct protocol_stat *out, const struct stat *status)
{
    *out = (struct protocol_stat){
        .size = (uint64_t)status->st_size,
        .inode = status->st_ino,
        .modified_us = (int64_t)status->st_mtim.tv_sec * 1000000 + status->st_mtim.tv_nsec / 1000,
        .changed_us = (int64_t)status->st_ctim.tv_sec * 1000000 + status->st_ctim.tv_nsec / 1000,
        .mode = status->st_mode,
        .uid = status->st_uid,
        .gid = status->st_gid,
    };
}

/* --- reading --------------------------------------------------------------------------------- */

/* EISDIR, EINVAL or EACCES if the descriptor is not a regular file outside of /proc. */
static int check_regular(int fd, struct stat *out_status)
{
    struct statfs system;
    long result = sys(fstat, fd, out_status);

    if (result < 0)
        return (int)result;
    if (S_ISDIR(out_status->st_mode))
        return -EISDIR;
    if (!S_ISREG(out_status->st_mode))
        return -EINVAL;
    result = sys(fstatfs, fd, &system);
    if (result < 0)
        return (int)result;
    /* A helper shares init's memory, so /proc would let it open that. */
    return system.f_type == PROC_MAGIC ? -EACCES : 0;
}

int file_open_regular(int dir, const char *name, int flags, struct stat *out_status)
{
    int fd = sys_open(dir, name, flags, 0, 0);
    int result;

    if (fd < 0)
        return fd;
    result = check_regular(fd, out_status);
    if (!result)
        return fd;
    sys_close(fd);
    return result;
}

int file_do_open_read(struct file_work *work)
{
    const char *path = work->job->file_texts.path;
    struct stat status;
    int fd = file_open_regular(AT_FDCWD, path, O_PATH, &status);

    if (fd < 0)
        return fd;
    sys_close(fd);
    fd = file_open_regular(AT_FDCWD, path, O_RDONLY | O_NONBLOCK | O_NOCTTY, &status);
    if (fd < 0)
        return fd;
    file_stat_fill(&work->done.stat, &status);
    work->fd = fd;
    return 0;
}

static int do_stat(struct file_work *work)
{
    int no_follow = work->job->file->flags & FILE_NO_FOLLOW ? O_NOFOLLOW : 0;
    int fd = sys_open(AT_FDCWD, work->job->file_texts.path, O_PATH | no_follow, 0, 0);
    struct stat status;
    long result;

    if (fd < 0)
        return fd;
    result = sys(fstat, fd, &status);
    sys_close(fd);
    if (!result)
        file_stat_fill(&work->done.stat, &status);
    return (int)result;
}

/* --- writing --------------------------------------------------------------------------------- */

void file_make_temporary_name(char name[PROTOCOL_MAX_TEMPORARY])
{
    static const char digits[] = "0123456789abcdef";
    unsigned char bytes[RANDOM_BYTES] = { 0 };
    size_t at = sizeof TEMPORARY_PREFIX - 1;

    (void)sys(getrandom, bytes, sizeof bytes, 0);
    memcpy(name, TEMPORARY_PREFIX, at);
    for (size_t i = 0; i < sizeof bytes; i++) {
        name[at++] = digits[bytes[i] >> 4];
        name[at++] = digits[bytes[i] & 15];
    }
    name[at] = 0;
}

bool file_is_temporary(const char *name)
{
    return !strncmp(name, TEMPORARY_PREFIX, sizeof TEMPORARY_PREFIX - 1) && !strchr(name, '/');
}

/* The permissions of the file that will be replaced, unless the daemon gave some. */
static int choose_mode(const struct file_work *work, int dir, const char *name)
{
    struct stat status;
    long result = sys(newfstatat, dir, name, &status, AT_SYMLINK_NOFOLLOW);

    if (result < 0 && result != -ENOENT)
        return (int)result;
    if (!result && S_ISDIR(status.st_mode))
        return -EISDIR;
    if (work->job->file->mode)
        return work->job->file->mode & 0777;
    return !result && S_ISREG(status.st_mode) ? (int)(status.st_mode & 0777) : 0644;
}

int file_create_temporary(int dir, char name[PROTOCOL_MAX_TEMPORARY])
{
    int fd = -EEXIST;

    for (int i = 0; i < TEMPORARY_TRIES && fd == -EEXIST; i++) {
        file_make_temporary_name(name);
        fd = sys_open(dir, name, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW, 0600, 0);
    }
    return fd;
}

int file_do_open_write(struct file_work *work, int dir, const char *name)
{
    int mode = choose_mode(work, dir, name);
    struct stat status;
    int fd;

    if (mode < 0)
        return mode;
    fd = file_create_temporary(dir, work->temporary);
    if (fd < 0)
        return fd;
    (void)sys(fchmod, fd, mode);
    if (!sys(fstat, fd, &status))
        file_stat_fill(&work->done.stat, &status);
    work->fd = fd;
    return 0;
}

static int do_open_write(struct file_work *work)
{
    char name[PATH_NAME_SIZE];
    int dir = path_open_parent(work->job->file_texts.path, true, name);
    int result = dir < 0 ? dir : file_do_open_write(work, dir, name);

    sys_close(dir);
    return result;
}

static long rename_at(const struct file_work *work, int from_dir, const char *from, int to_dir,
                      const char *to)
{
    unsigned flags = work->job->file->flags & FILE_NO_REPLACE ? RENAME_NOREPLACE_ : 0;

    return sys(renameat2, from_dir, from, to_dir, to, flags);
}

/* Whether the file is still the version that the daemon expects: 0 or -ESTALE. */
static int check_expected(const struct protocol_file *file, int dir, const char *name)
{
    struct protocol_stat found;
    struct stat status;
    long result;

    if (!(file->flags & FILE_EXPECT))
        return 0;
    result = sys(newfstatat, dir, name, &status, AT_SYMLINK_NOFOLLOW);
    if (result < 0)
        return result == -ENOENT ? -ESTALE : (int)result;
    file_stat_fill(&found, &status);
    return found.size == file->expected.size && found.inode == file->expected.inode &&
                   found.modified_us == file->expected.modified_us
               ? 0
               : -ESTALE;
}

static int sync_file(int dir, const char *name)
{
    int fd = sys_open(dir, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK, 0, 0);
    int result;

    if (fd == -EACCES)
        fd = sys_open(dir, name, O_WRONLY | O_NOFOLLOW | O_NONBLOCK, 0, 0);
    result = fd < 0 ? fd : (int)sys(fsync, fd);
    sys_close(fd);
    return result;
}

/* Attributes are set by path, which the directory of this clone makes short. */
static int set_attributes(int dir, const char *name, const char *attributes)
{
    long result = *attributes ? sys(fchdir, dir) : 0;

    while (!result && *attributes) {
        size_t length = strcspn(attributes, "\n");
        const char *value = memchr(attributes, '=', length);
        char key[ATTRIBUTE_NAME_SIZE];
        size_t key_length = value ? (size_t)(value - attributes) : 0;

        if (!value || key_length == 0 || key_length >= sizeof key)
            return -EINVAL;
        memcpy(key, attributes, key_length);
        key[key_length] = 0;
        result = sys(lsetxattr, name, key, value + 1, length - key_length - 1, 0);
        attributes += length + (attributes[length] == '\n');
    }
    return (int)result;
}

static int replace(struct file_work *work, int dir, const char *name)
{
    const struct protocol_file *file = work->job->file;
    const char *temporary = work->job->file_texts.second;
    struct stat status;
    int result = file->flags & FILE_SYNC ? sync_file(dir, temporary) : 0;

    if (!result)
        result = set_attributes(dir, temporary, work->job->file_texts.third);
    if (!result)
        result = check_expected(file, dir, name);
    if (!result)
        result = (int)rename_at(work, dir, temporary, dir, name);
    if (result < 0) {
        (void)sys(unlinkat, dir, temporary, 0);
        return result;
    }
    if (!sys(newfstatat, dir, name, &status, AT_SYMLINK_NOFOLLOW))
        file_stat_fill(&work->done.stat, &status);
    return file->flags & FILE_SYNC ? sync_file(dir, ".") : 0;
}

static int do_commit(struct file_work *work)
{
    const char *temporary = work->job->file_texts.second;
    char name[PATH_NAME_SIZE];
    int result;
    int dir;

    if (!file_is_temporary(temporary))
        return -EINVAL;
    dir = path_open_parent(work->job->file_texts.path, false, name);
    if (dir < 0)
        return dir;
    if (work->job->file->flags & FILE_ABANDON)
        result = (int)sys(unlinkat, dir, temporary, 0);
    else
        result = replace(work, dir, name);
    sys_close(dir);
    return result;
}

/* --- names ----------------------------------------------------------------------------------- */

static int do_move(struct file_work *work)
{
    char from[PATH_NAME_SIZE];
    char to[PATH_NAME_SIZE];
    int from_dir = path_open_parent(work->job->file_texts.path, false, from);
    int to_dir = from_dir < 0 ? from_dir
                              : path_open_parent(work->job->file_texts.second, false, to);
    int result = to_dir < 0 ? to_dir : (int)rename_at(work, from_dir, from, to_dir, to);

    sys_close(to_dir);
    sys_close(from_dir);
    return result;
}

static int do_make_directory(struct file_work *work)
{
    const struct protocol_file *file = work->job->file;

    return path_make_directory(work->job->file_texts.path, file->mode ? file->mode & 0777 : 0755,
                               file->flags & FILE_EXCLUSIVE);
}

static int do_remove(struct file_work *work)
{
    char name[PATH_NAME_SIZE];
    int dir = path_open_parent(work->job->file_texts.path, false, name);
    int result;

    if (dir < 0)
        return dir;
    result = (int)sys(unlinkat, dir, name, 0);
    if (result == -EISDIR && work->job->file->flags & FILE_TREE)
        result = file_remove_tree(work, dir, name);
    else if (result == -EISDIR)
        result = (int)sys(unlinkat, dir, name, AT_REMOVEDIR);
    sys_close(dir);
    return result;
}

/* The kinds that go on after the answer. */
static int begin_stream(struct file_work *work, int result, file_go_on_fn *go_on)
{
    if (!result)
        work->go_on = go_on;
    return result;
}

int file_work_do(struct file_work *work)
{
    switch ((enum protocol_file_kind)work->job->file->kind) {
    case FILE_OPEN_READ:
        return file_do_open_read(work);
    case FILE_OPEN_WRITE:
        return do_open_write(work);
    case FILE_COMMIT:
        return do_commit(work);
    case FILE_STAT:
        return do_stat(work);
    case FILE_REMOVE:
        return do_remove(work);
    case FILE_MKDIR:
        return do_make_directory(work);
    case FILE_MOVE:
        return do_move(work);
    case FILE_LIST:
        return begin_stream(work, file_open_stream(work), file_list_write);
    case FILE_GLOB:
        return begin_stream(work, file_glob_open(work), file_glob_write);
    case FILE_GREP:
        return begin_stream(work, file_open_stream(work), file_grep_write);
    case FILE_PACK:
        return begin_stream(work, file_pack_open(work), file_pack_write);
    case FILE_UNPACK:
        return begin_stream(work, file_unpack_open(work), file_unpack_read);
    case FILE_WATCH:
        return begin_stream(work, file_open_stream(work), file_watch_write);
    case FILE_READ:
        return begin_stream(work, file_read_open(work), file_read_write);
    case FILE_WRITE:
        return begin_stream(work, file_write_open(work), file_write_read);
    case FILE_DESCRIBE:
        return file_describe_open(work);
    case FILE_KINDS:
        break;
    }
    return -EINVAL;
}
