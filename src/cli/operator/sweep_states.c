/* SPDX-License-Identifier: Apache-2.0 */
#include "backend/launcher_sweep.h"
#include "base/alloc.h"
#include "base/id.h"
#include "base/scoped.h"
#include "base/str.h"
#include "cli/operator/sweep.h"
#include "wire/mark.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define PRIVATE_PREFIX "sandglass."

/* --- removing trees -------------------------------------------------------------------------- */

enum { TREE_DEPTH = 256 };

static int remove_tree(int parent, const char *name, dev_t device, int depth)
{
    int fd = openat(parent, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    DIR *stream = fd < 0 ? NULL : fdopendir(fd);
    struct dirent *entry;
    struct stat status;

    if (!stream) {
        fd_close(fd);
        return unlinkat(parent, name, 0);
    }
    if (fstat(fd, &status) < 0 || status.st_dev != device || depth > TREE_DEPTH) {
        closedir(stream);
        errno = EXDEV;
        return -1;
    }
    (void)fchmod(fd, 0700);
    while ((entry = readdir(stream))) {
        if (!str_equal(entry->d_name, ".") && !str_equal(entry->d_name, ".."))
            (void)remove_tree(fd, entry->d_name, device, depth + 1);
    }
    closedir(stream);
    return unlinkat(parent, name, AT_REMOVEDIR);
}

int sweep_remove_tree(int parent, const char *name)
{
    struct stat status;

    if (fstat(parent, &status) < 0)
        return -1;
    return remove_tree(parent, name, status.st_dev, 0);
}

/* --- one sandbox ----------------------------------------------------------------------------- */

/* No other user can have made it, or put another in its place. */
static bool is_own(int fd, mode_t type)
{
    struct stat status;

    return fstat(fd, &status) == 0 && (status.st_mode & S_IFMT) == type &&
           status.st_uid == geteuid() && !(status.st_mode & (S_IWGRP | S_IWOTH)) &&
           (type == S_IFDIR || status.st_nlink == 1);
}

static bool read_mark(int sandboxes, const char *id, struct mark *out_mark)
{
    scoped(fd_close) int dir =
        openat(sandboxes, id, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    scoped(fd_close) int fd =
        dir < 0 ? -1 : openat(dir, "mark", O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);

    *out_mark = (struct mark){ 0 };
    return fd >= 0 && is_own(dir, S_IFDIR) && is_own(fd, S_IFREG) &&
           read(fd, out_mark, sizeof(*out_mark)) == sizeof(*out_mark) &&
           out_mark->magic == MARK_MAGIC && out_mark->version == MARK_VERSION &&
           memchr(out_mark->instance, '\0', sizeof(out_mark->instance)) &&
           strncmp(out_mark->id, id, sizeof(out_mark->id)) == 0;
}

/* Marks in one directory may be of several instances: its name is a setting. */
static int remove_sandbox(struct launcher_sweep *launcher, const char *state,
                          const struct mark *mark, struct error *err)
{
    if (launcher->socket >= 0 && !str_equal(launcher->instance, mark->instance))
        launcher_sweep_stop(launcher);
    if (launcher->socket < 0 && launcher_sweep_start(launcher, state, mark->instance, err) < 0)
        return -1;
    return launcher_sweep_destroy(launcher, mark->id, err);
}

static void sweep_sandbox(struct sweep *sweep, struct launcher_sweep *launcher, const char *state,
                          int sandboxes, const char *id, int64_t age_s)
{
    struct sweep_item item = { "sandbox", id, "", state };
    struct error err = { 0 };
    struct mark mark;

    if (!read_mark(sandboxes, id, &mark)) {
        sweep_report(sweep, &item, SWEEP_SKIPPED, "it has no mark of ours");
        return;
    }
    item.instance = mark.instance;
    if (process_is_stranger(mark.pid, mark.start_time))
        sweep_report(sweep, &item, SWEEP_SKIPPED, "the process that its mark names is no sandbox");
    else if (sweep_may_remove(sweep, &item, age_s))
        sweep_report_result(sweep, &item, remove_sandbox(launcher, state, &mark, &err), &err);
}

/* --- one state directory --------------------------------------------------------------------- */

/* When its daemon died: it has not written since. */
static int64_t idle_seconds(int state)
{
    static const char *const written[] = { "lock", "sandglass.db", "sandglass.db-wal" };
    struct stat status;
    int64_t newest = 0;

    for (size_t i = 0; i < ARRAY_LENGTH(written); i++)
        if (fstatat(state, written[i], &status, AT_SYMLINK_NOFOLLOW) == 0)
            newest = MAX(newest, (int64_t)status.st_mtim.tv_sec);
    return (int64_t)time(NULL) - newest;
}

static bool launcher_lives(int state)
{
    struct flock whole = { .l_type = F_WRLCK, .l_whence = SEEK_SET };
    scoped(fd_close) int fd = openat(state, "launcher.lock", O_RDWR | O_NOFOLLOW | O_CLOEXEC);

    return fd >= 0 && fcntl(fd, F_GETLK, &whole) == 0 && whole.l_type != F_UNLCK;
}

static void sweep_sandboxes(struct sweep *sweep, const char *path, int sandboxes, int64_t age_s)
{
    int copy = openat(sandboxes, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *stream = copy < 0 ? NULL : fdopendir(copy);
    struct launcher_sweep launcher = LAUNCHER_SWEEP_INIT;
    struct dirent *entry;

    while (stream && (entry = readdir(stream))) {
        if (id_is_valid(entry->d_name, ID_SANDBOX) && !sweep_has_seen(sweep, entry->d_name))
            sweep_sandbox(sweep, &launcher, path, sandboxes, entry->d_name, age_s);
    }
    if (stream)
        closedir(stream);
    launcher_sweep_stop(&launcher);
}

/* The sandboxes of a living daemon: their cgroups are not to be looked at. */
static void note_sandboxes(struct sweep *sweep, int sandboxes)
{
    int copy = openat(sandboxes, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *stream = copy < 0 ? NULL : fdopendir(copy);
    struct dirent *entry;

    while (stream && (entry = readdir(stream)))
        buffer_appendf(&sweep->seen, "\n%s\n", entry->d_name);
    if (stream)
        closedir(stream);
}

/* The lock of the daemon (see store/lock.h): while we hold it, none starts. -1 when one lives, or
 * it is not ours to see. Nothing is written to it: its time says when the last daemon died. */
static int lock_state(int state)
{
    scoped(fd_close) int fd = openat(state, "lock", O_RDONLY | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK);

    if (fd < 0 || flock(fd, LOCK_EX | LOCK_NB) < 0 || launcher_lives(state))
        return -1;
    return steal_fd(&fd);
}

enum state_condition sweep_find_state(const char *path, int *out_lock, int64_t *out_age_s)
{
    scoped(fd_close) int state = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

    if (state < 0 || faccessat(state, "lock", R_OK, AT_EACCESS) < 0)
        return errno == ENOENT || errno == ENOTDIR ? STATE_GONE : STATE_UNKNOWN;
    *out_age_s = idle_seconds(state);
    *out_lock = lock_state(state);
    return *out_lock < 0 ? STATE_SERVED : STATE_DEAD;
}

/* It is named, so that an operator looks at it. */
static void refuse_state(struct sweep *sweep, const char *path)
{
    struct sweep_item item = { "directory", "sandboxes", "", path };

    sweep_report(sweep, &item, SWEEP_SKIPPED,
                 "it belongs to another user: run sweep as that user, or remove it by hand");
}

void sweep_state(struct sweep *sweep, const char *path)
{
    scoped(fd_close) int state = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    scoped(fd_close) int sandboxes =
        state < 0 ? -1
                  : openat(state, "sandboxes", O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    int64_t age_s = state < 0 ? 0 : idle_seconds(state);
    scoped(fd_close) int lock = -1;

    if (sandboxes < 0)
        return;
    if (!is_own(sandboxes, S_IFDIR)) {
        refuse_state(sweep, path);
        return;
    }
    lock = lock_state(state);
    if (lock < 0)
        note_sandboxes(sweep, sandboxes);
    else
        sweep_sandboxes(sweep, path, sandboxes, age_s);
}

/* --- private daemons ------------------------------------------------------------------------- */

/* sandglass.XXXXXX with nothing in it but what a private daemon makes, and with its lock. */
static bool is_private(int base, const char *name, int *out_dir)
{
    scoped(fd_close) int dir = openat(base, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    int copy = dir < 0 ? -1 : openat(dir, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *stream = copy < 0 ? NULL : fdopendir(copy);
    struct dirent *entry;
    struct stat status;
    bool plain = stream != NULL;

    while (plain && (entry = readdir(stream)))
        plain = entry->d_name[0] == '.' || str_equal(entry->d_name, "state") ||
                str_equal(entry->d_name, "run");
    if (stream)
        closedir(stream);
    if (!plain || fstat(dir, &status) < 0 || status.st_uid != geteuid() ||
        fstatat(dir, "state/lock", &status, AT_SYMLINK_NOFOLLOW) < 0)
        return false;
    *out_dir = steal_fd(&dir);
    return true;
}

static bool has_private_name(const char *name)
{
    size_t length = strlen(PRIVATE_PREFIX);

    if (!str_starts_with(name, PRIVATE_PREFIX) || strlen(name) != length + 6)
        return false;
    for (const char *at = name + length; *at; at++)
        if (!isalnum((unsigned char)*at))
            return false;
    return true;
}

static bool has_sandboxes(int state)
{
    scoped(fd_close) int fd = openat(state, "sandboxes", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    struct stat status;

    return fd >= 0 && fstat(fd, &status) == 0 && status.st_nlink > 2;
}

static void remove_directory(struct sweep *sweep, const struct sweep_item *item, int base)
{
    struct error err = { 0 };
    int result = sweep_remove_tree(base, item->id);

    if (result < 0)
        error_sys(&err, "remove it");
    sweep_report_result(sweep, item, result, &err);
}

static void sweep_directory(struct sweep *sweep, const char *base, int base_fd, const char *name)
{
    scoped(free) char *path = path_join(base, name);
    scoped(free) char *state_path = path_join(path, "state");
    struct sweep_item item = { "directory", name, "", path };
    scoped(fd_close) int dir = -1;
    scoped(fd_close) int state = -1;
    scoped(fd_close) int lock = -1;
    int64_t age_s;

    if (!is_private(base_fd, name, &dir))
        return;
    state = openat(dir, "state", O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (state < 0)
        return;
    age_s = idle_seconds(state);
    sweep_state(sweep, state_path);
    lock = lock_state(state);
    if (lock < 0)
        return;
    if (has_sandboxes(state) && !sweep->dry_run)
        sweep_report(sweep, &item, SWEEP_SKIPPED, "there are sandboxes in it");
    else if (sweep_may_remove(sweep, &item, age_s))
        remove_directory(sweep, &item, base_fd);
}

void sweep_named_state(struct sweep *sweep, const char *path)
{
    scoped(free) char *copy = xstrdup(path);
    char *name;
    char *end = strrchr(copy, '/');

    if (end && str_equal(end, "/state")) {
        *end = '\0';
        name = strrchr(copy, '/');
        if (name && name > copy && has_private_name(name + 1)) {
            scoped(fd_close) int base = -1;

            *name++ = '\0';
            base = open(copy, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
            sweep_directory(sweep, copy, base, name);
            return;
        }
    }
    sweep_state(sweep, path);
}

void sweep_private(struct sweep *sweep, const char *base)
{
    DIR *stream = opendir(base);
    struct dirent *entry;

    while (stream && (entry = readdir(stream))) {
        if (has_private_name(entry->d_name))
            sweep_directory(sweep, base, dirfd(stream), entry->d_name);
    }
    if (stream)
        closedir(stream);
}

/* --- owners of user ids ---------------------------------------------------------------------- */

void sweep_leased(struct sweep *sweep)
{
    DIR *stream = opendir("/run/sandglass/uids");
    struct dirent *entry;
    char path[4096];

    while (stream && (entry = readdir(stream))) {
        scoped(fd_close) int fd =
            openat(dirfd(stream), entry->d_name, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
        ssize_t length = fd < 0 ? -1 : read(fd, path, sizeof(path) - 1);

        path[length > 0 ? length : 0] = '\0';
        if (*path == '/')
            sweep_state(sweep, path);
    }
    if (stream)
        closedir(stream);
}
