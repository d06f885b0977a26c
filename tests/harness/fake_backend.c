/* SPDX-License-Identifier: Apache-2.0 */
#include "harness/fake_backend.h"

#include "base/alloc.h"
#include "base/buffer.h"
#include "base/list.h"
#include "base/scoped.h"

#include <assert.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/eventfd.h>

/* Closing it does nothing. */
enum { NO_DESCRIPTOR = INT_MAX };

struct fake_sandbox {
    struct list node;
    char id[ID_SIZE];
    struct fake_backend *backend; /* borrowed */
    int death;                    /* owned; an eventfd: readable when it has died, as a pidfd is */
    struct io_watch dying;
    struct backend_watch *watch; /* borrowed */
    struct backend_end end;
    bool dead;
    bool frozen;
    enum backend_motion motion;
    uint64_t memory_bytes;
    uint32_t oom_kills;
    uint64_t cpu_us;
};

struct fake_op {
    struct list node;
    enum fake_op_kind kind;
    char id[ID_SIZE];
    struct sandbox_limits limits;
    bool frozen;
    char handle[BACKEND_HANDLE_SIZE]; /* adopt: of the record */
    enum error_code refused;
    bool may_pass;
    struct backend_op *op; /* borrowed */
};

struct fake_backend {
    struct backend base;
    struct backend_ops ops; /* of its own, for its capabilities */
    struct list sandboxes;
    struct list queue; /* struct fake_op */
    struct deferred answer;
    bool held[FAKE_OPS];
    unsigned refusals[FAKE_OPS];
    enum error_code refusal_code[FAKE_OPS];
    unsigned calls[FAKE_OPS];
    bool refuses_connect;
    bool answers_later;
    bool sees_no_ends;
    bool is_crowd; /* sandboxes without descriptors */
    bool refusals_may_pass;
    uint64_t given_memory; /* 0: it does not tell */
    unsigned creating, most_creating;
};

static struct fake_backend *fake_from(const struct backend *backend)
{
    return container_of(backend, struct fake_backend, base);
}

/* --- sandboxes ----------------------------------------------------------------------------- */

static struct fake_sandbox *find(const struct fake_backend *fake, const char *id)
{
    struct fake_sandbox *sandbox;

    list_for_each (sandbox, &fake->sandboxes, node) {
        if (strcmp(sandbox->id, id) == 0)
            return sandbox;
    }
    return NULL;
}

static struct fake_sandbox *add(struct fake_backend *fake, const char *id, uint64_t memory_bytes)
{
    struct fake_sandbox *sandbox = xnew(struct fake_sandbox);

    assert(!find(fake, id));
    memcpy(sandbox->id, id, sizeof(sandbox->id));
    sandbox->backend = fake;
    sandbox->death = fake->is_crowd ? -1 : eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    assert(fake->is_crowd || sandbox->death >= 0);
    sandbox->memory_bytes = memory_bytes;
    list_append(&fake->sandboxes, &sandbox->node);
    return sandbox;
}

static void stop_watching(struct fake_sandbox *sandbox)
{
    if (!sandbox->watch)
        return;
    io_watch_stop(&sandbox->dying);
    backend_watch_drop(sandbox->watch);
    sandbox->watch = NULL;
}

static void remove_sandbox(struct fake_sandbox *sandbox)
{
    list_remove(&sandbox->node);
    stop_watching(sandbox);
    fd_close(sandbox->death);
    free(sandbox);
}

static void on_death(struct io_watch *watch, unsigned events)
{
    struct fake_sandbox *sandbox = container_of(watch, struct fake_sandbox, dying);
    struct backend_watch *told = sandbox->watch;

    (void)events;
    io_watch_stop(&sandbox->dying);
    sandbox->watch = NULL;
    backend_watch_end(told, &sandbox->end);
}

/* --- operations ---------------------------------------------------------------------------- */

static void write_handle(const char *id, char handle[BACKEND_HANDLE_SIZE])
{
    snprintf(handle, BACKEND_HANDLE_SIZE, "fake://%s", id);
}

