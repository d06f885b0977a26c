/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Worker threads for calls that block: fsync, unlinking trees, DNS. A job runs on a thread and
 * comes back as a call of `done` on the loop, exactly once, never inside worker_submit(). A worker
 * with one thread keeps jobs in order.
 */

#include "base/scoped.h"
#include "loop/loop.h"

struct job;
struct worker;
typedef void job_fn(struct job *job);

struct job {
    job_fn *run;  /* on a thread: touches only the job's own data */
    job_fn *done; /* on the loop; may free the job */
    struct job *next;
};

/* The loop is borrowed. The name is for tools like ps; it is cut to 15 bytes. */
struct worker *worker_new(struct loop *loop, unsigned threads, const char *name);

/* Waits for all submitted jobs, also jobs that a `done` submits meanwhile, and runs their `done`.
 * NULL is fine; not from a done. True when there were any. */
bool worker_drain(struct worker *worker);

/* Drains the worker first. NULL is fine; not from a `done`. */
void worker_free(struct worker *worker);
SCOPED_DEFINE(worker_free, struct worker);

/* The job is borrowed until its done is called. */
void worker_submit(struct worker *worker, struct job *job);
