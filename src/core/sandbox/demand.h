/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * How many sandboxes were requested at once, lately. The size of the pool follows from it, and the
 * moment at which the pool may make them without delaying sessions that wait.
 */

#include <stddef.h>
#include <stdint.h>

struct demand {
    int64_t each_us;   /* how long the machine is busy with one that is asked for */
    int64_t window_us; /* since when they are counted */
    size_t asked;      /* since then */
    size_t peak;       /* the most that were asked for at once, if that is many */
    int64_t peak_us;   /* when that was */
    int64_t busy_us;   /* until when the machine has to do with a crowd */
};

void demand_init(struct demand *demand, unsigned processors);

/* A sandbox is requested. */
void demand_note(struct demand *demand, int64_t now_us);

/* Forgotten by half every five minutes; 0 when there were never many. */
size_t demand_peak(const struct demand *demand, int64_t now_us);

/* How long a crowd still keeps the machine busy; 0 without one. */
int64_t demand_busy_us(const struct demand *demand, int64_t now_us);
