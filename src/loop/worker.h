#pragma once

/*
 * Worker threads for what blocks: fsync, unlinking trees, DNS. A job runs on a thread and comes
 * back as a call of `done` on the loop, exactly once, never inside worker_submit(). A worker with
 * one thread keeps jobs in order.
 */

#include "loop/loop.h"

struct job;
struct worker;
typedef void job_fn(struct job *job);

struct job {
    job_fn *run;  /* on a thread: touches only the job's own data */
    job_fn *done; /* on the loop; may free the job */
    struct job *next;
};

struct worker *worker_new(struct loop *loop, unsigned threads, const char *name);
void worker_free(struct worker *worker); /* waits for all submitted jobs and runs their done */
void worker_submit(struct worker *worker, struct job *job);
