/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A daemon of one's own for commands that find none running. The child holds the read end of a
 * pipe, the leash: when it reads the end of file, because we closed our end or died, it ends
 * everything and goes.
 */

#include "daemon/daemon.h"

#include "base/alloc.h"
#include "base/str.h"

#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

enum { MAX_SETTINGS = 24, REMOVE_TRIES = 10 };

static const char socket_name[] = "/run/sandglass.sock";

static int remove_entry(const char *path, const struct stat *status UNUSED, int kind UNUSED,
                        struct FTW *position UNUSED)
{
    (void)remove(path); /* a failure must not end the walk */
    return 0;
}

/* Only our own records and sockets are below: sandboxes were destroyed by the daemon. Its launcher
 * may still be removing some of them at the same time, which ends a walk. */
static void remove_tree(const char *path)
{
    for (unsigned tries = 0; tries < REMOVE_TRIES && access(path, F_OK) == 0; tries++)
        (void)nftw(path, remove_entry, 16, FTW_DEPTH | FTW_PHYS | FTW_MOUNT);
}

static char *temporary_directory(struct error *err)
{
    const char *wanted = getenv("TMPDIR");
    const char *base = str_is_empty(wanted) ? "/tmp" : wanted;
    scoped(free) char *absolute = realpath(base, NULL);
    scoped(free) char *path = path_join(absolute ? absolute : base, "sandglass.XXXXXX");

    if (strlen(path) + strlen(socket_name) >= sizeof(((struct sockaddr_un *)0)->sun_path)) {
        error_set(err, ERR_INVALID, "the path of a socket in %s is too long", base);
        error_hint(err, "set TMPDIR to a directory with a shorter path");
        return NULL;
    }
    if (!mkdtemp(path)) {
        error_sys(err, "create %s", path);
        error_hint(err, "set TMPDIR to a writable directory");
        return NULL;
    }

    /* The daemon drops root: it has to be able to pass through to what it owns below. */
    if (chmod(path, 0711) < 0) {
        error_sys(err, "open up %s", path);
        (void)rmdir(path);
        return NULL;
    }
    return steal_ptr(&path);
}

/* The settings given, and those that make it private. */
static void collect_settings(struct daemon_setting rows[MAX_SETTINGS],
                             const struct daemon_setting *given, const char *state_dir,
                             const char *instance)
{
    size_t used = 0;

    rows[used++] = (struct daemon_setting){ "state_dir", state_dir };
    rows[used++] = (struct daemon_setting){ "instance", instance };
    rows[used++] = (struct daemon_setting){ "shutdown.policy", "destroy" };
    rows[used++] = (struct daemon_setting){ "store.kind", "sqlite" };
    rows[used++] = (struct daemon_setting){ "store.sync", "off" };
    rows[used++] = (struct daemon_setting){ "node.address", "" };
    rows[used++] = (struct daemon_setting){ "pool.size", "0" };
    rows[used++] = (struct daemon_setting){ "log.level", "error" };
    rows[used++] = (struct daemon_setting){ "auth.mode", "none" };
    rows[used++] = (struct daemon_setting){ "tls.certificate", "" };
    rows[used++] = (struct daemon_setting){ "tls.key", "" };
    rows[used++] = (struct daemon_setting){ "audit.enabled", "false" };
    for (; given && given->key && used < MAX_SETTINGS - 1; given++)
        rows[used++] = *given;
    rows[used] = (struct daemon_setting){ 0 };
}

static int run_daemon(const struct private_daemon *daemon, const struct daemon_setting *given,
                      const struct config_mounts *mounts, int ready_fd, int leash_fd)
{
    scoped(free) char *state_dir = path_join(daemon->directory, "state");
    scoped(free) char *instance = xasprintf("private-%d", (int)getpid());
    const char *listen[] = { daemon->url, NULL };
    struct daemon_setting settings[MAX_SETTINGS];
    struct daemon_options options = {
        .listen = listen,
        .settings = settings,
        .mounts = mounts,
        .ready_fd = ready_fd,
        .leash_fd = leash_fd,
    };

    collect_settings(settings, given, state_dir, instance);
    return daemon_main(&options);
}

/* The guardian keeps the rights that the daemon gives up, so that it can remove the directory after
 * it, also when the command that wanted it has been killed. */
static _Noreturn void run_guardian(const struct private_daemon *daemon,
                                   const struct daemon_setting *given,
                                   const struct config_mounts *mounts, int ready_fd, int leash_fd)
{
    int status = 0;
    pid_t pid;

    /* Signals of the terminal are for the command, which tells us by the leash. */
    setsid();
    pid = fork();
    if (pid == 0)
        _exit(run_daemon(daemon, given, mounts, ready_fd, leash_fd));
    close(ready_fd);
    close(leash_fd);
    if (pid > 0)
        while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
            continue;
    remove_tree(daemon->directory);
    _exit(pid > 0 && WIFEXITED(status) ? WEXITSTATUS(status) : EXIT_FAILURE);
}

/* The child writes a line when it serves; the end of file before that means that it failed. */
static int await_ready(int ready_fd, struct error *err)
{
    char line[256];
    ssize_t got;

    do
        got = read(ready_fd, line, sizeof(line));
    while (got < 0 && errno == EINTR);
    if (got <= 0)
        return error_set(err, ERR_UNAVAILABLE, DAEMON_PRIVATE_FAILED);
    return 0;
}

int daemon_start_private(struct private_daemon *daemon, const struct daemon_setting *settings,
                         struct error *err)
{
    return daemon_start_sharing(daemon, settings, NULL, err);
}

int daemon_start_sharing(struct private_daemon *daemon, const struct daemon_setting *settings,
                         const struct config_mounts *mounts, struct error *err)
{
    int ready[2] = { -1, -1 };
    int leash[2] = { -1, -1 };
    int result;

    *daemon = (struct private_daemon){ .leash_fd = -1 };
    daemon->directory = temporary_directory(err);
    if (!daemon->directory)
        return -1;
    daemon->url = xasprintf("unix:%s%s", daemon->directory, socket_name);
    if (pipe2(ready, O_CLOEXEC) < 0 || pipe2(leash, O_CLOEXEC) < 0) {
        error_sys(err, "create a pipe");
        fd_close(ready[0]);
        fd_close(ready[1]);
        daemon_stop_private(daemon);
        return -1;
    }
    daemon->leash_fd = leash[1];
    daemon->pid = fork();
    if (daemon->pid == 0) {
        close(ready[0]);
        close(leash[1]);
        run_guardian(daemon, settings, mounts, ready[1], leash[0]);
    }
    close(ready[1]);
    close(leash[0]);
    result = daemon->pid < 0 ? error_sys(err, "start a private daemon")
                             : await_ready(ready[0], err);
    close(ready[0]);
    if (result < 0)
        daemon_stop_private(daemon);
    return result;
}

void daemon_stop_private(struct private_daemon *daemon)
{
    if (!daemon->directory)
        return;
    fd_close(daemon->leash_fd);
    if (daemon->pid > 0)
        while (waitpid(daemon->pid, NULL, 0) < 0 && errno == EINTR)
            continue;
    else
        remove_tree(daemon->directory);
    free(daemon->directory);
    free(daemon->url);
    *daemon = (struct private_daemon){ .leash_fd = -1 };
}
