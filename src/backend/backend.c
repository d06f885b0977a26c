#include "backend/backend.h"

#include "base/alloc.h"
#include "base/log.h"
#include "base/str.h"
#include "config/config.h"
#include "wire/launch.h"

#include <string.h>
#include <unistd.h>

void backend_close(struct backend *backend)
{
    if (backend)
        backend->ops->free(backend);
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

static int check_spec(const struct sandbox_spec *spec, struct error *err)
{
    if (check_id(spec->id, err) < 0 || check_limits(&spec->limits, err) < 0)
        return -1;
    if ((unsigned)spec->network >= NETWORK_MODES)
        return error_set(err, ERR_INVALID, "unknown network mode");
    /* A path can only be that of the settings, which the implementation knows. */
    if (!str_is_empty(spec->template_name) && spec->template_name[0] != '/' &&
        !path_is_plain_name(spec->template_name))
        return error_set(err, ERR_INVALID, "\"%s\" is not a valid template name",
                         spec->template_name);
    return 0;
}

/* --- the operations ------------------------------------------------------------------------ */

static int check_gpus(const struct backend *backend, const struct sandbox_spec *spec,
                      struct error *err)
{
    if (!spec->gpus || backend->ops->capabilities.gpus)
        return 0;
    return error_set(err, ERR_INVALID, "the backend %s has no GPUs", backend->ops->name);
}

void backend_create(struct backend *backend, const struct sandbox_spec *spec, struct backend_op *op)
{
    if (check_spec(spec, &op->err) < 0 || check_gpus(backend, spec, &op->err) < 0) {
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

int backend_connect(struct backend *backend, const char *id, struct error *err)
{
    struct error checked;

    if (check_id(id, &checked) < 0)
        return error_set(err, checked.code, "%s", checked.message);
    return backend->ops->connect(backend, id, err);
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

bool backend_is_whole(struct backend *backend, const char *id)
{
    return !backend->ops->is_whole || backend->ops->is_whole(backend, id);
}

int backend_check_limits(const struct backend *backend, const struct sandbox_limits *asked,
                         struct error *err)
{
    struct sandbox_limits in_force = backend_limits_in_force(backend, asked);
    const struct {
        const char *name;
        bool is_lost;
        const char *why;
        const char *remedy;
    } limits[] = {
        { "disk", asked->disk_bytes && !in_force.disk_bytes,
          "its sandboxes have the files of the host", "use a daemon with the backend native" },
        { "memory", asked->memory_bytes && !in_force.memory_bytes,
          "the daemon has no memory cgroup", "run the daemon as root or with a delegated cgroup" },
        { "cpus", asked->cpu_millis && !in_force.cpu_millis, "the daemon has no cpu cgroup",
          "run the daemon as root or with a delegated cgroup" },
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

int backend_report(struct backend *backend, const char *id, struct buffer *json, struct error *err)
{
    struct error checked;

    if (check_id(id, &checked) < 0)
        return error_set(err, checked.code, "%s", checked.message);
    return backend->ops->report(backend, id, json, err);
}

/* --- users ----------------------------------------------------------------------------------- */

bool backend_is_sandbox_user(const struct config *config, uid_t uid)
{
    const uint64_t end = SANDBOX_UID_FIRST + (uint64_t)SANDBOX_SLOTS * LAUNCH_IDS_STEP;

    return (uid >= SANDBOX_UID_FIRST && uid < end) ||
           (config->sandbox.direct_uid && uid == (uid_t)config->sandbox.direct_uid &&
            uid != geteuid());
}
