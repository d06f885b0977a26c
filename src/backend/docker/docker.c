/* SPDX-License-Identifier: Apache-2.0 */
#include "backend/docker/docker_private.h"

#include "backend/docker/seccomp_profile.h"
#include "backend/native/seccomp.h"
#include "backend/registry.h"
#include "base/alloc.h"
#include "base/buffer.h"
#include "base/log.h"
#include "base/macros.h"
#include "base/str.h"
#include "config/config.h"
#include "wire/image_ref.h"
#include "wire/json.h"

#include <assert.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

enum { PROBE_MS = 10 * 1000 };

static void docker_free(struct backend *backend);

struct docker_backend *docker_from(const struct backend *backend)
{
    assert(backend->ops->free == docker_free);
    return container_of(backend, struct docker_backend, base);
}

/* --- jobs --------------------------------------------------------------------------------------- */

static void cancel_call(struct remote_job *job)
{
    engine_cancel(&container_of(job, struct docker_job, base)->call);
}

void *docker_job_new(size_t size, struct docker_backend *backend, struct backend_op *op,
                     const char *id)
{
    struct docker_job *job = remote_job_new(&backend->jobs, size, op, id);

    job->backend = backend;
    return job;
}

void docker_job_done(struct docker_job *job)
{
    remote_job_done(&job->base);
}

void docker_job_ask(struct docker_job *job, enum http_method method, const char *body,
                    int64_t timeout_ms, engine_done_fn *done, const char *format, ...)
{
    scoped(buffer_fini) struct buffer path = BUFFER_INIT(64 * 1024);
    va_list args;

    va_start(args, format);
    buffer_vappendf(&path, format, args);
    va_end(args);
    engine_request(job->backend->engine, &job->call, method, buffer_text(&path), NULL, body,
                   body ? strlen(body) : 0, timeout_ms, done);
}

/* A connect that waits at a door is no job. */
static void docker_give_up(struct backend *backend, struct backend_op *op)
{
    if (!remote_jobs_cancel(&docker_from(backend)->jobs, op))
        docker_cancel(backend, op);
}

/* --- secrets and labels -------------------------------------------------------------------------- */

int docker_need_secret(struct docker_backend *docker, struct error *err)
{
    if (!docker->secret.is_known &&
        relay_secret_open(docker->state_dir, docker->secret.bytes, err) < 0)
        return -1;
    docker->secret.is_known = true;
    return 0;
}

int docker_relay_key(struct docker_backend *docker, const char *id,
                     char out_text[2 * RELAY_KEY_SIZE + 1], struct error *err)
{
    uint8_t key[RELAY_KEY_SIZE];

    if (docker_need_secret(docker, err) < 0)
        return -1;
    relay_key_derive(docker->secret.bytes, id, key);
    for (size_t i = 0; i < sizeof(key); i++)
        snprintf(out_text + 2 * i, 3, "%02x", key[i]);
    explicit_bzero(key, sizeof(key));
    return 0;
}

bool docker_may_remove(const struct docker_backend *docker, const struct container_state *state)
{
    return str_equal(state->instance, docker->config->instance) ||
           (*docker->cluster && str_equal(state->cluster, docker->cluster));
}

char *docker_known_filter(const struct docker_backend *docker)
{
    scoped(buffer_fini) struct buffer text = BUFFER_INIT(8 * 1024);
    scoped(buffer_fini) struct buffer escaped = BUFFER_INIT(32 * 1024);
    struct json_writer json = JSON_WRITER(&text);
    scoped(free) char *cluster = xasprintf(LABEL_CLUSTER "=%s", docker->cluster);
    scoped(free) char *name = xasprintf(LABEL_BACKEND "=%s", docker->base.ops->name);

    if (!*docker->cluster)
        return docker_label_filter(docker);
    json_begin_object(&json, NULL);
    json_begin_array(&json, "label");
    json_put_text(&json, NULL, cluster);
    json_put_text(&json, NULL, name);
    json_end_array(&json);
    json_end_object(&json);
    http_escape(&escaped, buffer_text(&text));
    return buffer_steal_text(&escaped);
}

