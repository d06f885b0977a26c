#include "launcher/ahead/directory.h"

#include "launcher/launcher.h"
#include "launcher/sys.h"
#include "launcher/teardown/destroy.h"

#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

enum { NO_REPLACE = 1, BACKLOG = 16 };

/* Init admits whoever it was that listened: the daemon. */
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

/* In the folder, which is the working directory for the moment: its path may be too long. */
static int listen_here(const struct launcher *launcher, struct folder *folder)
{
    struct sockaddr_un address = { .sun_family = AF_UNIX, .sun_path = "init.sock" };
    const struct launch_setup *setup = &launcher->setup;

    folder->socket = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (folder->socket < 0 ||
        bind(folder->socket, (struct sockaddr *)&address, sizeof(address)) < 0 ||
        fchmodat(folder->dir, "init.sock", 0600, 0) < 0)
        return -1;
    if (launcher->root && fchownat(folder->dir, "init.sock", setup->daemon_uid, setup->daemon_gid,
                                   AT_SYMLINK_NOFOLLOW) < 0)
        return -1;
    return listen_as(folder->socket, launcher->root ? setup->daemon_uid : 0);
}

static int fill(struct launcher *launcher, struct folder *folder, struct fail *fail)
{
    int result;

    folder->dir = sys_open_beneath(launcher->state.ahead, folder->name, O_RDONLY | O_DIRECTORY);
    /* The daemon, who is somebody else, passes through to the socket of init. */
    if (folder->dir < 0 || fchmod(folder->dir, 0711) < 0)
        return fail_sys(fail, "open sandbox folder");
    folder->mark =
        openat(folder->dir, "mark", O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (folder->mark < 0)
        return fail_sys(fail, "make mark");
    if (fchdir(folder->dir) < 0)
        return fail_sys(fail, "enter sandbox folder");
    result = listen_here(launcher, folder);
    if (result < 0)
        fail_sys(fail, "listen for init");
    (void)!chdir("/");
    return result;
}

static void set_name(const struct launcher *launcher, struct folder *folder, unsigned number)
{
    snprintf(folder->name, sizeof(folder->name), "%d-%u", launcher->pid, number);
}

int folder_make(struct launcher *launcher, struct folder *folder, unsigned number,
                struct fail *fail)
{
    *folder = (struct folder)FOLDER_NONE;
    set_name(launcher, folder, number);
    if (mkdirat(launcher->state.ahead, folder->name, 0711) < 0) {
        folder->name[0] = '\0';
        return fail_sys(fail, "make sandbox folder");
    }
    if (fill(launcher, folder, fail) < 0) {
        folder_drop(launcher, folder);
        return -1;
    }
    return 0;
}

int folder_rename(struct launcher *launcher, struct folder *folder, const char *id,
                  struct fail *fail)
{
    const struct state *state = &launcher->state;

    if (syscall(SYS_renameat2, state->ahead, folder->name, state->sandboxes, id, NO_REPLACE) < 0)
        return fail_sys(fail, "name sandbox folder");
    folder->name[0] = '\0';
    return 0;
}

/* Connections that its last init did not take are not for the next one: nobody reaches the socket
 * by its path any more. The mark of a folder that is about to get an id must not tell another. */
int folder_renew(struct folder *folder, struct fail *fail)
{
    int fd;

    while ((fd = accept4(folder->socket, NULL, NULL, SOCK_CLOEXEC)) >= 0)
        close(fd);
    if (errno != EAGAIN)
        return fail_sys(fail, "empty the socket of init");
    return mark_clear(folder->mark) < 0 ? fail_sys(fail, "clear mark") : 0;
}

int folder_take_back(struct launcher *launcher, struct folder *folder, const char *id,
                     unsigned number)
{
    const struct state *state = &launcher->state;

    set_name(launcher, folder, number);
    if (syscall(SYS_renameat2, state->sandboxes, id, state->ahead, folder->name, NO_REPLACE) == 0)
        return 0;
    folder->name[0] = '\0';
    return -1;
}

void folder_close(struct folder *folder)
{
    int *fds[] = { &folder->dir, &folder->mark, &folder->socket };

    for (size_t i = 0; i < sizeof(fds) / sizeof(fds[0]); i++) {
        if (*fds[i] >= 0)
            close(*fds[i]);
        *fds[i] = -1;
    }
}

void folder_drop(struct launcher *launcher, struct folder *folder)
{
    int ahead = launcher->state.ahead;
    int dir;

    folder_close(folder);
    if (!*folder->name)
        return;
    dir = sys_open_beneath(ahead, folder->name, O_RDONLY | O_DIRECTORY);
    if (dir >= 0) {
        (void)unlinkat(dir, "init.sock", 0);
        (void)unlinkat(dir, "mark", 0);
        close(dir);
    }
    (void)unlinkat(ahead, folder->name, AT_REMOVEDIR);
    folder->name[0] = '\0';
}

void folder_drop_ahead(struct launcher *launcher, unsigned number)
{
    struct folder folder = FOLDER_NONE;

    set_name(launcher, &folder, number);
    folder_drop(launcher, &folder);
}

int folders_lock(const struct launcher *launcher, int how)
{
    int fd = openat(launcher->state.ahead, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);

    if (fd >= 0 && flock(fd, how | LOCK_NB) < 0) {
        close(fd);
        return -1;
    }
    return fd;
}

void folders_sweep(struct launcher *launcher)
{
    (void)remove_content(launcher->state.ahead);
}
