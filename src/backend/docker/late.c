/* SPDX-License-Identifier: Apache-2.0 */
#include "backend/docker/docker_private.h"

#include "base/alloc.h"
#include "base/log.h"
#include "base/macros.h"
#include "base/str.h"
#include "config/config.h"

#include <stdio.h>

enum { WAIT_US = 200 * 1000 };

/* A late container: inspected, then removed. */
struct late {
    struct list node;
    struct docker_backend *docker; /* borrowed */
    struct engine_call look;
    struct timer again; /* while a job of the sandbox is under way */
    bool is_removing;
    struct backend_op op;
    char id[ID_SIZE]; /* of the sandbox */
    char engine_id[CONTAINER_ID_SIZE];
};

static void late_free(struct late *late)
{
    engine_cancel(&late->look);
    timer_stop(&late->again);
    list_remove(&late->node);
    free(late);
}

/* A container that could not be removed is listed again when the engine comes back. */
static void on_removed(struct backend_op *op)
{
    struct late *late = container_of(op, struct late, op);

    if (op->err.code != ERR_NONE)
        log_warn("cannot remove a container that came too late", kv("sandbox", late->id),
                 kv("error", op->err.message));
    late_free(late);
}

/* Events are repeated to the next daemon, so most of these containers have been started since, as
 * has any with a known handle. Any other is started only by a create under way, which finds the
 * name taken and adopts the container: it must not be removed then. */
static void on_looked(struct engine_call *call)
{
    struct late *late = container_of(call, struct late, look);
    struct container_state state;

    if (call->err.code != ERR_NONE || !container_state_read(call->body, &state) ||
        state.was_started || container_find(late->docker, late->id)) {
        late_free(late);
        return;
    }
    if (remote_jobs_have(&late->docker->jobs, late->id)) {
        timer_arm_in(&late->again, WAIT_US);
        return;
    }
    log_info("removing a container that came too late", kv("sandbox", late->id));
    unmade_forget(&late->docker->unmade, late->id); /* an earlier attempt has made it */
    late->is_removing = true;
    docker_destroy(&late->docker->base, late->id, &late->op);
}

static void look(struct late *late)
{
    char path[ENGINE_PATH_SIZE];

    snprintf(path, sizeof(path), "/containers/%s/json", late->engine_id);
    engine_request(late->docker->engine, &late->look, HTTP_GET, path, NULL, NULL, 0,
                   ENGINE_REQUEST_MS, on_looked);
}

static void on_again(struct timer *timer)
{
    look(container_of(timer, struct late, again));
}

static const struct late *find(const struct docker_backend *docker, const char *id)
{
    const struct late *late;

    list_for_each (late, &docker->late, node)
        if (str_equal(late->id, id))
            return late;
    return NULL;
}

bool late_is_removing(const struct docker_backend *docker, const char *id)
{
    const struct late *late = find(docker, id);

    return late && late->is_removing;
}

static bool is_ours(const struct docker_backend *docker, const json_t *labels)
{
    return str_equal(json_text_at(labels, LABEL_INSTANCE), docker->config->instance) &&
           str_equal(json_text_at(labels, LABEL_BACKEND), docker->base.ops->name) &&
           str_equal(json_text_at(labels, LABEL_STATE), docker->state_path);
}

void late_consider(struct docker_backend *docker, const char *engine_id, const json_t *labels)
{
    const char *id = json_text_at(labels, LABEL_SANDBOX);
    struct late *late;

    if (!id_is_valid(id, ID_SANDBOX) || !is_ours(docker, labels) || container_find(docker, id) ||
        find(docker, id))
        return;
    late = xnew(struct late);
    late->docker = docker;
    late->op.done = on_removed;
    snprintf(late->id, sizeof(late->id), "%s", id);
    snprintf(late->engine_id, sizeof(late->engine_id), "%s", engine_id);
    timer_init(&late->again, docker->base.loop, on_again);
    list_init(&late->node);
    list_append(&docker->late, &late->node);
    look(late);
}

void late_fini(struct docker_backend *docker)
{
    struct late *late;

    while ((late = list_first(&docker->late, struct late, node)))
        late_free(late);
}
