/* The backend that has none: every operation says that sandboxes are switched off. */

#include "backend/registry.h"
#include "base/alloc.h"
#include "base/buffer.h"
#include "base/macros.h"

struct none_op {
    struct deferred deferred;
    struct backend_op *op;
};

static int disabled(struct error *err)
{
    error_named(err, ERR_UNAVAILABLE, "sandboxes_disabled", "sandboxes are disabled here");
    return error_hint(err, "set sandbox.backend to something other than none");
}

static void on_refuse(struct deferred *deferred)
{
    struct none_op *none = container_of(deferred, struct none_op, deferred);
    struct backend_op *op = none->op;

    free(none);
    op->done(op);
}

static void refuse(struct backend *backend, struct backend_op *op)
{
    struct none_op *none = xnew(struct none_op);

    none->op = op;
    disabled(&op->err);
    loop_defer(backend->loop, &none->deferred, on_refuse);
}

static void none_create(struct backend *backend, const struct sandbox_spec *spec,
                        struct backend_op *op)
{
    (void)spec;
    refuse(backend, op);
}

static void none_adopt(struct backend *backend, const struct backend_sandbox *sandbox,
                       struct backend_op *op)
{
    (void)sandbox;
    refuse(backend, op);
}

static int none_connect(struct backend *backend, const char *id, struct error *err)
{
    (void)backend;
    (void)id;
    return disabled(err);
}

static void none_update(struct backend *backend, const char *id,
                        const struct sandbox_limits *limits, struct backend_op *op)
{
    (void)id;
    (void)limits;
    refuse(backend, op);
}

static void none_freeze(struct backend *backend, const char *id, bool frozen, struct backend_op *op)
{
    (void)id;
    (void)frozen;
    refuse(backend, op);
}

static void none_inspect(struct backend *backend, const char *id, struct backend_op *op)
{
    (void)id;
    refuse(backend, op);
}

static void none_list(struct backend *backend, struct backend_op *op)
{
    refuse(backend, op);
}

static int none_report(struct backend *backend, const char *id, struct buffer *json,
                       struct error *err)
{
    (void)backend;
    (void)id;
    (void)json;
    return disabled(err);
}

static void none_free(struct backend *backend)
{
    free(backend);
}

static const struct backend_ops none_backend_ops = {
    .name = "none",
    .capabilities = { .network = true, .disk = true, .templates = true },
    .free = none_free,
    .create = none_create,
    .adopt = none_adopt,
    .connect = none_connect,
    .update = none_update,
    .freeze = none_freeze,
    .inspect = none_inspect,
    .destroy = none_inspect,
    .list = none_list,
    .report = none_report,
};

struct backend *none_backend_open(const struct backend_options *options, struct error *err)
{
    struct backend *backend = xnew(struct backend);

    (void)err;
    *backend = (struct backend){ .ops = &none_backend_ops, .loop = options->loop };
    return backend;
}