static void fill_made(struct backend_op *op, const struct fake_sandbox *sandbox)
{
    memcpy(op->result.made.sandbox.id, sandbox->id, sizeof(sandbox->id));
    write_handle(sandbox->id, op->result.made.sandbox.handle);
    op->result.made.frozen = sandbox->frozen;
}

static void effect_adopt(struct fake_backend *fake, struct fake_op *op)
{
    const struct fake_sandbox *sandbox = find(fake, op->id);
    char handle[BACKEND_HANDLE_SIZE];

    write_handle(op->id, handle);
    if (!sandbox || sandbox->dead || strcmp(op->handle, handle) != 0)
        error_set(&op->op->err, ERR_GONE, "it is dead");
    else
        fill_made(op->op, sandbox);
}

static void effect_connect(struct fake_backend *fake, const char *id, struct backend_op *op)
{
    const struct fake_sandbox *sandbox = find(fake, id);

    if (fake->refuses_connect)
        error_set(&op->err, ERR_BACKEND, "connection refused");
    else if (!sandbox || sandbox->dead)
        error_set(&op->err, ERR_GONE, "no init listens");
    else
        op->result.fd = fake->is_crowd ? NO_DESCRIPTOR : fcntl(sandbox->death, F_DUPFD_CLOEXEC, 3);
}

static void effect_report(struct fake_backend *fake, const char *id, struct backend_op *op)
{
    const struct fake_sandbox *sandbox = find(fake, id);

    fake->calls[FAKE_REPORT] += !fake->answers_later;
    if (!sandbox || sandbox->dead)
        error_set(&op->err, ERR_GONE, "it has ended");
    else
        op->result.report = xstrdup("{\"walls\":\"none\"}");
}

static void effect_list(struct fake_backend *fake, struct fake_op *op)
{
    struct fake_sandbox *sandbox;
    size_t count = 0;

    op->op->result.list.ids = xcalloc(fake_backend_count(&fake->base) + 1, ID_SIZE);
    list_for_each (sandbox, &fake->sandboxes, node)
        memcpy(op->op->result.list.ids[count++], sandbox->id, ID_SIZE);
    op->op->result.list.count = count;
}

static void set_motion(struct fake_sandbox *sandbox, enum backend_motion motion)
{
    sandbox->motion = motion;
    if (sandbox->watch)
        backend_watch_move(sandbox->watch, motion);
}

static void effect_on_one(struct fake_sandbox *sandbox, struct fake_op *op)
{
    if (!sandbox) {
        error_set(&op->op->err, ERR_GONE, "there is no such sandbox");
        return;
    }
    if (op->kind == FAKE_UPDATE)
        sandbox->memory_bytes = op->limits.memory_bytes;
    if (op->kind == FAKE_FREEZE) {
        sandbox->frozen = op->frozen;
        set_motion(sandbox, BACKEND_MOVES);
    }
    if (op->kind == FAKE_INSPECT)
        op->op->result.usage =
            (struct sandbox_usage){ .oom_kills = sandbox->oom_kills, .cpu_us = sandbox->cpu_us };
}

/* What it does to the world; `op->op` is filled. */
static void effect(struct fake_backend *fake, struct fake_op *op)
{
    struct fake_sandbox *sandbox = find(fake, op->id);

    if (op->refused != ERR_NONE) {
        error_set(&op->op->err, op->refused, "refused, as the test asked");
        op->op->err.retryable = op->may_pass;
        return;
    }
    switch (op->kind) {
    case FAKE_CREATE:
        if (sandbox) {
            error_set(&op->op->err, ERR_CONFLICT, "it exists already");
            break;
        }
        fill_made(op->op, add(fake, op->id, op->limits.memory_bytes));
        op->op->result.made.limits.memory_bytes = fake->given_memory;
        fake->given_memory = 0;
        break;
    case FAKE_ADOPT:
        effect_adopt(fake, op);
        break;
    case FAKE_DESTROY:
        if (sandbox)
            remove_sandbox(sandbox);
        break;
    case FAKE_LIST:
        effect_list(fake, op);
        break;
    case FAKE_CONNECT:
        effect_connect(fake, op->id, op->op);
        break;
    case FAKE_REPORT:
        effect_report(fake, op->id, op->op);
        break;
    case FAKE_FIND_SOURCE:
        break;
    case FAKE_UPDATE:
    case FAKE_FREEZE:
    case FAKE_INSPECT:
        effect_on_one(sandbox, op);
        break;
    case FAKE_OPS:
        break;
    }
}

