/* SPDX-License-Identifier: Apache-2.0 */
#include "store/lock.h"

#include "base/clock.h"
#include "base/scoped.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#define LOCK_NAME "lock"

enum { RELEASE_TIMEOUT_MS = 5000, RELEASE_LOOK_MS = 10 };

struct holder {
    char pid[24];
    char host[HOST_NAME_MAX + 1];
    char since[CLOCK_TEXT_SIZE];
};

static void describe_dir(int dir_fd, char path[PATH_MAX])
{
    char link[64];
    ssize_t length;

    snprintf(link, sizeof(link), "/proc/self/fd/%d", dir_fd);
    length = readlink(link, path, PATH_MAX - 1);
    if (length < 0)
        length = snprintf(path, PATH_MAX, "(unknown)");
    path[length] = '\0';
}

static bool read_holder(int fd, struct holder *holder)
{
    char text[512];
    ssize_t length = pread(fd, text, sizeof(text) - 1, 0);

    if (length <= 0)
        return false;
    text[length] = '\0';
    return sscanf(text, "pid %23s\nhost %64s\nsince %31s", holder->pid, holder->host,
                  holder->since) == 3;
}

/* Whether the process is exiting or a zombie. Its last thread closes the lock's file, and a zombie
 * stays as long as its parent does not reap it. */
static bool is_ending(pid_t pid)
{
    const unsigned exiting = 0x4; /* PF_EXITING */
    char path[32];
    char text[512];
    scoped(fd_close) int fd = -1;
    const char *name_end;
    unsigned flags;
    ssize_t length;
    char state;

    snprintf(path, sizeof(path), "/proc/%d/stat", (int)pid);
    fd = open(path, O_RDONLY | O_CLOEXEC);
    length = fd < 0 ? -1 : read(fd, text, sizeof(text) - 1);
    if (length <= 0)
        return false;
    text[length] = '\0';
    name_end = strrchr(text, ')');
    return name_end && sscanf(name_end + 1, " %c %*d %*d %*d %*d %*d %u", &state, &flags) == 2 &&
           (state == 'Z' || state == 'X' || (flags & exiting));
}

/* A child that a killed daemon was starting lets go of the lock at its exec. */
static bool may_be_released(int fd)
{
    struct holder holder;
    pid_t pid = read_holder(fd, &holder) ? atoi(holder.pid) : 0;

    return pid > 0 && ((kill(pid, 0) < 0 && errno == ESRCH) || is_ending(pid));
}

static int refuse_taken(int dir_fd, int fd, struct error *err)
{
    struct holder holder;
    char path[PATH_MAX];

    describe_dir(dir_fd, path);
    if (read_holder(fd, &holder))
        error_named(err, ERR_CONFLICT, "state_in_use",
                    "state directory %.300s is in use by pid %s on %s since %s", path, holder.pid,
                    holder.host, holder.since);
    else
        error_named(err, ERR_CONFLICT, "state_in_use",
                    "state directory %.300s is in use by another process", path);
    return error_hint(err, "stop that daemon, or give this one another --state directory");
}

/* A full disk is no reason to refuse the lock: the text is for people. */
static void write_holder(int fd)
{
    char host[HOST_NAME_MAX + 1] = "localhost";
    char since[CLOCK_TEXT_SIZE];
    char text[256];
    int length;

    (void)gethostname(host, sizeof(host) - 1);
    clock_format(clock_wall_us(&clock_system), since);
    length =
        snprintf(text, sizeof(text), "pid %d\nhost %s\nsince %s\n", (int)getpid(), host, since);
    (void)!ftruncate(fd, 0);
    (void)!pwrite(fd, text, (size_t)length, 0);
}

/* Whether the locked file still has its name: another process may have removed it between open and
 * lock. */
static bool is_current(int dir_fd, int fd)
{
    struct stat held;
    struct stat named;

    return fstat(fd, &held) == 0 && fstatat(dir_fd, LOCK_NAME, &named, AT_SYMLINK_NOFOLLOW) == 0 &&
           held.st_dev == named.st_dev && held.st_ino == named.st_ino;
}

int store_lock(int state_dir_fd, struct error *err)
{
    for (int waited_ms = 0;; waited_ms += RELEASE_LOOK_MS) {
        scoped(fd_close) int fd = openat(
            state_dir_fd, LOCK_NAME, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NOCTTY, 0600);
        char path[PATH_MAX];

        describe_dir(state_dir_fd, path);
        if (fd < 0)
            return error_sys(err, "open the lock file in %.300s", path);
        if (flock(fd, LOCK_EX | LOCK_NB) < 0) {
            bool is_taken = errno == EWOULDBLOCK;

            if (is_taken && waited_ms < RELEASE_TIMEOUT_MS && may_be_released(fd)) {
                (void)poll(NULL, 0, RELEASE_LOOK_MS);
                continue;
            }
            if (is_taken)
                return refuse_taken(state_dir_fd, fd, err);
            if (errno == EINTR)
                continue;
            return error_sys(err, "lock %.300s/" LOCK_NAME, path);
        }
        if (!is_current(state_dir_fd, fd))
            continue;
        write_holder(fd);
        return steal_fd(&fd);
    }
}

void store_unlock(int lock_fd)
{
    if (lock_fd < 0)
        return;
    (void)!ftruncate(lock_fd, 0);
    close(lock_fd);
}
