/* SPDX-License-Identifier: Apache-2.0 */
#include "backend/backend.h"

#include "base/alloc.h"
#include "base/log.h"
#include "base/str.h"
#include "config/config.h"
#include "wire/json.h"
#include "wire/launch.h"

#include <assert.h>
#include <string.h>
#include <unistd.h>

void backend_close(struct backend *backend)
{
    if (backend)
        backend->ops->free(backend);
}

bool network_policy_equals(const struct network_policy *a, const struct network_policy *b)
{
    return a->mode == b->mode;
}

bool sandbox_source_equals(const struct sandbox_source *a, const struct sandbox_source *b)
{
    return a->kind == b->kind && str_equal(a->name, b->name);
}

/* --- refusals: `done` never comes inside the call ------------------------------------------ */

struct refusal {
    struct deferred deferred;
    struct backend_op *op;
};

static void on_refuse(struct deferred *deferred)
{
    struct refusal *refusal = container_of(deferred, struct refusal, deferred);
    struct backend_op *op = refusal->op;

    free(refusal);
    op->done(op);
}

static void refuse(struct backend *backend, struct backend_op *op)
{
    struct refusal *refusal = xnew(struct refusal);

    refusal->op = op;
    loop_defer(backend->loop, &refusal->deferred, on_refuse);
}

static int check_id(const char *id, struct error *err)
{
    *err = (struct error){ 0 };
    if (!id || !id_is_valid(id, ID_SANDBOX))
        return error_set(err, ERR_INVALID, "\"%s\" is not a sandbox id", id ? id : "");
    return 0;
}

static int check_limits(const struct sandbox_limits *limits, struct error *err)
{
    const uint64_t megabyte = 1024 * 1024;

    if (limits->memory_bytes < 4 * megabyte)
        return error_set(err, ERR_INVALID, "memory must be 4m or more");
    if (limits->disk_bytes < megabyte)
        return error_set(err, ERR_INVALID, "disk must be 1m or more");
    if (limits->cpu_millis < 10)
        return error_set(err, ERR_INVALID, "cpus must be 0.01 or more");
    if (limits->pids < 1)
        return error_set(err, ERR_INVALID, "pids must be 1 or more");
    return 0;
}

/* --- sources ------------------------------------------------------------------------------- */

const char *backend_default_source(const struct backend *backend, const char *template_name)
{
    return backend->ops->default_source ? backend->ops->default_source(backend) : template_name;
}

bool backend_has_sources(const struct backend *backend)
{
    return backend->ops->check_source;
}

void backend_list_sources(const struct backend *backend, backend_source_fn *add, void *user)
{
    if (backend->ops->list_sources)
        backend->ops->list_sources(backend, add, user);
}

/* A path can only be that of the settings, which the implementation knows. */
int backend_check_source(const struct backend *backend, const struct sandbox_source *source,
                         struct error *err)
{
    const char *name = source->name;

    if ((unsigned)source->kind >= SOURCE_KINDS)
        return error_set(err, ERR_INVALID, "unknown kind of source");
    if (backend->ops->check_source)
        return backend->ops->check_source(backend, source, err);
    if (!str_is_empty(name) && name[0] != '/' && !path_is_plain_name(name))
        return error_set(err, ERR_INVALID, "\"%s\" is not a valid template name", name);
    return 0;
}

bool backend_find_source(struct backend *backend, const struct sandbox_source *source,
                         struct backend_op *op)
{
    op->err = (struct error){ 0 };
    return !backend->ops->find_source || backend->ops->find_source(backend, source, op);
}

/* --- the operations ------------------------------------------------------------------------ */

static int check_spec(const struct backend *backend, const struct sandbox_spec *spec,
                      struct error *err)
{
    if (check_id(spec->id, err) < 0 || check_limits(&spec->limits, err) < 0)
        return -1;
    if ((unsigned)spec->network.mode >= NETWORK_MODES)
        return error_set(err, ERR_INVALID, "unknown network mode");
    return backend_check_source(backend, &spec->source, err);
}

