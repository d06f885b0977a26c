/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/place.h"

#include "base/alloc.h"
#include "base/log.h"
#include "base/macros.h"
#include "base/scoped.h"
#include "base/str.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

/* --- making --------------------------------------------------------------------------------- */

static int give(int fd, const char *path, unsigned mode, const struct identity *identity,
                struct error *err)
{
    if (identity->kind != IDENTITY_SELF && fchown(fd, identity->uid, identity->gid) < 0)
        return error_sys(err, "give %s to user %u", path, identity->uid);
    if (fchmod(fd, mode) < 0)
        return error_sys(err, "set the mode of %s", path);
    return 0;
}

/* Directories above get mode 0755, so that other users can pass through them. */
static int make_parents(const char *path, struct error *err)
{
    scoped(free) char *parent = xstrdup(path);
    char *slash = strrchr(parent, '/');
    mode_t before;
    int result;

    if (!slash || slash == parent)
        return 0;
    *slash = '\0';
    before = umask(022);
    result = path_make_dirs(parent, 0755, err);
    umask(before);
    return result;
}

/* Finished under another name: nothing but a whole one is ever found under its own. */
static int make_whole(const char *path, const char *unfinished, unsigned mode,
                      const struct identity *identity, struct error *err)
{
    scoped(fd_close) int dir = -1;

    (void)rmdir(unfinished); /* of a start that was killed */
    if (mkdir(unfinished, 0700) < 0)
        return error_sys(err, "create %s", path);
    dir = open(unfinished, O_DIRECTORY | O_NOFOLLOW | O_RDONLY | O_CLOEXEC);
    if (dir < 0)
        return error_sys(err, "open %s", path);
    if (give(dir, path, mode, identity, err) < 0)
        return -1;
    return rename(unfinished, path) < 0 ? error_sys(err, "create %s", path) : 0;
}

static int make_directory(const char *path, unsigned mode, const struct identity *identity,
                          struct error *err)
{
    scoped(free) char *plain = xstrdup(path);
    scoped(free) char *unfinished = NULL;

    if (access(path, F_OK) == 0)
        return 0;
    while (strlen(plain) > 1 && str_ends_with(plain, "/"))
        plain[strlen(plain) - 1] = '\0';
    unfinished = xasprintf("%s.sandglass-new", plain);
    if (make_parents(plain, err) < 0)
        return -1;
    if (make_whole(plain, unfinished, mode, identity, err) == 0)
        return 0;
    (void)rmdir(unfinished);
    if (access(path, F_OK) < 0)
        return -1;
    *err = (struct error){ 0 }; /* another process has made it at the same time */
    return 0;
}

/* As that user, whom the kernel asks: modes, lists and read-only file systems count. */
static bool may(int how, const char *path, const struct identity *identity)
{
    bool other = identity->kind != IDENTITY_SELF;
    bool result;
    int reason;

    if (other && (setegid(identity->gid) < 0 || seteuid(identity->uid) < 0))
        return false;
    result = faccessat(AT_FDCWD, path, how, AT_EACCESS) == 0;
    reason = errno;
    if (other && (seteuid(0) < 0 || setegid(0) < 0))
        abort();
    errno = reason;
    return result;
}

static bool may_write(const char *path, const struct identity *identity)
{
    return may(W_OK | X_OK, path, identity);
}

bool place_may_read(const char *path, const struct identity *identity)
{
    return may(R_OK, path, identity);
}

static int refuse(const char *path, const struct identity *identity, const char *purpose,
                  struct error *err)
{
    scoped(free) char *user = identity->kind == IDENTITY_NAMED
                                  ? xstrdup(identity->name)
                                  : xasprintf("%u", (unsigned)identity->uid);

    error_named(err, ERR_INVALID, "directory_not_writable", "user %s cannot %s in %s", user,
                purpose, path);
    return error_hint(err,
                      "choose a directory that does not exist yet, or run: chown %s %s; Sandglass "
                      "does not change directories that it has not created",
                      user, path);
}

/* A missing one is made by ourselves, in the nearest directory above that exists. */
int place_check(const char *path, const struct identity *identity, const char *purpose,
                struct error *err)
{
    const struct identity self = { .kind = IDENTITY_SELF, .uid = geteuid(), .gid = getegid() };
    scoped(free) char *part = xstrdup(path);

    if (access(path, F_OK) == 0)
        return may_write(path, identity) ? 0 : refuse(path, identity, purpose, err);
    while (access(part, F_OK) < 0 && strrchr(part, '/') > part)
        *strrchr(part, '/') = '\0';
    if (access(part, F_OK) < 0)
        strcpy(part, "/");
    return may_write(part, &self) ? 0 : refuse(part, &self, "create a directory", err);
}

