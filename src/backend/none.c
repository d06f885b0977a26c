/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The backend that has none: every operation says that sandboxes are switched off. A backend that is
 * absent (backends.h) is one of these with a name and a reason of its own.
 */

#include "backend/backends.h"
#include "backend/registry.h"
#include "base/alloc.h"
#include "base/buffer.h"
#include "base/list.h"
#include "base/macros.h"
#include "base/map.h"
#include "base/scoped.h"
#include "base/str.h"

#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

struct none_op {
    struct list node; /* in the backend's `answers` */
    struct deferred deferred;
    struct backend_op *op; /* borrowed */
};

enum none_kind { NONE_CONFIGURED, NONE_ABSENT };

struct none_backend {
    struct backend base;
    struct backend_ops ops; /* its own, for the name */
    enum none_kind kind;
    struct error why;
    struct list answers; /* owned: struct none_op */
    struct map refused;  /* owned: ids of refused creates; each is its own key */
    int state_dir;       /* borrowed; unused when the backend is absent */
};

static struct none_backend *none_from(const struct backend *backend)
{
    return container_of(backend, struct none_backend, base);
}

static int refuse_now(const struct backend *backend, struct error *err)
{
    if (err)
        *err = none_from(backend)->why;
    return -1;
}

static void on_answer(struct deferred *deferred)
{
    struct none_op *none = container_of(deferred, struct none_op, deferred);
    struct backend_op *op = none->op;

    list_remove(&none->node);
    free(none);
    op->done(op);
}

static void answer(struct backend *backend, struct backend_op *op)
{
    struct none_op *none = xnew(struct none_op);

    none->op = op;
    list_append(&none_from(backend)->answers, &none->node);
    loop_defer(backend->loop, &none->deferred, on_answer);
}

static void refuse(struct backend *backend, struct backend_op *op)
{
    refuse_now(backend, &op->err);
    answer(backend, op);
}

static void none_create(struct backend *backend, const struct sandbox_spec *spec,
                        struct backend_op *op)
{
    struct map *refused = &none_from(backend)->refused;
    char *id = map_get(refused, spec->id) ? NULL : xstrdup(spec->id);

    if (id)
        map_put(refused, id, id);
    refuse(backend, op);
}

static void none_adopt(struct backend *backend, const struct backend_sandbox *sandbox,
                       struct backend_op *op)
{
    (void)sandbox;
    refuse(backend, op);
}

/* This backend has no sandbox that could end. */
static void none_watch(struct backend *backend, const char *id, struct backend_watch *watch)
{
    (void)backend;
    (void)id;
    (void)watch;
}

static void none_unwatch(struct backend *backend, struct backend_watch *watch)
{
    (void)backend;
    (void)watch;
}

static bool none_connect(struct backend *backend, const char *id, struct backend_op *op)
{
    (void)id;
    (void)refuse_now(backend, &op->err);
    return true;
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

/* A sandbox that was refused, or has no directory, was never created. */
static bool was_never_made(const struct none_backend *none, const char *id)
{
    scoped(free) char *directory = path_join("sandboxes", id);

    if (map_get(&none->refused, id))
        return true;
    return none->kind == NONE_CONFIGURED &&
           faccessat(none->state_dir, directory, F_OK, AT_SYMLINK_NOFOLLOW) < 0 && errno == ENOENT;
}

/* Sandboxes of another backend or of an earlier daemon are not removed. */
static void none_destroy(struct backend *backend, const char *id, struct backend_op *op)
{
    struct none_backend *none = none_from(backend);

    if (was_never_made(none, id))
        free(map_remove(&none->refused, id));
    else
        refuse_now(backend, &op->err);
    answer(backend, op);
}

static void none_list(struct backend *backend, struct backend_op *op)
{
    refuse(backend, op);
}

static bool none_report(struct backend *backend, const char *id, struct backend_op *op)
{
    (void)id;
    (void)refuse_now(backend, &op->err);
    return true;
}

static void none_free(struct backend *backend)
{
    struct none_backend *none = none_from(backend);
    struct map_slot *slot;
    struct none_op *op;

    while ((op = list_first(&none->answers, struct none_op, node))) {
        list_remove(&op->node);
        loop_undefer(backend->loop, &op->deferred);
        free(op);
    }
    map_for_each (slot, &none->refused)
        free(slot->value);
    map_fini(&none->refused);
    free(none);
}

static const struct backend_ops none_backend_ops = {
    .name = "none",
    .capabilities = { .network = true, .disk = true, .templates = true },
    .free = none_free,
    .create = none_create,
    .adopt = none_adopt,
    .watch = none_watch,
    .unwatch = none_unwatch,
    .connect = none_connect,
    .update = none_update,
    .freeze = none_freeze,
    .inspect = none_inspect,
    .destroy = none_destroy,
    .list = none_list,
    .report = none_report,
};

static struct none_backend *none_new(struct loop *loop, enum none_kind kind, const char *name,
                                     const struct error *why)
{
    struct none_backend *none = xnew(struct none_backend);

    none->kind = kind;
    list_init(&none->answers);
    none->ops = none_backend_ops;
    none->ops.name = name;
    none->base = (struct backend){ .ops = &none->ops, .loop = loop };
    none->why = *why;
    none->why.retryable = false; /* nothing changes before the daemon is started again */
    return none;
}

int none_backend_check(const struct backend_settings *settings, struct error *err)
{
    (void)settings;
    (void)err;
    return 0;
}

struct backend *none_backend_open(const struct backend_options *options, struct error *err)
{
    struct error why = { 0 };
    struct none_backend *none;

    (void)err;
    error_named(&why, ERR_UNAVAILABLE, "sandboxes_disabled",
                "sandboxes are disabled: the backend is none");
    error_hint(&why, "set sandbox.backend to another value than none");
    none = none_new(options->loop, NONE_CONFIGURED, none_backend_ops.name, &why);
    none->state_dir = options->state_dir;
    return &none->base;
}

struct backend *absent_backend_new(struct loop *loop, const char *name, const struct error *why)
{
    return &none_new(loop, NONE_ABSENT, name, why)->base;
}

const struct error *backend_refusal(const struct backend *backend)
{
    return backend->ops->free == none_free ? &none_from(backend)->why : NULL;
}

const struct error *backend_absence(const struct backend *backend)
{
    const struct error *refusal = backend_refusal(backend);

    return refusal && none_from(backend)->kind == NONE_ABSENT ? refusal : NULL;
}
