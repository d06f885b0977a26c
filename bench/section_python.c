/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Python: a new interpreter on the host, a new one in a live sandbox, and a warm one in a session
 * that is made for it. The daemon's pool has to hold warm interpreters with these modules; each
 * round waits until it is full again, as far as can be seen from outside.
 */

#include "engine.h"

#include "base/alloc.h"
#include "base/str.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { TARGET_SIZE = 160, SETTLE_MS = 1000 };

static const char stdlib_code[] = "import json, re, asyncio";
static const char numpy_code[] = "import numpy";
static const char *const stdlib_argv[] = { "/usr/bin/python3", "-c", stdlib_code, NULL };
static const char *const numpy_argv[] = { "/usr/bin/python3", "-c", numpy_code, NULL };

/* The processor time that all processes have used, in ticks. */
static long busy_ticks(void)
{
    FILE *file = fopen("/proc/stat", "re");
    long user = 0, nice = 0, system = 0;

    if (file) {
        if (fscanf(file, "cpu %ld %ld %ld", &user, &nice, &system) != 3)
            user = 0;
        fclose(file);
    }
    return user + nice + system;
}

/* A pool that is being filled keeps a processor busy: it is full when the machine is at rest, or
 * has had the time. */
static void await_rest(void)
{
    double end = bench_now_us() + SETTLE_MS * 1e3;
    long before = busy_ticks();

    while (bench_now_us() < end) {
        long now;

        usleep(100 * 1000);
        now = busy_ticks();
        if (now - before <= 1)
            return;
        before = now;
    }
}

/* A new session and the end of its first code; the session is removed outside of the measure. */
static double run_warm(struct trial *trial, struct error *err)
{
    const struct subject_ops *ops = trial->worker->subject->ops;
    struct bench_client *client = &trial->worker->client;
    char target[TARGET_SIZE], body[TARGET_SIZE];
    double begin, took;

    await_rest();
    snprintf(body, sizeof(body), "{\"code\":\"%s\",\"language\":\"python\"}", trial->argv[2]);
    begin = bench_now_us();
    if (ops->make(trial->worker, &trial->box, err) < 0)
        return -1;
    snprintf(target, sizeof(target), "/api/v1/sessions/%s/executions", trial->box.name);
    if (bench_client_call(client, HTTP_POST, target, body, err) < 0)
        return -1;
    took = bench_now_us() - begin;
    if (!memmem(client->body.data, client->body.length, "\"exit_code\":0", 13))
        return error_set(err, ERR_BACKEND, "the code failed: %.300s", buffer_text(&client->body));
    return ops->destroy(trial->worker, &trial->box, err) < 0 ? -1 : took;
}

void engine_python(struct engine *engine)
{
    const struct subject plain = { .name = "plain", .ops = &plain_ops };
    const struct subject *subject = engine_subject(engine, "sandglass");
    struct trial_limits limits = { .seconds = engine->seconds,
                                   .at_least = 5,
                                   .at_most = engine->at_most };
    struct trial trials[] = {
        { .row = "python_stdlib", .subject = "plain", .run = trial_run, .argv = stdlib_argv },
        { .row = "python_stdlib", .subject = "exec", .run = trial_run, .argv = stdlib_argv },
        { .row = "python_stdlib", .subject = "sandglass", .run = run_warm, .argv = stdlib_argv },
        { .row = "python_numpy", .subject = "plain", .run = trial_run, .argv = numpy_argv },
        { .row = "python_numpy", .subject = "exec", .run = trial_run, .argv = numpy_argv },
        { .row = "python_numpy", .subject = "sandglass", .run = run_warm, .argv = numpy_argv },
    };
    struct worker workers[2];
    struct bench_box box = { 0 };
    struct error err = { 0 };

    if (!subject)
        return;
    worker_init(&workers[0], &plain, 0);
    worker_init(&workers[1], subject, 1);
    if (subject->ops->make(&workers[1], &box, &err) < 0)
        engine_put_error(engine, "python_stdlib", "sandglass", &err);
    for (size_t i = 0; i < ARRAY_LENGTH(trials); i++) {
        trials[i].worker = &workers[i % 3 > 0];
        trials[i].box = box;
    }
    trials_run(trials, ARRAY_LENGTH(trials), &limits);
    for (size_t i = 0; i < ARRAY_LENGTH(trials); i++)
        trial_write_json(&trials[i], "us", &engine->json);
    (void)subject->ops->destroy(&workers[1], &box, NULL);
    trials_fini(trials, ARRAY_LENGTH(trials));
    worker_fini(&workers[0]);
    worker_fini(&workers[1]);
}
