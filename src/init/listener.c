/* SPDX-License-Identifier: Apache-2.0 */
#include "init/listener.h"

#include "init/dial.h"
#include "init/gate.h"
#include "init/init.h"
#include "init/path.h"
#include "init/pump.h"
#include "init/relay.h"
#include "init/sys.h"
#include "init/text.h"
#include "wire/inside.h"

#include <errno.h>
#include <string.h>
#include <sys/prctl.h>

enum { BACKLOG = 16, OWNER_ONLY = 0177 };

static const char key_variable[] = "SANDGLASS_KEY=";

/* --- the socket ------------------------------------------------------------------------------- */

static int wanted_type(void)
{
    return settings.origin == ORIGIN_RELAY ? SOCK_STREAM : SOCK_SEQPACKET;
}

/* A socket that an earlier init has left there makes room; nothing else does. */
static void remove_stale(const char *path)
{
    struct stat status;

    if (!sys(newfstatat, AT_FDCWD, path, &status, AT_SYMLINK_NOFOLLOW) && S_ISSOCK(status.st_mode))
        (void)sys(unlinkat, AT_FDCWD, path, 0);
}

/* The file belongs to its owner alone from the moment that it exists. */
static long bind_to(int fd, const char *path)
{
    struct sockaddr_un address;
    int length = path_to_address(path, &address);
    long umask;
    long result;

    if (length < 0)
        return length;
    remove_stale(path);
    umask = sys(umask, OWNER_ONLY);
    result = sys(bind, fd, &address, length);
    (void)sys(umask, umask);
    return result;
}

static int make_socket(void)
{
    int fd = (int)sys(socket, AF_UNIX, wanted_type() | SOCK_CLOEXEC, 0);
    long result;

    if (fd < 0)
        return fd;
    result = bind_to(fd, settings.socket_path);
    if (!result)
        result = sys(listen, fd, BACKLOG);
    if (!result && fd != FD_LISTEN)
        result = sys(dup2, fd, FD_LISTEN);
    if (fd != FD_LISTEN)
        sys_close(fd);
    return result < 0 ? (int)result : 0;
}

/* A path that no attempt to dial could use is an error now. */
int listener_open(void)
{
    struct sockaddr_un address;

    if (!settings.socket_path)
        return 0;
    if (listener_has_socket())
        return make_socket();
    return path_to_address(settings.socket_path, &address) < 0 ? -ENAMETOOLONG : 0;
}

bool listener_has_socket(void)
{
    return settings.origin != ORIGIN_DIALLED;
}

/* -1 when the option cannot be read. */
static int read_option(int fd, int option)
{
    int value = -1;
    socklen_t length = sizeof value;

    return sys(getsockopt, fd, SOL_SOCKET, option, &value, &length) < 0 ? -1 : value;
}

/* gVisor does not report that a socket listens. listen() is not repeated without need: it would
 * make init the owner, whose user may connect. */
bool listener_is_right(void)
{
    if (!listener_has_socket())
        return true;
    if (read_option(FD_LISTEN, SO_TYPE) != wanted_type())
        return false;
    return read_option(FD_LISTEN, SO_ACCEPTCONN) == 1 || !sys(listen, FD_LISTEN, BACKLOG);
}

/* --- the relay -------------------------------------------------------------------------------- */

static bool parse_key(const char *text, uint8_t key[RELAY_KEY_SIZE])
{
    if (strlen(text) != 2 * RELAY_KEY_SIZE)
        return false;
    for (unsigned i = 0; i < RELAY_KEY_SIZE; i++) {
        int high = text_hex_digit(text[2 * i]);
        int low = text_hex_digit(text[2 * i + 1]);

        if (high < 0 || low < 0)
            return false;
        key[i] = (uint8_t)(high << 4 | low);
    }
    return true;
}

