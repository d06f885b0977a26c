/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Many bytes: output of a program, and files up and down. Beside each stands the same without
 * Sandglass: the program's pipe copied into a socket by a thread that does nothing else, and a
 * socket copied into a file.
 */

#include "engine.h"

#include "base/alloc.h"
#include "base/str.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

enum { BLOCK = 64 << 10, TARGET_SIZE = 256, ROUNDS = 3 };

/* --- the plain copy -------------------------------------------------------------------------- */

struct copy {
    int from, to; /* owned by the thread that copies */
};

/* Until the end of the one or the failure of the other. */
static void *copy_main(void *argument)
{
    struct copy *copy = argument;
    char *block = xmalloc(BLOCK);
    ssize_t got;

    while ((got = read(copy->from, block, BLOCK)) > 0) {
        for (ssize_t done = 0, count; done < got; done += count) {
            count = write(copy->to, block + done, (size_t)(got - done));
            if (count < 0)
                break;
        }
    }
    free(block);
    close(copy->from);
    close(copy->to);
    return NULL;
}

static uint64_t drain(int fd)
{
    char *block = xmalloc(BLOCK * 4);
    uint64_t total = 0;
    ssize_t got;

    while ((got = read(fd, block, BLOCK * 4)) > 0)
        total += (uint64_t)got;
    free(block);
    return total;
}

static void fill(int fd, uint64_t length)
{
    char *block = xcalloc(1, BLOCK * 4);

    while (length > 0) {
        ssize_t sent = write(fd, block, (size_t)MIN(length, (uint64_t)(BLOCK * 4)));

        if (sent <= 0)
            break;
        length -= (uint64_t)sent;
    }
    free(block);
}

static void dd_argv(char count[32], const char *argv[6], uint64_t bytes)
{
    snprintf(count, 32, "count=%llu", (unsigned long long)(bytes / BLOCK));
    argv[0] = "/bin/dd";
    argv[1] = "if=/dev/zero";
    argv[2] = "bs=64k";
    argv[3] = "status=none";
    argv[4] = count;
    argv[5] = NULL;
}

static pid_t start_program(const char *const *argv, int output)
{
    posix_spawn_file_actions_t actions;
    pid_t pid = -1;

    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, output, STDOUT_FILENO);
    (void)posix_spawn(&pid, argv[0], &actions, NULL, (char *const *)argv, environ);
    posix_spawn_file_actions_destroy(&actions);
    return pid;
}

static double plain_output(struct worker *worker UNUSED, uint64_t bytes, struct error *err)
{
    const char *argv[6];
    char count[32];
    double begin = bench_now_us();
    int output[2], link[2];
    struct copy copy;
    pthread_t thread;
    uint64_t got;
    pid_t pid;

    dd_argv(count, argv, bytes);
    if (pipe2(output, O_CLOEXEC) < 0 ||
        socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, link) < 0)
        return error_sys(err, "make a pipe");
    pid = start_program(argv, output[1]);
    close(output[1]);
    copy = (struct copy){ .from = output[0], .to = link[1] };
    pthread_create(&thread, NULL, copy_main, &copy);
    got = drain(link[0]);
    pthread_join(thread, NULL);
    close(link[0]);
    (void)waitpid(pid, NULL, 0);
    if (got != bytes)
        return error_set(err, ERR_BACKEND, "%llu bytes came", (unsigned long long)got);
    return bench_now_us() - begin;
}

/* A file on disk that a thread writes what comes, or sends. */
static double plain_file(struct worker *worker, uint64_t bytes, bool up, struct error *err)
{
    double begin = bench_now_us();
    char path[TARGET_SIZE];
    int link[2], file;
    struct copy copy;
    pthread_t thread;

    snprintf(path, sizeof(path), "%s/plain", worker->subject->place);
    file = open(path, O_RDWR | O_CREAT | O_CLOEXEC | (up ? O_TRUNC : 0), 0600);
    if (file < 0 || socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, link) < 0)
        return error_sys(err, "open %s", path);
    copy = (struct copy){ .from = up ? link[1] : file, .to = up ? file : link[1] };
    pthread_create(&thread, NULL, copy_main, &copy);
    if (up) {
        fill(link[0], bytes);
        (void)shutdown(link[0], SHUT_WR);
    } else if (drain(link[0]) != bytes) {
        error_set(err, ERR_BACKEND, "the file is shorter than it was");
    }
    pthread_join(thread, NULL);
    close(link[0]);
    return err->code ? -1 : bench_now_us() - begin;
}

static double plain_upload(struct worker *worker, uint64_t bytes, struct error *err)
{
    return plain_file(worker, bytes, true, err);
}

static double plain_download(struct worker *worker, uint64_t bytes, struct error *err)
{
    return plain_file(worker, bytes, false, err);
}

/* --- through Sandglass ----------------------------------------------------------------------- */

