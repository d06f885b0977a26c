/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How long one caller waits for each step of a session's life, over the HTTP API, beside F0 =
 * posix_spawn and wait of /bin/true. Each round does everything once, so that noise hits all alike.
 *
 *     bench_steps URL [ROUNDS [PAUSE_MS]]
 */

#include "bench/samples.h"
#include "bench/subject.h"

#include "base/macros.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

enum step { FLOOR, CREATE, FIRST, NEXT, DESTROY, STEPS };

static const char *const names[STEPS] = { "plain", "create", "first exec", "next exec", "delete" };

static const char *const true_argv[] = { "/bin/true", NULL };

static int take(struct worker *worker, struct bench_box *box, enum step step, struct error *err)
{
    switch (step) {
    case FLOOR:
        return bench_spawn(true_argv, err);
    case CREATE:
        return sandglass_ops.make(worker, box, err);
    case FIRST:
    case NEXT:
        return sandglass_ops.run(worker, box, true_argv, err);
    case DESTROY:
        return sandglass_ops.destroy(worker, box, err);
    case STEPS:
        break;
    }
    return -1;
}

static int round_of(struct worker *worker, struct samples samples[STEPS], struct error *err)
{
    struct bench_box box = { 0 };

    for (enum step step = FLOOR; step < STEPS; step++) {
        double begin = bench_now_us();

        if (take(worker, &box, step, err) < 0)
            return -1;
        samples_add(&samples[step], bench_now_us() - begin);
    }
    return 0;
}

int main(int argc, char **argv)
{
    const struct subject subject = { .name = "sandglass",
                                     .place = argc > 1 ? argv[1] : NULL,
                                     .ops = &sandglass_ops };
    int rounds = argc > 2 ? atoi(argv[2]) : 300;
    int pause_ms = argc > 3 ? atoi(argv[3]) : 0;
    struct samples samples[STEPS] = { 0 };
    struct worker worker;
    struct error err = { 0 };
    int result = 0;

    if (!subject.place) {
        fprintf(stderr, "usage: bench_steps URL [ROUNDS [PAUSE_MS]]\n");
        return 2;
    }
    worker_init(&worker, &subject, 0);
    for (int i = 0; i < rounds && result == 0; i++) {
        result = round_of(&worker, samples, &err);
        usleep((useconds_t)pause_ms * 1000);
    }
    if (result < 0)
        fprintf(stderr, "bench_steps: %s\n", err.message);
    for (enum step step = FLOOR; step < STEPS; step++) {
        printf("%-10s  p10 %6.0f  p50 %6.0f  p99 %6.0f us\n", names[step],
               samples_at(&samples[step], 0.1), samples_at(&samples[step], 0.5),
               samples_at(&samples[step], 0.99));
        samples_fini(&samples[step]);
    }
    worker_fini(&worker);
    return result < 0 ? 1 : 0;
}