bool listener_take_key(char **environment, struct relay_setup *out_setup)
{
    bool found = false;

    for (; *environment; environment++) {
        char *value = *environment + sizeof key_variable - 1;

        if (strncmp(*environment, key_variable, sizeof key_variable - 1) != 0)
            continue;
        found = parse_key(value, out_setup->key);
        explicit_bzero(value, strlen(value));
    }
    return found;
}

/* The parent may have died before PR_SET_PDEATHSIG was set. */
static void follow_parent(void)
{
    (void)sys(prctl, PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0);
    if ((int)sys(getppid) != settings.own_pid)
        sys_exit(RELAY_EXIT_CODE);
}

static __attribute__((noreturn)) void become_pump(struct relay_setup *setup)
{
    explicit_bzero(setup->key, sizeof setup->key);
    (void)sys(prctl, PR_SET_NAME, "sandglass-pump", 0, 0, 0);
    (void)sys(prctl, PR_SET_DUMPABLE, 0, 0, 0, 0);
    follow_parent();
    (void)sys(setsid);
    sys_close_from(FD_LISTEN);
    pump_run(settings.socket_path);
}

/* The pump's connection waits in the backlog of the socket until the relay accepts it. */
int listener_start_pump(struct relay_setup *setup)
{
    long pid = sys(fork);

    if (!pid)
        become_pump(setup);
    return pid < 0 ? (int)pid : 0;
}

static __attribute__((noreturn)) void become_gate(struct relay_setup *setup, int fd)
{
    static struct gate_setup gate;

    (void)sys(prctl, PR_SET_NAME, "sandglass-gate", 0, 0, 0);
    (void)sys(prctl, PR_SET_DUMPABLE, 0, 0, 0, 0);
    follow_parent();
    (void)sys(setsid);
    memcpy(gate.key, setup->key, sizeof gate.key);
    explicit_bzero(setup->key, sizeof setup->key);
    (void)sys(dup2, fd, FD_LISTEN);
    sys_close_from(FD_LISTEN + 1);
    gate.listen_fd = FD_LISTEN;
    gate.path = settings.socket_path;
    gate_run(&gate);
}

int listener_start_gate(struct relay_setup *setup)
{
    int fd = gate_listen(settings.gate_port);
    long pid = fd < 0 ? fd : sys(fork);

    if (!pid)
        become_gate(setup, fd);
    sys_close(fd);
    if (pid > 0)
        settings.gate_pid = (int)pid;
    return pid < 0 ? (int)pid : 0;
}

static __attribute__((noreturn)) void become_relay(struct relay_setup *setup)
{
    (void)sys(prctl, PR_SET_NAME, "sandglass-relay", 0, 0, 0);
    (void)sys(prctl, PR_SET_DUMPABLE, 0, 0, 0, 0);
    follow_parent();
    (void)sys(setsid);
    (void)sys(dup2, setup->init_fd, FD_LISTEN + 1);
    setup->listen_fd = FD_LISTEN;
    setup->init_fd = FD_LISTEN + 1;
    sys_close_from(FD_LISTEN + 2);
    relay_run(setup);
}

/* A fork, not a clone that shares memory: a fault of the relay cannot damage init. */
int listener_start_relay(struct relay_setup *setup)
{
    int ends[2];
    long pid = sys(socketpair, AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends);

    if (pid < 0)
        return (int)pid;
    setup->init_fd = ends[1];
    pid = sys(fork);
    if (!pid)
        become_relay(setup);
    explicit_bzero(setup->key, sizeof setup->key);
    sys_close(ends[1]);
    if (pid > 0) {
        settings.relay_pid = (int)pid;
        pid = sys(dup3, ends[0], FD_LISTEN, O_CLOEXEC);
    }
    sys_close(ends[0]);
    return pid < 0 ? (int)pid : 0;
}

/* --- access -------------------------------------------------------------------------------- */

/* Whether a process with init's ids belongs to a direct sandbox, this one or another; a process
 * that is gone counts as inside. EPERM means that the process has other ids: it is outside. */