char *docker_label_filter(const struct docker_backend *docker)
{
    scoped(buffer_fini) struct buffer text = BUFFER_INIT(8 * 1024);
    scoped(buffer_fini) struct buffer escaped = BUFFER_INIT(32 * 1024);
    struct json_writer json = JSON_WRITER(&text);
    scoped(free) char *state = xasprintf(LABEL_STATE "=%s", docker->state_path);
    scoped(free) char *instance = xasprintf(LABEL_INSTANCE "=%s", docker->config->instance);
    scoped(free) char *name = xasprintf(LABEL_BACKEND "=%s", docker->base.ops->name);

    json_begin_object(&json, NULL);
    json_begin_array(&json, "label");
    json_put_text(&json, NULL, instance);
    json_put_text(&json, NULL, name);
    json_put_text(&json, NULL, state);
    json_end_array(&json);
    json_end_object(&json);
    http_escape(&escaped, buffer_text(&text));
    return buffer_steal_text(&escaped);
}

/* --- events --------------------------------------------------------------------------------------- */

/* Containers that are not in the list, or do not run, ended while no events came. A changed pause
 * state is looked at as well. */
static void on_relisted(struct engine_call *call)
{
    struct docker_backend *docker = container_of(call, struct docker_backend, relist);
    const json_t *row;
    struct map_slot *slot;
    struct map running = { 0 };
    size_t i;

    if (call->err.code != ERR_NONE || !json_is_array(call->body))
        return;
    json_array_foreach(call->body, i, row)
    {
        const char *state = json_text_at(row, "State");

        if (str_equal(state, "running") || str_equal(state, "paused"))
            map_put(&running, json_text_at(row, "Id"), (void *)row);
        else if (str_equal(state, "created"))
            late_consider(docker, json_text_at(row, "Id"), json_object_get(row, "Labels"));
    }
    map_for_each (slot, &docker->containers) {
        struct container *container = slot->value;

        if (!*container->engine_id)
            continue;
        row = map_get(&running, container->engine_id);
        if (!row)
            container_suspect(container);
        else if (str_equal(json_text_at(row, "State"), "paused") != container->is_paused)
            container_look(container);
    }
    map_fini(&running);
}

static void miss_runtime(struct docker_backend *docker)
{
    struct error err = { 0 };

    error_named(&err, ERR_UNAVAILABLE, "runtime_missing",
                "the container engine at %s has no runtime \"%s\"", engine_host(docker->engine),
                docker->runtime);
    error_hint(
        &err, "%s",
        docker->is_gvisor
            ? "install gVisor and run 'runsc install', which adds it to the engine's "
              "daemon.json, then restart the engine"
            : "add it to \"runtimes\" in the engine's daemon.json, or change docker.runtime");
    error_keep(&docker->trouble, &err);
}

/* overlay2 limits only on some file systems, and does not say so: see docker.disk. */
static bool is_driver_that_limits(const char *driver)
{
    static const char *const names[] = { "btrfs", "zfs", "devicemapper" };

    for (size_t i = 0; i < ARRAY_LENGTH(names); i++)
        if (str_equal(driver, names[i]))
            return true;
    return false;
}

enum docker_disk docker_disk_kind(const struct docker_backend *docker)
{
    if (docker->config->docker.read_only)
        return DISK_IN_MEMORY;
    switch ((enum config_docker_disk)docker->config->docker.disk) {
    case DOCKER_DISK_AUTO:
        return docker->facts.limits_storage ? DISK_IN_STORAGE : DISK_UNLIMITED;
    case DOCKER_DISK_STORAGE:
        return DISK_IN_STORAGE;
    case DOCKER_DISK_NONE:
        break;
    }
    return DISK_UNLIMITED;
}

/* A size that was given at the start stays. */
static void set_disk_capabilities(struct docker_backend *docker)
{
    bool is_limited = docker_disk_kind(docker) != DISK_UNLIMITED;

    docker->ops.capabilities.disk = is_limited;
    docker->ops.capabilities.fixed_limits = is_limited || docker->is_gvisor;
}