static int check_gpus(const struct backend *backend, const struct sandbox_spec *spec,
                      struct error *err)
{
    if (!spec->gpus || backend->ops->capabilities.gpus)
        return 0;
    return error_set(err, ERR_INVALID, "the backend %s has no GPUs", backend->ops->name);
}

int backend_check_mounts(const struct backend *backend, struct error *err)
{
    if (backend->ops->capabilities.mounts)
        return 0;
    error_named(err, ERR_INVALID, "backend_unable",
                "mounts: the backend %s cannot mount directories of the host for one session",
                backend->ops->name);
    return error_hint(err, "use the backend native, or leave mounts out and copy the files");
}

void backend_create(struct backend *backend, const struct sandbox_spec *spec, struct backend_op *op)
{
    if (check_spec(backend, spec, &op->err) < 0 || check_gpus(backend, spec, &op->err) < 0 ||
        (spec->mount_count && backend_check_mounts(backend, &op->err) < 0)) {
        refuse(backend, op);
        return;
    }
    log_debug("creating sandbox", kv("sandbox", spec->id), kv("backend", backend->ops->name));
    backend->ops->create(backend, spec, op);
}

void backend_adopt(struct backend *backend, const struct backend_sandbox *sandbox,
                   struct backend_op *op)
{
    if (check_id(sandbox->id, &op->err) < 0)
        refuse(backend, op);
    else
        backend->ops->adopt(backend, sandbox, op);
}

/* --- watches --------------------------------------------------------------------------------- */

void backend_watch_start(struct backend *backend, const char *id, struct backend_watch *watch,
                         backend_end_fn *on_end)
{
    if (watch->state != BACKEND_UNWATCHED)
        return;
    *watch =
        (struct backend_watch){ .state = BACKEND_WATCHED, .backend = backend, .on_end = on_end };
    backend->ops->watch(backend, id, watch);
}

void backend_watch_motion(struct backend_watch *watch, backend_motion_fn *on_motion)
{
    watch->on_motion = on_motion;
}

void backend_watch_move(struct backend_watch *watch, enum backend_motion motion)
{
    assert(watch->state == BACKEND_WATCHED);
    if (watch->motion == motion)
        return;
    watch->motion = motion;
    if (watch->on_motion)
        watch->on_motion(watch);
}

void backend_watch_stop(struct backend_watch *watch)
{
    if (watch->state != BACKEND_WATCHED)
        return;
    watch->state = BACKEND_UNWATCHED;
    watch->backend->ops->unwatch(watch->backend, watch);
}

bool backend_watch_is_ending(const struct backend_watch *watch)
{
    const struct backend_ops *ops = watch->state == BACKEND_WATCHED ? watch->backend->ops : NULL;

    return ops && ops->is_ending && ops->is_ending(watch->backend, watch);
}

void backend_watch_end(struct backend_watch *watch, const struct backend_end *end)
{
    assert(watch->state == BACKEND_WATCHED);
    watch->state = BACKEND_ENDED;
    watch->end = *end;
    watch->on_end(watch);
}

void backend_watch_drop(struct backend_watch *watch)
{
    if (watch)
        watch->state = BACKEND_UNWATCHED;
}

/* --- connections and the others -------------------------------------------------------------- */

bool backend_connect(struct backend *backend, const char *id, struct backend_op *op)
{
    op->result.fd = -1;
    return check_id(id, &op->err) < 0 || backend->ops->connect(backend, id, op);
}

void backend_cancel(struct backend *backend, struct backend_op *op)
{
    backend->ops->cancel(backend, op);
}

void backend_update(struct backend *backend, const char *id, const struct sandbox_limits *limits,
                    struct backend_op *op)
{
    if (check_id(id, &op->err) < 0 || check_limits(limits, &op->err) < 0)
        refuse(backend, op);
    else
        backend->ops->update(backend, id, limits, op);
}

void backend_freeze(struct backend *backend, const char *id, bool frozen, struct backend_op *op)
{
    if (check_id(id, &op->err) < 0)
        refuse(backend, op);
    else
        backend->ops->freeze(backend, id, frozen, op);
}

