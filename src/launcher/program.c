/* SPDX-License-Identifier: Apache-2.0 */
#include "launcher/program.h"

#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

pid_t program_spawn(int mounts, const char *const argv[], int fd, int target)
{
    static const char *const no_environment[] = { NULL };
    pid_t child = fork();
    sigset_t none;

    if (child != 0)
        return child;
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    if (setns(mounts, CLONE_NEWNS) == 0 && dup2(fd, target) == target)
        execve(argv[0], (char *const *)argv, (char *const *)no_environment);
    _exit(127);
}

int program_wait(pid_t child)
{
    int status = 0;

    if (child < 0 || waitpid(child, &status, 0) != child)
        return -1;
    errno = EIO;
    return WIFEXITED(status) && WEXITSTATUS(status) == 0 ? 0 : -1;
}