/* Makes the directory, and those above it, if they are missing; the last one gets the mode and
 * belongs to the identity. Fails when the identity cannot make files in it. */
static int prepare(const char *path, unsigned mode, const struct identity *identity,
                   const char *purpose, struct error *err)
{
    if (make_directory(path, mode, identity, err) < 0)
        return -1;
    return may_write(path, identity) ? 0 : refuse(path, identity, purpose, err);
}

/* --- handing over --------------------------------------------------------------------------- */

/*
 * Started as root, the daemon may be another user than last time: the user did not exist then, or
 * the settings name another one. Only what the earlier user owns is given away, so that a link to a
 * file of another user gains nothing, and only under names that are ours.
 */
struct handover {
    const struct identity *to; /* borrowed */
    uid_t from;
    unsigned count;
};

static const char *const own_names[] = { "lock",       "output",    "kept",     "storage",
                                         "secret.key", "relay.key", "templates" };

static bool is_own_name(const char *name)
{
    if (str_starts_with(name, "sandglass.db") || str_starts_with(name, "audit.log"))
        return true;
    for (size_t i = 0; i < ARRAY_LENGTH(own_names); i++)
        if (str_equal(own_names[i], name))
            return true;
    return false;
}

/* A failure shows when the daemon cannot write there. */
static bool hand_over_descriptor(struct handover *handover, int fd)
{
    if (fchownat(fd, "", handover->to->uid, handover->to->gid, AT_EMPTY_PATH) < 0)
        return false;
    handover->count++;
    return true;
}

static void hand_over_content(struct handover *handover, int dir, bool (*wanted)(const char *name));

