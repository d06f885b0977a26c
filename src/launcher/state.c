/* SPDX-License-Identifier: Apache-2.0 */
#include "launcher/state.h"

#include "launcher/sys.h"

#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

#define LOCK_NAME "launcher.lock"

enum {
    LOCK_TIMEOUT_MS = 15000,
    LOCK_LOOK_MS = 2,
    TICK_NS = 10000000, /* of start times, independent of the kernel's HZ */
    CLOCK_DOUBT_NS = 1000,
};

/* The state directory is the daemon's: it can replace our directories by links or directories of
 * its own, or exchange two of ours. Our directories have our user and their mode, and are no links;
 * the mode of the directory of live sandboxes is unique. */
static bool is_own_directory(int fd, mode_t mode)
{
    struct stat status;

    return fstat(fd, &status) == 0 && S_ISDIR(status.st_mode) && status.st_uid == geteuid() &&
           (status.st_mode & 07777 & ~S_ISGID) ==
               mode; /* a set-group-id directory passes that on */
}

static int open_directory(int root, const char *name, mode_t mode, struct fail *fail)
{
    mode_t mask = umask(0);
    int made = mkdirat(root, name, mode);
    int fd;

    umask(mask);
    if (made < 0 && errno != EEXIST)
        return fail_sys(fail, "make a state directory");
    fd = sys_open_beneath(root, name, O_RDONLY | O_DIRECTORY);
    if (fd < 0)
        return fail_sys(fail, "open a state directory");
    if (!is_own_directory(fd, mode)) {
        close(fd);
        return fail_set(fail, "a state directory is not the launcher's", EPERM);
    }
    return fd;
}

