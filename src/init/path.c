/* SPDX-License-Identifier: Apache-2.0 */
#include "init/path.h"

#include "init/sys.h"
#include "init/text.h"
#include "wire/protocol.h"

#include <errno.h>
#include <stddef.h>
#include <string.h>

enum { DIRECTORY = O_PATH | O_DIRECTORY };

static int open_or_make(int dir, const char *name, bool make)
{
    int fd = sys_open(dir, name, DIRECTORY, 0, 0);

    if (fd != -ENOENT || !make)
        return fd;
    fd = (int)sys(mkdirat, dir, name, 0755);
    if (fd < 0 && fd != -EEXIST)
        return fd;
    return sys_open(dir, name, DIRECTORY, 0, 0);
}

/* Component by component, so that each missing one can be made where the one before it lies. */
static int open_by_steps(const char *path, bool make)
{
    int dir = sys_open(AT_FDCWD, path[0] == '/' ? "/" : ".", DIRECTORY, 0, 0);

    while (dir >= 0) {
        char name[PATH_NAME_SIZE];
        size_t length;
        int next;

        path += strspn(path, "/");
        length = strcspn(path, "/");
        if (!length)
            break;
        if (length >= sizeof name) {
            sys_close(dir);
            return -ENAMETOOLONG;
        }
        memcpy(name, path, length);
        name[length] = 0;
        path += length;
        next = open_or_make(dir, name, make);
        sys_close(dir);
        dir = next;
    }
    return dir;
}

static int open_directory(const char *path, bool make)
{
    int fd = sys_open(AT_FDCWD, path[0] ? path : ".", DIRECTORY, 0, 0);

    return fd == -ENOENT && make ? open_by_steps(path, true) : fd;
}

int path_open_parent(const char *path, bool make, char out_name[PATH_NAME_SIZE])
{
    char parent[PROTOCOL_MAX_PATH];
    size_t length;
    size_t parent_length;
    const char *name = text_base_name(path, &length, &parent_length);

    if (!name)
        return -EINVAL;
    if (length >= PATH_NAME_SIZE || parent_length >= sizeof parent)
        return -ENAMETOOLONG;
    memcpy(parent, path, parent_length);
    parent[parent_length] = 0;
    memcpy(out_name, name, length);
    out_name[length] = 0;
    return open_directory(parent, make);
}

int path_make_directory(const char *path, unsigned mode, bool exclusive)
{
    char name[PATH_NAME_SIZE];
    struct stat status;
    int dir = path_open_parent(path, true, name);
    int result;

    if (dir < 0)
        return dir;
    result = (int)sys(mkdirat, dir, name, mode);
    if (result == -EEXIST && !exclusive) {
        int fd = sys_open(dir, name, O_PATH, 0, 0);

        result = fd < 0 ? fd : (int)sys(fstat, fd, &status);
        if (!result && !S_ISDIR(status.st_mode))
            result = -EEXIST;
        sys_close(fd);
    }
    sys_close(dir);
    return result;
}

int path_to_address(const char *path, struct sockaddr_un *out_address)
{
    size_t length = strlen(path);

    if (length >= sizeof out_address->sun_path)
        return -ENAMETOOLONG;
    *out_address = (struct sockaddr_un){ .sun_family = AF_UNIX };
    memcpy(out_address->sun_path, path, length);
    return (int)(offsetof(struct sockaddr_un, sun_path) + length + 1);
}

long path_check(const char *path)
{
    int fd;

    if (strncmp(path, "/proc/", 6) != 0)
        return 0;
    fd = sys_open(AT_FDCWD, path, O_PATH, 0, 0);
    sys_close(fd);
    return fd < 0 ? fd : 0;
}

long path_change_directory(const char *path)
{
    long result = path_check(path);

    return result < 0 ? result : sys(chdir, path);
}
