/* SPDX-License-Identifier: Apache-2.0 */
#include "backend/launcher_process.h"

#include "backend/backend.h"
#include "backend/embed.h"
#include "backend/native/seccomp.h"
#include "base/fd.h"
#include "base/str.h"
#include "config/config.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>

#ifndef MFD_EXEC
#define MFD_EXEC 0x0010U
#endif

enum {
    SPARE_FD = 64, /* above everything that is placed */
};

/* A sealed file in memory: no process can change it. */
static int seal_bytes(const char *name, const unsigned char *begin, const unsigned char *end,
                      struct error *err)
{
    scoped(fd_close) int fd = -1;

    fd = memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING | MFD_EXEC);
    if (fd < 0 && errno == EINVAL) /* a kernel that does not know the flag makes it executable */
        fd = memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (fd < 0)
        return error_sys(err, "create a memory file");
    if (fd_write_all(fd, begin, (size_t)(end - begin)) < 0)
        return error_sys(err, "write %s", name);
    if (fcntl(fd, F_ADD_SEALS, F_SEAL_SEAL | F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE) < 0)
        return error_sys(err, "seal %s", name);
    return steal_fd(&fd);
}

/* In the child: signals as they are by default, the three descriptors, nothing else. */
static _Noreturn void execute(int program, int socket, int init, int state)
{
    static const char *const argv[] = { "sandglass-launcher", NULL };
    static const char *const no_environment[] = { NULL };
    int fds[] = { socket, init, state };
    int spare = fcntl(program, F_DUPFD_CLOEXEC, SPARE_FD);
    sigset_t none;

    for (int i = 0; i < 3; i++)
        fds[i] = fcntl(fds[i], F_DUPFD_CLOEXEC, SPARE_FD);
    for (int i = 0; i < 3; i++)
        (void)dup2(fds[i], LAUNCH_FD_SOCKET + i);
    for (int number = 1; number < NSIG; number++)
        (void)signal(number, SIG_DFL);
    sigemptyset(&none);
    (void)sigprocmask(SIG_SETMASK, &none, NULL);
    (void)setsid();
    syscall(SYS_execveat, spare, "", argv, no_environment, AT_EMPTY_PATH);
    _exit(127);
}

int launcher_process_start(const char *state_path, pid_t *out_pid, struct error *err)
{
    scoped(fd_close) int program = -1;
    scoped(fd_close) int init = -1;
    scoped(fd_close) int state = -1;
    scoped(fd_close) int ours = -1;
    scoped(fd_close) int theirs = -1;
    int pair[2];

    program = seal_bytes("sandglass-launcher", embedded_launcher, embedded_launcher_end, err);
    init = seal_bytes("sandglass-init", embedded_init, embedded_init_end, err);
    if (program < 0 || init < 0)
        return -1;
    state = open(state_path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (state < 0)
        return error_sys(err, "open %s", state_path);
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0)
        return error_sys(err, "create a socket pair");
    ours = pair[0];
    theirs = pair[1];
    *out_pid = fork();
    if (*out_pid < 0) {
        *out_pid = 0;
        return error_sys(err, "fork");
    }
    if (*out_pid == 0)
        execute(program, theirs, init, state);
    return steal_fd(&ours);
}

int launcher_process_send(int socket, const void *message, size_t length, int fd)
{
    char control[CMSG_SPACE(sizeof(int))] = { 0 };
    struct iovec part = { .iov_base = (void *)message, .iov_len = length };
    struct msghdr packet = { .msg_iov = &part, .msg_iovlen = 1 };

    if (fd >= 0) {
        struct cmsghdr *header;

        packet.msg_control = control;
        packet.msg_controllen = sizeof(control);
        header = CMSG_FIRSTHDR(&packet);
        header->cmsg_level = SOL_SOCKET;
        header->cmsg_type = SCM_RIGHTS;
        header->cmsg_len = CMSG_LEN(sizeof(int));
        memcpy(CMSG_DATA(header), &fd, sizeof(fd));
    }
    return sendmsg(socket, &packet, MSG_NOSIGNAL) < 0 ? -1 : 0;
}