static bool is_inside(int pid)
{
    struct rlimit own;
    struct rlimit theirs;
    long result;

    if (pid == 0 || sys(prlimit64, 0, INSIDE_RESOURCE, NULL, &own) < 0)
        return false;
    result = sys(prlimit64, pid, INSIDE_RESOURCE, NULL, &theirs);
    return result < 0 ? result != -EPERM : theirs.rlim_max <= own.rlim_max;
}

/* No process of a sandbox may connect. In a pid namespace of its own init sees pid 0 for all
 * processes outside; without one, INSIDE_RESOURCE marks the processes of direct sandboxes. */
static bool is_welcome(int fd)
{
    struct ucred peer = { .pid = -1 };
    struct ucred owner = { .pid = -1 };
    socklen_t length = sizeof peer;

    if (sys(getsockopt, fd, SOL_SOCKET, SO_PEERCRED, &peer, &length) < 0)
        return false;
    if (!settings.direct)
        return peer.pid == 0;
    length = sizeof owner;
    if (sys(getsockopt, FD_LISTEN, SOL_SOCKET, SO_PEERCRED, &owner, &length) < 0)
        return false;
    if (peer.uid != owner.uid && peer.uid != (uid_t)sys(geteuid) && peer.uid != 0)
        return false;
    return peer.uid != (uid_t)sys(geteuid) || !is_inside(peer.pid);
}

/* --- connections ------------------------------------------------------------------------------ */

/* The only descriptor of a packet, or -EBADMSG; several are closed. */
static int take_descriptor(struct msghdr *header)
{
    struct cmsghdr *part = CMSG_FIRSTHDR(header);
    size_t size;
    int fds[2];

    if (!part || part->cmsg_level != SOL_SOCKET || part->cmsg_type != SCM_RIGHTS)
        return -EBADMSG;
    size = part->cmsg_len - CMSG_LEN(0);
    memcpy(fds, CMSG_DATA(part), size < sizeof fds ? size : sizeof fds);
    if (size == sizeof fds[0])
        return fds[0];
    for (size_t i = 0; i < size / sizeof fds[0]; i++)
        sys_close(fds[i]);
    return -EBADMSG;
}

/* Only the relay has the other end, so no check of the peer is needed. */
static int receive_connection(void)
{
    union {
        struct cmsghdr header;
        char bytes[CMSG_SPACE(sizeof(int))];
    } control;
    char byte;
    struct iovec part = { &byte, sizeof byte };
    struct msghdr header = {
        .msg_iov = &part,
        .msg_iovlen = 1,
        .msg_control = &control,
        .msg_controllen = sizeof control,
    };
    long length = sys(recvmsg, FD_LISTEN, &header, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
    int fd;

    if (length == 0 && settings.relay_pid) /* it has closed its end, or is not reaped yet */
        (void)sys(kill, settings.relay_pid, SIGKILL);
    if (length <= 0)
        return length ? (int)length : -EPIPE;
    fd = take_descriptor(&header);
    if (fd < 0 || read_option(fd, SO_TYPE) != SOCK_SEQPACKET ||
        sys(fcntl, fd, F_SETFL, O_RDWR) < 0) {
        sys_close(fd);
        return -EBADMSG;
    }
    return fd;
}

static int accept_connection(void)
{
    int fd = (int)sys(accept4, FD_LISTEN, NULL, NULL, SOCK_CLOEXEC);

    if (fd >= 0 && !is_welcome(fd)) {
        sys_close(fd);
        return -EPERM;
    }
    return fd;
}

int listener_accept(void)
{
    switch (settings.origin) {
    case ORIGIN_PASSED:
    case ORIGIN_MADE:
        return accept_connection();
    case ORIGIN_RELAY:
        return receive_connection();
    case ORIGIN_DIALLED:
        return dial_connect();
    }
    return -EINVAL;
}
