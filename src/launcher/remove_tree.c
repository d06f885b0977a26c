/* SPDX-License-Identifier: Apache-2.0 */
#include "launcher/remove_tree.h"

#include "launcher/sys.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>

enum { MAX_DEPTH = 512 };

#define GET_FLAGS 0x80086601UL
#define SET_FLAGS 0x40086602UL
enum { FLAGS_IMMUTABLE = 0x10, FLAGS_APPEND = 0x20 };

static void make_removable(int dir)
{
    long flags = 0;

    if (ioctl(dir, GET_FLAGS, &flags) == 0 && (flags & (FLAGS_IMMUTABLE | FLAGS_APPEND))) {
        flags &= ~(long)(FLAGS_IMMUTABLE | FLAGS_APPEND);
        (void)ioctl(dir, SET_FLAGS, &flags);
    }
}

static void make_file_removable(int dir, const char *name)
{
    int fd = openat(dir, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);

    if (fd < 0)
        return;
    make_removable(fd);
    close(fd);
}

/* Deeper than our descriptors reach: the subtree moves up and is found there in the next round. */
static bool hoist(int top, int dir, const char *name)
{
    static unsigned number;
    char target[32];

    (void)!snprintf(target, sizeof(target), ".hoisted.%u", number++);
    return renameat(dir, name, top, target) == 0;
}

static unsigned remove_below(int top, int dir, int depth);

/* Changes the mode by name only if it denies access, which it never does for root: a link that
 * replaces the directory in between would be followed. */
static int open_directory(int dir, const char *name)
{
    const int flags = O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC;
    int fd = openat(dir, name, flags);

    if (fd >= 0 || errno != EACCES || geteuid() == 0 || fchmodat(dir, name, 0700, 0) < 0)
        return fd;
    return openat(dir, name, flags);
}

static unsigned remove_directory(int top, int dir, const char *name, int depth)
{
    unsigned left;
    int fd;

    if (unlinkat(dir, name, AT_REMOVEDIR) == 0)
        return 0;
    if (depth >= MAX_DEPTH)
        return hoist(top, dir, name) ? 0 : 1;
    fd = open_directory(dir, name);
    if (fd < 0)
        return 1;
    (void)fchmod(fd, 0700);
    make_removable(fd);
    left = remove_below(top, fd, depth + 1);
    close(fd);
    if (unlinkat(dir, name, AT_REMOVEDIR) == 0)
        return 0;
    return left ? left : 1;
}

static unsigned remove_entry(int top, int dir, const struct dirent *entry, int depth)
{
    struct stat status;

    if (entry->d_type != DT_DIR && unlinkat(dir, entry->d_name, 0) == 0)
        return 0;
    if (fstatat(dir, entry->d_name, &status, AT_SYMLINK_NOFOLLOW) < 0)
        return 0;
    if (S_ISDIR(status.st_mode))
        return remove_directory(top, dir, entry->d_name, depth);
    if (S_ISREG(status.st_mode))
        make_file_removable(dir, entry->d_name);
    return unlinkat(dir, entry->d_name, 0) == 0 ? 0 : 1;
}

static unsigned remove_below(int top, int dir, int depth)
{
    int fd = openat(dir, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *stream = fd < 0 ? NULL : fdopendir(fd);
    struct dirent *entry;
    unsigned left = 0;

    if (!stream) {
        if (fd >= 0)
            close(fd);
        return 1;
    }
    while ((entry = readdir(stream))) {
        if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0)
            left += remove_entry(top, dir, entry, depth);
    }
    closedir(stream);
    return left;
}

static bool is_empty(int dir)
{
    int fd = openat(dir, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *stream = fd < 0 ? NULL : fdopendir(fd);
    struct dirent *entry;
    bool empty = true;

    if (!stream) {
        if (fd >= 0)
            close(fd);
        return false;
    }
    while (empty && (entry = readdir(stream)))
        empty = strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0;
    closedir(stream);
    return empty;
}

unsigned remove_content(int dir)
{
    unsigned left;

    /* Another round for directories that were hoisted meanwhile, until an entry resists. */
    do {
        left = remove_below(dir, dir, 0);
    } while (left == 0 && !is_empty(dir));
    return left;
}
