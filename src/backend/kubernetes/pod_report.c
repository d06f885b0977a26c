/* SPDX-License-Identifier: Apache-2.0 */
/* What is in force for a pod. The API server repeats what it was asked for and what it has added; nothing
 * of the node's kernel can be read from here, so that limits are declared, not read back. */

#include "backend/kubernetes/kubernetes_private.h"

#include "base/buffer.h"
#include "base/macros.h"
#include "base/str.h"
#include "config/config.h"
#include "wire/json.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { REPORT_MAXIMUM = 64 * 1024 };

struct evidence {
    const struct config *config;
    const json_t *pod;       /* borrowed */
    const json_t *spec;      /* of it */
    const json_t *container; /* ours */
    bool is_claimed;
    bool has_line;
};

static const char *text_at(const json_t *object, const char *key)
{
    const char *text = json_string_value(json_object_get(object, key));

    return text ? text : "";
}

static const json_t *limits_of(const struct evidence *evidence)
{
    return json_object_get(json_object_get(evidence->container, "resources"), "limits");
}

static double limit_at(const struct evidence *evidence, const char *key)
{
    return pod_quantity(text_at(limits_of(evidence), key));
}

/* --- which walls hold ------------------------------------------------------------------------- */

static bool always(const struct evidence *evidence UNUSED)
{
    return true;
}

static bool never(const struct evidence *evidence UNUSED)
{
    return false;
}

static bool has_memory(const struct evidence *evidence)
{
    return limit_at(evidence, "memory") > 0;
}

static bool has_cpu(const struct evidence *evidence)
{
    return limit_at(evidence, "cpu") > 0;
}

static bool has_disk(const struct evidence *evidence)
{
    return limit_at(evidence, "ephemeral-storage") > 0;
}

static bool has_seccomp(const struct evidence *evidence)
{
    const json_t *context = json_object_get(evidence->spec, "securityContext");
    const json_t *profile = json_object_get(context, "seccompProfile");

    return str_equal(text_at(profile, "type"), "RuntimeDefault");
}

static bool has_no_new_privs(const struct evidence *evidence)
{
    const json_t *context = json_object_get(evidence->container, "securityContext");

    return json_is_false(json_object_get(context, "allowPrivilegeEscalation"));
}

/* The template of a claim decides on its network; the operator says what it is. */
static bool is_none(const struct evidence *evidence)
{
    const json_t *labels = json_object_get(json_object_get(evidence->pod, "metadata"), "labels");

    if (evidence->is_claimed)
        return evidence->config->sandbox.network == CONFIG_NETWORK_NONE;
    return str_equal(text_at(labels, POD_LABEL_NETWORK), "none");
}

/* A policy holds only where the network plugin of the cluster enforces it: the operator says so. */
static bool has_network_wall(const struct evidence *evidence)
{
    return evidence->config->kubernetes.network_enforced && (!evidence->pod || is_none(evidence));
}

static const struct wall {
    const char *name;
    bool (*holds)(const struct evidence *evidence);
    bool is_composed; /* of others, which are told one by one */
} walls[] = {
    { "namespaces", always, false },
    { "uid_range", never, false },
    { "seccomp", has_seccomp, false },
    { "no_new_privs", has_no_new_privs, false },
    { "landlock", never, false },
    { "landlock_scope", never, false },
    { "memory", has_memory, false },
    { "cpu", has_cpu, false },
    { "pids", never, false },
    { "limits", never, true },
    { "disk", has_disk, false },
    { "network", has_network_wall, false },
    { "io", never, false },
    { "pid", always, true },
    { "mnt", always, true },
    { "net", always, true },
    { "ipc", always, true },
    { "uts", always, true },
};

/* Without a pod: what no pod of these settings ever has. What only a template says is not promised; the
 * limits of a claimed pod are compared with those that were asked for. */
static bool can_hold(const struct wall *wall, const struct config *config)
{
    const struct evidence evidence = { .config = config };

    if (config->kubernetes.kind == KUBERNETES_CLAIM &&
        (wall->holds == has_seccomp || wall->holds == has_no_new_privs))
        return false;
    if (wall->holds == has_network_wall)
        return has_network_wall(&evidence);
    return wall->holds != never;
}

int pod_check_required(const struct config *config, struct error *err)
{
    const struct config_list *wanted = &config->sandbox.require;

    for (size_t i = 0; i < wanted->count; i++) {
        const struct wall *wall = NULL;

        for (size_t k = 0; k < ARRAY_LENGTH(walls); k++)
            if (str_equal(walls[k].name, wanted->items[i]))
                wall = &walls[k];
        if (wall && can_hold(wall, config))
            continue;
        error_named(err, ERR_INVALID, "isolation_missing",
                    "sandbox.require names \"%s\", which is not in force with the backend "
                    "kubernetes",
                    wanted->items[i]);
        if (wall && wall->holds != never && wall->holds != has_network_wall)
            return error_hint(err, "the SandboxTemplate of a claim decides on it: remove it from "
                                   "sandbox.require, or set kubernetes.kind: pod");
        return error_hint(err, "%s",
                          str_equal(wanted->items[i], "network")
                              ? "set kubernetes.network_enforced if the cluster's network plugin "
                                "enforces NetworkPolicy"
                              : "remove it from sandbox.require where its absence is acceptable");
    }
    return 0;
}

/* --- the report ------------------------------------------------------------------------------- */

