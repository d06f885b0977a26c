/* SPDX-License-Identifier: Apache-2.0 */
#include "backend/launched.h"

#include "backend/launched_binds.h"
#include "backend/launched_handle.h"
#include "backend/report.h"
#include "base/alloc.h"
#include "base/buffer.h"
#include "base/macros.h"
#include "base/str.h"
#include "bridge/bridge.h"
#include "config/config.h"
#include "wire/json.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

enum { REPORT_MAXIMUM = 64 * 1024 };

struct call {
    struct launcher_call base;
    struct list link;
    struct launched_backend *backend; /* borrowed */
    struct backend_op *op;            /* borrowed until it is done */
    const char *what;
    char id[LAUNCH_ID_SIZE];
    struct sandbox_limits limits;
    bool has_relay; /* adopt: as the handle says */
    bool freezes;
    struct deferred refusal;
};

struct launched_backend *launched_from(struct backend *backend)
{
    return container_of(backend, struct launched_backend, base);
}

int launched_need_secret(struct launched_backend *launched, struct error *err)
{
    if (!launched->has_secret && relay_secret_open(launched->state_dir, launched->secret, err) < 0)
        return -1;
    launched->has_secret = true;
    return 0;
}

static void launched_free(struct backend *backend)
{
    struct launched_backend *launched = launched_from(backend);
    struct call *call;
    struct call *following;
    struct map_slot *slot;

    list_for_each_safe (call, following, &launched->calls, link) {
        launcher_cancel(launched->launcher, &call->base);
        loop_undefer(backend->loop, &call->refusal);
        free(call);
    }
    map_for_each (slot, &launched->sandboxes)
        launched_sandbox_free(slot->value);
    map_fini(&launched->sandboxes);
    explicit_bzero(launched->secret, sizeof(launched->secret));
    free(launched);
}

/* --- calls --------------------------------------------------------------------------------- */

static struct call *call_new(struct launched_backend *launched, const char *id,
                             struct backend_op *op, const char *what)
{
    struct call *call = xnew(struct call);

    call->backend = launched;
    call->op = op;
    call->what = what;
    snprintf(call->id, sizeof(call->id), "%s", id);
    list_init(&call->link);
    list_append(&launched->calls, &call->link);
    op->err = (struct error){ 0 };
    return call;
}

/* Ends the call and completes its operation. */
static void call_finish(struct call *call)
{
    struct backend_op *op = call->op;

    list_remove(&call->link);
    free(call);
    op->done(op);
}

/* True when the launcher succeeded; otherwise sets the error of the operation. */
static bool call_succeeded(struct call *call, const struct launch_reply *reply)
{
    if (reply && reply->error == 0)
        return true;
    if (reply && str_equal(reply->step, LAUNCH_BIND_STEP))
        launched_binds_refused(reply, &call->op->err);
    else
        launcher_error(reply, call->what, &call->op->err);
    return false;
}

/* --- create and adopt ---------------------------------------------------------------------- */

static void forget(struct launched_backend *launched, const char *id)
{
    launched_sandbox_free(map_remove(&launched->sandboxes, id));
}

/* Takes the pidfd over. */
static struct launched_sandbox *remember(struct launched_backend *launched, const struct call *call,
                                         const struct launch_made *made, int pidfd)
{
    struct launched_sandbox *sandbox = map_get(&launched->sandboxes, call->id);

    if (!sandbox) {
        sandbox = launched_sandbox_new(launched, call->id);
        sandbox->limits = call->limits;
        map_put(&launched->sandboxes, sandbox->id, sandbox);
    }
    sandbox->made = *made;
    launched_sandbox_keep_pidfd(sandbox, pidfd);
    return sandbox;
}

static void fill_made(struct backend_op *op, const char *id, const struct launch_made *made,
                      bool has_relay)
{
    const struct launched_handle handle = {
        .pid = made->pid, .start_time = made->start_time, .slot = made->slot, .has_relay = has_relay
    };
    struct backend_sandbox *sandbox = &op->result.made.sandbox;

    memcpy(sandbox->id, id, ID_SIZE);
    launched_handle_write(&handle, sandbox->handle, sizeof(sandbox->handle));
    op->result.made.frozen = made->frozen;
}

