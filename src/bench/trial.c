/* SPDX-License-Identifier: Apache-2.0 */
#include "bench/trial.h"

static const char *const true_argv[] = { "/bin/true", NULL };

static struct trial *least_used(struct trial *trials, size_t count,
                                const struct trial_limits *limits, bool time_is_over)
{
    size_t enough = time_is_over ? limits->at_least : limits->at_most;
    struct trial *found = NULL;

    for (size_t i = 0; i < count; i++) {
        struct trial *trial = &trials[i];

        if (!trial->failed && trial->samples.count < enough &&
            (!found || trial->spent_us < found->spent_us))
            found = trial;
    }
    return found;
}

static void run_once(struct trial *trial)
{
    double begin = bench_now_us();
    double took = trial->run(trial, &trial->err);

    trial->spent_us += (bench_now_us() - begin) / (trial->weight ? trial->weight : 1);
    if (took < 0)
        trial->failed = true;
    else
        samples_add(&trial->samples, took);
}

void trials_run(struct trial *trials, size_t count, const struct trial_limits *limits)
{
    double end = bench_now_us() + limits->seconds * 1e6;
    struct trial *next;

    while ((next = least_used(trials, count, limits, bench_now_us() > end)))
        run_once(next);
}

double trial_cycle(struct trial *trial, struct error *err)
{
    double begin = bench_now_us();

    if (trial->worker->subject->ops->cycle(trial->worker, err) < 0)
        return -1;
    return bench_now_us() - begin;
}

double trial_first(struct trial *trial, struct error *err)
{
    const struct subject_ops *ops = trial->worker->subject->ops;
    double begin = bench_now_us();
    double took;

    if (ops->make(trial->worker, &trial->box, err) < 0)
        return -1;
    if (ops->run(trial->worker, &trial->box, true_argv, err) < 0)
        return -1;
    took = bench_now_us() - begin;
    return ops->destroy(trial->worker, &trial->box, err) < 0 ? -1 : took;
}

double trial_run(struct trial *trial, struct error *err)
{
    double begin = bench_now_us();

    if (trial->worker->subject->ops->run(trial->worker, &trial->box, trial->argv, err) < 0)
        return -1;
    return bench_now_us() - begin;
}

double trial_destroy(struct trial *trial, struct error *err)
{
    const struct subject_ops *ops = trial->worker->subject->ops;
    double begin;

    if (ops->make(trial->worker, &trial->box, err) < 0)
        return -1;
    if (ops->run && ops->run(trial->worker, &trial->box, true_argv, err) < 0)
        return -1;
    begin = bench_now_us();
    if (ops->destroy(trial->worker, &trial->box, err) < 0)
        return -1;
    return bench_now_us() - begin;
}

void trial_write_json(struct trial *trial, const char *unit, struct json_writer *json)
{
    json_begin_object(json, NULL);
    json_put_text(json, "row", trial->row);
    json_put_text(json, "subject", trial->subject);
    if (trial->failed) {
        json_put_text(json, "error", trial->err.message);
    } else {
        json_put_text(json, "unit", unit);
        samples_write_json(&trial->samples, json);
    }
    json_end_object(json);
}

void trials_fini(struct trial *trials, size_t count)
{
    for (size_t i = 0; i < count; i++)
        samples_fini(&trials[i].samples);
}
