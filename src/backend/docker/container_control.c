/* SPDX-License-Identifier: Apache-2.0 */
#include "backend/docker/docker_private.h"

#include "backend/report_kernel.h"
#include "base/alloc.h"
#include "base/macros.h"
#include "base/str.h"
#include "config/config.h"

#include <stdio.h>
#include <string.h>

static struct docker_job *job_of(struct engine_call *call)
{
    return container_of(call, struct docker_job, call);
}

/* --- destroy ------------------------------------------------------------------------------------ */

/* The removal of a container. If another request removes it already, the engine is asked until it
 * is gone. */
struct destroy {
    struct docker_job job;
    struct timer again;
    char engine_id[CONTAINER_ID_SIZE]; /* or its name, until the id is known */
    unsigned looks;
    struct timer mend;
    unsigned mends;
};

enum { REMOVAL_LOOK_US = 50 * 1000, REMOVAL_LOOKS = 200 };

static void look_for_it(struct destroy *destroy);

static void clear_destroy(void *job)
{
    timer_stop(&((struct destroy *)job)->again);
    timer_stop(&((struct destroy *)job)->mend);
}

static struct destroy *destroy_of(struct engine_call *call)
{
    return container_of(job_of(call), struct destroy, job);
}

static void destroyed(struct destroy *destroy)
{
    struct docker_backend *docker = destroy->job.backend;
    struct container *container = container_find(docker, destroy->job.base.id);
    struct backend_op *connecting = container ? steal_ptr(&container->connecting) : NULL;

    container_free(container);
    (void)door_remove(docker->state_dir, destroy->job.base.id, &destroy->job.base.op->err);
    container_refuse_connect(destroy->job.base.id, connecting);
    docker_job_done(&destroy->job);
}

static void on_look_again(struct timer *timer)
{
    look_for_it(container_of(timer, struct destroy, again));
}

static void on_removed(struct engine_call *call)
{
    struct destroy *destroy = destroy_of(call);

    if (call->err.code == ERR_NONE || call->err.code == ERR_NOT_FOUND) {
        destroyed(destroy);
    } else if (call->err.code == ERR_CONFLICT && destroy->looks++ < REMOVAL_LOOKS) {
        timer_arm_in(&destroy->again, REMOVAL_LOOK_US);
    } else {
        destroy->job.base.op->err = call->err;
        destroy->job.base.op->err.retryable = true;
        docker_job_done(&destroy->job);
    }
}

static void remove_it(struct destroy *destroy)
{
    docker_job_ask(&destroy->job, HTTP_DELETE, NULL, ENGINE_WORK_MS, on_removed,
                   "/containers/%s?force=true&v=true", destroy->engine_id);
}

static void on_thawed(struct engine_call *call)
{
    remove_it(destroy_of(call)); /* even if the thaw failed */
}

/* A paused container of gVisor hears its kill only when it is thawed; the engine waits ten seconds for
 * that, and then leaves its shim behind. */
static void thaw_and_remove(struct destroy *destroy)
{
    docker_job_ask(&destroy->job, HTTP_POST, NULL, ENGINE_REQUEST_MS, on_thawed,
                   "/containers/%s/unpause", destroy->engine_id);
}

/*
 * A Docker 20.10 that is killed during a start has forgotten the start when it is back: the
 * container is "created", and removing it leaves containerd's task behind. A second start removes
 * that task once its process has ended; the container can then be started and removed properly. The
 * process is our init, which exits when its door is gone. The start needs the mount of the door, so
 * a new door is made.
 */
enum { MEND_US = 250 * 1000, MENDS = 12 };

static void start_to_remove(struct destroy *destroy);

static void on_started_to_remove(struct engine_call *call)
{
    struct destroy *destroy = destroy_of(call);

    if (engine_error_says(&call->err, "already in use") && destroy->mends++ < MENDS)
        timer_arm_in(&destroy->mend, MEND_US);
    else
        remove_it(destroy); /* the rest is up to the engine */
}

static void on_mend(struct timer *timer)
{
    start_to_remove(container_of(timer, struct destroy, mend));
}

static void start_to_remove(struct destroy *destroy)
{
    docker_job_ask(&destroy->job, HTTP_POST, NULL, ENGINE_WORK_MS, on_started_to_remove,
                   "/containers/%s/start", destroy->engine_id);
}

static bool is_half_started(const struct destroy *destroy, const struct container_state *state)
{
    const struct container *container = container_find(destroy->job.backend, destroy->job.base.id);

    return container && container->start == START_LOST && container->door && !state->is_running &&
           !state->was_started;
}

static void mend_and_remove(struct destroy *destroy)
{
    struct docker_backend *docker = destroy->job.backend;
    struct container *container = container_find(docker, destroy->job.base.id);
    struct error err = { 0 };

    door_free(steal_ptr(&container->door));
    if (door_remove(docker->state_dir, container->id, &err) == 0)
        container->door = door_open(docker->base.loop, docker->state_dir, container->id, &err);
    if (container->door)
        start_to_remove(destroy);
    else
        remove_it(destroy);
}

