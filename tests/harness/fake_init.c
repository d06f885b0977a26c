/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Plays sandglass-init in a container of the fake engine:
 *
 *     fake_init DIRECTORY SOCKET [ARGUMENT...]
 *
 * Connects to SOCKET in DIRECTORY ("" for neither), and again whenever the connection is lost; SIGTERM
 * ends it with 0, and so does the removal of DIRECTORY. It runs as the child of another process, as the init of a container does, which
 * writes the pid and at the end the wait status to standard output as two numbers. ARGUMENTs are there
 * to be seen in /proc/PID/cmdline; "--die" ends it at once with 3.
 */

#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

enum { DIAL_MS = 10 };

static void on_term(int signal_number)
{
    (void)signal_number;
    _exit(0);
}

/* Until the connection is lost; what comes is dropped. */
static void stay_connected(int fd)
{
    char bytes[4096];
    ssize_t length;

    do
        length = recv(fd, bytes, sizeof(bytes), 0);
    while (length > 0);
}

static void dial(const char *name)
{
    struct sockaddr_un address = { .sun_family = AF_UNIX };
    int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);

    snprintf(address.sun_path, sizeof(address.sun_path), "%s", name);
    if (fd >= 0 && connect(fd, (struct sockaddr *)&address, sizeof(address)) == 0)
        stay_connected(fd);
    if (fd >= 0)
        close(fd);
}

static int is_given_up(void)
{
    struct stat status;

    return stat(".", &status) == 0 && status.st_nlink == 0;
}

static int play_init(char **argv)
{
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    for (char **argument = argv; *argument; argument++)
        if (strcmp(*argument, "--die") == 0)
            return 3;
    /* A path may be too long for the address of a socket. */
    if (*argv[1] && chdir(argv[1]) < 0)
        return 1;
    while (!is_given_up()) {
        if (*argv[2])
            dial(argv[2]);
        poll(NULL, 0, *argv[2] ? DIAL_MS : -1);
    }
    return 0;
}

int main(int argc, char **argv)
{
    int numbers[1];
    pid_t pid;

    if (argc < 3)
        return 2;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    signal(SIGTERM, on_term); /* before the pid is told */
    pid = fork();
    if (pid == 0)
        return play_init(argv);
    numbers[0] = pid;
    if (write(STDOUT_FILENO, numbers, sizeof(numbers)) < 0 || waitpid(pid, numbers, 0) < 0)
        return 1;
    return write(STDOUT_FILENO, numbers, sizeof(numbers)) < 0;
}