static void on_destroyed_unmet(struct launcher_call *base, const struct launch_reply *reply,
                               int pidfd)
{
    struct call *call = container_of(base, struct call, base);

    (void)reply;
    fd_close(pidfd);
    forget(call->backend, call->id);
    call_finish(call);
}

/* The sandbox lacks a wall that sandbox.require names: it is destroyed, and creation fails. */
static void undo_unmet(struct call *call)
{
    struct launch_destroy message = { 0 };

    memcpy(message.id, call->id, sizeof(message.id));
    launcher_send(call->backend->launcher, &call->base, LAUNCH_DESTROY, &message, sizeof(message),
                  on_destroyed_unmet);
}

static void on_made(struct launcher_call *base, const struct launch_reply *reply, int pidfd)
{
    struct call *call = container_of(base, struct call, base);
    struct launched_backend *launched = call->backend;
    struct launched_sandbox *sandbox;

    if (!call_succeeded(call, reply)) {
        fd_close(pidfd);
        call_finish(call);
        return;
    }
    forget(launched, call->id);
    sandbox = remember(launched, call, &reply->body.made, pidfd);
    if (report_require(launched, call->id, &call->op->err) < 0) {
        undo_unmet(call);
        return;
    }
    if (launched->makes_relays && launched_sandbox_open_bridge(sandbox, &call->op->err) < 0) {
        undo_unmet(call);
        return;
    }
    fill_made(call->op, call->id, &reply->body.made, launched->makes_relays);
    call_finish(call);
}

static void on_adopted(struct launcher_call *base, const struct launch_reply *reply, int pidfd)
{
    struct call *call = container_of(base, struct call, base);
    struct launched_sandbox *sandbox;

    if (call_succeeded(call, reply)) {
        sandbox = remember(call->backend, call, &reply->body.made, pidfd);
        if (call->has_relay)
            (void)launched_sandbox_open_bridge(sandbox, &call->op->err);
        fill_made(call->op, call->id, &reply->body.made, call->has_relay);
    } else {
        fd_close(pidfd);
    }
    call_finish(call);
}

/* Only for a disk limit above half of the memory, the share that files in memory may use. */
static bool wants_image(const struct config *config, const struct sandbox_limits *limits)
{
    if (!config || limits->disk_bytes <= limits->memory_bytes / 2)
        return false;
    return config->sandbox.disk_kind == CONFIG_DISK_IMAGE ||
           (config->sandbox.disk_kind == CONFIG_DISK_AUTO &&
            limits->disk_bytes > config->sandbox.disk_bytes);
}

static struct launch_limits limits_for(const struct launched_backend *launched,
                                       const struct sandbox_limits *limits)
{
    return (struct launch_limits){ .memory_bytes = limits->memory_bytes,
                                   .disk_bytes = limits->disk_bytes,
                                   .cpu_millis = limits->cpu_millis,
                                   .pids = limits->pids,
                                   .image = launched->mode == LAUNCH_NATIVE &&
                                            wants_image(launched->config, limits) };
}

/* Files in memory leave half of it to the processes; see launcher/walls/root.c. */
static uint64_t disk_in_force(const struct launched_backend *launched,
                              const struct sandbox_limits *limits)
{
    uint64_t half = limits->memory_bytes / 2;

    if (launched->mode == LAUNCH_DIRECT)
        return 0;
    if (half == 0 || limits_for(launched, limits).image)
        return limits->disk_bytes;
    return limits->disk_bytes ? MIN(limits->disk_bytes, half) : half;
}

