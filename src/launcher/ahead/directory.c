/* SPDX-License-Identifier: Apache-2.0 */
#include "launcher/ahead/directory.h"

#include "launcher/remove_tree.h"
#include "launcher/sys.h"

#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

enum { NO_REPLACE = 1, BACKLOG = 16 };

/* Init admits the user that called listen(): the daemon's. */
static int listen_as(int socket, uid_t uid)
{
    int result;

    if (uid && seteuid(uid) < 0)
        return -1;
    result = listen(socket, BACKLOG);
    if (uid && seteuid(0) < 0)
        return -1;
    return result;
}

/* In the directory, which is the working directory for the moment: its path may be too long. Init
 * speaks in packets, a relay in a stream. */
static int listen_here(const struct context *context, struct directory *directory)
{
    struct sockaddr_un address = { .sun_family = AF_UNIX, .sun_path = "init.sock" };
    const struct launch_setup *setup = &context->setup;
    int type = setup->flags & LAUNCH_SETUP_RELAY ? SOCK_STREAM : SOCK_SEQPACKET;

    directory->socket = socket(AF_UNIX, type | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (directory->socket < 0 ||
        bind(directory->socket, (struct sockaddr *)&address, sizeof(address)) < 0 ||
        fchmodat(directory->dir, "init.sock", 0600, 0) < 0)
        return -1;
    if (context->root && fchownat(directory->dir, "init.sock", setup->daemon_uid, setup->daemon_gid,
                                  AT_SYMLINK_NOFOLLOW) < 0)
        return -1;
    return listen_as(directory->socket, context->root ? setup->daemon_uid : 0);
}

static int fill(const struct context *context, struct directory *directory, struct fail *fail)
{
    int result;

    directory->dir =
        sys_open_beneath(context->state.ahead, directory->name, O_RDONLY | O_DIRECTORY);
    /* The daemon, which is another user, passes through to the socket of init. */
    if (directory->dir < 0 || fchmod(directory->dir, 0711) < 0)
        return fail_sys(fail, "open sandbox directory");
    directory->mark =
        openat(directory->dir, "mark", O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (directory->mark < 0)
        return fail_sys(fail, "make mark");
    if (fchdir(directory->dir) < 0)
        return fail_sys(fail, "enter sandbox directory");
    result = listen_here(context, directory);
    if (result < 0)
        fail_sys(fail, "listen for init");
    (void)!chdir("/");
    return result;
}

static void set_name(const struct context *context, struct directory *directory, unsigned number)
{
    snprintf(directory->name, sizeof(directory->name), "%d-%u", context->pid, number);
}

int directory_make(const struct context *context, struct directory *directory, unsigned number,
                   struct fail *fail)
{
    *directory = (struct directory)DIRECTORY_NONE;
    set_name(context, directory, number);
    if (mkdirat(context->state.ahead, directory->name, 0711) < 0) {
        directory->name[0] = '\0';
        return fail_sys(fail, "make sandbox directory");
    }
    if (fill(context, directory, fail) < 0) {
        directory_drop(context, directory);
        return -1;
    }
    return 0;
}

int directory_rename(const struct context *context, struct directory *directory, const char *id,
                     struct fail *fail)
{
    const struct state *state = &context->state;

    if (syscall(SYS_renameat2, state->ahead, directory->name, state->sandboxes, id, NO_REPLACE) < 0)
        return fail_sys(fail, "name sandbox directory");
    directory->name[0] = '\0';
    return 0;
}

/* Connections that the last init did not accept are not for the next one: the socket has no path
 * any more by which others could come. A directory that is about to get an id must not have a
 * mark with another. */
int directory_renew(struct directory *directory, struct fail *fail)
{
    int fd;

    while ((fd = accept4(directory->socket, NULL, NULL, SOCK_CLOEXEC)) >= 0)
        close(fd);
    if (errno != EAGAIN)
        return fail_sys(fail, "empty the socket of init");
    return mark_clear(directory->mark) < 0 ? fail_sys(fail, "clear mark") : 0;
}

int directory_take_back(const struct context *context, struct directory *directory, const char *id,
                        unsigned number)
{
    const struct state *state = &context->state;

    set_name(context, directory, number);
    if (syscall(SYS_renameat2, state->sandboxes, id, state->ahead, directory->name, NO_REPLACE) ==
        0)
        return 0;
    directory->name[0] = '\0';
    return -1;
}

void directory_close(struct directory *directory)
{
    int *fds[] = { &directory->dir, &directory->mark, &directory->socket };

    for (size_t i = 0; i < sizeof(fds) / sizeof(fds[0]); i++) {
        if (*fds[i] >= 0)
            close(*fds[i]);
        *fds[i] = -1;
    }
}

void directory_drop(const struct context *context, struct directory *directory)
{
    int ahead = context->state.ahead;
    int dir;

    directory_close(directory);
    if (!*directory->name)
        return;
    dir = sys_open_beneath(ahead, directory->name, O_RDONLY | O_DIRECTORY);
    if (dir >= 0) {
        (void)unlinkat(dir, "init.sock", 0);
        (void)unlinkat(dir, "mark", 0);
        close(dir);
    }
    (void)unlinkat(ahead, directory->name, AT_REMOVEDIR);
    directory->name[0] = '\0';
}

void directory_drop_ahead(const struct context *context, unsigned number)
{
    struct directory directory = DIRECTORY_NONE;

    set_name(context, &directory, number);
    directory_drop(context, &directory);
}

int directories_lock(const struct context *context, int how)
{
    int fd = openat(context->state.ahead, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);

    if (fd >= 0 && flock(fd, how | LOCK_NB) < 0) {
        close(fd);
        return -1;
    }
    return fd;
}

void directories_sweep(const struct context *context)
{
    (void)remove_content(context->state.ahead);
}
