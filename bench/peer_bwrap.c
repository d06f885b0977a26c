/* SPDX-License-Identifier: Apache-2.0 */
/* bubblewrap: every namespace, the host's /usr read-only, as in its own example. Running something
 * in one that lives is not its business; nsenter does it. */

#include "peers.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

enum { INFO_FD = 200, ARGUMENTS = 64 }; /* above any that is open */

static size_t fill_arguments(const char *argv[ARGUMENTS], const char *tools)
{
    const char *const fixed[] = {
        "bwrap",     "--unshare-all", "--die-with-parent",
        "--ro-bind", "/usr",          "/usr",
        "--symlink", "usr/bin",       "/bin",
        "--symlink", "usr/lib",       "/lib",
        "--symlink", "usr/lib64",     "/lib64",
        "--proc",    "/proc",         "--dev",
        "/dev",      "--tmpfs",       "/tmp",
        "--ro-bind", tools,           "/bench",
    };

    memcpy(argv, fixed, sizeof(fixed));
    return ARRAY_LENGTH(fixed);
}

static int bwrap_cycle(struct worker *worker, struct error *err)
{
    const char *argv[ARGUMENTS] = { 0 };
    size_t used = fill_arguments(argv, worker->subject->tools);

    argv[used] = "/bin/true";
    return bench_spawn(argv, err);
}

/* bwrap says which process is the first inside; the program in it says that it runs. */
static int await_start(int info_fd, int output_fd, int *out_pid, struct error *err)
{
    char text[256] = "";
    size_t length = 0;
    const char *found;
    ssize_t got;

    while ((got = read(info_fd, text + length, sizeof(text) - 1 - length)) > 0)
        length += (size_t)got;
    found = strstr(text, "child-pid\": ");
    if (!found || sscanf(found + strlen("child-pid\": "), "%d", out_pid) != 1)
        return error_set(err, ERR_BACKEND, "bwrap did not start: %s", text);
    if (read(output_fd, text, 1) != 1)
        return error_set(err, ERR_BACKEND, "the program in bwrap did not start");
    return 0;
}

static int start(const char *const *argv, const int info[2], const int output[2], int *out_pid,
                 struct error *err)
{
    posix_spawn_file_actions_t actions;
    int failure;

    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, info[1], INFO_FD);
    posix_spawn_file_actions_adddup2(&actions, output[1], STDOUT_FILENO);
    failure = posix_spawnp(out_pid, argv[0], &actions, NULL, (char *const *)argv, environ);
    posix_spawn_file_actions_destroy(&actions);
    if (failure != 0) {
        errno = failure;
        return error_sys(err, "start bwrap");
    }
    return 0;
}

/* box->pid is the first process inside; the name has that of bwrap itself, which we wait for. */
static int bwrap_make(struct worker *worker, struct bench_box *box, struct error *err)
{
    const char *argv[ARGUMENTS] = { 0 };
    size_t used = fill_arguments(argv, worker->subject->tools);
    int info[2], output[2];
    int result, outer = 0;

    argv[used++] = "--info-fd";
    argv[used++] = "200";
    argv[used] = "/bench/pause";
    if (pipe2(info, O_CLOEXEC) < 0 || pipe2(output, O_CLOEXEC) < 0)
        return error_sys(err, "make a pipe");
    result = start(argv, info, output, &outer, err);
    close(info[1]);
    close(output[1]);
    if (result == 0)
        result = await_start(info[0], output[0], &box->pid, err);
    close(info[0]);
    close(output[0]);
    snprintf(box->name, sizeof(box->name), "%d", outer);
    return result;
}

static int bwrap_run(struct worker *worker UNUSED, const struct bench_box *box,
                     const char *const *argv, struct error *err)
{
    const char *words[ARGUMENTS] = { "nsenter", "-t", NULL, "-a", "--" };
    char pid[16];
    size_t used = 5;

    snprintf(pid, sizeof(pid), "%d", box->pid);
    words[2] = pid;
    while (*argv && used < ARGUMENTS - 1)
        words[used++] = *argv++;
    return bench_spawn(words, err);
}

static int bwrap_destroy(struct worker *worker UNUSED, const struct bench_box *box,
                         struct error *err)
{
    int outer = 0, status;

    (void)sscanf(box->name, "%d", &outer);
    if (kill(box->pid, SIGKILL) < 0)
        return error_sys(err, "kill what bwrap runs");
    while (waitpid(outer, &status, 0) < 0)
        if (errno != EINTR)
            return error_sys(err, "wait for bwrap");
    return 0;
}

const struct subject_ops bwrap_ops = {
    .cycle = bwrap_cycle,
    .make = bwrap_make,
    .run = bwrap_run,
    .destroy = bwrap_destroy,
};
