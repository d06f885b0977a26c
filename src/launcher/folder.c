#include "launcher/folder.h"

#include "launcher/destroy.h"
#include "launcher/launcher.h"
#include "launcher/sys.h"

#include <stdio.h>
#include <string.h>
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

int folder_make(struct launcher *launcher, struct folder *folder, unsigned number,
                struct fail *fail)
{
    *folder = (struct folder)FOLDER_NONE;
    snprintf(folder->name, sizeof(folder->name), "%d-%u", launcher->pid, number);
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

static void remove_folder(struct launcher *launcher, const char *name)
{
    int dir = sys_open_beneath(launcher->state.ahead, name, O_RDONLY | O_DIRECTORY);

    if (dir >= 0) {
        (void)unlinkat(dir, "init.sock", 0);
        (void)unlinkat(dir, "mark", 0);
        close(dir);
    }
    (void)unlinkat(launcher->state.ahead, name, AT_REMOVEDIR);
}

void folder_drop(struct launcher *launcher, struct folder *folder)
{
    int fds[] = { folder->dir, folder->mark, folder->socket };

    for (size_t i = 0; i < sizeof(fds) / sizeof(fds[0]); i++) {
        if (fds[i] >= 0)
            close(fds[i]);
    }
    if (*folder->name)
        remove_folder(launcher, folder->name);
    *folder = (struct folder)FOLDER_NONE;
}

void folders_sweep(struct launcher *launcher)
{
    (void)remove_content(launcher->state.ahead);
}
