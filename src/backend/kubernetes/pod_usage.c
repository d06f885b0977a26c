/* SPDX-License-Identifier: Apache-2.0 */
/* What a pod uses: its relay tells, as the API server has no numbers without another server beside it. */

#include "backend/kubernetes/kubernetes_private.h"

#include "base/macros.h"
#include "base/str.h"
#include "bridge/bridge.h"

#include <stdio.h>

enum { MEASURE_US = 10 * 1000 * 1000 }; /* a connection that was cut is there again by then */

struct measure {
    struct kube_op job;
    struct timer limit;
};

static void clear_measure(void *job)
{
    struct measure *measure = job;

    timer_stop(&measure->limit);
}

static void on_limit(struct timer *timer)
{
    struct measure *measure = container_of(timer, struct measure, limit);

    error_set(&measure->job.base.op->err, ERR_TIMEOUT, "sandbox %s does not tell what it uses",
              measure->job.base.id);
    kube_op_done(&measure->job);
}

static struct sandbox_usage convert(const struct relay_usage *told)
{
    struct sandbox_usage usage = {
        .cpu_us = told->cpu_us,
        .memory_bytes = told->memory_bytes,
        .memory_peak_bytes = told->memory_peak_bytes,
        .pids = told->pids,
        .oom_kills = told->oom_kills,
    };

    _Static_assert((int)RELAY_PROCESSES == (int)USAGE_PROCESSES, "as many on both sides");
    for (size_t i = 0; i < RELAY_PROCESSES; i++) {
        usage.processes[i].cpu_us = told->processes[i].cpu_us;
        usage.processes[i].number = told->processes[i].number;
        snprintf(usage.processes[i].name, sizeof(usage.processes[i].name), "%s",
                 told->processes[i].name);
    }
    return usage;
}

static void on_measured(struct kube_op *job, const struct relay_usage *usage)
{
    struct measure *measure = container_of(job, struct measure, job);

    timer_stop(&measure->limit);
    job->on_usage = NULL;
    job->base.op->result.usage = convert(usage);
    remote_job_done_later(&job->base);
}

void pod_on_usage(struct bridge *bridge, const struct relay_usage *usage)
{
    const struct pod *pod = bridge_user(bridge);
    struct kube_op *job;

    list_for_each (job, &pod->kube->jobs.list, base.node)
        if (job->on_usage && str_equal(job->base.id, pod->id))
            job->on_usage(job, usage);
}

void kubernetes_inspect(struct backend *backend, const char *id, struct backend_op *op)
{
    struct kubernetes_backend *kube = kubernetes_from(backend);
    struct measure *measure = kube_op_new(sizeof(*measure), kube, op, id);
    const struct pod *pod = pod_find(kube, id);

    op->result.usage = (struct sandbox_usage){ 0 };
    measure->job.base.clear = clear_measure;
    timer_init(&measure->limit, backend->loop, on_limit);
    if (!pod || pod->phase != POD_LIVE) {
        error_set(&op->err, ERR_GONE, "there is no sandbox %s", id);
        remote_job_done_later(&measure->job.base);
    } else if (bridge_measure(pod->bridge, &op->err) < 0) {
        remote_job_done_later(&measure->job.base);
    } else {
        measure->job.on_usage = on_measured;
        timer_arm_in(&measure->limit, MEASURE_US);
    }
}