static void on_info(struct engine_call *call)
{
    struct docker_backend *docker = container_of(call, struct docker_backend, info);
    struct docker_facts *facts = &docker->facts;

    if (call->err.code == ERR_NONE && !json_is_object(call->body))
        error_set(&call->err, ERR_BACKEND, "%s does not describe itself as a container engine",
                  engine_host(docker->engine));
    if (call->err.code != ERR_NONE) {
        error_keep(&docker->trouble, &call->err);
        return;
    }
    *facts = (struct docker_facts){
        .are_known = true,
        .limits_memory = json_is_true(json_object_get(call->body, "MemoryLimit")),
        .limits_cpu = json_is_true(json_object_get(call->body, "CpuCfsQuota")),
        .limits_pids = json_is_true(json_object_get(call->body, "PidsLimit")),
    };
    /* Only Podman's description has this member. */
    facts->tells_late = json_object_get(call->body, "BuildahVersion");
    facts->hides_oom = facts->tells_late &&
                       str_equal(json_text_at(call->body, "CgroupVersion"), "1");
    facts->limits_storage = is_driver_that_limits(json_text_at(call->body, "Driver"));
    set_disk_capabilities(docker);
    snprintf(facts->architecture, sizeof(facts->architecture), "%s",
             json_text_at(call->body, "Architecture"));
    error_keep(&docker->trouble, NULL);
    if (*docker->runtime && json_is_object(json_object_get(call->body, "Runtimes")) &&
        !json_object_get(json_object_get(call->body, "Runtimes"), docker->runtime))
        miss_runtime(docker);
}

static void ask_info(struct docker_backend *docker)
{
    engine_cancel(&docker->info);
    engine_request(docker->engine, &docker->info, HTTP_GET, "/info", NULL, NULL, 0, PROBE_MS,
                   on_info);
}

static void on_up(struct engine_events *events)
{
    struct docker_backend *docker = container_of(events, struct docker_backend, events);
    scoped(free) char *filter = docker_known_filter(docker);
    scoped(free) char *path = xasprintf("/containers/json?all=true&filters=%s", filter);

    ask_info(docker);
    engine_cancel(&docker->relist);
    engine_request(docker->engine, &docker->relist, HTTP_GET, path, NULL, NULL, 0, ENGINE_WORK_MS,
                   on_relisted);
}

static void on_event(struct engine_events *events, json_t *event)
{
    container_on_event(container_of(events, struct docker_backend, events), event);
}

/* An unreachable engine says nothing about its containers. */
static void on_down(struct engine_events *events, const struct error *err)
{
    struct docker_backend *docker = container_of(events, struct docker_backend, events);

    if (!docker->trouble)
        log_warn("the container engine does not answer; its sandboxes go on",
                 kv("engine", engine_host(docker->engine)), kv("error", err->message));
    error_keep(&docker->trouble, err);
    container_on_engine_left(docker);
}

static const struct engine_events_handler events_handler = {
    .on_up = on_up,
    .on_event = on_event,
    .on_down = on_down,
};

/* --- capabilities -------------------------------------------------------------------------- */

/* The answer may be another one by now: it is asked for, and the next check knows. */
static int docker_check(struct backend *backend, struct error *err)
{
    struct docker_backend *docker = docker_from(backend);

    if (!docker->trouble)
        return 0;
    *err = *docker->trouble;
    if (!engine_is_asked(&docker->info))
        ask_info(docker);
    return -1;
}

static struct sandbox_limits docker_limits_in_force(const struct backend *backend,
                                                    const struct sandbox_limits *limits)
{
    const struct docker_backend *docker = docker_from(backend);
    const struct docker_facts *facts = &docker->facts;
    bool is_known = facts->are_known;

    return (struct sandbox_limits){
        .memory_bytes = !is_known || facts->limits_memory ? limits->memory_bytes : 0,
        .cpu_millis = !is_known || facts->limits_cpu ? limits->cpu_millis : 0,
        .pids = !is_known || facts->limits_pids ? limits->pids : 0,
        .disk_bytes = container_disk_bytes(docker, limits),
    };
}

static const char *docker_default_source(const struct backend *backend)
{
    return images_default(docker_from(backend));
}

