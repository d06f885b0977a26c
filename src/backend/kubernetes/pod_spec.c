/* SPDX-License-Identifier: Apache-2.0 */
#include "backend/kubernetes/kubernetes_private.h"

#include "backend/remote/image.h"
#include "base/buffer.h"
#include "base/macros.h"
#include "base/str.h"
#include "config/config.h"
#include "wire/image_ref.h"
#include "wire/json.h"

#include <inttypes.h>
#include <stdio.h>

enum { BODY_MAXIMUM = 256 * 1024, INIT_MODE = 0555 };

/* --- the image -------------------------------------------------------------------------------- */

const char *pod_image(const struct kubernetes_backend *kube, const char *name, struct error *err)
{
    const char *template_name = kube->config->sandbox.template_name;
    const char *standard = kube->config->kubernetes.image;

    if (str_is_empty(standard) && !str_equal(template_name, "host") && *template_name != '/')
        standard = template_name;
    return remote_image(name, standard, "kubernetes", "kubernetes.image", err);
}

/* --- who it is -------------------------------------------------------------------------------- */

static void put_label(struct json_writer *json, const char *prefix, const char *name,
                      const char *value)
{
    char key[64];

    snprintf(key, sizeof(key), "%s%s", prefix, name);
    json_put_text(json, key, value);
}

void pod_put_identity(struct json_writer *json, const struct pod_order *order, const char *prefix)
{
    const struct kubernetes_backend *kube = order->kube;

    put_label(json, prefix, "instance", kube->instance);
    put_label(json, prefix, "state", kube->state);
    if (*kube->cluster)
        put_label(json, prefix, "cluster", kube->cluster);
    put_label(json, prefix, "sandbox", order->spec->id);
}

static void put_labels(struct json_writer *json, const struct pod_order *order)
{
    json_begin_object(json, "labels");
    json_put_text(json, "app.kubernetes.io/name", "sandglass-sandbox");
    json_put_text(json, "app.kubernetes.io/managed-by", "sandglass");
    pod_put_identity(json, order, POD_LABEL);
    json_put_text(json, POD_LABEL_NETWORK,
                  order->spec->network.mode == NETWORK_OPEN ? "open" : "none");
    json_end_object(json);
}

/* Names of sessions and owners may be longer than a label, and have other characters. */
void pod_put_session(struct json_writer *json, const struct sandbox_spec *spec)
{
    char generation[24];

    if (str_is_empty(spec->session))
        return;
    snprintf(generation, sizeof(generation), "%" PRIu64, spec->generation);
    json_put_text(json, POD_LABEL "session", spec->session);
    json_put_text(json, POD_LABEL "owner", spec->owner ? spec->owner : "");
    json_put_text(json, POD_LABEL "generation", generation);
}

static void put_annotations(struct json_writer *json, const struct sandbox_spec *spec)
{
    json_begin_object(json, "annotations");
    json_put_text(json, "cluster-autoscaler.kubernetes.io/safe-to-evict", "false");
    pod_put_session(json, spec);
    json_end_object(json);
}

static void put_metadata(struct json_writer *json, const struct pod_order *order)
{
    char name[POD_NAME_SIZE];

    pod_name(order->spec->id, name);
    json_begin_object(json, "metadata");
    json_put_text(json, "name", name);
    put_labels(json, order);
    put_annotations(json, order->spec);
    ground_put_owner(order->kube, json);
    json_end_object(json);
}

/* --- the container ---------------------------------------------------------------------------- */

static void put_quantities(struct json_writer *json, const struct pod_order *order, const char *key,
                           uint32_t cpu_millis)
{
    const struct sandbox_spec *spec = order->spec;
    char text[32];

    json_begin_object(json, key);
    snprintf(text, sizeof(text), "%" PRIu64, spec->limits.memory_bytes);
    json_put_text(json, "memory", text);
    snprintf(text, sizeof(text), "%" PRIu32 "m", cpu_millis);
    json_put_text(json, "cpu", text);
    snprintf(text, sizeof(text), "%" PRIu64, spec->limits.disk_bytes);
    json_put_text(json, "ephemeral-storage", text);
    snprintf(text, sizeof(text), "%" PRIu32, spec->gpus);
    if (spec->gpus)
        json_put_text(json, order->kube->config->kubernetes.gpu_resource, text);
    json_end_object(json);
}

