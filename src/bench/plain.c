/* SPDX-License-Identifier: Apache-2.0 */
/* Plain processes: what everything else is compared with. */

#include "bench/subject.h"

#include <errno.h>
#include <signal.h>
#include <spawn.h>
#include <string.h>
#include <sys/wait.h>

extern char **environ;

void worker_init(struct worker *worker, const struct subject *subject, unsigned number)
{
    worker->subject = subject;
    worker->number = number;
    bench_client_init(&worker->client, subject->place ? subject->place : "");
}

void worker_fini(struct worker *worker)
{
    bench_client_fini(&worker->client);
}

int bench_spawn_start(const char *const *argv, int *out_pid, struct error *err)
{
    pid_t pid;
    int failure = posix_spawnp(&pid, argv[0], NULL, NULL, (char *const *)argv, environ);

    if (failure != 0) {
        errno = failure;
        return error_sys(err, "start %s", argv[0]);
    }
    *out_pid = pid;
    return 0;
}

int bench_spawn_wait(int pid, struct error *err)
{
    int status;

    while (waitpid(pid, &status, 0) < 0)
        if (errno != EINTR)
            return error_sys(err, "wait");
    if (status == 0 || (WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL))
        return 0;
    return error_set(err, ERR_BACKEND, "the program ended with status %#x", (unsigned)status);
}

int bench_spawn(const char *const *argv, struct error *err)
{
    int pid = -1;

    if (bench_spawn_start(argv, &pid, err) < 0)
        return -1;
    if (bench_spawn_wait(pid, err) < 0)
        return error_wrap(err, "%s", argv[0]);
    return 0;
}

static int plain_cycle(struct worker *worker UNUSED, struct error *err)
{
    return bench_spawn((const char *const[]){ "/bin/true", NULL }, err);
}

static int plain_make(struct worker *worker UNUSED, struct bench_box *box UNUSED,
                      struct error *err UNUSED)
{
    return 0;
}

static int plain_run(struct worker *worker UNUSED, const struct bench_box *box UNUSED,
                     const char *const *argv, struct error *err)
{
    return bench_spawn(argv, err);
}

static int plain_destroy(struct worker *worker UNUSED, const struct bench_box *box UNUSED,
                         struct error *err UNUSED)
{
    return 0;
}

const struct subject_ops plain_ops = {
    .cycle = plain_cycle,
    .make = plain_make,
    .run = plain_run,
    .destroy = plain_destroy,
};