static int docker_check_source(const struct backend *backend, const struct sandbox_source *source,
                               struct error *err)
{
    return images_check(docker_from(backend), source->name, err);
}

static bool docker_find_source(struct backend *backend, const struct sandbox_source *source,
                               struct backend_op *op)
{
    return images_find(docker_from(backend), source->name, op);
}

static void docker_list_sources(const struct backend *backend, backend_source_fn *add, void *user)
{
    images_list(docker_from(backend), add, user);
}

static void docker_put_location(const struct backend_sandbox *sandbox, struct json_writer *json)
{
    struct container_handle handle;

    if (container_parse_handle(sandbox->handle, &handle) && handle.pid > 0)
        json_put_int(json, "pid", handle.pid);
    else
        json_put_null(json, "pid");
    json_put_text(json, "container", handle.engine_id);
}

static const struct backend_ops docker_ops = {
    .name = "docker",
    .capabilities = { .freeze = true,
                      .usage = true,
                      .limits = true,
                      .outlives_daemon = true,
                      .network = true,
                      .templates = true,
                      .environment = true },
    .free = docker_free,
    .create = docker_create,
    .adopt = docker_adopt,
    .watch = docker_watch,
    .unwatch = docker_unwatch,
    .is_ending = docker_is_ending,
    .connect = docker_connect,
    .cancel = docker_give_up,
    .update = docker_update,
    .freeze = docker_freeze,
    .inspect = docker_inspect,
    .destroy = docker_destroy,
    .list = docker_list,
    .check = docker_check,
    .default_source = docker_default_source,
    .check_source = docker_check_source,
    .list_sources = docker_list_sources,
    .find_source = docker_find_source,
    .limits_in_force = docker_limits_in_force,
    .put_location = docker_put_location,
    .report = docker_report,
};

/* --- opening and closing ----------------------------------------------------------------------------- */

static void docker_free(struct backend *backend)
{
    struct docker_backend *docker = docker_from(backend);
    struct map_slot *slot;

    remote_jobs_free(&docker->jobs);
    late_fini(docker);
    for (size_t position = 0; (slot = map_next(&docker->containers, &position)); position = 0)
        container_free(slot->value);
    map_fini(&docker->containers);
    engine_events_stop(&docker->events);
    engine_cancel(&docker->info);
    engine_cancel(&docker->relist);
    images_fini(docker);
    engine_free(docker->engine);
    error_keep(&docker->trouble, NULL);
    explicit_bzero(docker->secret.bytes, sizeof(docker->secret.bytes));
    free(docker->seccomp);
    free(docker);
}

/* docker.runtime is the setting of both backends. A sandbox of gvisor has to have the walls of gVisor,
 * also where that names another runtime for docker. */
static const char *gvisor_runtime(const struct config *config)
{
    const char *runtime = config->docker.runtime;

    return strstr(runtime, "runsc") || strstr(runtime, "gvisor") ? runtime : "runsc";
}

static struct docker_backend *docker_new(const struct backend_options *options, bool is_gvisor)
{
    struct docker_backend *docker = xnew(struct docker_backend);
    const struct config *config = options->config;
    const struct seccomp_options seccomp = {
        .tier = config->sandbox.seccomp == CONFIG_SECCOMP_STRICT ? SECCOMP_STRICT : SECCOMP_DEFAULT,
        .is_foreign = !config_engine_socket(config),
    };
    scoped(free) char *profile = is_gvisor ? NULL : seccomp_profile_new(&seccomp);

    docker->ops = docker_ops;
    docker->ops.capabilities.never_open = str_equal(config->docker.network, "none");
    if (is_gvisor)
        docker->ops.name = "gvisor";
    docker->base = (struct backend){ .ops = &docker->ops, .loop = options->loop };
    docker->config = config;
    docker->is_gvisor = is_gvisor;
    set_disk_capabilities(docker);
    docker->state_dir = options->state_dir;
    docker->state_path = options->state_path;
    place_read(&docker->place);
    docker->runtime = is_gvisor ? gvisor_runtime(config) : config->docker.runtime;
    docker->seccomp = profile ? xasprintf(SECCOMP_OPTION "%s", profile) : NULL;
    remote_jobs_init(&docker->jobs, docker->base.loop, cancel_call);
    list_init(&docker->late);
    return docker;
}

