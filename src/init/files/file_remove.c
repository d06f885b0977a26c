/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Removing a tree of which every part may change meanwhile. Only two descriptors are open at any
 * depth: the way up is "..", and it has to lead to the directory that the way down came from. No
 * link is followed and no mount entered.
 */

#include "init/files/file_work.h"
#include "init/sys.h"
#include "init/text.h"

#include <errno.h>
#include <string.h>

enum {
    DIRECTORY = O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_NONBLOCK,
    MAX_DESCENTS = 4 * 1024 * 1024, /* a program may fill it as fast as it is emptied */
    LAST_TRIES = 16,
    TYPE_DIRECTORY = 4,
    TYPE_UNKNOWN = 0,
};

struct removal {
    union file_memory *memory;
    int directory; /* that is being emptied */
    unsigned depth;
    unsigned descents;
    bool is_opened_up; /* its permissions have been widened */
};

static bool is_dots(const char *name)
{
    return name[0] == '.' && (!name[1] || (name[1] == '.' && !name[2]));
}

static int identify(int fd, struct file_identity *out_identity)
{
    struct stat status;
    long result = sys(fstat, fd, &status);

    if (result < 0)
        return (int)result;
    *out_identity = (struct file_identity){ status.st_dev, status.st_ino };
    return 0;
}

/* A directory that its owner may not enter is opened up first, by a descriptor of exactly it. */
static void open_up(int parent, const char *name)
{
    int fd = sys_open(parent, name, O_PATH | O_DIRECTORY | O_NOFOLLOW, 0, RESOLVE_NO_XDEV_);
    char path[sizeof "self/fd/" + TEXT_NUMBER_SIZE] = "self/fd/";

    if (fd < 0)
        return;
    text_from_u64((uint64_t)fd, path + sizeof "self/fd/" - 1);
    (void)sys(fchmodat, FD_HELPER_PROC, path, 0700);
    sys_close(fd);
}

static int open_directory(int parent, const char *name)
{
    int fd = sys_open(parent, name, DIRECTORY, 0, RESOLVE_NO_XDEV_);

    if (fd != -EACCES)
        return fd;
    open_up(parent, name);
    return sys_open(parent, name, DIRECTORY, 0, RESOLVE_NO_XDEV_);
}

static int descend(struct removal *removal, const char *name)
{
    int fd;
    int result;

    if (removal->depth + 1 == FILE_REMOVE_DEPTH || ++removal->descents > MAX_DESCENTS)
        return -ELOOP;
    fd = open_directory(removal->directory, name);
    if (fd == -ENOENT || fd == -ENOTDIR)
        return 0; /* the entry has changed: the next scan finds its new type */
    if (fd < 0)
        return fd;
    result = identify(fd, &removal->memory->remove.levels[removal->depth + 1]);
    if (result < 0) {
        sys_close(fd);
        return result;
    }
    removal->depth++;
    sys_close(removal->directory);
    removal->directory = fd;
    removal->is_opened_up = false;
    return 0;
}

static int ascend(struct removal *removal)
{
    const struct file_identity *expected = &removal->memory->remove.levels[removal->depth - 1];
    struct file_identity found = { 0 };
    int fd = sys_open(removal->directory, "..", DIRECTORY, 0, 0);
    int result;

    if (fd < 0)
        return fd;
    result = identify(fd, &found);
    if (!result && (found.device != expected->device || found.inode != expected->inode))
        result = -EAGAIN;
    if (result < 0) {
        sys_close(fd);
        return result;
    }
    sys_close(removal->directory);
    removal->directory = fd;
    removal->depth--;
    removal->is_opened_up = false;
    return 0;
}

/* 0 when it is gone, 1 when it is a directory with something in it, or -errno. */
static int remove_entry(int dir, const struct sys_dirent *entry)
{
    bool may_be_directory = entry->type == TYPE_DIRECTORY || entry->type == TYPE_UNKNOWN;
    long result = sys(unlinkat, dir, entry->name, may_be_directory ? AT_REMOVEDIR : 0);

    if (result == -ENOTDIR)
        result = sys(unlinkat, dir, entry->name, 0);
    else if (result == -EISDIR)
        result = sys(unlinkat, dir, entry->name, AT_REMOVEDIR);
    if (result == -ENOTEMPTY || result == -EEXIST)
        return 1;
    return result == -ENOENT ? 0 : (int)result;
}

/* One scan of the directory: 0 when it was empty at the end, 1 when the removal continues in
 * another one. */
static int empty_once(struct removal *removal)
{
    char *entries = removal->memory->remove.entries;
    long length;

    (void)sys(lseek, removal->directory, 0, SEEK_SET);
    while ((length = sys(getdents64, removal->directory, entries, FILE_ENTRIES_SIZE)) > 0)
        for (long at = 0; at < length;) {
            const struct sys_dirent *entry = (const struct sys_dirent *)(entries + at);
            int result;

            at += entry->length;
            if (is_dots(entry->name))
                continue;
            result = remove_entry(removal->directory, entry);
            if (result == -EACCES && !removal->is_opened_up) {
                removal->is_opened_up = true;
                (void)sys(fchmod, removal->directory, 0700);
                result = remove_entry(removal->directory, entry);
            }
            if (result == 1)
                result = descend(removal, entry->name) ?: 1;
            if (result)
                return result;
        }
    return (int)length;
}

static int empty(struct removal *removal)
{
    for (;;) {
        int result = empty_once(removal);

        if (result < 0 || (!result && !removal->depth))
            return result;
        if (!result)
            result = ascend(removal);
        if (result < 0)
            return result;
    }
}

int file_remove_tree(struct file_work *work, int parent, const char *name)
{
    int result = -ENOTEMPTY;

    for (int i = 0; i < LAST_TRIES && (result == -ENOTEMPTY || result == -EAGAIN); i++) {
        struct removal removal = { .memory = file_memory(work) };

        removal.directory = open_directory(parent, name);
        if (removal.directory < 0)
            return removal.directory;
        result = identify(removal.directory, &removal.memory->remove.levels[0]);
        if (!result)
            result = empty(&removal);
        sys_close(removal.directory);
        if (!result)
            result = (int)sys(unlinkat, parent, name, AT_REMOVEDIR);
    }
    return result;
}