void backend_inspect(struct backend *backend, const char *id, struct backend_op *op)
{
    if (check_id(id, &op->err) < 0)
        refuse(backend, op);
    else
        backend->ops->inspect(backend, id, op);
}

void backend_destroy(struct backend *backend, const char *id, struct backend_op *op)
{
    if (check_id(id, &op->err) < 0) {
        refuse(backend, op);
        return;
    }
    log_debug("destroying sandbox", kv("sandbox", id), kv("backend", backend->ops->name));
    backend->ops->destroy(backend, id, op);
}

void backend_list(struct backend *backend, struct backend_op *op)
{
    op->err = (struct error){ 0 };
    backend->ops->list(backend, op);
}

int backend_check(struct backend *backend, struct error *err)
{
    return backend->ops->check ? backend->ops->check(backend, err) : 0;
}

char *backend_first_scratch(const struct backend *backend, const char *id)
{
    return backend->ops->first_scratch ? backend->ops->first_scratch(backend, id) : NULL;
}

bool backend_is_whole(struct backend *backend, const char *id)
{
    return !backend->ops->is_whole || backend->ops->is_whole(backend, id);
}

int backend_check_limits(const struct backend *backend, const struct sandbox_limits *asked,
                         struct error *err)
{
    struct sandbox_limits in_force = backend_limits_in_force(backend, asked);
    bool has_images = backend->ops->capabilities.templates; /* of an engine, or native ones */
    const struct {
        const char *name;
        bool is_lost;
        const char *why;
        const char *remedy;
    } limits[] = {
        { "disk", asked->disk_bytes && !in_force.disk_bytes,
          has_images ? "its sandboxes write to the disk of their engine"
                     : "its sandboxes have the files of the host",
          has_images ? "set docker.read_only, which keeps their files in memory"
                     : "use a daemon with the backend native" },
        { "memory", asked->memory_bytes && !in_force.memory_bytes,
          "the daemon has no memory cgroup", "run the daemon as root or with a delegated cgroup" },
        { "cpus", asked->cpu_millis && !in_force.cpu_millis, "the daemon has no cpu cgroup",
          "run the daemon as root or with a delegated cgroup" },
        { "pids", asked->pids && !in_force.pids, "nothing there counts the processes of a sandbox",
          "use a backend that limits them" },
    };

    for (size_t i = 0; i < ARRAY_LENGTH(limits); i++) {
        if (!limits[i].is_lost)
            continue;
        error_named(err, ERR_INVALID, "backend_unable",
                    "%s: the backend %s cannot limit it on this host: %s", limits[i].name,
                    backend->ops->name, limits[i].why);
        return error_hint(err, "leave %s out, or %s", limits[i].name, limits[i].remedy);
    }
    return 0;
}

struct sandbox_limits backend_limits_in_force(const struct backend *backend,
                                              const struct sandbox_limits *limits)
{
    struct sandbox_limits in_force = *limits;

    if (backend->ops->limits_in_force)
        return backend->ops->limits_in_force(backend, limits);
    if (!backend->ops->capabilities.disk)
        in_force.disk_bytes = 0;
    return in_force;
}

bool backend_report(struct backend *backend, const char *id, struct backend_op *op)
{
    op->result.report = NULL;
    return check_id(id, &op->err) < 0 || backend->ops->report(backend, id, op);
}

void backend_put_location(const struct backend *backend, const struct backend_sandbox *sandbox,
                          struct json_writer *json)
{
    if (sandbox && *sandbox->handle && backend->ops->put_location)
        backend->ops->put_location(sandbox, json);
    else
        json_put_null(json, "pid");
}

/* --- users ----------------------------------------------------------------------------------- */

bool backend_is_sandbox_user(const struct config *config, uid_t uid)
{
    const uint64_t end = SANDBOX_UID_FIRST + (uint64_t)SANDBOX_SLOTS * LAUNCH_IDS_STEP;

    return (uid >= SANDBOX_UID_FIRST && uid < end) ||
           (config->sandbox.direct_uid && uid == (uid_t)config->sandbox.direct_uid &&
            uid != geteuid());
}