static int take_descriptor(struct msghdr *message)
{
    int fd = -1;

    for (struct cmsghdr *header = CMSG_FIRSTHDR(message); header;
         header = CMSG_NXTHDR(message, header)) {
        if (header->cmsg_level == SOL_SOCKET && header->cmsg_type == SCM_RIGHTS && fd < 0)
            memcpy(&fd, CMSG_DATA(header), sizeof(fd));
    }
    return fd;
}

int launcher_process_receive(int socket, void *message, size_t length, size_t least, int *out_fd)
{
    char control[CMSG_SPACE(sizeof(int))];
    struct iovec part = { .iov_base = message, .iov_len = length };
    struct msghdr packet = {
        .msg_iov = &part, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof(control)
    };
    ssize_t got = recvmsg(socket, &packet, MSG_CMSG_CLOEXEC | MSG_DONTWAIT);

    if (got < 0 && (errno == EAGAIN || errno == EINTR))
        return 0;
    if (got < (ssize_t)least)
        return -1;
    memset((char *)message + got, 0, length - (size_t)got);
    *out_fd = take_descriptor(&packet);
    return 1;
}

int launcher_receive(int socket, struct launch_reply *reply, int *out_pidfd)
{
    int result = launcher_process_receive(socket, reply, sizeof(*reply),
                                          offsetof(struct launch_reply, body), out_pidfd);

    if (result > 0)
        reply->step[sizeof(reply->step) - 1] = '\0';
    return result;
}

int launcher_process_filter(const struct config *config, struct error *err)
{
    struct seccomp_options options = { 0 };

    if (config) {
        options.tier = config->sandbox.seccomp == CONFIG_SECCOMP_STRICT ? SECCOMP_STRICT
                                                                        : SECCOMP_DEFAULT;
        options.asks_limits = config->sandbox.allow_direct_fallback ||
                              config_names_backend(config, "direct");
    }
    return seccomp_compile(&options, err);
}

/* A host name may have characters that are not valid in a mark. */
static void copy_instance(const char *instance, char out[LAUNCH_NAME_SIZE])
{
    size_t length = 0;

    for (; *instance && length < LAUNCH_NAME_SIZE - 1; instance++) {
        unsigned char c = (unsigned char)*instance;

        if (isalnum(c) || (length > 0 && (c == '-' || c == '.' || c == '_')))
            out[length++] = (char)c;
    }
    if (length == 0)
        memcpy(out, "default", sizeof("default"));
}

/* Without root the launcher leaves the host's user namespace for native sandboxes, and can make no
 * direct ones afterwards: the default decides. */
static bool wants_native(const struct config *config)
{
    if (!config || str_equal(config->sandbox.backend, "native"))
        return true;
    return config_names_backend(config, "native") &&
           (geteuid() == 0 || !str_equal(config->sandbox.backend, "direct"));
}

void launcher_process_describe(const struct launcher_options *options, struct launch_setup *out)
{
    const struct config *config = options->config;

    *out = (struct launch_setup){
        .hostname = "sandbox",
        .flags = (wants_native(config) ? LAUNCH_SETUP_NATIVE : 0) |
                 (config && config->network.allow_private ? LAUNCH_SETUP_ALLOW_PRIVATE : 0) |
                 (config && config->sandbox.relay ? LAUNCH_SETUP_RELAY : 0),
        .daemon_uid = options->uid,
        .daemon_gid = options->gid,
        .uid_base = SANDBOX_UID_FIRST,
        .slots = SANDBOX_SLOTS,
        .direct_uid = config ? (uint32_t)config->sandbox.direct_uid : 0,
        .direct_gid = config ? (uint32_t)config->sandbox.direct_gid : 0,
        .io_bytes_per_s = config ? config->sandbox.io_bytes_per_s : 0,
        .io_operations_per_s = config ? (uint32_t)config->sandbox.io_operations_per_s : 0,
    };
    copy_instance(config ? config->instance : "", out->instance);
}