static int start_output(struct worker *worker, const char *session, uint64_t bytes,
                        char target[TARGET_SIZE], struct error *err)
{
    char body[TARGET_SIZE], id[BENCH_NAME_SIZE];

    snprintf(target, TARGET_SIZE, "/api/v1/sessions/%s/executions", session);
    snprintf(body, sizeof(body),
             "{\"argv\":[\"/bin/dd\",\"if=/dev/zero\",\"bs=64k\",\"status=none\",\"count=%llu\"],"
             "\"background\":true}",
             (unsigned long long)(bytes / BLOCK));
    if (bench_client_call(&worker->client, HTTP_POST, target, body, err) < 0 ||
        bench_client_find(&worker->client, "\"id\":\"", id, sizeof(id), err) < 0)
        return -1;
    snprintf(target, TARGET_SIZE, "/api/v1/sessions/%s/executions/%s/output?follow=1", session, id);
    return 0;
}

static double sandglass_output(struct worker *worker, const char *session, uint64_t bytes,
                               struct error *err)
{
    char target[TARGET_SIZE];
    double begin = bench_now_us();
    uint64_t got;

    if (start_output(worker, session, bytes, target, err) < 0 ||
        bench_client_drain(&worker->client, HTTP_GET, target, NULL, &got, err) < 0)
        return -1;
    if (got != bytes)
        return error_set(err, ERR_BACKEND, "%llu bytes came", (unsigned long long)got);
    return bench_now_us() - begin;
}

static double sandglass_upload(struct worker *worker, const char *session, uint64_t bytes,
                               struct error *err)
{
    char target[TARGET_SIZE];
    double begin = bench_now_us();

    snprintf(target, sizeof(target), "/api/v1/sessions/%s/files?path=big", session);
    if (bench_client_upload(&worker->client, target, "application/octet-stream", bytes, err) < 0)
        return -1;
    return bench_now_us() - begin;
}

static double sandglass_download(struct worker *worker, const char *session, uint64_t bytes,
                                 struct error *err)
{
    char target[TARGET_SIZE];
    double begin = bench_now_us();
    uint64_t got;

    snprintf(target, sizeof(target), "/api/v1/sessions/%s/files?path=big", session);
    if (bench_client_drain(&worker->client, HTTP_GET, target, NULL, &got, err) < 0)
        return -1;
    if (got != bytes)
        return error_set(err, ERR_BACKEND, "%llu bytes came", (unsigned long long)got);
    return bench_now_us() - begin;
}

/* --- the section ----------------------------------------------------------------------------- */

static const struct {
    const char *row;
    uint64_t divisor; /* files are smaller than the output */
    double (*plain)(struct worker *worker, uint64_t bytes, struct error *err);
    double (*sandglass)(struct worker *worker, const char *session, uint64_t bytes,
                        struct error *err);
} ways[] = {
    { "output", 1, plain_output, sandglass_output },
    { "upload", 10, plain_upload, sandglass_upload },
    { "download", 10, plain_download, sandglass_download },
};

static void measure(struct engine *engine, size_t way, struct worker *plain,
                    struct worker *sandglass, const char *session)
{
    uint64_t bytes = engine->number / ways[way].divisor / BLOCK * BLOCK;
    struct samples speeds[2] = { 0 };
    struct error errors[2] = { 0 };

    for (int round = 0; round < ROUNDS; round++) {
        double took[2] = { ways[way].plain(plain, bytes, &errors[0]),
                           ways[way].sandglass(sandglass, session, bytes, &errors[1]) };

        for (int i = 0; i < 2; i++)
            if (took[i] > 0 && !errors[i].code)
                samples_add(&speeds[i], (double)bytes / took[i]);
    }
    for (int i = 0; i < 2; i++) {
        const char *subject = i == 0 ? "plain" : "sandglass";

        if (errors[i].code)
            engine_put_error(engine, ways[way].row, subject, &errors[i]);
        else
            engine_put_samples(engine, ways[way].row, subject, "MB/s", &speeds[i]);
        samples_fini(&speeds[i]);
    }
}

void engine_output(struct engine *engine)
{
    const struct subject plain = { .name = "plain", .place = engine->folder, .ops = &plain_ops };
    const struct subject *subject = engine_subject(engine, "sandglass");
    struct worker workers[2];
    struct bench_box box = { 0 };
    struct error err = { 0 };

    if (!subject)
        return;
    worker_init(&workers[0], &plain, 0);
    worker_init(&workers[1], subject, 1);
    if (subject->ops->make(&workers[1], &box, &err) < 0)
        engine_put_error(engine, "output", subject->name, &err);
    for (size_t i = 0; i < ARRAY_LENGTH(ways) && box.name[0]; i++)
        measure(engine, i, &workers[0], &workers[1], box.name);
    if (box.name[0])
        (void)subject->ops->destroy(&workers[1], &box, NULL);
    worker_fini(&workers[0]);
    worker_fini(&workers[1]);
}
