/* SPDX-License-Identifier: Apache-2.0 */
#include "launcher/walls/skeleton_usr.h"

#include "launcher/sys.h"

#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/xattr.h>

#define ATTRIBUTE(name) "trusted.overlay." name

typedef bool (*entry_fn)(int skeleton, int dir, const char *name);

/* Calls the function for each entry of the directory; false when it fails for one. */
static bool for_each(int skeleton, int dir, entry_fn function)
{
    int fd = openat(dir, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *stream = fd < 0 ? NULL : fdopendir(fd);
    struct dirent *entry;
    bool result = true;

    if (!stream) {
        if (fd >= 0)
            close(fd);
        return false;
    }
    while (result && (entry = readdir(stream))) {
        if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0)
            result = function(skeleton, dir, entry->d_name);
    }
    closedir(stream);
    return result;
}

static bool mark_directory(int dir, const char *path, const char *attribute, const char *value)
{
    int fd = openat(dir, path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    bool result = fd >= 0 && fsetxattr(fd, attribute, value, strlen(value), 0) == 0;

    if (fd >= 0)
        close(fd);
    return result;
}

/* A directory of the skeleton is not continued by one of the same name below it. */
static bool close_directory(int skeleton, int dir, const char *name)
{
    struct stat status;

    if (fstatat(dir, name, &status, AT_SYMLINK_NOFOLLOW) < 0)
        return false;
    return !S_ISDIR(status.st_mode) || mark_directory(skeleton, name, ATTRIBUTE("opaque"), "y");
}

/* The uppermost directory is the one whose owner, mode and times are seen. */
static bool copy_status(int dir, const char *path, const struct stat *status)
{
    const struct timespec times[] = { status->st_atim, status->st_mtim };

    return fchownat(dir, path, status->st_uid, status->st_gid, 0) == 0 &&
           fchmodat(dir, path, status->st_mode & 07777, 0) == 0 &&
           utimensat(dir, path, times, 0) == 0;
}

static bool lead_to_directory(int skeleton, const char *path, const struct stat *status)
{
    return mkdirat(skeleton, path, 0755) == 0 &&
           mark_directory(skeleton, path, ATTRIBUTE("redirect"), strchr(path, '/')) &&
           copy_status(skeleton, path, status);
}

static bool copy_link(int skeleton, const char *path, int usr, const char *name)
{
    char target[1024];
    ssize_t length = readlinkat(usr, name, target, sizeof(target) - 1);

    if (length <= 0)
        return false;
    target[length] = '\0';
    return symlinkat(target, skeleton, path) == 0;
}

static bool lead_to(int skeleton, int usr, const char *name)
{
    char path[sizeof("usr/") + NAME_MAX];
    struct stat status;

    snprintf(path, sizeof(path), "usr/%s", name);
    if (fstatat(usr, name, &status, AT_SYMLINK_NOFOLLOW) < 0)
        return false;
    if (S_ISLNK(status.st_mode))
        return copy_link(skeleton, path, usr, name);
    return S_ISDIR(status.st_mode) && lead_to_directory(skeleton, path, &status);
}

/* Hides the name unless the skeleton has an entry of that name. */
static bool hide(int skeleton, int usr, const char *name)
{
    (void)usr;
    return mknodat(skeleton, name, S_IFCHR, 0) == 0 || errno == EEXIST;
}

bool skeleton_join_usr(int skeleton, int usr)
{
    struct stat status;

    return fstat(usr, &status) == 0 && for_each(skeleton, skeleton, close_directory) &&
           for_each(skeleton, usr, lead_to) && copy_status(skeleton, "usr", &status) &&
           for_each(skeleton, usr, hide);
}