/* A descriptor of the very entry that was looked at: links are not followed. */
static void hand_over_entry(struct handover *handover, int dir, const char *name)
{
    scoped(fd_close) int fd = openat(dir, name, O_PATH | O_NOFOLLOW | O_CLOEXEC);
    scoped(fd_close) int content = -1;
    struct stat status;

    if (fd < 0 || fstat(fd, &status) < 0 || status.st_uid != handover->from)
        return;
    if (!S_ISREG(status.st_mode) && !S_ISDIR(status.st_mode) && !S_ISSOCK(status.st_mode))
        return;
    if (!hand_over_descriptor(handover, fd) || !S_ISDIR(status.st_mode))
        return;
    content = openat(dir, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (content >= 0)
        hand_over_content(handover, content, NULL);
}

static void hand_over_content(struct handover *handover, int dir, bool (*wanted)(const char *name))
{
    int fd = openat(dir, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *stream = fd < 0 ? NULL : fdopendir(fd);
    struct dirent *entry;

    if (!stream) {
        fd_close(fd);
        return;
    }
    while ((entry = readdir(stream)))
        if (!str_equal(entry->d_name, ".") && !str_equal(entry->d_name, "..") &&
            (!wanted || wanted(entry->d_name)))
            hand_over_entry(handover, dir, entry->d_name);
    closedir(stream);
}

/* Each sandbox's directory is the launcher's; the socket of its init is the daemon's. */
static void hand_over_sockets(struct handover *handover, int state)
{
    scoped(fd_close) int sandboxes =
        openat(state, "sandboxes", O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    int copy = sandboxes < 0 ? -1 : fcntl(sandboxes, F_DUPFD_CLOEXEC, 0);
    DIR *stream = copy < 0 ? NULL : fdopendir(copy);
    struct dirent *entry;

    while (stream && (entry = readdir(stream))) {
        scoped(fd_close) int sandbox =
            openat(sandboxes, entry->d_name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);

        if (sandbox >= 0 && entry->d_name[0] != '.')
            hand_over_entry(handover, sandbox, "init.sock");
    }
    if (stream)
        closedir(stream);
    else
        fd_close(copy);
}

/* Whom the database belongs to, or the lock where there is none yet; false without either. */
static bool find_owner(int state, uid_t *out_uid)
{
    static const char *const marks[] = { "sandglass.db", "lock" };
    struct stat status;

    for (size_t i = 0; i < ARRAY_LENGTH(marks); i++) {
        if (fstatat(state, marks[i], &status, AT_SYMLINK_NOFOLLOW) == 0 &&
            S_ISREG(status.st_mode) && status.st_nlink == 1) {
            *out_uid = status.st_uid;
            return true;
        }
    }
    return false;
}

static void hand_over_state(const char *path, int state, const struct identity *identity)
{
    struct handover handover = { .to = identity };
    struct stat status;

    if (identity->kind == IDENTITY_SELF || !find_owner(state, &handover.from) ||
        handover.from == identity->uid || fstat(state, &status) < 0)
        return;
    /* Root's files are given away only where root alone could have put them there. */
    if (handover.from == 0 && status.st_uid != 0)
        return;
    if (status.st_uid == handover.from && handover.from != 0)
        hand_over_descriptor(&handover, state);
    hand_over_content(&handover, state, is_own_name);
    hand_over_sockets(&handover, state);
    log_warn("the state of an earlier daemon was handed over", kv("directory", path),
             kv("from_uid", handover.from), kv("to_uid", identity->uid),
             kv("entries", handover.count));
}

/*
 * The directory for sockets has no file that would tell whose it is. Two things do: an id that only
 * we use, and root's records of uid ranges, which the launcher keeps there.
 */
static bool is_own_runtime(int dir, struct stat *out_status)
{
    struct stat uids;

    if (dir < 0 || fstat(dir, out_status) < 0)
        return false;
    return out_status->st_uid == IDENTITY_FALLBACK_ID ||
           (out_status->st_uid == 0 && fstatat(dir, "uids", &uids, AT_SYMLINK_NOFOLLOW) == 0 &&
            S_ISDIR(uids.st_mode) && uids.st_uid == 0);
}

/* Where root's records are the daemon may add its socket, and move nothing. */
static void share_runtime(int dir, const struct identity *identity)
{
    if (fchown(dir, 0, identity->gid) == 0)
        (void)fchmod(dir, 01775);
}

static void hand_over_runtime(const char *path, const char *socket_name,
                              const struct identity *identity)
{
    scoped(fd_close) int dir = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    struct handover handover = { .to = identity, .from = IDENTITY_FALLBACK_ID };
    struct stat status;

    if (identity->kind == IDENTITY_SELF || !is_own_runtime(dir, &status))
        return;
    if (status.st_uid == 0)
        share_runtime(dir, identity);
    else
        hand_over_descriptor(&handover, dir);
    if (identity->uid != handover.from)
        hand_over_entry(&handover, dir, socket_name);
}

/* --- the two kinds -------------------------------------------------------------------------- */

/* The contents of these directories are removed sooner or later, so they must be our own. */
static int check_is_own(const char *path, int state, struct error *err)
{
    static const char *const emptied[] = { "sandboxes", "trash", "ahead" };
    uid_t owner;

    if (find_owner(state, &owner))
        return 0;
    for (size_t i = 0; i < ARRAY_LENGTH(emptied); i++) {
        if (faccessat(state, emptied[i], F_OK, AT_SYMLINK_NOFOLLOW) < 0)
            continue;
        error_named(
            err, ERR_CONFLICT, "state_not_ours",
            "%s is not a state directory of Sandglass, and contains \"%s\", which would be emptied",
            path, emptied[i]);
        return error_hint(err, "choose an empty or a new directory with --state or state_dir");
    }
    return 0;
}

/* A daemon that runs has the lock: what is its own stays so, and who locks later says it. */
static bool is_in_use(int state)
{
    scoped(fd_close) int lock =
        openat(state, "lock", O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);

    return lock >= 0 && flock(lock, LOCK_EX | LOCK_NB) < 0;
}

int place_prepare_state(const char *path, const struct identity *identity, struct error *err)
{
    scoped(free) char *output = path_join(path, "output");
    scoped(fd_close) int state = -1;

    if (make_directory(path, 0711, identity, err) < 0)
        return -1;
    state = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (state < 0)
        return error_sys(err, "open %s", path);
    if (check_is_own(path, state, err) < 0)
        return -1;
    if (!is_in_use(state))
        hand_over_state(path, state, identity);
    if (prepare(path, 0711, identity, "keep the daemon's state", err) < 0)
        return -1;
    return prepare(output, 0700, identity, "keep output", err);
}

/* Allocated; the path is absolute. */
static char *directory_of(const char *socket_path)
{
    char *directory = xstrdup(socket_path);
    char *slash = strrchr(directory, '/');

    if (slash)
        slash[slash == directory] = '\0';
    return directory;
}

int place_check_socket(const char *socket_path, const struct identity *identity, struct error *err)
{
    scoped(free) char *directory = directory_of(socket_path);
    scoped(fd_close) int dir = open(directory, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    struct stat status;

    if (identity->kind != IDENTITY_SELF && is_own_runtime(dir, &status))
        return 0;
    return place_check(directory, identity, "create a socket", err);
}

int place_prepare_socket(const char *socket_path, const struct identity *identity,
                         struct error *err)
{
    scoped(free) char *directory = directory_of(socket_path);

    hand_over_runtime(directory, strrchr(socket_path, '/') + 1, identity);
    return prepare(directory, 0755, identity, "create a socket", err);
}