/* Processes are counted by an rlimit where there is no control group for it. */
static struct sandbox_limits launched_limits_in_force(const struct backend *backend,
                                                      const struct sandbox_limits *limits)
{
    const struct launched_backend *launched = launched_from((struct backend *)backend);
    uint32_t features = launcher_host(launched->launcher)->features;

    return (struct sandbox_limits){
        .memory_bytes = features & LAUNCH_HAS_MEMORY ? limits->memory_bytes : 0,
        .disk_bytes = disk_in_force(launched, limits),
        .cpu_millis = features & LAUNCH_HAS_CPU ? limits->cpu_millis : 0,
        .pids = limits->pids,
    };
}

/* False for a path that the settings do not name. */
static bool name_template(const struct launched_backend *launched, const char *name,
                          char out_name[LAUNCH_NAME_SIZE])
{
    if (str_is_empty(name))
        name = "host";
    if (*name == '/') {
        if (!launched->config || !str_equal(name, launched->config->sandbox.template_name))
            return false;
        name = LAUNCHER_CONFIGURED_TEMPLATE;
    }
    snprintf(out_name, LAUNCH_NAME_SIZE, "%s", name);
    return strlen(name) < LAUNCH_NAME_SIZE && launch_name_is_valid(out_name);
}

static void on_refuse(struct deferred *deferred)
{
    call_finish(container_of(deferred, struct call, refusal));
}

/* An ordinary user, and a host without nft, can give sandboxes no network of their own. */
static int check_network(const struct launched_backend *launched, const struct sandbox_spec *spec,
                         struct error *err)
{
    uint32_t features = launcher_host(launched->launcher)->features;

    if (launched->mode != LAUNCH_NATIVE || spec->network.mode != NETWORK_OPEN ||
        features & LAUNCH_HAS_NETWORK_OPEN)
        return 0;
    error_set(err, ERR_BACKEND, "network: sandboxes cannot have one here: %s",
              features & LAUNCH_HAS_ROOT ? "the program /usr/sbin/nft is missing"
                                         : "the daemon was not started by root");
    err->retryable = false;
    return error_hint(err, features & LAUNCH_HAS_ROOT
                               ? "install the package nftables and restart the daemon"
                               : "start the daemon as root");
}

static int fill_create(struct launched_backend *launched, const struct sandbox_spec *spec,
                       struct launch_create *message, struct error *err)
{
    *message = (struct launch_create){
        .limits = limits_for(launched, &spec->limits),
        .mode = launched->mode,
        .network = spec->network.mode == NETWORK_OPEN ? LAUNCH_NETWORK_OPEN : LAUNCH_NETWORK_NONE,
    };
    snprintf(message->id, sizeof(message->id), "%s", spec->id);
    if (check_network(launched, spec, err) < 0)
        return -1;
    if (!name_template(launched, spec->source.name, message->template_name))
        return error_named(err, ERR_CONFLICT, "template_unknown", "unknown template \"%s\"",
                           spec->source.name);
    if (launched->makes_relays)
        relay_key_derive(launched->secret, message->id, message->key);
    return 0;
}

static void create_bound(struct launched_backend *launched, struct call *call,
                         const struct sandbox_spec *spec, const struct launch_create *create)
{
    struct launch_create_bound message = { .create = *create };

    if (launched_binds_fill(launched->config, spec, &message, &call->op->err) < 0)
        loop_defer(launched->base.loop, &call->refusal, on_refuse);
    else
        launcher_send(launched->launcher, &call->base, LAUNCH_CREATE_BOUND, &message,
                      sizeof(message), on_made);
}

static void launched_create(struct backend *backend, const struct sandbox_spec *spec,
                            struct backend_op *op)
{
    struct launched_backend *launched = launched_from(backend);
    struct call *call = call_new(launched, spec->id, op, "create sandbox");
    struct launch_create message;

    call->limits = spec->limits;
    if (fill_create(launched, spec, &message, &op->err) < 0)
        loop_defer(backend->loop, &call->refusal, on_refuse);
    else if (spec->mount_count)
        create_bound(launched, call, spec, &message);
    else
        launcher_send(launched->launcher, &call->base, LAUNCH_CREATE, &message, sizeof(message),
                      on_made);
}

