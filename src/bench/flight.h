/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Many at once: each worker is a thread with a connection of its own, and all begin together.
 */

#include "bench/samples.h"
#include "bench/subject.h"

enum { FLIGHT_MAXIMUM = 1024 };

/* Cycles of `width` workers for so many seconds: how many were done in a second, or -1. */
double flight_rate(const struct subject *subject, unsigned width, double seconds,
                   struct error *err);

/* `count` sandboxes wanted in the same moment, each with a first result: how long each took, in the
 * order in which they were done. They are destroyed again. */
int flight_burst(const struct subject *subject, unsigned count, struct samples *out_us,
                 struct error *err);

/* `count` sandboxes, made by `width` workers; the names go to `out_boxes`. */
int flight_make(const struct subject *subject, unsigned width, size_t count,
                struct bench_box *out_boxes, struct error *err);
int flight_destroy(const struct subject *subject, unsigned width, size_t count,
                   const struct bench_box *boxes, struct error *err);
