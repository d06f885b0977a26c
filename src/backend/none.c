/* The backend that has none: every operation says that sandboxes are switched off. */

#include "backend/registry.h"
#include "base/alloc.h"
#include "base/buffer.h"
#include "base/macros.h"
#include "base/scoped.h"
#include "base/str.h"

#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

struct none_op {
    struct deferred deferred;
    struct backend_op *op;
};

struct none_backend {
    struct backend base;
    int state_dir; /* borrowed */
};

static int disabled(struct error *err)
{
    error_named(err, ERR_UNAVAILABLE, "sandboxes_disabled", "sandboxes are disabled");
    if (err)
        err->retryable = false;
    return error_hint(err, "set sandbox.backend to another value than none");
}

static void on_answer(struct deferred *deferred)
{
    struct none_op *none = container_of(deferred, struct none_op, deferred);
    struct backend_op *op = none->op;

    free(none);
    op->done(op);
}

static void answer(struct backend *backend, struct backend_op *op)
{
    struct none_op *none = xnew(struct none_op);

    none->op = op;
    loop_defer(backend->loop, &none->deferred, on_answer);
}

static void refuse(struct backend *backend, struct backend_op *op)
{
    disabled(&op->err);
    answer(backend, op);
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

/* What was never made is gone; what another backend has made is not ours to remove. */
static void none_destroy(struct backend *backend, const char *id, struct backend_op *op)
{
    const struct none_backend *none = container_of(backend, struct none_backend, base);
    scoped(free) char *directory = path_join("sandboxes", id);

    if (faccessat(none->state_dir, directory, F_OK, AT_SYMLINK_NOFOLLOW) == 0 || errno != ENOENT)
        disabled(&op->err);
    answer(backend, op);
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
    free(container_of(backend, struct none_backend, base));
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
    .destroy = none_destroy,
    .list = none_list,
    .report = none_report,
};

struct backend *none_backend_open(const struct backend_options *options, struct error *err)
{
    struct none_backend *none = xnew(struct none_backend);

    (void)err;
    none->base = (struct backend){ .ops = &none_backend_ops, .loop = options->loop };
    none->state_dir = options->state_dir;
    return &none->base;
}
