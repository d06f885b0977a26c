/* SPDX-License-Identifier: Apache-2.0 */
/* One thing after the other: how long each takes. */

#include "engine.h"

#include "base/alloc.h"
#include "base/str.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>

enum { TRIALS = 96, FILE_MAXIMUM = 64 << 10 };

static const char *const true_argv[] = { "/bin/true", NULL };
static const char *const python_argv[] = { "/usr/bin/python3", "-c", "pass", NULL };
static const char *const tiny_argv[] = { "/bench/true", NULL };
static const char *const own_tiny_argv[] = { "./true", NULL };
static const char *const files_argv[] = { "/bin/bash", "-c",
                                          "for ((i = 0; i < 1000; i++)); do echo $i > f$i; done",
                                          NULL };

struct latency {
    struct engine *engine;
    struct worker workers[ENGINE_SUBJECTS];
    struct bench_box boxes[ENGINE_SUBJECTS]; /* one that lives, for each */
    struct trial trials[TRIALS];
    size_t count;
    char tiny[256]; /* the tiny program on the host */
    const char *tiny_plain_argv[2];
};

static bool is_sandglass(const struct subject *subject)
{
    return str_starts_with(subject->name, "sandglass");
}

static void add(struct latency *latency, const char *row, size_t at,
                double (*run)(struct trial *, struct error *), const char *const *argv)
{
    const char *name = latency->engine->subjects[at].name;

    latency->trials[latency->count++] = (struct trial){
        .row = row,
        .subject = str_starts_with(name, "sandglass") ? "sandglass" : name,
        .run = run,
        .worker = &latency->workers[at],
        .box = latency->boxes[at],
        .argv = argv,
    };
}

/* A sandbox of Sandglass has no directory of ours in it: the program is uploaded. */
static int upload_tiny(struct latency *latency, size_t at, struct error *err)
{
    char target[256];
    scoped(fd_close) int fd = open(latency->tiny, O_RDONLY | O_CLOEXEC);
    scoped(free) char *bytes = xmalloc(FILE_MAXIMUM);
    ssize_t length = read(fd, bytes, FILE_MAXIMUM);

    if (length <= 0)
        return error_sys(err, "read %s", latency->tiny);
    snprintf(target, sizeof(target), "/api/v1/sessions/%s/files?path=true&mode=755",
             latency->boxes[at].name);
    return bench_client_put(&latency->workers[at].client, target, "application/octet-stream", bytes,
                            (size_t)length, err) < 0
               ? -1
               : 0;
}

/* Of one whose files are many. */
static double destroy_full(struct trial *trial, struct error *err)
{
    const struct subject_ops *ops = trial->worker->subject->ops;
    double begin;

    if (ops->make(trial->worker, &trial->box, err) < 0 ||
        ops->run(trial->worker, &trial->box, files_argv, err) < 0)
        return -1;
    begin = bench_now_us();
    return ops->destroy(trial->worker, &trial->box, err) < 0 ? -1 : bench_now_us() - begin;
}

/* What one record costs that has to be on the disk: a lower bound for whatever is durable. */
static double sync_disk(struct trial *trial, struct error *err)
{
    static const char record[4096];
    int fd = trial->box.pid;
    double begin = bench_now_us();

    if (write(fd, record, sizeof(record)) != sizeof(record) || fdatasync(fd) < 0)
        return error_sys(err, "write to the disk");
    return bench_now_us() - begin;
}

static void add_disk(struct latency *latency, size_t at)
{
    char path[256];
    int fd;

    snprintf(path, sizeof(path), "%s/sync", latency->engine->folder);
    fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_APPEND | O_CLOEXEC, 0600);
    if (fd < 0)
        return;
    latency->boxes[at].pid = fd;
    add(latency, "sync", at, sync_disk, NULL);
}

static void add_plain(struct latency *latency, size_t at)
{
    if (latency->engine->folder)
        add_disk(latency, at);
    add(latency, "floor", at, trial_cycle, NULL);
    add(latency, "exec_static", at, trial_run, latency->tiny_plain_argv);
    add(latency, "exec_python", at, trial_run, python_argv);
}

static int add_live(struct latency *latency, size_t at, struct error *err)
{
    const struct subject *subject = &latency->engine->subjects[at];

    if (subject->ops->make(&latency->workers[at], &latency->boxes[at], err) < 0)
        return -1;
    if (is_sandglass(subject) && upload_tiny(latency, at, err) < 0)
        return -1;
    add(latency, "exec_true", at, trial_run, true_argv);
    add(latency, "exec_static", at, trial_run, is_sandglass(subject) ? own_tiny_argv : tiny_argv);
    add(latency, "exec_python", at, trial_run, python_argv);
    add(latency, "destroy", at, trial_destroy, NULL);
    return 0;
}

static int add_subject(struct latency *latency, size_t at, struct error *err)
{
    const char *name = latency->engine->subjects[at].name;

    worker_init(&latency->workers[at], &latency->engine->subjects[at], (unsigned)at);
    if (str_equal(name, "plain")) {
        add_plain(latency, at);
        return 0;
    }
    if (str_equal(name, "sandglass")) {
        add(latency, "warm", at, trial_first, NULL);
        add(latency, "destroy_full", at, destroy_full, NULL);
    } else {
        add(latency, "cold", at, trial_cycle, NULL);
    }
    return str_equal(name, "sandglass-cold") ? 0 : add_live(latency, at, err);
}

/* Nothing but this and the floor: how far the slowest are off when nobody else leaves work for the
 * kernel behind. */
static int add_alone(struct latency *latency, size_t at, struct error *err)
{
    const struct subject *subject = &latency->engine->subjects[at];

    worker_init(&latency->workers[at], subject, (unsigned)at);
    if (str_equal(subject->name, "plain")) {
        add(latency, "floor", at, trial_cycle, NULL);
        return 0;
    }
    if (subject->ops->make(&latency->workers[at], &latency->boxes[at], err) < 0)
        return -1;
    add(latency, "exec_true", at, trial_run, true_argv);
    return 0;
}

static void measure(struct engine *engine,
                    int (*add_one)(struct latency *latency, size_t at, struct error *err))
{
    struct latency *latency = xnew(struct latency);
    struct trial_limits limits = { .seconds = engine->seconds,
                                   .at_least = 5,
                                   .at_most = engine->at_most };

    latency->engine = engine;
    snprintf(latency->tiny, sizeof(latency->tiny), "%s/true", engine->tools ? engine->tools : "");
    latency->tiny_plain_argv[0] = latency->tiny;
    for (size_t i = 0; i < engine->count; i++) {
        struct error err = { 0 };

        if (add_one(latency, i, &err) < 0)
            engine_put_error(engine, "exec_true", engine->subjects[i].name, &err);
    }
    trials_run(latency->trials, latency->count, &limits);
    for (size_t i = 0; i < latency->count; i++)
        trial_write_json(&latency->trials[i], "us", &engine->json);
    for (size_t i = 0; i < engine->count; i++) {
        if (latency->boxes[i].name[0])
            (void)engine->subjects[i].ops->destroy(&latency->workers[i], &latency->boxes[i], NULL);
        worker_fini(&latency->workers[i]);
    }
    trials_fini(latency->trials, latency->count);
    free(latency);
}

void engine_latency(struct engine *engine)
{
    measure(engine, add_subject);
}

void engine_alone(struct engine *engine)
{
    measure(engine, add_alone);
}