static struct fake_op *take_answerable(struct fake_backend *fake)
{
    struct fake_op *op;

    list_for_each (op, &fake->queue, node) {
        if (!fake->held[op->kind]) {
            list_remove(&op->node);
            return op;
        }
    }
    return NULL;
}

static void on_answer(struct deferred *deferred)
{
    struct fake_backend *fake = container_of(deferred, struct fake_backend, answer);
    struct fake_op *op;

    while ((op = take_answerable(fake))) {
        struct backend_op *answered = op->op;

        fake->creating -= op->kind == FAKE_CREATE;
        effect(fake, op);
        free(op);
        answered->done(answered);
    }
}

static void submit(struct backend *backend, enum fake_op_kind kind, const char *id,
                   const struct sandbox_limits *limits, bool frozen, struct backend_op *op)
{
    struct fake_backend *fake = fake_from(backend);
    struct fake_op *queued = xnew(struct fake_op);

    op->err = (struct error){ 0 };
    fake->calls[kind]++;
    queued->kind = kind;
    queued->op = op;
    queued->frozen = frozen;
    if (id)
        memcpy(queued->id, id, strlen(id) + 1);
    if (limits)
        queued->limits = *limits;
    if (fake->refusals[kind]) {
        fake->refusals[kind]--;
        queued->refused = fake->refusal_code[kind];
        queued->may_pass = fake->refusals_may_pass;
    }
    list_append(&fake->queue, &queued->node);
    loop_defer(backend->loop, &fake->answer, on_answer);
}

static void fake_create(struct backend *backend, const struct sandbox_spec *spec,
                        struct backend_op *op)
{
    struct fake_backend *fake = fake_from(backend);

    submit(backend, FAKE_CREATE, spec->id, &spec->limits, false, op);
    fake->creating++;
    if (fake->creating > fake->most_creating)
        fake->most_creating = fake->creating;
}

static void fake_adopt(struct backend *backend, const struct backend_sandbox *sandbox,
                       struct backend_op *op)
{
    struct fake_backend *fake = fake_from(backend);

    submit(backend, FAKE_ADOPT, sandbox->id, NULL, false, op);
    memcpy(list_last(&fake->queue, struct fake_op, node)->handle, sandbox->handle,
           sizeof(sandbox->handle));
}

static void fake_watch(struct backend *backend, const char *id, struct backend_watch *watch)
{
    struct fake_sandbox *sandbox = find(fake_from(backend), id);

    if (!sandbox || fake_from(backend)->sees_no_ends || fake_from(backend)->is_crowd) {
        backend_watch_drop(watch);
        return;
    }
    assert(!sandbox->watch);
    sandbox->watch = watch;
    watch->private = sandbox;
    watch->motion = sandbox->motion;
    io_watch_start(&sandbox->dying, backend->loop, sandbox->death, IO_READ, on_death);
}

static void fake_unwatch(struct backend *backend, struct backend_watch *watch)
{
    (void)backend;
    stop_watching(watch->private);
}

static bool fake_is_ending(const struct backend *backend, const struct backend_watch *watch)
{
    const struct fake_sandbox *sandbox = watch->private;

    (void)backend;
    return sandbox->dead;
}

static bool fake_connect(struct backend *backend, const char *id, struct backend_op *op)
{
    struct fake_backend *fake = fake_from(backend);

    if (fake->answers_later)
        submit(backend, FAKE_CONNECT, id, NULL, false, op);
    else
        effect_connect(fake, id, op);
    return !fake->answers_later;
}

static void fake_cancel(struct backend *backend, struct backend_op *cancelled)
{
    struct fake_op *op;
    struct fake_op *following;

    list_for_each_safe (op, following, &fake_from(backend)->queue, node) {
        if (op->op != cancelled)
            continue;
        list_remove(&op->node);
        free(op);
    }
}

static void fake_update(struct backend *backend, const char *id,
                        const struct sandbox_limits *limits, struct backend_op *op)
{
    submit(backend, FAKE_UPDATE, id, limits, false, op);
}

