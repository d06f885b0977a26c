/* SPDX-License-Identifier: Apache-2.0 */
#include "backend/docker/docker_private.h"

#include "backend/report_kernel.h"
#include "base/buffer.h"
#include "base/macros.h"
#include "base/str.h"
#include "config/config.h"
#include "wire/json.h"

#include <inttypes.h>
#include <stdio.h>

enum { REPORT_MAXIMUM = 64 * 1024 };

/* The engine's description and, on this kernel, /proc and the cgroups. The engine repeats the
 * request: a wall known only from there is declared, not read back. */
struct evidence {
    const struct container *container;
    const json_t *document; /* borrowed; NULL before the engine has described it */
    bool is_read;           /* `view` was */
    struct kernel_view view;
};

static void gather(const struct container *container, const json_t *document, struct evidence *out)
{
    *out = (struct evidence){ .container = container, .document = document };
    if (!container->pid || container->docker->is_gvisor)
        return;
    kernel_view_read(container->pid, container->engine_id, &out->view);
    out->is_read = true;
    out->view.disk_bytes = 0; /* /dev/shm of a container is not where its files are */
}

static const json_t *host_config(const struct evidence *evidence)
{
    return json_object_get(evidence->document, "HostConfig");
}

static uint64_t declared(const struct evidence *evidence, const char *key)
{
    return json_count_at(host_config(evidence), key);
}

/* --- which walls hold --------------------------------------------------------------------------- */

static bool has_memory(const struct evidence *evidence)
{
    return evidence->is_read ? evidence->view.memory_bytes : declared(evidence, "Memory");
}

static bool has_cpu(const struct evidence *evidence)
{
    return evidence->is_read ? evidence->view.cpu_millis : declared(evidence, "CpuQuota");
}

static bool has_pids(const struct evidence *evidence)
{
    return evidence->is_read ? evidence->view.pids : declared(evidence, "PidsLimit");
}

static bool has_limits(const struct evidence *evidence)
{
    return has_memory(evidence) && has_cpu(evidence) && has_pids(evidence);
}

static bool has_disk(const struct evidence *evidence)
{
    return docker_disk_kind(evidence->container->docker) != DISK_UNLIMITED;
}

/* The sentry of gVisor answers system calls itself, and ignores profiles. */
static bool has_seccomp(const struct evidence *evidence)
{
    return evidence->is_read && evidence->view.seccomp == KERNEL_SECCOMP_FILTER;
}

static bool has_no_new_privs(const struct evidence *evidence)
{
    return evidence->is_read ? evidence->view.no_new_privs : evidence->container->docker->is_gvisor;
}

static bool has_namespaces(const struct evidence *evidence)
{
    (void)evidence;
    return true; /* an engine makes no container without them, and none is asked to be shared */
}

static bool has_uid_range(const struct evidence *evidence)
{
    return evidence->is_read && evidence->view.uid_count > 0 && evidence->view.uid_first > 0;
}

static bool has_network_wall(const struct evidence *evidence)
{
    return str_equal(json_text_at(host_config(evidence), "NetworkMode"), "none");
}

static bool never(const struct evidence *evidence)
{
    (void)evidence;
    return false;
}

static const struct wall {
    const char *name;
    bool (*holds)(const struct evidence *evidence);
    bool is_composed; /* of others, which have rows of their own */
} walls[] = {
    { "namespaces", has_namespaces, false },
    { "uid_range", has_uid_range, false },
    { "seccomp", has_seccomp, false },
    { "no_new_privs", has_no_new_privs, false },
    { "landlock", never, false },
    { "landlock_scope", never, false },
    { "memory", has_memory, false },
    { "cpu", has_cpu, false },
    { "pids", has_pids, false },
    { "limits", has_limits, true },
    { "disk", has_disk, false },
    { "network", has_network_wall, false },
    { "pid", has_namespaces, true },
    { "mnt", has_namespaces, true },
    { "net", has_namespaces, true },
    { "ipc", has_namespaces, true },
    { "uts", has_namespaces, true },
};