static void launched_adopt(struct backend *backend, const struct backend_sandbox *sandbox,
                           struct backend_op *op)
{
    struct launched_backend *launched = launched_from(backend);
    struct call *call = call_new(launched, sandbox->id, op, "adopt sandbox");
    struct launched_handle handle;
    struct launch_adopt message = { 0 };

    if (!launched_handle_parse(sandbox->handle, &handle)) {
        error_set(&op->err, ERR_GONE, "the record of sandbox %s has no process", sandbox->id);
        loop_defer(backend->loop, &call->refusal, on_refuse);
        return;
    }
    call->has_relay = handle.has_relay;
    message = (struct launch_adopt){ .pid = handle.pid, .start_time = handle.start_time };
    memcpy(message.id, call->id, sizeof(message.id));
    launcher_send(launched->launcher, &call->base, LAUNCH_ADOPT, &message, sizeof(message),
                  on_adopted);
}

/* --- ends and connections ------------------------------------------------------------------ */

static void launched_watch(struct backend *backend, const char *id, struct backend_watch *watch)
{
    launched_sandbox_watch(map_get(&launched_from(backend)->sandboxes, id), watch);
}

static void launched_unwatch(struct backend *backend, struct backend_watch *watch)
{
    (void)backend;
    launched_sandbox_unwatch(watch->private);
}

static bool launched_is_ending(const struct backend *backend, const struct backend_watch *watch)
{
    (void)backend;
    return launched_sandbox_is_dead(watch->private);
}

static bool launched_connect(struct backend *backend, const char *id, struct backend_op *op)
{
    const struct launched_sandbox *sandbox = map_get(&launched_from(backend)->sandboxes, id);

    if (sandbox)
        op->result.fd = launched_sandbox_connect(sandbox, &op->err);
    else
        error_set(&op->err, ERR_BACKEND, "sandbox %s is neither made nor adopted", id);
    return true;
}

/* --- the others ---------------------------------------------------------------------------- */

static void on_updated(struct launcher_call *base, const struct launch_reply *reply, int pidfd)
{
    struct call *call = container_of(base, struct call, base);
    struct launched_sandbox *sandbox = map_get(&call->backend->sandboxes, call->id);

    fd_close(pidfd);
    if (call_succeeded(call, reply) && sandbox)
        sandbox->limits = call->limits;
    call_finish(call);
}

static void launched_update(struct backend *backend, const char *id,
                            const struct sandbox_limits *limits, struct backend_op *op)
{
    struct launched_backend *launched = launched_from(backend);
    struct call *call = call_new(launched, id, op, "change limits of sandbox");
    struct launch_update message = { .limits = limits_for(launched, limits) };

    call->limits = *limits;
    memcpy(message.id, call->id, sizeof(message.id));
    launcher_send(launched->launcher, &call->base, LAUNCH_UPDATE, &message, sizeof(message),
                  on_updated);
}

/* A bridge must not take the silence of a frozen relay for the end of its connection. */
static void on_frozen(struct launcher_call *base, const struct launch_reply *reply, int pidfd)
{
    struct call *call = container_of(base, struct call, base);
    struct launched_sandbox *sandbox = map_get(&call->backend->sandboxes, call->id);
    bool is_done = call_succeeded(call, reply);

    fd_close(pidfd);
    if (sandbox && sandbox->bridge && call->freezes != is_done)
        bridge_set_frozen(sandbox->bridge, false);
    call_finish(call);
}

static void launched_freeze(struct backend *backend, const char *id, bool frozen,
                            struct backend_op *op)
{
    struct launched_backend *launched = launched_from(backend);
    struct call *call = call_new(launched, id, op, frozen ? "freeze sandbox" : "thaw sandbox");
    struct launch_freeze message = { .frozen = frozen };
    struct launched_sandbox *sandbox = map_get(&launched->sandboxes, id);

