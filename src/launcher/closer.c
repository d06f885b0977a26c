#include "launcher/closer.h"

#include "launcher/launcher.h"
#include "launcher/sys.h"

#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>

/* Whoever waits for a sandbox comes first. */
enum { CLOSER_NICE = 5 };

static int receive(int socket)
{
    char control[CMSG_SPACE(sizeof(int))] = { 0 };
    char byte;
    struct iovec part = { .iov_base = &byte, .iov_len = 1 };
    struct msghdr message = {
        .msg_iov = &part, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof(control)
    };
    struct cmsghdr *header;
    int fd = -1;

    if (recvmsg(socket, &message, MSG_CMSG_CLOEXEC) <= 0)
        return -1;
    header = CMSG_FIRSTHDR(&message);
    if (header && header->cmsg_type == SCM_RIGHTS)
        memcpy(&fd, CMSG_DATA(header), sizeof(fd));
    return fd;
}

static _Noreturn void run(struct launcher *launcher, int socket)
{
    int fd;

    (void)prctl(PR_SET_NAME, "sandglass-closer");
    (void)setpriority(PRIO_PROCESS, 0, CLOSER_NICE);
    close(launcher->socket);
    close(launcher->epoll);
    if (launcher->kits.maker >= 0)
        close(launcher->kits.maker);
    leases_forget(&launcher->slots.leases);
    while ((fd = receive(socket)) >= 0)
        close(fd);
    _exit(0);
}

void closer_start(struct launcher *launcher)
{
    int pair[2];

    launcher->closer = (struct closer){ .socket = -1 };
    if (!launcher->host.native || socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0)
        return;
    launcher->closer.pid = fork();
    if (launcher->closer.pid == 0) {
        close(pair[0]);
        run(launcher, pair[1]);
    }
    close(pair[1]);
    if (launcher->closer.pid < 0)
        close(pair[0]);
    else
        launcher->closer.socket = pair[0];
}

void closer_stop(struct launcher *launcher)
{
    if (launcher->closer.socket < 0)
        return;
    close(launcher->closer.socket);
    launcher->closer.socket = -1;
    (void)waitpid(launcher->closer.pid, NULL, 0);
}

void closer_take(struct launcher *launcher, int fd)
{
    char control[CMSG_SPACE(sizeof(int))] = { 0 };
    char byte = 0;
    struct iovec part = { .iov_base = &byte, .iov_len = 1 };
    struct msghdr message = {
        .msg_iov = &part, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof(control)
    };
    struct cmsghdr *header = CMSG_FIRSTHDR(&message);

    if (fd < 0)
        return;
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(sizeof(int));
    memcpy(CMSG_DATA(header), &fd, sizeof(fd));
    if (launcher->closer.socket >= 0)
        (void)sendmsg(launcher->closer.socket, &message, MSG_NOSIGNAL | MSG_DONTWAIT);
    close(fd);
}