static void put_limits(struct json_writer *json, const struct evidence *evidence)
{
    json_begin_object(json, "limits");
    json_put_text(json, "cgroup", "declared");
    json_put_int(json, "memory_bytes", (int64_t)limit_at(evidence, "memory"));
    json_put_int(json, "cpu_millis", (int64_t)(limit_at(evidence, "cpu") * 1000 + 0.5));
    json_put_int(json, "pids", 0);
    json_put_int(json, "disk_bytes", (int64_t)limit_at(evidence, "ephemeral-storage"));
    json_put_text(json, "disk_kind", "eviction");
    json_put_int(json, "io_bytes_per_second", 0);
    json_put_int(json, "io_operations_per_second", 0);
    json_put_bool(json, "freezer", false);
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

/* Root inside would be root of the node's user namespace; there is none inside. */
static void put_kernel(struct json_writer *json, const struct evidence *evidence)
{
    const json_t *context = json_object_get(evidence->spec, "securityContext");

    json_put_text(json, "seccomp", has_seccomp(evidence) ? "filter" : "none");
    json_put_bool(json, "no_new_privs", has_no_new_privs(evidence));
    json_put_int(json, "landlock_abi", 0);
    json_begin_object(json, "capabilities");
    json_put_text(json, "init_effective", "0000000000000000");
    json_put_text(json, "bounding", "0000000000000000");
    json_end_object(json);
    json_begin_object(json, "uids");
    json_put_int(json, "first", json_integer_value(json_object_get(context, "runAsUser")));
    json_put_int(json, "count", 1);
    json_end_object(json);
}

static void put_network(struct json_writer *json, const struct evidence *evidence)
{
    json_put_text(json, "network", is_none(evidence) ? "none" : "open");
    json_put_text(json, "network_policy",
                  evidence->config->kubernetes.network_enforced ? "enforced" : "declared");
}

static void put_boundary(struct json_writer *json, const struct evidence *evidence)
{
    const char *class = text_at(evidence->spec, "runtimeClassName");
    char text[256];

    snprintf(text, sizeof(text), "pod: made by the cluster%s%.100s",
             *class ? ", runtime class " : "", class);
    json_put_text(json, "boundary", text);
    json_put_text(json, "syscalls", *class ? "of the runtime class" : "host");
}

static void put_pod(struct json_writer *json, const struct evidence *evidence)
{
    const json_t *metadata = json_object_get(evidence->pod, "metadata");
    const json_t *context = json_object_get(evidence->container, "securityContext");

    json_begin_object(json, "pod");
    json_put_text(json, "name", text_at(metadata, "name"));
    json_put_text(json, "kind", evidence->is_claimed ? "claim" : "pod");
    json_put_text(json, "namespace", text_at(metadata, "namespace"));
    json_put_text(json, "uid", text_at(metadata, "uid"));
    json_put_text(json, "node", text_at(evidence->spec, "nodeName"));
    json_put_text(json, "image", text_at(evidence->container, "image"));
    json_put_text(json, "runtime_class", text_at(evidence->spec, "runtimeClassName"));
    json_put_bool(json, "read_only",
                  json_is_true(json_object_get(context, "readOnlyRootFilesystem")));
    json_put_text(json, "reached_by", evidence->has_line ? "address" : "exec");
    json_end_object(json);
}

static char *write_report(const struct evidence *evidence)
{
    static const char *const namespaces[] = { "pid", "mnt", "net", "ipc", "uts" };
    scoped(buffer_fini) struct buffer text = BUFFER_INIT(REPORT_MAXIMUM);
    struct json_writer json = JSON_WRITER(&text);

    json_begin_object(&json, NULL);
    json_put_text(&json, "backend", "kubernetes");
    json_begin_array(&json, "namespaces");
    for (size_t i = 0; i < ARRAY_LENGTH(namespaces); i++)
        json_put_text(&json, NULL, namespaces[i]);
    json_end_array(&json);
    put_kernel(&json, evidence);
    put_limits(&json, evidence);
    put_network(&json, evidence);
    put_walls(&json, evidence);
    put_boundary(&json, evidence);
    put_pod(&json, evidence);
    json_end_object(&json);
    return buffer_steal_text(&text);
}

static void gather(const struct config *config, const json_t *pod, struct evidence *out)
{
    const json_t *row;
    size_t i;

    *out = (struct evidence){ .config = config, .pod = pod, .spec = json_object_get(pod, "spec") };
    json_array_foreach(json_object_get(out->spec, "containers"), i,
                       row) if (str_equal(text_at(row, "name"), POD_CONTAINER))
        out->container = row;
}

static void on_described(struct kube_call *call)
{
    struct kube_op *job = container_of(call, struct kube_op, call);
    struct pod_state state;
    struct evidence evidence;
    const struct pod *pod;

    if (call->err.code == ERR_NOT_FOUND) {
        error_set(&job->base.op->err, ERR_GONE, "sandbox %s has ended", job->base.id);
    } else if (call->err.code) {
        job->base.op->err = call->err;
    } else if (!pod_state_read(call->body, &state) || state.verdict == POD_ENDED) {
        error_set(&job->base.op->err, ERR_GONE, "sandbox %s has ended", job->base.id);
    } else {
        gather(job->backend->config, call->body, &evidence);
        evidence.is_claimed = state.is_claimed;
        evidence.has_line = (pod = pod_find(job->backend, job->base.id)) && pod_has_line(pod);
        job->base.op->result.report = write_report(&evidence);
    }
    kube_op_done(job);
}

bool kubernetes_report(struct backend *backend, const char *id, struct backend_op *op)
{
    struct kubernetes_backend *kube = kubernetes_from(backend);
    const struct pod *pod = pod_find(kube, id);

    if (!pod || pod->phase >= POD_DYING) {
        error_set(&op->err, ERR_GONE, "there is no sandbox %s", id);
        return true;
    }
    kube_op_get_pod(kube_op_new(sizeof(struct kube_op), kube, op, id), on_described);
    return false;
}
