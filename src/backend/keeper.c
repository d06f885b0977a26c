/* SPDX-License-Identifier: Apache-2.0 */
#include "backend/keeper.h"

#include "backend/launcher_process.h"
#include "backend/launcher_setup.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

enum {
    KEEPER_FD = 3,
    LAUNCHER_END_MS = 5000,
    KEEPER_END_MS = LAUNCHER_END_MS + 2000, /* it waits for its launcher */
};

/* --- the child ------------------------------------------------------------------------------ */

struct launched {
    pid_t pid; /* 0: none */
    int pidfd; /* owned; -1 without one */
};

static void end_launcher(struct launched *launched, int patience_ms)
{
    struct pollfd end = { .fd = launched->pidfd, .events = POLLIN };

    if (launched->pidfd >= 0 && poll(&end, 1, patience_ms) == 0) {
        (void)syscall(SYS_pidfd_send_signal, launched->pidfd, SIGKILL, NULL, 0);
        (void)poll(&end, 1, LAUNCHER_END_MS);
    }
    fd_close(launched->pidfd);
    *launched = (struct launched){ .pidfd = -1 };
}

/* The daemon's end of a launcher that is ready to serve. */
static int start_launcher(const struct launcher_options *options, struct launched *launched,
                          struct keeper_answer *answer)
{
    scoped(fd_close) int socket =
        launcher_process_start(options->state_path, &launched->pid, &answer->err);

    if (socket < 0)
        return -1;
    launched->pidfd = (int)syscall(SYS_pidfd_open, launched->pid, 0);
    answer->pid = launched->pid;
    if (launcher_set_up(socket, options, &answer->host, &answer->err) < 0)
        return -1;
    return steal_fd(&socket);
}

static _Noreturn void run(const struct launcher_options *options)
{
    struct launched launched = { .pidfd = -1 };
    char request;

    while (recv(KEEPER_FD, &request, 1, 0) == 1) {
        struct keeper_answer answer = { 0 };
        scoped(fd_close) int socket = -1;

        end_launcher(&launched, 0);
        socket = start_launcher(options, &launched, &answer);
        if (launcher_process_send(KEEPER_FD, &answer, sizeof(answer), socket) < 0)
            break;
    }
    /* The launcher exits when its socket closes. After LAUNCHER_END_MS it is killed. */
    end_launcher(&launched, LAUNCHER_END_MS);
    _exit(0);
}

/* Signals are blocked: the keeper exits when the daemon's end of the socket closes. SIGCHLD is
 * ignored, so the kernel reaps orphans. */
static void become_keeper(int socket)
{
    sigset_t every;

    (void)setsid();
    (void)prctl(PR_SET_NAME, "sandglass-keeper");
    (void)prctl(PR_SET_DUMPABLE, 0);
    (void)prctl(PR_SET_CHILD_SUBREAPER, 1);
    (void)signal(SIGCHLD, SIG_IGN);
    sigfillset(&every);
    sigdelset(&every, SIGCHLD);
    (void)sigprocmask(SIG_SETMASK, &every, NULL);
    /* Locks, pipes and the like are the daemon's, and must end with it. */
    if (socket != KEEPER_FD)
        (void)dup3(socket, KEEPER_FD, O_CLOEXEC);
    (void)close_range(KEEPER_FD + 1, ~0U, 0);
}

/* --- the daemon's end ----------------------------------------------------------------------- */

int keeper_start(struct keeper *keeper, const struct launcher_options *options, struct error *err)
{
    int pair[2];

    *keeper = (struct keeper){ .socket = -1 };
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0)
        return error_sys(err, "create a socket pair");
    keeper->pid = fork();
    if (keeper->pid == 0) {
        become_keeper(pair[1]);
        run(options);
    }
    close(pair[1]);
    if (keeper->pid < 0) {
        close(pair[0]);
        keeper->pid = 0;
        return error_sys(err, "fork");
    }
    keeper->socket = pair[0];
    return 0;
}

void keeper_stop(struct keeper *keeper)
{
    scoped(fd_close) int pidfd = keeper->pid > 0 ? (int)syscall(SYS_pidfd_open, keeper->pid, 0)
                                                 : -1;
    struct pollfd end = { .fd = pidfd, .events = POLLIN };

    fd_close(keeper->socket);
    keeper->socket = -1;
    if (keeper->pid <= 0)
        return;
    if (pidfd >= 0)
        (void)poll(&end, 1, KEEPER_END_MS);
    (void)waitpid(keeper->pid, NULL, pidfd >= 0 ? WNOHANG : 0);
    keeper->pid = 0;
}

int keeper_ask(const struct keeper *keeper)
{
    const char request = 'L';

    return send(keeper->socket, &request, 1, MSG_NOSIGNAL | MSG_DONTWAIT) == 1 ? 0 : -1;
}

int keeper_receive(const struct keeper *keeper, struct keeper_answer *out_answer, int *out_socket)
{
    return launcher_process_receive(keeper->socket, out_answer, sizeof(*out_answer),
                                    sizeof(*out_answer), out_socket);
}