/* The name may belong to a foreign container: only one with our labels is removed. */
static void on_found(struct engine_call *call)
{
    struct destroy *destroy = destroy_of(call);
    struct container_state state;

    if (call->err.code == ERR_NOT_FOUND) {
        destroyed(destroy);
    } else if (call->err.code != ERR_NONE || !container_state_read(call->body, &state)) {
        destroy->job.base.op->err = call->err;
        if (call->err.code == ERR_NONE)
            error_set(&destroy->job.base.op->err, ERR_BACKEND,
                      "the engine did not describe the container");
        docker_job_done(&destroy->job);
    } else if (!docker_may_remove(destroy->job.backend, &state) ||
               !str_equal(state.sandbox, destroy->job.base.id)) {
        destroyed(destroy);
    } else {
        memcpy(destroy->engine_id, state.engine_id, sizeof(destroy->engine_id));
        if (is_half_started(destroy, &state))
            mend_and_remove(destroy);
        else if (state.is_paused && destroy->job.backend->is_gvisor)
            thaw_and_remove(destroy);
        else
            remove_it(destroy);
    }
}

static void look_for_it(struct destroy *destroy)
{
    docker_job_ask(&destroy->job, HTTP_GET, NULL, ENGINE_REQUEST_MS, on_found,
                   "/containers/%s/json", destroy->engine_id);
}

static char *unmade_find(struct unmade *unmade, const char *id)
{
    for (size_t i = 0; i < UNMADE_MAXIMUM; i++)
        if (str_equal(unmade->ids[i], id))
            return unmade->ids[i];
    return NULL;
}

void unmade_note(struct unmade *unmade, const char *id)
{
    if (!unmade_find(unmade, id))
        snprintf(unmade->ids[unmade->next++ % UNMADE_MAXIMUM], ID_SIZE, "%s", id);
}

void unmade_forget(struct unmade *unmade, const char *id)
{
    char *found = unmade_find(unmade, id);

    if (found)
        *found = '\0';
}

void docker_destroy(struct backend *backend, const char *id, struct backend_op *op)
{
    struct docker_backend *docker = docker_from(backend);
    struct destroy *destroy = docker_job_new(sizeof(*destroy), docker, op, id);
    struct container *container = container_find(docker, id);

    destroy->job.base.clear = clear_destroy;
    timer_init(&destroy->again, backend->loop, on_look_again);
    timer_init(&destroy->mend, backend->loop, on_mend);
    if (unmade_find(&docker->unmade, id)) {
        remote_job_done_later(&destroy->job.base);
    } else if (container && *container->engine_id) {
        memcpy(destroy->engine_id, container->engine_id, sizeof(destroy->engine_id));
        if (container->start == START_LOST)
            look_for_it(destroy);
        else if (container->is_paused && docker->is_gvisor)
            thaw_and_remove(destroy);
        else
            remove_it(destroy);
    } else {
        _Static_assert((int)CONTAINER_NAME_SIZE <= (int)CONTAINER_ID_SIZE, "a name fits");
        container_name(id, destroy->engine_id);
        look_for_it(destroy);
    }
}

/* --- list --------------------------------------------------------------------------------------- */

static void add_id(void *user, const char *id)
{
    struct backend_op *op = user;

    for (size_t i = 0; i < op->result.list.count; i++)
        if (str_equal(op->result.list.ids[i], id))
            return;
    op->result.list.ids =
        xrealloc(op->result.list.ids, op->result.list.count + 1, sizeof(op->result.list.ids[0]));
    snprintf(op->result.list.ids[op->result.list.count++], ID_SIZE, "%s", id);
}

/* Doors without a container are left of a create that did not get far. */
static void on_listed(struct engine_call *call)
{
    struct docker_job *job = job_of(call);
    const json_t *container;
    size_t i;

    job->base.op->err = call->err;
    if (call->err.code == ERR_NONE && !json_is_array(call->body))
        error_set(&job->base.op->err, ERR_BACKEND, "the engine did not list its containers");
    if (job->base.op->err.code != ERR_NONE) {
        docker_job_done(job);
        return;
    }
    json_array_foreach(call->body, i, container)
    {
        const char *id = json_text_at(json_object_get(container, "Labels"), LABEL_SANDBOX);

        if (id_is_valid(id, ID_SANDBOX))
            add_id(job->base.op, id);
    }
    if (!job->backend->is_gvisor)
        door_list(job->backend->state_dir, add_id, job->base.op);
    docker_job_done(job);
}

void docker_list(struct backend *backend, struct backend_op *op)
{
    struct docker_backend *docker = docker_from(backend);
    struct docker_job *job = docker_job_new(sizeof(*job), docker, op, "");
    scoped(free) char *filter = docker_label_filter(docker);

    op->result.list.ids = NULL;
    op->result.list.count = 0;
    docker_job_ask(job, HTTP_GET, NULL, ENGINE_WORK_MS, on_listed,
                   "/containers/json?all=true&filters=%s", filter);
}

/* --- update and freeze -------------------------------------------------------------------------- */

