/* SPDX-License-Identifier: Apache-2.0 */
#include "launcher/uid_blocks.h"

#include "launcher/sys.h"

#include <dirent.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>

static int open_directory(void)
{
    mode_t before = umask(022); /* the socket of a daemon is in there, too */
    bool failed = (mkdir("/run/sandglass", 0755) < 0 && errno != EEXIST) ||
                  (mkdir("/run/sandglass/uids", 0755) < 0 && errno != EEXIST);

    umask(before);
    if (failed)
        return -1;
    return open("/run/sandglass/uids", O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
}

static int open_block(const struct uid_blocks *blocks, uint32_t block, int flags)
{
    char name[16];

    snprintf(name, sizeof(name), "%u", block);
    return openat(blocks->dir, name, O_RDWR | O_NOFOLLOW | O_CLOEXEC | flags, 0600);
}

/* Whether sandboxes of that state directory may still be there. In doubt they are. */
static bool is_in_use(const struct uid_blocks *blocks, const char *path)
{
    char directory[UID_BLOCKS_PATH + 16];
    struct dirent *entry;
    bool found = false;
    DIR *stream;
    int fd;

    /* Relative to the host's root: by then our own is an empty one. */
    snprintf(directory, sizeof(directory), "%s/sandboxes", path + strspn(path, "/"));
    fd = openat(blocks->root, directory, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0)
        return errno != ENOENT && errno != ENOTDIR;
    stream = fdopendir(fd);
    if (!stream) {
        close(fd);
        return true;
    }
    while (!found && (entry = readdir(stream)))
        found = strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0;
    closedir(stream);
    return found;
}

static void read_owner(int fd, char path[UID_BLOCKS_PATH])
{
    ssize_t length = pread(fd, path, UID_BLOCKS_PATH - 1, 0);

    path[length > 0 ? length : 0] = '\0';
}

/* Locks a block that is ours, or that may become ours. */
static int lock_block(const struct uid_blocks *blocks, uint32_t block, bool only_ours)
{
    static char owner[UID_BLOCKS_PATH];
    int fd = open_block(blocks, block, only_ours ? 0 : O_CREAT);
    struct stat status;
    int reason;

    if (fd < 0)
        return -1;
    if (flock(fd, LOCK_EX | LOCK_NB) < 0 || fstat(fd, &status) < 0)
        goto refuse;
    errno = EBUSY;
    if (status.st_nlink == 0) /* removed after we opened it: it protects nothing */
        goto refuse;
    read_owner(fd, owner);
    if (strcmp(owner, blocks->path) == 0)
        return fd;
    errno = EBUSY;
    if (only_ours || (*owner && is_in_use(blocks, owner)))
        goto refuse;
    if (ftruncate(fd, 0) < 0 || pwrite(fd, blocks->path, strlen(blocks->path), 0) < 0)
        goto refuse;
    return fd;
refuse:
    reason = errno;
    close(fd);
    errno = reason;
    return -1;
}

static int find_path(struct uid_blocks *blocks, int state)
{
    char link[32];
    ssize_t length;

    snprintf(link, sizeof(link), "/proc/self/fd/%d", state);
    length = readlink(link, blocks->path, sizeof(blocks->path) - 1);
    if (length <= 0)
        return -1;
    blocks->path[length] = '\0';
    return 0;
}

int uid_blocks_open(struct uid_blocks *blocks, uint32_t ranges, int state, bool shared,
                    struct fail *fail)
{
    blocks->dir = blocks->root = -1;
    blocks->count = ranges / UID_BLOCK_RANGES < UID_BLOCKS_MAX ? ranges / UID_BLOCK_RANGES
                                                               : UID_BLOCKS_MAX;
    for (uint32_t block = 0; block < UID_BLOCKS_MAX; block++)
        blocks->locks[block] = -1;
    if (!shared)
        return 0;
    blocks->dir = open_directory();
    blocks->root = open("/", O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (blocks->dir < 0 || blocks->root < 0 || find_path(blocks, state) < 0)
        return fail_sys(fail, "keep user ids in /run/sandglass/uids");
    for (uint32_t block = 0; block < blocks->count; block++)
        blocks->locks[block] = lock_block(blocks, block, true);
    return 0;
}

/* Another daemon has the block; other errors mean that no block can be had at all. */
static bool is_of_others(int number)
{
    return number == EWOULDBLOCK || number == EBUSY;
}

int uid_blocks_take(struct uid_blocks *blocks)
{
    int reason = EAGAIN;

    for (uint32_t block = 0; blocks->dir >= 0 && block < blocks->count; block++) {
        if (blocks->locks[block] >= 0)
            continue;
        blocks->locks[block] = lock_block(blocks, block, false);
        if (blocks->locks[block] >= 0)
            return (int)block;
        if (!is_of_others(errno))
            reason = errno;
    }
    errno = reason;
    return -1;
}

bool uid_blocks_has(const struct uid_blocks *blocks, uint32_t block)
{
    return block < blocks->count && (blocks->dir < 0 || blocks->locks[block] >= 0);
}

void uid_blocks_release(struct uid_blocks *blocks, uint32_t block)
{
    char name[16];

    if (blocks->dir < 0 || blocks->locks[block] < 0)
        return;
    snprintf(name, sizeof(name), "%u", block);
    (void)unlinkat(blocks->dir, name, 0);
    close(blocks->locks[block]);
    blocks->locks[block] = -1;
}

void uid_blocks_forget(struct uid_blocks *blocks)
{
    for (uint32_t block = 0; block < blocks->count; block++) {
        if (blocks->locks[block] >= 0)
            close(blocks->locks[block]);
        blocks->locks[block] = -1;
    }
}