    call->freezes = frozen;
    if (frozen && sandbox && sandbox->bridge)
        bridge_set_frozen(sandbox->bridge, true);
    memcpy(message.id, call->id, sizeof(message.id));
    launcher_send(launched->launcher, &call->base, LAUNCH_FREEZE, &message, sizeof(message),
                  on_frozen);
}

static void copy_processes(const struct launch_usage *from, struct sandbox_usage *to)
{
    _Static_assert(USAGE_PROCESSES == (int)LAUNCH_PROCESSES, "one for each");
    for (size_t i = 0; i < USAGE_PROCESSES; i++) {
        const struct launch_process *process = &from->processes[i];

        to->processes[i] =
            (struct sandbox_process){ .cpu_us = process->cpu_us, .number = process->pid };
        snprintf(to->processes[i].name, sizeof(to->processes[i].name), "%.*s",
                 (int)sizeof(process->name) - 1, process->name);
    }
}

static void on_inspected(struct launcher_call *base, const struct launch_reply *reply, int pidfd)
{
    struct call *call = container_of(base, struct call, base);

    fd_close(pidfd);
    if (call_succeeded(call, reply)) {
        const struct launch_usage *usage = &reply->body.usage;

        call->op->result.usage = (struct sandbox_usage){
            .cpu_us = usage->cpu_us,
            .memory_bytes = usage->memory_bytes,
            .memory_peak_bytes = usage->memory_peak_bytes,
            .disk_bytes = usage->disk_bytes,
            .pids = usage->pids,
            .oom_kills = usage->oom_kills,
        };
        copy_processes(usage, &call->op->result.usage);
    }
    call_finish(call);
}

static void launched_inspect(struct backend *backend, const char *id, struct backend_op *op)
{
    struct launched_backend *launched = launched_from(backend);
    struct call *call = call_new(launched, id, op, "inspect sandbox");
    struct launch_inspect message = { 0 };

    memcpy(message.id, call->id, sizeof(message.id));
    launcher_send(launched->launcher, &call->base, LAUNCH_INSPECT, &message, sizeof(message),
                  on_inspected);
}

static void on_destroyed(struct launcher_call *base, const struct launch_reply *reply, int pidfd)
{
    struct call *call = container_of(base, struct call, base);

    fd_close(pidfd);
    if (call_succeeded(call, reply))
        forget(call->backend, call->id);
    call_finish(call);
}

static void launched_destroy(struct backend *backend, const char *id, struct backend_op *op)
{
    struct launched_backend *launched = launched_from(backend);
    struct call *call = call_new(launched, id, op, "destroy sandbox");
    struct launch_destroy message = { 0 };

    memcpy(message.id, call->id, sizeof(message.id));
    launcher_send(launched->launcher, &call->base, LAUNCH_DESTROY, &message, sizeof(message),
                  on_destroyed);
}

static void on_listed(struct launcher_call *base, const struct launch_reply *reply, int pidfd)
{
    struct call *call = container_of(base, struct call, base);
    struct backend_op *op = call->op;
    size_t count;

    fd_close(pidfd);
    if (!call_succeeded(call, reply)) {
        free(op->result.list.ids);
        op->result.list.ids = NULL;
        op->result.list.count = 0;
        call_finish(call);
        return;
    }
    count = MIN((size_t)reply->body.list.count, (size_t)LAUNCH_LIST_IDS);
    op->result.list.ids = xrealloc(op->result.list.ids, op->result.list.count + count,
                                   sizeof(op->result.list.ids[0]));
    for (size_t i = 0; i < count; i++) {
        if (launch_id_is_valid(reply->body.list.ids[i]))
            memcpy(op->result.list.ids[op->result.list.count++], reply->body.list.ids[i], ID_SIZE);
    }
    if (!reply->body.list.more)
        call_finish(call);
}

static void launched_list(struct backend *backend, struct backend_op *op)
{
    struct launched_backend *launched = launched_from(backend);
    struct call *call = call_new(launched, "", op, "list sandboxes");
    struct launch_list message = { 0 };

    op->result.list.ids = NULL;
    op->result.list.count = 0;
    launcher_send(launched->launcher, &call->base, LAUNCH_LIST, &message, sizeof(message),
                  on_listed);
}