static void fake_freeze(struct backend *backend, const char *id, bool frozen, struct backend_op *op)
{
    submit(backend, FAKE_FREEZE, id, NULL, frozen, op);
}

static void fake_inspect(struct backend *backend, const char *id, struct backend_op *op)
{
    submit(backend, FAKE_INSPECT, id, NULL, false, op);
}

static void fake_destroy(struct backend *backend, const char *id, struct backend_op *op)
{
    submit(backend, FAKE_DESTROY, id, NULL, false, op);
}

static void fake_list(struct backend *backend, struct backend_op *op)
{
    submit(backend, FAKE_LIST, NULL, NULL, false, op);
}

static bool fake_report(struct backend *backend, const char *id, struct backend_op *op)
{
    struct fake_backend *fake = fake_from(backend);

    if (fake->answers_later)
        submit(backend, FAKE_REPORT, id, NULL, false, op);
    else
        effect_report(fake, id, op);
    return !fake->answers_later;
}

static bool fake_find_source(struct backend *backend, const struct sandbox_source *source UNUSED,
                             struct backend_op *op)
{
    submit(backend, FAKE_FIND_SOURCE, "", NULL, false, op);
    return false;
}

static void fake_free(struct backend *backend)
{
    struct fake_backend *fake = fake_from(backend);
    struct fake_sandbox *sandbox;

    fake_backend_drop(backend, false);
    while ((sandbox = list_first(&fake->sandboxes, struct fake_sandbox, node)))
        remove_sandbox(sandbox);
    free(fake);
}

/* --- for tests ----------------------------------------------------------------------------- */

struct backend *fake_backend_new(struct loop *loop)
{
    struct fake_backend *fake = xnew(struct fake_backend);

    fake->ops = (struct backend_ops){
        .name = "fake",
        .capabilities = { .freeze = true,
                          .usage = true,
                          .limits = true,
                          .outlives_daemon = true,
                          .network = true,
                          .disk = true,
                          .templates = true },
        .free = fake_free,
        .create = fake_create,
        .adopt = fake_adopt,
        .watch = fake_watch,
        .unwatch = fake_unwatch,
        .is_ending = fake_is_ending,
        .connect = fake_connect,
        .cancel = fake_cancel,
        .update = fake_update,
        .freeze = fake_freeze,
        .inspect = fake_inspect,
        .destroy = fake_destroy,
        .list = fake_list,
        .report = fake_report,
    };
    fake->base = (struct backend){ .ops = &fake->ops, .loop = loop };
    list_init(&fake->sandboxes);
    list_init(&fake->queue);
    return &fake->base;
}

void fake_backend_set_name(struct backend *backend, const char *name)
{
    fake_from(backend)->ops.name = name;
}

void fake_backend_refuse(struct backend *backend, enum fake_op_kind kind, unsigned count,
                         enum error_code code)
{
    fake_from(backend)->refusals[kind] = count;
    fake_from(backend)->refusal_code[kind] = code;
    fake_from(backend)->refusals_may_pass = false;
}

void fake_backend_refuse_for_now(struct backend *backend, enum fake_op_kind kind, unsigned count)
{
    fake_backend_refuse(backend, kind, count, ERR_UNAVAILABLE);
    fake_from(backend)->refusals_may_pass = true;
}

void fake_backend_give_memory(struct backend *backend, uint64_t memory_bytes)
{
    fake_from(backend)->given_memory = memory_bytes;
}

unsigned fake_backend_most_creating(const struct backend *backend)
{
    return fake_from(backend)->most_creating;
}

void fake_backend_hold(struct backend *backend, enum fake_op_kind kind, bool held)
{
    struct fake_backend *fake = fake_from(backend);

    fake->held[kind] = held;
    if (!held)
        loop_defer(backend->loop, &fake->answer, on_answer);
}

void fake_backend_refuse_connect(struct backend *backend, bool refused)
{
    fake_from(backend)->refuses_connect = refused;
}

void fake_backend_answer_later(struct backend *backend)
{
    fake_from(backend)->answers_later = true;
}

