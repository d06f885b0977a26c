/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * The measuring itself, in sections: each is a part of the table, measured in one go, with the
 * floor (posix_spawn of /bin/true) measured in between. scripts/bench starts what is measured,
 * calls this with `SECTION [OPTION=VALUE]... SUBJECT[=PLACE]...` and makes the table of the
 * answers.
 */

#include "bench/trial.h"

enum { ENGINE_SUBJECTS = 16, ENGINE_WIDTHS = 8 };

struct engine {
    struct subject subjects[ENGINE_SUBJECTS];
    size_t count;
    const char *tools; /* borrowed: directory with the tiny programs */
    double seconds;
    size_t at_most;
    unsigned slices;                /* that the time is cut into where subjects take turns */
    unsigned widths[ENGINE_WIDTHS]; /* in flight; ends with 0 */
    size_t number;                  /* of sandboxes, of bytes: what the section counts */
    const char *folder;             /* borrowed: for files of plain work; NULL: none is done */
    const char *program;            /* borrowed: the command line of Sandglass */
    struct json_writer json;        /* an open array of rows */
};

/* Each appends rows: {"row", "subject", "unit", "count", "p50", …}. */
void engine_latency(struct engine *engine);  /* cold, first, exec_*, destroy */
void engine_alone(struct engine *engine);    /* exec_true, beside the floor only */
void engine_rate(struct engine *engine);     /* cycles in a second, widths in flight */
void engine_burst(struct engine *engine);    /* `number` at once */
void engine_memory(struct engine *engine);   /* of `number` idle sandboxes */
void engine_populate(struct engine *engine); /* makes `number` sessions, which stay */
void engine_growth(struct engine *engine);   /* cost of one more create and exec */
void engine_output(struct engine *engine);   /* `number` bytes of output, and files of that size */
void engine_requests(struct engine *engine); /* small GETs in a second */
void engine_python(struct engine *engine);   /* warm interpreters beside new ones */
void engine_mcp(struct engine *engine);      /* on stdio */

/* The subject with this name, or NULL. */
const struct subject *engine_subject(const struct engine *engine, const char *name);

/* A row: one value, many, or why there is none. */
void engine_put(struct engine *engine, const char *row, const char *subject, const char *unit,
                double value);
void engine_put_samples(struct engine *engine, const char *row, const char *subject,
                        const char *unit, struct samples *samples);
void engine_put_error(struct engine *engine, const char *row, const char *subject,
                      const struct error *err);