struct change {
    struct docker_job job;
    struct sandbox_limits limits;
    bool freezes;
};

static struct change *change_of(struct engine_call *call)
{
    return container_of(job_of(call), struct change, job);
}

static struct container *find_for(struct docker_job *job)
{
    struct container *container = container_find(job->backend, job->base.id);

    if (!container)
        error_set(&job->base.op->err, ERR_GONE, "there is no sandbox %s", job->base.id);
    return container;
}

static void on_updated(struct engine_call *call)
{
    struct change *change = change_of(call);
    struct container *container = container_find(change->job.backend, change->job.base.id);

    change->job.base.op->err = call->err;
    if (call->err.code == ERR_NONE && container)
        container->limits = change->limits;
    docker_job_done(&change->job);
}

void docker_update(struct backend *backend, const char *id, const struct sandbox_limits *limits,
                   struct backend_op *op)
{
    struct docker_backend *docker = docker_from(backend);
    struct change *change = docker_job_new(sizeof(*change), docker, op, id);
    struct container *container = find_for(&change->job);
    scoped(free) char *body = NULL;

    change->limits = *limits;
    if (!container) {
        remote_job_done_later(&change->job.base);
        return;
    }
    body = container_limits_json(docker, limits, container->bridge != NULL);
    docker_job_ask(&change->job, HTTP_POST, body, ENGINE_REQUEST_MS, on_updated,
                   "/containers/%s/update", container->engine_id);
}

/* Engines report a container that is paused already with different errors, so its state is read.
 * Without an answer its state is taken to be unchanged. */
static void on_frozen_state(struct engine_call *call)
{
    struct change *change = change_of(call);
    struct container *container = container_find(change->job.backend, change->job.base.id);
    struct container_state state;
    bool is_read = call->err.code == ERR_NONE && container_state_read(call->body, &state);

    if (is_read && state.is_running && state.is_paused == change->freezes)
        change->job.base.op->err = (struct error){ 0 };
    if (container)
        container_end_change(container, is_read ? state.is_paused : !change->freezes);
    docker_job_done(&change->job);
}

static void on_frozen(struct engine_call *call)
{
    struct change *change = change_of(call);
    struct container *container = container_find(change->job.backend, change->job.base.id);

    if (call->err.code != ERR_NONE && container) {
        change->job.base.op->err = call->err;
        docker_job_ask(&change->job, HTTP_GET, NULL, ENGINE_REQUEST_MS, on_frozen_state,
                       "/containers/%s/json", container->engine_id);
        return;
    }
    if (container)
        container_end_change(container, change->freezes);
    docker_job_done(&change->job);
}

void docker_freeze(struct backend *backend, const char *id, bool frozen, struct backend_op *op)
{
    struct docker_backend *docker = docker_from(backend);
    struct change *change = docker_job_new(sizeof(*change), docker, op, id);
    struct container *container = find_for(&change->job);

    change->freezes = frozen;
    if (!container) {
        remote_job_done_later(&change->job.base);
        return;
    }
    container_begin_change(container, frozen);
    docker_job_ask(&change->job, HTTP_POST, NULL, ENGINE_WORK_MS, on_frozen, "/containers/%s/%s",
                   container->engine_id, frozen ? "pause" : "unpause");
}

/* --- usage -------------------------------------------------------------------------------------- */

static void on_stats(struct engine_call *call)
{
    struct docker_job *job = job_of(call);
    const struct container *container = container_find(job->backend, job->base.id);
    const json_t *cpu = json_object_get(json_object_get(call->body, "cpu_stats"), "cpu_usage");
    const json_t *memory = json_object_get(call->body, "memory_stats");
    const json_t *pids = json_object_get(call->body, "pids_stats");

    job->base.op->err = call->err;
    job->base.op->result.usage = (struct sandbox_usage){
        .cpu_us = json_count_at(cpu, "total_usage") / 1000,
        .memory_bytes = json_count_at(memory, "usage"),
        .memory_peak_bytes = json_count_at(memory, "max_usage"),
        .pids = (uint32_t)MIN(json_count_at(pids, "current"), (uint64_t)UINT32_MAX),
        .oom_kills = container ? container->oom_events : 0,
    };
    docker_job_done(job);
}

/* On this kernel the cgroup has the exact number of OOM kills at once. */
void docker_inspect(struct backend *backend, const char *id, struct backend_op *op)
{
    struct docker_backend *docker = docker_from(backend);
    struct docker_job *job = docker_job_new(sizeof(*job), docker, op, id);
    struct container *container = find_for(job);

    op->result.usage = (struct sandbox_usage){ 0 };
    if (!container) {
        remote_job_done_later(&job->base);
    } else if (container->pid && !docker->is_gvisor &&
               kernel_usage_read(container->pid, container->engine_id, &op->result.usage)) {
        remote_job_done_later(&job->base);
    } else {
        docker_job_ask(job, HTTP_GET, NULL, ENGINE_REQUEST_MS, on_stats,
                       "/containers/%s/stats?stream=false&one-shot=true", container->engine_id);
    }
}
