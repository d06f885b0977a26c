/* SPDX-License-Identifier: Apache-2.0 */
#include "base/fd.h"
#include "base/macros.h"
#include "base/scoped.h"
#include "cli/cli.h"
#include "cli/files/tree_work.h"
#include "wire/tar.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/openat2.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

struct unpacking {
    int base;
    int dir; /* of the file at hand; -1 when its content is not wanted */
    int fd;
    char name[NAME_MAX + 1];
    char temporary[64];
    unsigned made;
    struct tar_parser tar;
    char path[TAR_PATH_SIZE];
};

static void refuse(const struct unpacking *unpacking, const char *why)
{
    cli_note("refused: %s: %s", unpacking->tar.member.path, why);
}

/* One component, never through a link. */
static int step_into(int dir, const char *name)
{
    struct open_how how = {
        .flags = O_PATH | O_DIRECTORY | O_CLOEXEC,
        .resolve = RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS,
    };
    int fd = (int)syscall(SYS_openat2, dir, name, &how, sizeof(how));

    if (fd >= 0 || errno != ENOENT)
        return fd;
    if (mkdirat(dir, name, 0755) < 0 && errno != EEXIST)
        return -1;
    return (int)syscall(SYS_openat2, dir, name, &how, sizeof(how));
}

static int open_parent(struct unpacking *unpacking)
{
    const char *path = unpacking->path;
    int dir = fcntl(unpacking->base, F_DUPFD_CLOEXEC, 0);

    for (;;) {
        size_t length = strcspn(path, "/");
        int next;

        memcpy(unpacking->name, path, length);
        unpacking->name[length] = 0;
        if (dir < 0 || !path[length])
            return dir;
        next = step_into(dir, unpacking->name);
        fd_close(dir);
        dir = next;
        path += length + 1;
    }
}

static void forget(struct unpacking *unpacking, bool remove)
{
    if (remove && unpacking->dir >= 0)
        (void)unlinkat(unpacking->dir, unpacking->temporary, 0);
    fd_close(steal_fd(&unpacking->fd));
    fd_close(steal_fd(&unpacking->dir));
}

static const char *find_problem(struct unpacking *unpacking, const struct tar_member *member)
{
    const char *problem = NULL;

    if (member->has_nul || member->is_too_long || member->is_sparse)
        return "unsupported name or type";
    problem = tar_clean_path(member->path, unpacking->path);
    if (problem || member->type == TAR_FILE || member->type == TAR_DIRECTORY)
        return problem;
    if (member->type == TAR_LINK)
        return tar_link_problem(unpacking->path, member->link);
    return "not a file, directory or link";
}

static int make_directory(struct unpacking *unpacking, const struct tar_member *member)
{
    scoped(fd_close) int fd = -1;

    if (mkdirat(unpacking->dir, unpacking->name, 0755) == 0)
        return fchmodat(unpacking->dir, unpacking->name, (member->mode & 0777) | 0700, 0);
    if (errno != EEXIST)
        return -1;
    fd = step_into(unpacking->dir, unpacking->name);
    return fd < 0 ? -1 : 0;
}

static int make_link(struct unpacking *unpacking, const struct tar_member *member)
{
    if (symlinkat(member->link, unpacking->dir, unpacking->temporary) < 0)
        return -1;
    if (renameat(unpacking->dir, unpacking->temporary, unpacking->dir, unpacking->name) == 0)
        return 0;
    (void)unlinkat(unpacking->dir, unpacking->temporary, 0);
    return -1;
}

static int make_file(struct unpacking *unpacking)
{
    unpacking->fd = openat(unpacking->dir, unpacking->temporary,
                           O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    return unpacking->fd < 0 ? -1 : 0;
}

static void begin_member(struct unpacking *unpacking)
{
    const struct tar_member *member = &unpacking->tar.member;
    const char *problem = find_problem(unpacking, member);
    int result;

    if (problem && member->type == TAR_DIRECTORY &&
        strspn(member->path, "./") == strlen(member->path))
        return; /* the directory itself */
    if (problem) {
        refuse(unpacking, problem);
        return;
    }
    snprintf(unpacking->temporary, sizeof(unpacking->temporary), ".sandglass-%d-%u", getpid(),
             ++unpacking->made);
    unpacking->dir = open_parent(unpacking);
    if (unpacking->dir < 0)
        result = -1;
    else if (member->type == TAR_FILE)
        result = make_file(unpacking);
    else if (member->type == TAR_LINK)
        result = make_link(unpacking, member);
    else
        result = make_directory(unpacking, member);
    if (result < 0)
        refuse(unpacking, strerror(errno));
    if (result < 0 || member->type != TAR_FILE)
        forget(unpacking, false);
}

static int take_content(struct unpacking *unpacking, const char *data, size_t length)
{
    if (unpacking->fd < 0 || fd_write_all(unpacking->fd, data, length) == 0)
        return 0;
    cli_note("%s: %s", unpacking->path, strerror(errno));
    return -1;
}

static void end_member(struct unpacking *unpacking)
{
    const struct tar_member *member = &unpacking->tar.member;
    struct timespec times[2] = { { .tv_nsec = UTIME_OMIT }, { .tv_sec = member->modified_s } };

    if (unpacking->fd < 0)
        return;
    (void)fchmod(unpacking->fd, member->mode & 0777);
    (void)futimens(unpacking->fd, times);
    if (renameat(unpacking->dir, unpacking->temporary, unpacking->dir, unpacking->name) == 0) {
        forget(unpacking, false);
        return;
    }
    refuse(unpacking, strerror(errno));
    forget(unpacking, true);
}

/* 1 at the end of the archive, -1 when it cannot go on. */
static int take_input(struct unpacking *unpacking, const char *data, size_t length)
{
    for (size_t at = 0;;) {
        const void *piece = NULL;
        size_t piece_length = 0, used = 0;
        enum tar_event event =
            tar_parser_feed(&unpacking->tar, data + at, length - at, &used, &piece, &piece_length);

        at += used;
        switch (event) {
        case TAR_NEED_MORE:
            return 0;
        case TAR_MEMBER:
            begin_member(unpacking);
            break;
        case TAR_DATA:
            if (take_content(unpacking, piece, piece_length) < 0)
                return -1;
            break;
        case TAR_MEMBER_END:
            end_member(unpacking);
            break;
        case TAR_END:
            return 1;
        case TAR_BAD:
            cli_note("the archive is damaged: %s", unpacking->tar.problem);
            return -1;
        }
    }
}

int tree_unpack(const char *path, int in)
{
    static struct unpacking unpacking = { .dir = -1, .fd = -1 };
    static char input[256 * 1024];
    ssize_t count;
    int result = 0;

    unpacking.base = open(path, O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (unpacking.base < 0) {
        cli_note("%s: %s", path, strerror(errno));
        return -1;
    }
    tar_parser_init(&unpacking.tar);
    while ((count = read(in, input, sizeof(input))) > 0 || (count < 0 && errno == EINTR)) {
        if (count > 0 && result == 0)
            result = take_input(&unpacking, input, (size_t)count);
        if (result < 0)
            break;
    }
    if (result == 0 && !tar_parser_is_between(&unpacking.tar))
        result = -1;
    forget(&unpacking, true);
    fd_close(unpacking.base);
    return result < 0 ? -1 : 0;
}
