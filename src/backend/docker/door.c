/* SPDX-License-Identifier: Apache-2.0 */
#include "backend/docker/door.h"

#include "base/alloc.h"
#include "base/macros.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#define DOORS "docker/doors"

enum { BACKLOG = 16, PATH_SIZE = 128, PER_TURN = 32, PAUSE_US = 10 * 1000 };

struct door {
    struct loop *loop;       /* borrowed */
    struct io_watch arrival; /* fd: owned, listening */
    struct timer pause;      /* nothing is accepted until it expires */
    pid_t pid;               /* 0: not known */
    int waiting;             /* owned: a connection that the caller has not taken yet; -1 without */
    int taken; /* owned: a duplicate of the connection that was taken last; -1 without */
    door_fn *on_arrival;
    void *user; /* borrowed */
};

/* --- files ----------------------------------------------------------------------------------- */

static int make_directory(int state_dir, const char *path, mode_t mode, struct error *err)
{
    if (mkdirat(state_dir, path, mode) < 0 && errno != EEXIST)
        return error_sys(err, "create %s", path);
    return 0;
}

/* The users of a container see nothing but the last directory, and need to pass it. */
static int make_directories(int state_dir, const char *id, struct error *err)
{
    char path[PATH_SIZE];

    snprintf(path, sizeof(path), DOORS "/%s", id);
    if (make_directory(state_dir, "docker", 0711, err) < 0 ||
        make_directory(state_dir, DOORS, 0711, err) < 0 ||
        make_directory(state_dir, path, 0755, err) < 0)
        return -1;
    return fchmodat(state_dir, path, 0755, 0) < 0 ? error_sys(err, "change %s", path) : 0;
}

static int remove_name(int state_dir, const char *path, int flags, struct error *err)
{
    if (unlinkat(state_dir, path, flags) < 0 && errno != ENOENT)
        return error_sys(err, "remove %s", path);
    return 0;
}

int door_remove(int state_dir, const char *id, struct error *err)
{
    char path[PATH_SIZE];

    snprintf(path, sizeof(path), DOORS "/%s/%s.sock", id, id);
    if (remove_name(state_dir, path, 0, err) < 0)
        return -1;
    snprintf(path, sizeof(path), DOORS "/%s", id);
    return remove_name(state_dir, path, AT_REMOVEDIR, err);
}

void door_list(int state_dir, void (*add)(void *user, const char *id), void *user)
{
    int fd = openat(state_dir, DOORS, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *stream = fd < 0 ? NULL : fdopendir(fd);
    struct dirent *entry;

    if (!stream) {
        fd_close(fd);
        return;
    }
    while ((entry = readdir(stream)))
        if (id_is_valid(entry->d_name, ID_SANDBOX))
            add(user, entry->d_name);
    closedir(stream);
}

/* --- connections ------------------------------------------------------------------------------ */

static bool is_init(const struct door *door, int fd)
{
    struct ucred peer = { 0 };
    socklen_t length = sizeof(peer);

    return getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &length) == 0 && peer.pid == door->pid;
}

static void on_ready(struct io_watch *watch, unsigned events);

static void accept_more(struct door *door)
{
    io_watch_start(&door->arrival, door->loop, door->arrival.fd, IO_READ, on_ready);
}

static void on_pause_end(struct timer *timer)
{
    accept_more(container_of(timer, struct door, pause));
}

/* Programs inside that connect in a loop keep their own init waiting, and not the daemon busy. The same
 * is done when the process has no descriptor left. */
static void pause_door(struct door *door)
{
    io_watch_stop(&door->arrival);
    timer_arm_in(&door->pause, PAUSE_US);
}

/* Init has one connection at a time: a later one says that the earlier one is lost. */
static bool take_connection(struct door *door, int fd)
{
    if (!is_init(door, fd)) {
        fd_close(fd);
        return false;
    }
    fd_close(door->waiting);
    door->waiting = fd;
    return true;
}

static void on_ready(struct io_watch *watch, unsigned events UNUSED)
{
    struct door *door = container_of(watch, struct door, arrival);
    bool is_open = true;

    for (unsigned i = 0; i < PER_TURN; i++) {
        int fd = accept4(watch->fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);

        if (fd < 0 && errno == EAGAIN)
            break;
        is_open = fd >= 0 && take_connection(door, fd) && is_open;
        if (fd < 0)
            break;
    }
    if (!is_open)
        pause_door(door);
    if (door->waiting >= 0 && door->on_arrival)
        door->on_arrival(door, door->user);
}

/* The address goes through a descriptor: the path of the state directory may be longer than that of
 * a socket. */
static int listen_at(int state_dir, const char *id, struct error *err)
{
    struct sockaddr_un address = { .sun_family = AF_UNIX };
    scoped(fd_close) int directory = -1;
    scoped(fd_close) int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    char path[PATH_SIZE];

    snprintf(path, sizeof(path), DOORS "/%s", id);
    directory = openat(state_dir, path, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0 || directory < 0)
        return error_sys(err, "open the door of sandbox %s", id);
    snprintf(address.sun_path, sizeof(address.sun_path), "/proc/self/fd/%d/%s.sock", directory, id);
    snprintf(path, sizeof(path), "%s.sock", id);
    if (remove_name(directory, path, 0, err) < 0)
        return -1;
    if (bind(fd, (struct sockaddr *)&address, sizeof(address)) < 0 ||
        fchmodat(directory, path, 0666, 0) < 0 || listen(fd, BACKLOG) < 0)
        return error_sys(err, "listen at the door of sandbox %s", id);
    return steal_fd(&fd);
}

struct door *door_open(struct loop *loop, int state_dir, const char *id, struct error *err)
{
    struct door *door;
    int fd;

    if (make_directories(state_dir, id, err) < 0)
        return NULL;
    fd = listen_at(state_dir, id, err);
    if (fd < 0)
        return NULL;
    door = xnew(struct door);
    door->loop = loop;
    door->arrival.fd = fd;
    timer_init(&door->pause, loop, on_pause_end);
    door->waiting = door->taken = -1;
    return door;
}

void door_free(struct door *door)
{
    if (!door)
        return;
    timer_stop(&door->pause);
    io_watch_stop(&door->arrival);
    fd_close(door->arrival.fd);
    fd_close(door->waiting);
    fd_close(door->taken);
    free(door);
}

/* Connections that came before wait in the backlog. */
void door_set_pid(struct door *door, pid_t pid)
{
    door->pid = pid;
    accept_more(door);
}

int door_take(struct door *door)
{
    if (door->waiting >= 0) {
        fd_close(door->taken);
        door->taken = fcntl(door->waiting, F_DUPFD_CLOEXEC, 0);
    }
    return steal_fd(&door->waiting);
}

/* Init connects again when it has lost its connection, not while the taken one is open. */
void door_wait(struct door *door, door_fn *on_arrival, void *user)
{
    door->on_arrival = on_arrival;
    door->user = user;
    if (on_arrival && door->taken >= 0) {
        (void)shutdown(door->taken, SHUT_RDWR);
        fd_close(steal_fd(&door->taken));
    }
}