static const struct wall *find_wall(const char *name)
{
    for (size_t i = 0; i < ARRAY_LENGTH(walls); i++)
        if (str_equal(walls[i].name, name))
            return &walls[i];
    return NULL;
}

static int refuse(const char *backend, const char *name, struct error *err)
{
    error_named(err, ERR_BACKEND, "isolation_missing",
                "sandbox.require names \"%s\", which is not in force with the backend %s", name,
                backend);
    err->retryable = false;
    return error_hint(err, "remove it from sandbox.require where its absence is acceptable, or use "
                           "the backend native");
}

int container_require(const struct container *container, const json_t *document, struct error *err)
{
    const struct config_list *wanted = &container->docker->config->sandbox.require;
    struct evidence evidence;

    if (!wanted->count)
        return 0;
    gather(container, document, &evidence);
    for (size_t i = 0; i < wanted->count; i++) {
        const struct wall *wall = find_wall(wanted->items[i]);

        if (!wall || !wall->holds(&evidence))
            return refuse(container->docker->base.ops->name, wanted->items[i], err);
    }
    return 0;
}

int container_check_required(const struct config *config, const char *backend, struct error *err)
{
    const struct config_list *wanted = &config->sandbox.require;

    for (size_t i = 0; i < wanted->count; i++) {
        const struct wall *wall = find_wall(wanted->items[i]);

        if (!wall || wall->holds == never)
            return refuse(backend, wanted->items[i], err);
    }
    return 0;
}

/* --- the report ----------------------------------------------------------------------------------- */

static void put_hex(struct json_writer *json, const char *key, uint64_t value)
{
    char text[24];

    snprintf(text, sizeof(text), "%016" PRIx64, value);
    json_put_text(json, key, text);
}

/* Without the allowance for init and the relay; the allowance for gVisor's own threads is
 * included. */
static uint64_t declared_pids(const struct evidence *evidence)
{
    uint64_t pids = declared(evidence, "PidsLimit");

    return evidence->container->docker->is_gvisor || pids < 2 ? pids : pids - 2;
}

static const char *const disk_kinds[] = {
    [DISK_UNLIMITED] = "none", [DISK_IN_MEMORY] = "tmpfs", [DISK_IN_STORAGE] = "storage"
};

static void put_limits(struct json_writer *json, const struct evidence *evidence)
{
    const struct container *container = evidence->container;
    const struct kernel_view *view = &evidence->view;
    bool is_read = evidence->is_read;

    json_begin_object(json, "limits");
    json_put_text(json, "cgroup",
                  !is_read                    ? "declared"
                  : view->cgroup_version == 2 ? "v2"
                  : view->cgroup_version == 1 ? "v1"
                                              : "none");
    json_put_int(json, "memory_bytes",
                 (int64_t)(is_read ? view->memory_bytes : declared(evidence, "Memory")));
    json_put_int(json, "cpu_millis",
                 (int64_t)(is_read ? view->cpu_millis : declared(evidence, "CpuQuota") / 100));
    json_put_int(json, "pids",
                 (int64_t)(is_read ? view->pids - (container->bridge && view->pids ? 1 : 0)
                                   : declared_pids(evidence)));
    json_put_int(json, "disk_bytes",
                 (int64_t)container_disk_bytes(container->docker, &container->limits));
    json_put_text(json, "disk_kind", disk_kinds[docker_disk_kind(container->docker)]);
    json_put_int(json, "io_bytes_per_second", 0);
    json_put_int(json, "io_operations_per_second", 0);
    json_put_bool(json, "freezer", true);
    json_end_object(json);
}

static void put_walls(struct json_writer *json, const struct evidence *evidence)
{
    json_begin_array(json, "missing");
    for (size_t i = 0; i < ARRAY_LENGTH(walls); i++)
        if (!walls[i].is_composed && !walls[i].holds(evidence))
            json_put_text(json, NULL, walls[i].name);
    json_end_array(json);
}

static void put_boundary(struct json_writer *json, const struct evidence *evidence)
{
    json_put_text(json, "boundary",
                  evidence->container->docker->is_gvisor
                      ? "container: system calls are answered by gVisor, not by the host's kernel"
                      : "container: made by the engine, on the host's kernel");
    json_put_text(json, "syscalls", evidence->container->docker->is_gvisor ? "gvisor" : "host");
}