/* Asks once, before the daemon serves. An engine that is away may come back, with the sandboxes of an
 * earlier daemon: that is reported, and no reason not to start. */
static int probe(struct docker_backend *docker, struct error *err)
{
    ask_info(docker);
    while (engine_is_asked(&docker->info))
        loop_turn(docker->base.loop, 100);
    if (docker->trouble && str_equal(docker->trouble->name, "runtime_missing")) {
        *err = *docker->trouble;
        return -1;
    }
    if (docker->trouble)
        log_warn("the container engine does not answer; continuing without it",
                 kv("backend", docker->base.ops->name), kv("engine", engine_host(docker->engine)),
                 kv("error", docker->trouble->message), kv("hint", docker->trouble->hint));
    return 0;
}

/* All nodes use this engine: each can speak to the containers of the others, and take them over. */
static void share_engine(struct docker_backend *docker, const uint8_t node_key[RELAY_SECRET_SIZE])
{
    uint8_t name[RELAY_KEY_SIZE];

    relay_key_derive(node_key, "containers", docker->secret.bytes);
    docker->secret.is_known = true;
    relay_key_derive(node_key, "cluster", name);
    for (size_t i = 0; i < (DOCKER_CLUSTER_SIZE - 1) / 2; i++)
        snprintf(docker->cluster + 2 * i, 3, "%02x", name[i]);
    docker->ops.capabilities.shared = true;
}

static struct backend *open_backend(const struct backend_options *options, bool is_gvisor,
                                    struct error *err)
{
    struct docker_backend *docker = docker_new(options, is_gvisor);
    const struct engine_options engine = {
        .loop = options->loop,
        .host = options->config->docker.host,
        .ca = options->config->docker.tls.ca,
        .certificate = options->config->docker.tls.cert,
        .key = options->config->docker.tls.key,
    };
    scoped(free) char *label = NULL;

    docker->engine = engine_new(&engine, err);
    if (!docker->engine || probe(docker, err) < 0) {
        docker_free(&docker->base);
        return NULL;
    }
    if (options->node_key && !engine_is_unix(docker->engine))
        share_engine(docker, options->node_key);
    label = *docker->cluster ? xasprintf(LABEL_CLUSTER "=%s", docker->cluster)
                             : xasprintf(LABEL_INSTANCE "=%s", options->config->instance);
    engine_events_start(docker->engine, &docker->events, "label", label, &events_handler);
    images_watch(docker);
    return &docker->base;
}

struct backend *docker_backend_open(const struct backend_options *options, struct error *err)
{
    return open_backend(options, false, err);
}

struct backend *gvisor_backend_open(const struct backend_options *options, struct error *err)
{
    return open_backend(options, true, err);
}

/* --- settings ----------------------------------------------------------------------------------------- */

static int check_image(const struct config *config, struct error *err)
{
    struct image_ref ref;

    if (str_is_empty(config->docker.image) || image_ref_parse(&ref, config->docker.image, err) == 0)
        return 0;
    return error_wrap(err, "docker.image");
}

static int check_settings(const struct backend_settings *settings, const char *name,
                          struct error *err)
{
    const struct config *config = settings->config;

    if (!config_names_backend(config, name))
        return 0;
    if (check_image(config, err) < 0)
        return -1;
    if (str_equal(config->sandbox.backend, name) && container_check_required(config, name, err) < 0)
        return -1;
    if (str_equal(config->sandbox.backend, name) &&
        config->sandbox.network == CONFIG_NETWORK_OPEN &&
        str_equal(config->docker.network, "none")) {
        error_set(err, ERR_INVALID,
                  "sandbox.network is open, but docker.network names no network for it");
        return error_hint(err, "set docker.network to a network of the engine, such as bridge");
    }
    return 0;
}

int docker_backend_check(const struct backend_settings *settings, struct error *err)
{
    return check_settings(settings, "docker", err);
}

int gvisor_backend_check(const struct backend_settings *settings, struct error *err)
{
    return check_settings(settings, "gvisor", err);
}