static void put_resources(struct json_writer *json, const struct pod_order *order)
{
    uint32_t limit = order->spec->limits.cpu_millis;
    uint32_t request = order->kube->config->kubernetes.cpu_request_millis;

    json_begin_object(json, "resources");
    put_quantities(json, order, "limits", limit);
    put_quantities(json, order, "requests", request && request < limit ? request : limit);
    json_end_object(json);
}

static bool has_gate(const struct config *config)
{
    return config->kubernetes.transport == KUBERNETES_ADDRESS;
}

static void put_command(struct json_writer *json, const struct config *config)
{
    static const char *const arguments[] = { KUBERNETES_INIT, "--relay=" KUBERNETES_RELAY_SOCKET,
                                             "--workspace=" KUBERNETES_WORKSPACE,
                                             "--home=" KUBERNETES_WORKSPACE, "--environment" };
    char gate[32];

    json_begin_array(json, "command");
    for (size_t i = 0; i < ARRAY_LENGTH(arguments); i++)
        json_put_text(json, NULL, arguments[i]);
    snprintf(gate, sizeof(gate), "--gate=%" PRId64, config->kubernetes.port);
    if (has_gate(config))
        json_put_text(json, NULL, gate);
    json_end_array(json);
}

/* A later daemon reads from it how the pod can be reached. */
static void put_ports(struct json_writer *json, const struct config *config)
{
    if (!has_gate(config))
        return;
    json_begin_array(json, "ports");
    json_begin_object(json, NULL);
    json_put_text(json, "name", POD_PORT);
    json_put_int(json, "containerPort", config->kubernetes.port);
    json_put_text(json, "protocol", "TCP");
    json_end_object(json);
    json_end_array(json);
}

static void put_key(struct json_writer *json, const char *key)
{
    json_begin_array(json, "env");
    json_begin_object(json, NULL);
    json_put_text(json, "name", RELAY_KEY_VARIABLE);
    json_put_text(json, "value", key);
    json_end_object(json);
    json_end_array(json);
}

static void put_mount(struct json_writer *json, const char *name, const char *path, bool read_only)
{
    json_begin_object(json, NULL);
    json_put_text(json, "name", name);
    json_put_text(json, "mountPath", path);
    if (read_only)
        json_put_bool(json, "readOnly", true);
    json_end_object(json);
}

static void put_mounts(struct json_writer *json, const struct pod_order *order)
{
    json_begin_array(json, "volumeMounts");
    put_mount(json, "init", KUBERNETES_INSIDE "/bin", true);
    put_mount(json, "run", KUBERNETES_INSIDE "/run", false);
    put_mount(json, "workspace", KUBERNETES_WORKSPACE, false);
    if (order->kube->config->kubernetes.read_only)
        put_mount(json, "tmp", "/tmp", false);
    json_end_array(json);
}

/* With the pod's own: what the level "restricted" of Pod Security demands. */
static void put_container_security(struct json_writer *json, const struct config *config)
{
    json_begin_object(json, "securityContext");
    json_put_bool(json, "allowPrivilegeEscalation", false);
    json_put_bool(json, "privileged", false);
    json_put_bool(json, "readOnlyRootFilesystem", config->kubernetes.read_only);
    json_begin_object(json, "capabilities");
    json_begin_array(json, "drop");
    json_put_text(json, NULL, "ALL");
    json_end_array(json);
    json_end_object(json);
    json_end_object(json);
}

static const char *const pull_policies[] = {
    [PULL_NEVER] = "Never", [PULL_MISSING] = "IfNotPresent", [PULL_ALWAYS] = "Always"
};

