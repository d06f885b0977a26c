/* SPDX-License-Identifier: Apache-2.0 */
/* A container of an earlier daemon. */

#include "backend/docker/docker_private.h"

#include "base/macros.h"
#include "base/str.h"

#include <string.h>

struct adopt {
    struct docker_job job;
    struct container_handle handle;
    struct timer again;
    unsigned looks;
};

static void clear_adopt(void *job)
{
    timer_stop(&((struct adopt *)job)->again);
}

static int gone(struct error *err, const char *id)
{
    return error_set(err, ERR_GONE, "sandbox %s has ended", id);
}

static int take_over(struct adopt *adopt, const struct container_state *state, struct error *err)
{
    struct docker_backend *docker = adopt->job.backend;
    struct container *container = container_find(docker, adopt->job.base.id);

    if (!state->is_running || !str_equal(state->started_at, adopt->handle.started_at))
        return gone(err, adopt->job.base.id);
    if (!container) {
        container = container_new(docker, adopt->job.base.id);
        memcpy(container->engine_id, state->engine_id, sizeof(container->engine_id));
        memcpy(container->started_at, state->started_at, sizeof(container->started_at));
    }
    container->pid = container->process.state == PROCESS_UNWATCHED ? state->pid : container->pid;
    container_note_paused(container, state->is_paused);
    if (container->phase != CONTAINER_MADE)
        return container_is_dead(container) ? gone(err, adopt->job.base.id) : 0;
    if (container_begin(container, adopt->handle.kind, err) == 0)
        return 0;
    container_free(container); /* the core asks again */
    return -1;
}

static void ask_for(struct adopt *adopt);

static void on_ask_again(struct timer *timer)
{
    ask_for(container_of(timer, struct adopt, again));
}

static void on_adopted(struct engine_call *call)
{
    struct adopt *adopt =
        container_of(container_of(call, struct docker_job, call), struct adopt, job);
    struct backend_op *op = adopt->job.base.op;
    struct container_state state;

    if (call->err.code == ERR_NOT_FOUND)
        gone(&op->err, adopt->job.base.id);
    else if (call->err.code != ERR_NONE)
        op->err = call->err;
    else if (!container_state_read(call->body, &state))
        error_set(&op->err, ERR_BACKEND, "the engine did not describe the container");
    else if (take_over(adopt, &state, &op->err) == 0) {
        container_write_handle(container_find(adopt->job.backend, adopt->job.base.id),
                               &op->result.made.sandbox);
        op->result.made.frozen = state.is_paused;
    } else if (str_equal(op->err.name, "engine_elsewhere") && adopt->looks++ < ELSEWHERE_LOOKS) {
        op->err = (struct error){ 0 };
        timer_arm_in(&adopt->again, ELSEWHERE_LOOK_US);
        return;
    }
    docker_job_done(&adopt->job);
}

static void ask_for(struct adopt *adopt)
{
    docker_job_ask(&adopt->job, HTTP_GET, NULL, ENGINE_REQUEST_MS, on_adopted,
                   "/containers/%s/json", adopt->handle.engine_id);
}

void docker_adopt(struct backend *backend, const struct backend_sandbox *sandbox,
                  struct backend_op *op)
{
    struct docker_backend *docker = docker_from(backend);
    struct adopt *adopt = docker_job_new(sizeof(*adopt), docker, op, sandbox->id);

    adopt->job.base.clear = clear_adopt;
    timer_init(&adopt->again, backend->loop, on_ask_again);
    if (!container_parse_handle(sandbox->handle, &adopt->handle)) {
        error_set(&op->err, ERR_GONE, "the record of sandbox %s has no container", sandbox->id);
        remote_job_done_later(&adopt->job.base);
        return;
    }
    ask_for(adopt);
}
