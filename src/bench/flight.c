/* SPDX-License-Identifier: Apache-2.0 */
#include "bench/flight.h"

#include "base/alloc.h"

#include <pthread.h>
#include <stdatomic.h>

struct flight;

struct flyer {
    struct flight *flight; /* borrowed */
    struct worker worker;
    pthread_t thread;
    struct bench_box box;
    double took_us;
    struct error err;
};

/* What each worker does, over and over until it says that nothing is left. */
typedef int flyer_fn(struct flyer *flyer, struct error *err); /* 1: again, 0: done, -1: failed */

struct flight {
    flyer_fn *fly;
    pthread_barrier_t start;
    double begin_us, end_us;
    atomic_size_t done;
    size_t count;
    struct bench_box *boxes;
};

static void *flyer_main(void *argument)
{
    struct flyer *flyer = argument;
    struct flight *flight = flyer->flight;
    int again = 1;

    pthread_barrier_wait(&flight->start);
    while (again > 0)
        again = flight->fly(flyer, &flyer->err);
    return NULL;
}

/* Runs the workers to their end; the seconds it took, or -1 with the first error. */
static double fly(struct flight *flight, const struct subject *subject, unsigned width,
                  struct flyer *flyers, struct error *err)
{
    double result;

    pthread_barrier_init(&flight->start, NULL, width + 1);
    for (unsigned i = 0; i < width; i++) {
        flyers[i].flight = flight;
        worker_init(&flyers[i].worker, subject, i);
        pthread_create(&flyers[i].thread, NULL, flyer_main, &flyers[i]);
    }
    flight->begin_us = bench_now_us();
    pthread_barrier_wait(&flight->start);
    for (unsigned i = 0; i < width; i++)
        pthread_join(flyers[i].thread, NULL);
    result = (bench_now_us() - flight->begin_us) / 1e6;
    for (unsigned i = 0; i < width; i++) {
        if (flyers[i].err.code && result >= 0) {
            *err = flyers[i].err;
            result = -1;
        }
    }
    pthread_barrier_destroy(&flight->start);
    return result;
}

static void flyers_free(struct flyer *flyers, unsigned width)
{
    for (unsigned i = 0; i < width; i++)
        worker_fini(&flyers[i].worker);
    free(flyers);
}

/* --- a rate ---------------------------------------------------------------------------------- */

static int fly_cycles(struct flyer *flyer, struct error *err)
{
    struct flight *flight = flyer->flight;

    if (flyer->worker.subject->ops->cycle(&flyer->worker, err) < 0)
        return -1;
    atomic_fetch_add(&flight->done, 1);
    return bench_now_us() < flight->end_us;
}

double flight_rate(const struct subject *subject, unsigned width, double seconds, struct error *err)
{
    struct flyer *flyers = xcalloc(width, sizeof(*flyers));
    struct flight flight = { .fly = fly_cycles, .end_us = bench_now_us() + seconds * 1e6 };
    double took = fly(&flight, subject, width, flyers, err);

    flyers_free(flyers, width);
    return took < 0 ? -1 : (double)atomic_load(&flight.done) / took;
}

/* --- a burst --------------------------------------------------------------------------------- */

static int fly_first(struct flyer *flyer, struct error *err)
{
    static const char *const argv[] = { "/bin/true", NULL };
    const struct subject_ops *ops = flyer->worker.subject->ops;

    if (ops->make(&flyer->worker, &flyer->box, err) < 0 ||
        ops->run(&flyer->worker, &flyer->box, argv, err) < 0)
        return -1;
    flyer->took_us = bench_now_us() - flyer->flight->begin_us;
    return 0;
}

int flight_burst(const struct subject *subject, unsigned count, struct samples *out_us,
                 struct error *err)
{
    struct flyer *flyers = xcalloc(count, sizeof(*flyers));
    struct flight flight = { .fly = fly_first };
    int result = fly(&flight, subject, count, flyers, err) < 0 ? -1 : 0;

    for (unsigned i = 0; i < count; i++) {
        struct flyer *flyer = &flyers[i];

        if (flyer->took_us > 0)
            samples_add(out_us, flyer->took_us);
        if (flyer->box.name[0] || flyer->box.pid)
            (void)subject->ops->destroy(&flyer->worker, &flyer->box, NULL);
    }
    flyers_free(flyers, count);
    return result;
}

/* --- many that live -------------------------------------------------------------------------- */

static int fly_make(struct flyer *flyer, struct error *err)
{
    struct flight *flight = flyer->flight;
    size_t mine = atomic_fetch_add(&flight->done, 1);

    if (mine >= flight->count)
        return 0;
    return flyer->worker.subject->ops->make(&flyer->worker, &flight->boxes[mine], err) < 0 ? -1 : 1;
}

static int fly_destroy(struct flyer *flyer, struct error *err)
{
    struct flight *flight = flyer->flight;
    size_t mine = atomic_fetch_add(&flight->done, 1);

    if (mine >= flight->count)
        return 0;
    return flyer->worker.subject->ops->destroy(&flyer->worker, &flight->boxes[mine], err) < 0 ? -1
                                                                                              : 1;
}

static int fly_all(flyer_fn *what, const struct subject *subject, unsigned width, size_t count,
                   struct bench_box *boxes, struct error *err)
{
    struct flyer *flyers = xcalloc(width, sizeof(*flyers));
    struct flight flight = { .fly = what, .count = count, .boxes = boxes };
    double took = fly(&flight, subject, width, flyers, err);

    flyers_free(flyers, width);
    return took < 0 ? -1 : 0;
}

int flight_make(const struct subject *subject, unsigned width, size_t count,
                struct bench_box *out_boxes, struct error *err)
{
    return fly_all(fly_make, subject, width, count, out_boxes, err);
}

int flight_destroy(const struct subject *subject, unsigned width, size_t count,
                   const struct bench_box *boxes, struct error *err)
{
    return fly_all(fly_destroy, subject, width, count, (struct bench_box *)boxes, err);
}
