/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sys_open() for kernels without openat2, of which gVisor is one. The path is gone through component
 * by component, and links are expanded here as texts, so that none of /proc is ever followed.
 */

#include "init/path.h"
#include "init/sys.h"
#include "wire/protocol.h"

#include <errno.h>
#include <stdbool.h>
#include <string.h>
#include <sys/statfs.h>

enum { MAX_LINKS = 40, STEP = O_PATH | O_NOFOLLOW | O_CLOEXEC };

/* The result of opening a component. */
enum step { STEP_DONE, STEP_LINK, STEP_MISSING };

struct steps {
    int dir; /* where the rest begins */
    bool owns_dir;
    unsigned resolve;
    unsigned links;
    const char *at; /* the rest */
    char name[PATH_NAME_SIZE];
    char path[PROTOCOL_MAX_PATH];
};

static void move_to(struct steps *steps, int dir)
{
    if (steps->owns_dir)
        sys_close(steps->dir);
    steps->dir = dir;
    steps->owns_dir = true;
}

/* The next name, "." at the end of the path. 0 or -errno. */
static int take_name(struct steps *steps)
{
    size_t length;

    steps->at += strspn(steps->at, "/");
    length = strcspn(steps->at, "/");
    if (length >= sizeof steps->name)
        return -ENAMETOOLONG;
    memcpy(steps->name, steps->at, length);
    memcpy(steps->name + length, length ? "" : ".", length ? 1 : 2);
    steps->at += length;
    return steps->resolve & RESOLVE_BENEATH_ && !strcmp(steps->name, "..") ? -EXDEV : 0;
}

static bool is_last(const struct steps *steps)
{
    return !steps->at[strspn(steps->at, "/")];
}

static int begin_at_root(struct steps *steps)
{
    int root;

    if (*steps->at != '/')
        return 0;
    if (steps->resolve & RESOLVE_BENEATH_)
        return -EXDEV;
    root = (int)sys(openat, AT_FDCWD, "/", O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (root < 0)
        return root;
    move_to(steps, root);
    return 0;
}

/* Of the links of /proc only those to a process by its number, and through "self", are texts. */
static bool is_text(int link, const char *target)
{
    struct statfs system;

    if (sys(fstatfs, link, &system) < 0)
        return false;
    return system.f_type != PROC_MAGIC || (target[0] >= '0' && target[0] <= '9') ||
           !strncmp(target, "self/", 5);
}

/* Replaces the link's name in the path by its target. 0 or -errno. */
static int expand_link(struct steps *steps, int link)
{
    size_t rest = strlen(steps->at) + 1;
    char *tail = steps->path + sizeof steps->path - rest;
    long length;

    if (steps->resolve & RESOLVE_NO_SYMLINKS_ || ++steps->links > MAX_LINKS)
        return -ELOOP;
    memmove(tail, steps->at, rest);
    length = sys(readlinkat, steps->dir, steps->name, steps->path, tail - steps->path);
    if (length <= 0)
        return length ? (int)length : -ENOENT;
    if (length == tail - steps->path)
        return -ENAMETOOLONG;
    memmove(steps->path + length, tail, rest);
    if (!is_text(link, steps->path))
        return -ELOOP;
    steps->at = steps->path;
    return begin_at_root(steps);
}

static bool is_other_mount(const struct steps *steps, const struct stat *status)
{
    struct stat here;

    return steps->resolve & RESOLVE_NO_XDEV_ &&
           (sys(newfstatat, steps->dir, ".", &here, 0) < 0 || here.st_dev != status->st_dev);
}

/* Looks at the name and goes on: into a directory, to where a link leads, or to the last component,
 * which is left to be opened. enum step or -errno. */
static int look_at(struct steps *steps, bool follows_last)
{
    bool last = is_last(steps);
    int fd = (int)sys(openat, steps->dir, steps->name, STEP);
    struct stat status;
    int result;

    if (fd < 0)
        return last && fd == -ENOENT ? STEP_MISSING : fd;
    result = (int)sys(fstat, fd, &status);
    if (!result && S_ISLNK(status.st_mode) && (!last || follows_last)) {
        result = expand_link(steps, fd);
        sys_close(fd);
        return result < 0 ? result : STEP_LINK;
    }
    if (!result && is_other_mount(steps, &status))
        result = -EXDEV;
    if (result < 0 || last)
        sys_close(fd);
    else
        move_to(steps, fd);
    return result < 0 ? result : STEP_DONE;
}

static int go_through(struct steps *steps, int flags, unsigned mode)
{
    int result = begin_at_root(steps);

    while (!result) {
        bool last;

        result = take_name(steps);
        if (result < 0)
            break;
        last = is_last(steps);
        result = look_at(steps, !(flags & O_NOFOLLOW));
        if (result == STEP_LINK) {
            result = 0;
            continue;
        }
        if (result < 0 || !last)
            continue;
        if (result == STEP_MISSING && !(flags & O_CREAT))
            return -ENOENT;
        if (*steps->at)
            flags |= O_DIRECTORY;
        return (int)sys(openat, steps->dir, steps->name, flags | O_NOFOLLOW | O_CLOEXEC, mode);
    }
    return result;
}

int sys_open_by_steps(int dir, const char *path, int flags, unsigned mode, unsigned resolve)
{
    struct steps steps = { .dir = dir, .resolve = resolve };
    size_t length = strlen(path);
    int result;

    if (!length)
        return -ENOENT;
    if (length >= sizeof steps.path)
        return -ENAMETOOLONG;
    memcpy(steps.path, path, length + 1);
    steps.at = steps.path;
    result = go_through(&steps, flags, mode);
    if (steps.owns_dir)
        sys_close(steps.dir);
    return result;
}
