/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * What is measured: something that makes a sandbox, runs programs in it and takes it away. Each
 * subject does so in the way that is the fastest it offers.
 *
 * A worker is one caller with a connection of its own; a subject that only starts programs needs
 * none. Operations block, and return when the work is done: the program has ended and its status is
 * known, the sandbox is gone.
 */

#include "bench/client.h"

enum { BENCH_NAME_SIZE = 80 };

struct subject;

struct worker {
    const struct subject *subject; /* borrowed */
    unsigned number;
    struct bench_client client;
};

struct bench_box {
    char name[BENCH_NAME_SIZE];
    int pid; /* where the subject is a program of ours */
};

/* A NULL operation is one that the subject does not have. */
struct subject_ops {
    /* A sandbox, /bin/true in it, and nothing is left of it. */
    int (*cycle)(struct worker *worker, struct error *err);

    /* One that lives. */
    int (*make)(struct worker *worker, struct bench_box *box, struct error *err);
    int (*run)(struct worker *worker, const struct bench_box *box, const char *const *argv,
               struct error *err);
    int (*destroy)(struct worker *worker, const struct bench_box *box, struct error *err);
};

struct subject {
    const char *name;
    const char *place; /* borrowed: a URL or a directory, whatever the operations need */
    const char
        *tools; /* borrowed: directory with programs that a sandbox sees as /bench, or NULL */
    const struct subject_ops *ops;
};

void worker_init(struct worker *worker, const struct subject *subject, unsigned number);
void worker_fini(struct worker *worker);

/* posix_spawn and wait: the floor, F0, when the program is /bin/true. The exit code has to be 0. */
int bench_spawn(const char *const *argv, struct error *err);
int bench_spawn_start(const char *const *argv, int *out_pid, struct error *err);
int bench_spawn_wait(int pid, struct error *err);

extern const struct subject_ops plain_ops;     /* posix_spawn, no walls */
extern const struct subject_ops sandglass_ops; /* place: the daemon's URL */

/* A box with one that another worker has made, by the id that the API gave. */
int sandglass_run(struct bench_client *client, const char *session, const char *const *argv,
                  struct error *err);