static void put_kernel(struct json_writer *json, const struct evidence *evidence)
{
    const struct kernel_view *view = &evidence->view;

    json_put_text(json, "seccomp", has_seccomp(evidence) ? "filter" : "none");
    json_put_bool(json, "no_new_privs", has_no_new_privs(evidence));
    json_put_int(json, "landlock_abi", 0);
    json_begin_object(json, "capabilities");
    put_hex(json, "init_effective", view->capabilities);
    put_hex(json, "bounding", view->bounding);
    json_end_object(json);
    json_begin_object(json, "uids");
    json_put_int(json, "first", view->uid_first);
    json_put_int(json, "count", view->uid_count);
    json_end_object(json);
}

static void put_container(struct json_writer *json, const struct evidence *evidence)
{
    const struct container *container = evidence->container;
    const json_t *config = json_object_get(evidence->document, "Config");

    json_begin_object(json, "container");
    json_put_text(json, "id", container->engine_id);
    json_put_text(json, "image", json_text_at(config, "Image"));
    json_put_text(json, "image_id", json_text_at(evidence->document, "Image"));
    json_put_text(json, "runtime", json_text_at(host_config(evidence), "Runtime"));
    json_put_bool(json, "read_only",
                  json_is_true(json_object_get(host_config(evidence), "ReadonlyRootfs")));
    json_put_bool(json, "paused", container->is_paused);
    json_put_text(json, "reached_by", container->bridge ? "relay" : "socket");
    json_end_object(json);
}

static char *write_report(const struct evidence *evidence)
{
    static const char *const namespaces[] = { "pid", "mnt", "net", "ipc", "uts" };
    scoped(buffer_fini) struct buffer text = BUFFER_INIT(REPORT_MAXIMUM);
    struct json_writer json = JSON_WRITER(&text);
    const char *network = json_text_at(host_config(evidence), "NetworkMode");

    json_begin_object(&json, NULL);
    json_put_text(&json, "backend", evidence->container->docker->base.ops->name);
    json_begin_array(&json, "namespaces");
    for (size_t i = 0; i < ARRAY_LENGTH(namespaces); i++)
        json_put_text(&json, NULL, namespaces[i]);
    json_end_array(&json);
    put_kernel(&json, evidence);
    put_limits(&json, evidence);
    json_put_text(&json, "network", str_equal(network, "none") ? "none" : "open");
    put_walls(&json, evidence);
    put_boundary(&json, evidence);
    put_container(&json, evidence);
    json_end_object(&json);
    return buffer_steal_text(&text);
}

static void on_described(struct engine_call *call)
{
    struct docker_job *job = container_of(call, struct docker_job, call);
    const struct container *container = container_find(job->backend, job->base.id);
    struct container_state state;
    struct evidence evidence;

    if (call->err.code == ERR_NOT_FOUND || !container) {
        error_set(&job->base.op->err, ERR_GONE, "sandbox %s has ended", job->base.id);
    } else if (call->err.code != ERR_NONE) {
        job->base.op->err = call->err;
    } else if (!container_state_read(call->body, &state) || !state.is_running) {
        error_set(&job->base.op->err, ERR_GONE, "sandbox %s has ended", job->base.id);
    } else {
        gather(container, call->body, &evidence);
        job->base.op->result.report = write_report(&evidence);
    }
    docker_job_done(job);
}

bool docker_report(struct backend *backend, const char *id, struct backend_op *op)
{
    struct docker_backend *docker = docker_from(backend);
    const struct container *container = container_find(docker, id);
    struct docker_job *job;

    if (!container || container->phase == CONTAINER_ENDED) {
        error_set(&op->err, ERR_GONE, "there is no sandbox %s", id);
        return true;
    }
    job = docker_job_new(sizeof(*job), docker, op, id);
    docker_job_ask(job, HTTP_GET, NULL, ENGINE_REQUEST_MS, on_described, "/containers/%s/json",
                   container->engine_id);
    return false;
}