void fake_backend_ask_for_sources(struct backend *backend)
{
    fake_from(backend)->ops.find_source = fake_find_source;
}

void fake_backend_set_capabilities(struct backend *backend, struct backend_capabilities caps)
{
    fake_from(backend)->ops.capabilities = caps;
}

void fake_backend_begin_end(struct backend *backend, const char *id)
{
    find(fake_from(backend), id)->dead = true;
}

void fake_backend_end(struct backend *backend, const char *id, struct backend_end end)
{
    struct fake_sandbox *sandbox = find(fake_from(backend), id);

    assert(sandbox);
    sandbox->dead = true;
    sandbox->end = end;
    eventfd_write(sandbox->death, 1);
}

void fake_backend_kill(struct backend *backend, const char *id)
{
    fake_backend_end(backend, id, (struct backend_end){ .code = -1 });
}

void fake_backend_move(struct backend *backend, const char *id, enum backend_motion motion)
{
    struct fake_sandbox *sandbox = find(fake_from(backend), id);

    sandbox->frozen = motion == BACKEND_FROZEN_BY_OTHERS;
    set_motion(sandbox, motion);
}

void fake_backend_forget_freezers(struct backend *backend)
{
    struct fake_sandbox *sandbox;

    list_for_each (sandbox, &fake_from(backend)->sandboxes, node)
        if (sandbox->frozen)
            sandbox->motion = BACKEND_FROZEN_BY_OTHERS;
}

void fake_backend_see_no_ends(struct backend *backend)
{
    fake_from(backend)->sees_no_ends = true;
}

void fake_backend_make_crowd(struct backend *backend)
{
    fake_from(backend)->is_crowd = true;
}

void fake_backend_set_oom_kills(struct backend *backend, const char *id, uint32_t kills)
{
    find(fake_from(backend), id)->oom_kills = kills;
}

static bool changes_the_world(enum fake_op_kind kind)
{
    return kind == FAKE_CREATE || kind == FAKE_UPDATE || kind == FAKE_FREEZE ||
           kind == FAKE_DESTROY;
}

void fake_backend_drop(struct backend *backend, bool with_effect)
{
    struct fake_backend *fake = fake_from(backend);
    struct fake_op *op;

    loop_undefer(backend->loop, &fake->answer);
    while ((op = list_first(&fake->queue, struct fake_op, node))) {
        struct backend_op nobody = { 0 };

        list_remove(&op->node);
        fake->creating -= op->kind == FAKE_CREATE;
        op->op = &nobody;
        if (with_effect && changes_the_world(op->kind))
            effect(fake, op);
        free(op);
    }
}

void fake_backend_add(struct backend *backend, const char *id)
{
    add(fake_from(backend), id, 0);
}

size_t fake_backend_count(const struct backend *backend)
{
    struct fake_sandbox *sandbox;
    size_t count = 0;

    list_for_each (sandbox, &fake_from(backend)->sandboxes, node)
        count++;
    return count;
}

size_t fake_backend_alive(const struct backend *backend)
{
    struct fake_sandbox *sandbox;
    size_t count = 0;

    list_for_each (sandbox, &fake_from(backend)->sandboxes, node)
        count += !sandbox->dead;
    return count;
}

bool fake_backend_has(const struct backend *backend, const char *id)
{
    return find(fake_from(backend), id);
}

bool fake_backend_is_frozen(const struct backend *backend, const char *id)
{
    return find(fake_from(backend), id)->frozen;
}

uint64_t fake_backend_memory(const struct backend *backend, const char *id)
{
    return find(fake_from(backend), id)->memory_bytes;
}

unsigned fake_backend_calls(const struct backend *backend, enum fake_op_kind kind)
{
    return fake_from(backend)->calls[kind];
}

void fake_backend_each(const struct backend *backend, void (*visit)(const char *id, void *data),
                       void *data)
{
    struct fake_sandbox *sandbox;

    list_for_each (sandbox, &fake_from(backend)->sandboxes, node)
        visit(sandbox->id, data);
}

void fake_backend_set_cpu(struct backend *backend, const char *id, uint64_t cpu_us)
{
    find(fake_from(backend), id)->cpu_us = cpu_us;
}