int state_open(struct state *state, int root, const char *instance, struct fail *fail)
{
    *state = (struct state){ .root = root,
                             .sandboxes = -1,
                             .trash = -1,
                             .ahead = -1,
                             .lock = -1,
                             .proc = -1,
                             .instance = instance };
    state->proc = open("/proc", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (state->proc < 0)
        return fail_sys(fail, "open /proc");
    state->sandboxes = open_directory(root, "sandboxes", 0711, fail);
    if (state->sandboxes < 0)
        return -1;
    state->trash = open_directory(root, "trash", 0700, fail);
    if (state->trash < 0)
        return -1;
    state->ahead = open_directory(root, "ahead", 0700, fail);
    return state->ahead < 0 ? -1 : 0;
}

/* 1: the lock is ours; 0: another launcher has it. */
static int try_lock(struct state *state)
{
    struct flock whole = { .l_type = F_WRLCK, .l_whence = SEEK_SET };
    struct stat status;
    int fd =
        openat(state->root, LOCK_NAME, O_RDWR | O_CREAT | O_NOFOLLOW | O_NOCTTY | O_CLOEXEC, 0600);

    if (fd < 0)
        return -1;
    if (fcntl(fd, F_SETLK, &whole) == 0) {
        /* A file that its owner removed after we opened it protects nothing. */
        if (fstat(fd, &status) == 0 && status.st_nlink > 0) {
            state->lock = fd;
            return 1;
        }
    } else if (errno != EAGAIN && errno != EACCES && errno != EINTR) {
        close(fd);
        return -1;
    }
    close(fd);
    return 0;
}

int state_lock(struct state *state, int daemon, struct fail *fail)
{
    struct pollfd peer = { .fd = daemon };
    int locked;

    for (int waited_ms = 0; (locked = try_lock(state)) == 0; waited_ms += LOCK_LOOK_MS) {
        if (waited_ms >= LOCK_TIMEOUT_MS)
            return fail_set(fail, "the launcher of an earlier daemon does not end", EBUSY);
        if (poll(&peer, 1, LOCK_LOOK_MS) > 0 && peer.revents & POLLHUP)
            return fail_set(fail, "the daemon is gone", EPIPE);
    }
    return locked < 0 ? fail_sys(fail, "lock the state directory") : 0;
}

void state_unlock(struct state *state)
{
    (void)unlinkat(state->root, LOCK_NAME, 0);
    close(state->lock);
    state->lock = -1;
}

void mark_init(struct mark *mark, const struct state *state, const char *id)
{
    *mark = (struct mark){ .magic = MARK_MAGIC, .version = MARK_VERSION, .slot = MARK_NO_SLOT };
    strncpy(mark->instance, state->instance, sizeof(mark->instance) - 1);
    strncpy(mark->id, id, sizeof(mark->id) - 1);
}

int state_open_sandbox(const struct state *state, const char *id)
{
    return sys_open_beneath(state->sandboxes, id, O_RDONLY | O_DIRECTORY);
}

/* A file that the owner of the directory alone can have written. */
static bool mark_is_plain(int dir, int fd)
{
    struct stat directory;
    struct stat file;

    return fstat(dir, &directory) == 0 && fstat(fd, &file) == 0 && S_ISREG(file.st_mode) &&
           file.st_nlink == 1 && file.st_uid == directory.st_uid && !(file.st_mode & 022);
}

int mark_read(int dir, struct mark *out_mark)
{
    struct mark mark;
    int fd = openat(dir, "mark", O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    ssize_t length;
    bool own;

    if (fd < 0)
        return -1;
    own = mark_is_plain(dir, fd);
    length = read(fd, &mark, sizeof(mark));
    close(fd);
    if (!own || length != sizeof(mark) || mark.magic != MARK_MAGIC ||
        mark.version != MARK_VERSION || !memchr(mark.instance, '\0', sizeof(mark.instance)) ||
        !launch_id_is_valid(mark.id) ||
        (*mark.template_name && !launch_name_is_valid(mark.template_name))) {
        errno = EBADMSG;
        return -1;
    }
    *out_mark = mark;
    return 0;
}

int mark_write(int dir, const struct mark *mark)
{
    int fd = openat(dir, "mark", O_WRONLY | O_NOFOLLOW | O_CLOEXEC);
    ssize_t written;

    if (fd < 0)
        return -1;
    written = pwrite(fd, mark, sizeof(*mark), 0);
    close(fd);
    return written == sizeof(*mark) ? 0 : -1;
}

int mark_clear(int mark)
{
    static const uint32_t nothing;

    return pwrite(mark, &nothing, sizeof(nothing), 0) == sizeof(nothing) ? 0 : -1;
}

bool mark_is_blank(int dir)
{
    uint32_t magic = 0;
    ssize_t length;
    int fd = openat(dir, "mark", O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);

    if (fd < 0)
        return errno == ENOENT;
    length = read(fd, &magic, sizeof(magic));
    close(fd);
    return length == 0 || (length == sizeof(magic) && magic == 0);
}

bool mark_is_ours(const struct state *state, const struct mark *mark, const char *id)
{
    return strcmp(mark->instance, state->instance) == 0 && strcmp(mark->id, id) == 0;
}

int state_discard(const struct state *state, const char *id, uint64_t number)
{
    char name[LAUNCH_ID_SIZE + 32];

    snprintf(name, sizeof(name), "%s.%llu", id, (unsigned long long)number);
    if (renameat(state->sandboxes, id, state->trash, name) < 0)
        return errno == ENOENT ? 0 : -1;
    return 1;
}

DIR *state_list(const struct state *state)
{
    int fd = openat(state->sandboxes, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *list = fd < 0 ? NULL : fdopendir(fd);

    if (!list && fd >= 0)
        close(fd);
    return list;
}

bool state_next(DIR *list, char out_id[LAUNCH_ID_SIZE])
{
    struct dirent *entry;

    while ((entry = readdir(list))) {
        if (strlen(entry->d_name) >= LAUNCH_ID_SIZE)
            continue;
        memset(out_id, 0, LAUNCH_ID_SIZE);
        memcpy(out_id, entry->d_name, strlen(entry->d_name));
        if (launch_id_is_valid(out_id))
            return true;
    }
    return false;
}

int state_each(const struct state *state, state_visit_fn *visit, void *user)
{
    DIR *list = state_list(state);
    char id[LAUNCH_ID_SIZE];

    if (!list)
        return -1;
    while (state_next(list, id))
        visit(user, id);
    closedir(list);
    return 0;
}

int64_t state_boot_time(void)
{
    struct timespec now;

    clock_gettime(CLOCK_BOOTTIME, &now);
    return now.tv_sec * (int64_t)1000000000 + now.tv_nsec;
}

uint64_t state_start_between(int64_t before, int64_t after)
{
    int64_t first = (before - CLOCK_DOUBT_NS) / TICK_NS;
    int64_t last = (after + CLOCK_DOUBT_NS) / TICK_NS;

    return first == last ? (uint64_t)first : 0;
}

uint64_t state_start_time(const struct state *state, pid_t pid)
{
    char path[32];
    char text[1024];
    const char *at;
    ssize_t length;
    int fd;

    snprintf(path, sizeof(path), "%d/stat", (int)pid);
    fd = openat(state->proc, path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return 0;
    length = read(fd, text, sizeof(text) - 1);
    close(fd);
    if (length <= 0)
        return 0;
    text[length] = '\0';
    /* The name in brackets may hold anything; the 22nd field is the 20th after it. */
    at = strrchr(text, ')');
    for (int field = 0; at && field < 20; field++)
        at = strchr(at + 1, ' ');
    return at ? strtoull(at + 1, NULL, 10) : 0;
}

/* Init runs from a file in memory, which only its creator can name like that; so does the child
 * that is about to become init. Where we may not look, and in a dying process without a file, pid
 * and start time have to do. */
static bool is_ours(const struct state *state, pid_t pid)
{
    static const char prefix[] = "/memfd:sandglass-";
    char path[32];
    char program[64];
    ssize_t length;

    snprintf(path, sizeof(path), "%d/exe", (int)pid);
    length = readlinkat(state->proc, path, program, sizeof(program));
    if (length < 0)
        return errno == EACCES || errno == EPERM || errno == ENOENT;
    return length >= (ssize_t)sizeof(prefix) && memcmp(program, prefix, sizeof(prefix) - 1) == 0;
}

int state_open_process(const struct state *state, pid_t pid, uint64_t start_time)
{
    int pidfd;

    if (pid <= 1 || start_time == 0) {
        errno = ESRCH;
        return -1;
    }
    pidfd = sys_pidfd_open(pid);
    if (pidfd < 0)
        return -1;
    /* The descriptor came first: a pid that was reused in between has another start time. After a
     * reboot both numbers may be those of a stranger. */
    if (state_start_time(state, pid) != start_time || !is_ours(state, pid)) {
        close(pidfd);
        errno = ESRCH;
        return -1;
    }
    return pidfd;
}