static int launched_check(struct backend *backend, struct error *err)
{
    return launcher_check(launched_from(backend)->launcher, err);
}

static void launched_put_location(const struct backend_sandbox *sandbox, struct json_writer *json)
{
    struct launched_handle handle;

    if (launched_handle_parse(sandbox->handle, &handle))
        json_put_int(json, "pid", handle.pid);
    else
        json_put_null(json, "pid");
}

/* The report is valid only if init is alive after reading /proc: its pid may have been reused. */
static bool launched_report(struct backend *backend, const char *id, struct backend_op *op)
{
    scoped(buffer_fini) struct buffer json = BUFFER_INIT(REPORT_MAXIMUM);

    if (report_write(launched_from(backend), id, &json, &op->err) < 0)
        return true;
    if (launched_sandbox_is_dead(map_get(&launched_from(backend)->sandboxes, id)))
        error_set(&op->err, ERR_GONE, "sandbox %s has ended", id);
    else
        op->result.report = buffer_steal_text(&json);
    return true;
}

static char *direct_first_scratch(const struct backend *backend, const char *id)
{
    return xasprintf("%s/sandboxes/%s/workspace/.sandglass",
                     launched_from((struct backend *)(uintptr_t)backend)->state_path, id);
}

/* Programs of a direct sandbox may write to this one directory, which they can neither remove nor make:
 * the host can. */
static bool direct_is_whole(struct backend *backend, const char *id)
{
    char path[ID_SIZE + 32];
    struct stat status;

    snprintf(path, sizeof(path), "sandboxes/%s/workspace", id);
    return fstatat(launched_from(backend)->state_dir, path, &status, AT_SYMLINK_NOFOLLOW) == 0 ||
           errno != ENOENT;
}

/* --- the two modes --------------------------------------------------------------------------- */

#define LAUNCHED_OPERATIONS                                                                        \
    .free = launched_free, .create = launched_create, .limits_in_force = launched_limits_in_force, \
    .adopt = launched_adopt, .watch = launched_watch, .unwatch = launched_unwatch,                 \
    .is_ending = launched_is_ending, .connect = launched_connect, .update = launched_update,       \
    .freeze = launched_freeze, .inspect = launched_inspect, .destroy = launched_destroy,           \
    .list = launched_list, .check = launched_check, .report = launched_report,                     \
    .put_location = launched_put_location

static const struct backend_ops operations[] = {
    [LAUNCH_NATIVE] = { .name = "native",
                        .capabilities = { .freeze = true,
                                          .usage = true,
                                          .limits = true,
                                          .outlives_daemon = true,
                                          .network = true,
                                          .disk = true,
                                          .templates = true,
                                          .mounts = true },
                        LAUNCHED_OPERATIONS },
    [LAUNCH_DIRECT] = { .name = "direct",
                        .capabilities = { .freeze = true,
                                          .usage = true,
                                          .limits = true,
                                          .outlives_daemon = true },
                        .is_whole = direct_is_whole,
                        .first_scratch = direct_first_scratch,
                        LAUNCHED_OPERATIONS },
};

struct backend *launched_open(enum launch_mode mode, const struct backend_options *options,
                              struct error *err)
{
    struct launched_backend *launched;

    if (options->config &&
        report_check_required(options->config, mode, launcher_host(options->launcher), err) < 0)
        return NULL;
    launched = xnew(struct launched_backend);
    launched->base = (struct backend){ .ops = &operations[mode], .loop = options->loop };
    launched->launcher = options->launcher;
    launched->config = options->config;
    launched->state_dir = options->state_dir;
    launched->state_path = options->state_path;
    launched->mode = mode;
    launched->makes_relays = options->config && options->config->sandbox.relay;
    list_init(&launched->calls);
    if (launched->makes_relays && launched_need_secret(launched, err) < 0) {
        launched_free(&launched->base);
        return NULL;
    }
    return &launched->base;
}
