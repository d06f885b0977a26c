/* SPDX-License-Identifier: Apache-2.0 */
/* Many at once: rates, bursts, and what many idle ones cost. */

#include "bench/flight.h"
#include "engine.h"

#include "base/alloc.h"
#include "base/str.h"

#include <stdio.h>
#include <stdlib.h>

enum { MAKERS = 8 };

/* --- rate ------------------------------------------------------------------------------------ */

/* The time is cut into slices, and the subjects take turns. */
static void measure_width(struct engine *engine, unsigned width)
{
    struct samples samples[ENGINE_SUBJECTS] = { 0 };
    struct error errors[ENGINE_SUBJECTS] = { 0 };
    char row[32];

    snprintf(row, sizeof(row), "rate_%u", width);
    for (unsigned slice = 0; slice < engine->slices; slice++) {
        for (size_t i = 0; i < engine->count; i++) {
            double rate;

            if (errors[i].code)
                continue;
            rate = flight_rate(&engine->subjects[i], width, engine->seconds / engine->slices,
                               &errors[i]);
            if (rate >= 0)
                samples_add(&samples[i], rate);
        }
    }
    for (size_t i = 0; i < engine->count; i++) {
        if (errors[i].code)
            engine_put_error(engine, row, engine->subjects[i].name, &errors[i]);
        else
            engine_put_samples(engine, row, engine->subjects[i].name, "per second", &samples[i]);
        samples_fini(&samples[i]);
    }
}

void engine_rate(struct engine *engine)
{
    for (const unsigned *width = engine->widths; *width; width++)
        measure_width(engine, *width);
}

/* --- burst ----------------------------------------------------------------------------------- */

void engine_burst(struct engine *engine)
{
    for (size_t i = 0; i < engine->count; i++) {
        const struct subject *subject = &engine->subjects[i];
        scoped(samples_fini) struct samples samples = { 0 };
        struct error err = { 0 };

        if (flight_burst(subject, (unsigned)MIN(engine->number, (size_t)FLIGHT_MAXIMUM), &samples,
                         &err) < 0)
            engine_put_error(engine, "burst", subject->name, &err);
        else
            engine_put_samples(engine, "burst", subject->name, "us", &samples);
    }
}

/* --- idle ------------------------------------------------------------------------------------ */

static double available_kb(void)
{
    FILE *file = fopen("/proc/meminfo", "re");
    char line[128];
    double value = 0;

    while (file && fgets(line, sizeof(line), file))
        if (sscanf(line, "MemAvailable: %lf", &value) == 1)
            break;
    if (file)
        fclose(file);
    return value;
}

static void measure_memory(struct engine *engine, const struct subject *subject)
{
    struct bench_box *boxes = xcalloc(engine->number, sizeof(*boxes));
    double before = available_kb();
    struct error err = { 0 };
    size_t made = engine->number;

    if (flight_make(subject, MAKERS, engine->number, boxes, &err) < 0)
        engine_put_error(engine, "memory", subject->name, &err);
    else
        engine_put(engine, "memory", subject->name, "kB",
                   (before - available_kb()) / (double)engine->number);
    while (made > 0 && !boxes[made - 1].name[0])
        made--;
    if (flight_destroy(subject, MAKERS, made, boxes, &err) < 0)
        fprintf(stderr, "bench_engine: %s: %s\n", subject->name, err.message);
    free(boxes);
}

void engine_memory(struct engine *engine)
{
    for (size_t i = 0; i < engine->count; i++)
        measure_memory(engine, &engine->subjects[i]);
}

void engine_populate(struct engine *engine)
{
    const struct subject *subject = &engine->subjects[0];
    struct bench_box *boxes = xcalloc(engine->number, sizeof(*boxes));
    double begin = bench_now_us();
    struct error err = { 0 };

    if (flight_make(subject, MAKERS, engine->number, boxes, &err) < 0)
        engine_put_error(engine, "populate", subject->name, &err);
    else
        engine_put(engine, "populate", subject->name, "s", (bench_now_us() - begin) / 1e6);
    free(boxes);
}

/* One more, with as many as there are. */
void engine_growth(struct engine *engine)
{
    const struct subject *subject = engine_subject(engine, "sandglass");
    const struct subject plain = { .name = "plain", .ops = &plain_ops };
    static const char *const argv[] = { "/bin/true", NULL };
    struct trial_limits limits = { .seconds = engine->seconds,
                                   .at_least = 5,
                                   .at_most = engine->at_most };
    struct trial trials[3] = {
        { .row = "floor", .subject = "plain", .run = trial_cycle },
        { .row = "first", .subject = "sandglass", .run = trial_first },
        { .row = "exec", .subject = "sandglass", .run = trial_run, .argv = argv },
    };
    struct worker workers[2];
    struct error err = { 0 };

    if (!subject)
        return;
    worker_init(&workers[0], &plain, 0);
    worker_init(&workers[1], subject, 1);
    for (size_t i = 0; i < ARRAY_LENGTH(trials); i++)
        trials[i].worker = &workers[i > 0];
    if (subject->ops->make(&workers[1], &trials[2].box, &err) < 0) {
        engine_put_error(engine, "exec", subject->name, &err);
    } else {
        trials_run(trials, ARRAY_LENGTH(trials), &limits);
        for (size_t i = 0; i < ARRAY_LENGTH(trials); i++)
            trial_write_json(&trials[i], "us", &engine->json);
        (void)subject->ops->destroy(&workers[1], &trials[2].box, NULL);
    }
    trials_fini(trials, ARRAY_LENGTH(trials));
    worker_fini(&workers[0]);
    worker_fini(&workers[1]);
}
