/* SPDX-License-Identifier: Apache-2.0 */
/* crun and runc: the same command line, by the name of the subject, on bundles that are prepared.
 */

#include "peers.h"

#include <stdatomic.h>
#include <stdio.h>
#include <unistd.h>

enum { PATH_SIZE = 256, ARGUMENTS = 32 };

static void make_name(char name[BENCH_NAME_SIZE])
{
    static atomic_uint number;

    snprintf(name, BENCH_NAME_SIZE, "bench-%d-%u", (int)getpid(), atomic_fetch_add(&number, 1));
}

static int oci_start(struct worker *worker, bool stays, const char *name, struct error *err)
{
    char state[PATH_SIZE], bundle[PATH_SIZE];
    const char *const once[] = {
        worker->subject->name, "--root", state, "run", "--bundle", bundle, name, NULL
    };
    const char *const live[] = {
        worker->subject->name, "--root", state, "run", "--detach", "--bundle", bundle, name, NULL
    };

    snprintf(state, sizeof(state), "%s/state", worker->subject->place);
    snprintf(bundle, sizeof(bundle), "%s/%s", worker->subject->place, stays ? "live" : "once");
    return bench_spawn(stays ? live : once, err);
}

static int oci_cycle(struct worker *worker, struct error *err)
{
    char name[BENCH_NAME_SIZE];

    make_name(name);
    return oci_start(worker, false, name, err);
}

static int oci_make(struct worker *worker, struct bench_box *box, struct error *err)
{
    make_name(box->name);
    return oci_start(worker, true, box->name, err);
}

static int oci_run(struct worker *worker, const struct bench_box *box, const char *const *argv,
                   struct error *err)
{
    char state[PATH_SIZE];
    const char *words[ARGUMENTS] = { worker->subject->name, "--root", state, "exec", box->name };
    size_t used = 5;

    snprintf(state, sizeof(state), "%s/state", worker->subject->place);
    while (*argv && used < ARGUMENTS - 1)
        words[used++] = *argv++;
    return bench_spawn(words, err);
}

static int oci_destroy(struct worker *worker, const struct bench_box *box, struct error *err)
{
    char state[PATH_SIZE];
    const char *const argv[] = {
        worker->subject->name, "--root", state, "delete", "--force", box->name, NULL
    };

    snprintf(state, sizeof(state), "%s/state", worker->subject->place);
    return bench_spawn(argv, err);
}

const struct subject_ops oci_ops = {
    .cycle = oci_cycle,
    .make = oci_make,
    .run = oci_run,
    .destroy = oci_destroy,
};
