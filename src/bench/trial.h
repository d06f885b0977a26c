/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Trials: things whose time is taken, again and again, in turn.
 *
 * The one that has used the least time so far goes next, so that whatever disturbs the machine
 * disturbs all of them alike, and what is quick is measured more often than what is slow.
 */

#include "bench/samples.h"
#include "bench/subject.h"

struct trial {
    const char *row;     /* what is done */
    const char *subject; /* by whom */

    /* Does it once: its own measure of the time it took, in microseconds, or -1. */
    double (*run)(struct trial *trial, struct error *err);
    struct worker *worker;   /* borrowed */
    const char *const *argv; /* borrowed: for those that run a program */
    struct bench_box box;    /* for those that need one that lives */
    unsigned weight;         /* 0 is 1; 2 is given twice the time */
    struct samples samples;
    double spent_us; /* all that it needed, what is not measured too */
    bool failed;
    struct error err;
};

struct trial_limits {
    double seconds;  /* for all of them together */
    size_t at_least; /* times for each, also when the time is over */
    size_t at_most;
};

/* One that fails is left out from then on: it has `failed` set and says why in `err`. */
void trials_run(struct trial *trials, size_t count, const struct trial_limits *limits);

/* The usual ones. */
double trial_cycle(struct trial *trial, struct error *err);
double trial_first(struct trial *trial, struct error *err);   /* made, and a first result */
double trial_run(struct trial *trial, struct error *err);     /* argv in trial->box */
double trial_destroy(struct trial *trial, struct error *err); /* of one that has run a program */

/* {row, subject, unit, count, p50, …} or {row, subject, error} */
void trial_write_json(struct trial *trial, const char *unit, struct json_writer *json);
void trials_fini(struct trial *trials, size_t count);