static void put_container(struct json_writer *json, const struct pod_order *order)
{
    const struct config *config = order->kube->config;

    json_begin_array(json, "containers");
    json_begin_object(json, NULL);
    json_put_text(json, "name", POD_CONTAINER);
    json_put_text(json, "image", order->image);
    json_put_text(json, "imagePullPolicy", pull_policies[config->kubernetes.pull]);
    put_command(json, config);
    put_ports(json, config);
    put_key(json, order->key);
    put_resources(json, order);
    put_mounts(json, order);
    put_container_security(json, config);
    json_end_object(json);
    json_end_array(json);
}

/* --- the pod ---------------------------------------------------------------------------------- */

static void put_empty(struct json_writer *json, const char *name, const char *medium,
                      uint64_t size_bytes)
{
    char size[32];

    snprintf(size, sizeof(size), "%" PRIu64, size_bytes);
    json_begin_object(json, NULL);
    json_put_text(json, "name", name);
    json_begin_object(json, "emptyDir");
    if (*medium)
        json_put_text(json, "medium", medium);
    json_put_text(json, "sizeLimit", size);
    json_end_object(json);
    json_end_object(json);
}

static void put_volumes(struct json_writer *json, const struct pod_order *order)
{
    uint64_t disk = order->spec->limits.disk_bytes;

    json_begin_array(json, "volumes");
    json_begin_object(json, NULL);
    json_put_text(json, "name", "init");
    json_begin_object(json, "configMap");
    json_put_text(json, "name", order->kube->init_name);
    json_put_int(json, "defaultMode", INIT_MODE);
    json_end_object(json);
    json_end_object(json);
    put_empty(json, "run", "Memory", 64 * 1024);
    put_empty(json, "workspace", "", disk);
    if (order->kube->config->kubernetes.read_only)
        put_empty(json, "tmp", "", disk);
    json_end_array(json);
}

/* Without fsGroup: empty volumes are writable for everyone, and it would mark every directory below them
 * with the set-group-id bit. */
static void put_security(struct json_writer *json, const struct config *config)
{
    json_begin_object(json, "securityContext");
    json_put_bool(json, "runAsNonRoot", true);
    json_put_int(json, "runAsUser", config->kubernetes.user);
    json_put_int(json, "runAsGroup", config->kubernetes.user);
    json_begin_object(json, "seccompProfile");
    json_put_text(json, "type", "RuntimeDefault");
    json_end_object(json);
    json_end_object(json);
}

static void put_pull_secrets(struct json_writer *json, const struct config_list *secrets)
{
    if (!secrets->count)
        return;
    json_begin_array(json, "imagePullSecrets");
    for (size_t i = 0; i < secrets->count; i++) {
        json_begin_object(json, NULL);
        json_put_text(json, "name", secrets->items[i]);
        json_end_object(json);
    }
    json_end_array(json);
}

static void put_spec(struct json_writer *json, const struct pod_order *order)
{
    const struct config *config = order->kube->config;

    json_begin_object(json, "spec");
    json_put_text(json, "restartPolicy", "Never");
    json_put_text(json, "hostname", "sandbox");
    json_put_int(json, "terminationGracePeriodSeconds", 1);
    json_put_bool(json, "automountServiceAccountToken", false);
    json_put_bool(json, "enableServiceLinks", false);
    if (config->kubernetes.active_deadline_ms)
        json_put_int(json, "activeDeadlineSeconds", config->kubernetes.active_deadline_ms / 1000);
    if (*config->kubernetes.runtime_class)
        json_put_text(json, "runtimeClassName", config->kubernetes.runtime_class);
    placement_put(config, json);
    put_pull_secrets(json, &config->kubernetes.pull_secrets);
    put_security(json, config);
    put_container(json, order);
    put_volumes(json, order);
    json_end_object(json);
}

char *pod_spec_json(const struct pod_order *order)
{
    scoped(buffer_fini) struct buffer text = BUFFER_INIT(BODY_MAXIMUM);
    struct json_writer json = JSON_WRITER(&text);

    json_begin_object(&json, NULL);
    json_put_text(&json, "apiVersion", "v1");
    json_put_text(&json, "kind", "Pod");
    put_metadata(&json, order);
    put_spec(&json, order);
    json_end_object(&json);
    return text.overflowed ? NULL : buffer_steal_text(&text);
}
