#include "harness/fake_backend.h"

#include "base/alloc.h"
#include "base/buffer.h"
#include "base/list.h"
#include "base/scoped.h"

#include <assert.h>
#include <fcntl.h>
#include <string.h>
#include <sys/eventfd.h>

/* Of every init. */
enum { START_TIME = 1 };

struct fake_sandbox {
    struct list node;
    char id[ID_SIZE];
    int death; /* owned; an eventfd: readable when it has died, as a pidfd is */
    bool dead;
    bool frozen;
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
    uint64_t start_time; /* adopt: of the record */
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
    sandbox->death = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    assert(sandbox->death >= 0);
    sandbox->memory_bytes = memory_bytes;
    list_append(&fake->sandboxes, &sandbox->node);
    return sandbox;
}

static void remove_sandbox(struct fake_sandbox *sandbox)
{
    list_remove(&sandbox->node);
    fd_close(sandbox->death);
    free(sandbox);
}

static int death_of(const struct fake_sandbox *sandbox)
{
    return fcntl(sandbox->death, F_DUPFD_CLOEXEC, 3);
}

/* --- operations ---------------------------------------------------------------------------- */

static void fill_made(struct backend_op *op, const struct fake_sandbox *sandbox)
{
    memcpy(op->result.made.sandbox.id, sandbox->id, sizeof(sandbox->id));
    op->result.made.sandbox.pid = 4711;
    op->result.made.sandbox.start_time = START_TIME;
    op->result.made.pidfd = death_of(sandbox);
    op->result.made.frozen = sandbox->frozen;
}

static void effect_adopt(struct fake_backend *fake, struct fake_op *op)
{
    const struct fake_sandbox *sandbox = find(fake, op->id);

    if (!sandbox || sandbox->dead || op->start_time != START_TIME)
        error_set(&op->op->err, ERR_GONE, "it is dead");
    else
        fill_made(op->op, sandbox);
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

static void effect_on_one(struct fake_sandbox *sandbox, struct fake_op *op)
{
    if (!sandbox) {
        error_set(&op->op->err, ERR_GONE, "there is no such sandbox");
        return;
    }
    if (op->kind == FAKE_UPDATE)
        sandbox->memory_bytes = op->limits.memory_bytes;
    if (op->kind == FAKE_FREEZE)
        sandbox->frozen = op->frozen;
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
    list_last(&fake->queue, struct fake_op, node)->start_time = sandbox->start_time;
}

static int fake_connect(struct backend *backend, const char *id, struct error *err)
{
    const struct fake_sandbox *sandbox = find(fake_from(backend), id);

    if (fake_from(backend)->refuses_connect)
        return error_set(err, ERR_BACKEND, "connection refused");
    if (!sandbox || sandbox->dead)
        return error_set(err, ERR_GONE, "no init listens");
    return death_of(sandbox);
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

static int fake_report(struct backend *backend, const char *id, struct buffer *json,
                       struct error *err)
{
    (void)backend;
    (void)id;
    (void)err;
    return buffer_append_text(json, "{\"walls\":\"none\"}");
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
        .connect = fake_connect,
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

void fake_backend_set_capabilities(struct backend *backend, struct backend_capabilities caps)
{
    fake_from(backend)->ops.capabilities = caps;
}

void fake_backend_kill(struct backend *backend, const char *id)
{
    struct fake_sandbox *sandbox = find(fake_from(backend), id);

    assert(sandbox);
    sandbox->dead = true;
    eventfd_write(sandbox->death, 1);
}

void fake_backend_set_oom_kills(struct backend *backend, const char *id, uint32_t kills)
{
    find(fake_from(backend), id)->oom_kills = kills;
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
        if (with_effect && op->kind != FAKE_LIST && op->kind != FAKE_ADOPT)
            effect(fake, op);
        if (with_effect && op->kind == FAKE_CREATE && nobody.err.code == ERR_NONE)
            fd_close(nobody.result.made.pidfd);
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
