/* SPDX-License-Identifier: Apache-2.0 */
#include "backend/remote/job.h"

#include "backend/backend.h"
#include "base/alloc.h"
#include "base/macros.h"
#include "base/str.h"

#include <stdio.h>
#include <stdlib.h>

void remote_jobs_init(struct remote_jobs *jobs, struct loop *loop,
                      void (*cancel)(struct remote_job *job))
{
    *jobs = (struct remote_jobs){ .loop = loop, .cancel = cancel };
    list_init(&jobs->list);
}

void *remote_job_new(struct remote_jobs *jobs, size_t size, struct backend_op *op, const char *id)
{
    struct remote_job *job = xcalloc(1, size);

    job->jobs = jobs;
    job->op = op;
    snprintf(job->id, sizeof(job->id), "%s", id);
    list_init(&job->node);
    list_append(&jobs->list, &job->node);
    op->err = (struct error){ 0 };
    return job;
}

bool remote_jobs_have(const struct remote_jobs *jobs, const char *id)
{
    const struct remote_job *job;

    list_for_each (job, &jobs->list, node)
        if (str_equal(job->id, id))
            return true;
    return false;
}

void remote_job_drop(struct remote_job *job)
{
    job->jobs->cancel(job);
    loop_undefer(job->jobs->loop, &job->end);
    list_remove(&job->node);
    if (job->clear)
        job->clear(job);
    free(job);
}

void remote_jobs_free(struct remote_jobs *jobs)
{
    struct remote_job *job;

    while ((job = list_first(&jobs->list, struct remote_job, node)))
        remote_job_drop(job);
}

bool remote_jobs_cancel(struct remote_jobs *jobs, const struct backend_op *op)
{
    struct remote_job *job;

    list_for_each (job, &jobs->list, node) {
        if (job->op == op) {
            remote_job_drop(job);
            return true;
        }
    }
    return false;
}

void remote_job_done(struct remote_job *job)
{
    struct backend_op *op = job->op;

    remote_job_drop(job);
    op->done(op);
}

static void on_end(struct deferred *deferred)
{
    remote_job_done(container_of(deferred, struct remote_job, end));
}

void remote_job_done_later(struct remote_job *job)
{
    loop_defer(job->jobs->loop, &job->end, on_end);
}
