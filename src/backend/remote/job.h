/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Operations under way of a backend whose sandboxes are run by an engine or a cluster: each one
 * sends a request, waits for the answer and sends the next. Its allocation begins with a struct
 * remote_job, and is freed when the operation is done, cancelled, or its backend is closed.
 */

#include "base/id.h"
#include "base/list.h"
#include "loop/loop.h"

struct backend_op;
struct remote_job;

struct remote_jobs {
    struct list list;
    struct loop *loop;                      /* borrowed */
    void (*cancel)(struct remote_job *job); /* cancels the request under way */
};

struct remote_job {
    struct list node;
    struct remote_jobs *jobs; /* borrowed */
    struct backend_op *op;    /* borrowed until it is done */
    struct deferred end;
    char id[ID_SIZE];         /* of the sandbox */
    void (*clear)(void *job); /* releases the fields after the base; NULL: none to release */
};

void remote_jobs_init(struct remote_jobs *jobs, struct loop *loop,
                      void (*cancel)(struct remote_job *job));
void remote_jobs_free(struct remote_jobs *jobs); /* their operations are not completed */

/* Allocates `size` bytes that begin with the job. */
void *remote_job_new(struct remote_jobs *jobs, size_t size, struct backend_op *op, const char *id);

bool remote_jobs_have(const struct remote_jobs *jobs, const char *id); /* one of this sandbox */

/* Frees the job without completing the operation; false when it has no job. */
bool remote_jobs_cancel(struct remote_jobs *jobs, const struct backend_op *op);

void remote_job_drop(struct remote_job *job); /* without a word to the operation */
void remote_job_done(struct remote_job *job); /* completes the operation with op->err */

/* The same from the next turn of the loop: for failures inside the call. */
void remote_job_done_later(struct remote_job *job);
