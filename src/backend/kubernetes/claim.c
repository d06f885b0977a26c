/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Sandboxes from a warm pool of the cluster's operator (agent-sandbox). A SandboxClaim takes a pod that
 * runs already; the operator's SandboxTemplate has said everything about it but whose it is. A claim
 * with variables or volumes would start a new pod, so that ours have neither: init gets its key with
 * the first connection.
 */

#include "backend/kubernetes/kubernetes_private.h"

#include "base/buffer.h"
#include "base/clock.h"
#include "base/macros.h"
#include "base/str.h"
#include "config/config.h"
#include "wire/json.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

enum { BODY_MAXIMUM = 64 * 1024, NAME_MOST = 63 };

bool kubernetes_claims(const struct kubernetes_backend *kube)
{
    return kube->config->kubernetes.kind == KUBERNETES_CLAIM;
}

/* --- the warm pool ---------------------------------------------------------------------------- */

/* As the names of objects are. */
static bool is_name(const char *text)
{
    size_t length = strlen(text);

    return length && length <= NAME_MOST && *text != '-' && text[length - 1] != '-' &&
           strspn(text, "abcdefghijklmnopqrstuvwxyz0123456789-") == length;
}

const char *claim_pool(const struct kubernetes_backend *kube, const char *name, struct error *err)
{
    const char *template_name = kube->config->sandbox.template_name;

    if (str_is_empty(name) || str_equal(name, "host"))
        name = kube->config->kubernetes.warm_pool;
    if (str_is_empty(name) && !str_equal(template_name, "host"))
        name = template_name;
    if (str_is_empty(name)) {
        error_named(err, ERR_INVALID, "template_unknown",
                    "the backend kubernetes has no default warm pool");
        error_hint(err, "name a SandboxWarmPool as the template of the session, or set "
                        "kubernetes.warm_pool");
        return NULL;
    }
    if (!is_name(name)) {
        error_named(err, ERR_INVALID, "template_unknown",
                    "template: \"%.100s\" cannot be the name of a SandboxWarmPool", name);
        error_hint(err,
                   "with kubernetes.kind: claim a template is a warm pool of the cluster, not an "
                   "image");
        return NULL;
    }
    return name;
}

/* --- what a claim asks for -------------------------------------------------------------------- */

static void put_metadata(struct json_writer *json, const struct pod_order *order)
{
    char name[POD_NAME_SIZE];

    pod_name(order->spec->id, name);
    json_begin_object(json, "metadata");
    json_put_text(json, "name", name);
    json_begin_object(json, "labels");
    json_put_text(json, "app.kubernetes.io/managed-by", "sandglass");
    pod_put_identity(json, order, POD_LABEL);
    json_end_object(json);
    json_begin_object(json, "annotations");
    pod_put_session(json, order->spec);
    json_end_object(json);
    ground_put_owner(order->kube, json);
    json_end_object(json);
}

/* The controller ends it if no daemon is there to do so, and keeps the claim until its pod is gone. */
static void put_lifecycle(struct json_writer *json, const struct kubernetes_backend *kube)
{
    int64_t limit_ms = kube->config->kubernetes.active_deadline_ms;
    char text[CLOCK_TEXT_SIZE];

    if (!limit_ms)
        return;
    clock_format(clock_wall_us(&clock_system) + limit_ms * 1000, text);
    json_begin_object(json, "lifecycle");
    json_put_text(json, "shutdownTime", text);
    json_put_text(json, "shutdownPolicy", "DeleteForeground");
    json_end_object(json);
}

static void put_spec(struct json_writer *json, const struct pod_order *order)
{
    json_begin_object(json, "spec");
    json_begin_object(json, "warmPoolRef");
    json_put_text(json, "name", order->image);
    json_end_object(json);
    put_lifecycle(json, order->kube);
    json_begin_object(json, "additionalPodMetadata");
    json_begin_object(json, "labels");
    pod_put_identity(json, order, POD_CLAIM_LABEL);
    json_end_object(json);
    json_begin_object(json, "annotations");
    pod_put_session(json, order->spec);
    json_end_object(json);
    json_end_object(json);
    json_end_object(json);
}

char *claim_json(const struct pod_order *order)
{
    scoped(buffer_fini) struct buffer text = BUFFER_INIT(BODY_MAXIMUM);
    struct json_writer json = JSON_WRITER(&text);

    json_begin_object(&json, NULL);
    json_put_text(&json, "apiVersion", CLAIM_GROUP);
    json_put_text(&json, "kind", "SandboxClaim");
    put_metadata(&json, order);
    put_spec(&json, order);
    json_end_object(&json);
    return text.overflowed ? NULL : buffer_steal_text(&text);
}

void claims_path(const struct kubernetes_backend *kube, char path[KUBE_PATH_SIZE])
{
    snprintf(path, KUBE_PATH_SIZE, "/apis/" CLAIM_GROUP "/namespaces/%s/sandboxclaims",
             kube_client_namespace(kube->client));
}

void kube_op_get_claim(struct kube_op *job, kube_done_fn *done)
{
    char name[POD_NAME_SIZE];
    char path[KUBE_PATH_SIZE];
    size_t length;

    pod_name(job->base.id, name);
    claims_path(job->backend, path);
    length = strlen(path);
    snprintf(path + length, sizeof(path) - length, "/%s", name);
    kube_request(job->backend->client, &job->call, HTTP_GET, path, NULL, KUBE_REQUEST_MS, done);
}

/* --- what it says ----------------------------------------------------------------------------- */

static const char *text_at(const json_t *object, const char *key)
{
    const char *text = json_string_value(json_object_get(object, key));

    return text ? text : "";
}

/* Reasons with which no later look will find it bound. */
static bool is_final(const char *reason)
{
    static const char *const reasons[] = { "WarmPoolNotFound", "TemplateNotFound",
                                           "InvalidMetadata", "ClaimExpired", "SandboxExpired" };

    for (size_t i = 0; i < ARRAY_LENGTH(reasons); i++)
        if (str_equal(reasons[i], reason))
            return true;
    return false;
}

static void read_ready(const json_t *status, struct claim_state *out)
{
    const json_t *row;
    size_t i;

    json_array_foreach(json_object_get(status, "conditions"), i, row)
    {
        if (!str_equal(text_at(row, "type"), "Ready") || str_equal(text_at(row, "status"), "True"))
            continue;
        pod_copy_words(out->reason, sizeof(out->reason), text_at(row, "reason"));
        pod_copy_words(out->words, sizeof(out->words), text_at(row, "message"));
        out->is_stuck = is_final(out->reason);
    }
}

bool claim_read(const struct kubernetes_backend *kube, const char *id, const json_t *claim,
                struct claim_state *out)
{
    const json_t *metadata = json_object_get(claim, "metadata");
    const json_t *labels = json_object_get(metadata, "labels");
    const json_t *status = json_object_get(claim, "status");
    const char *uid = text_at(metadata, "uid");
    const char *sandbox = text_at(json_object_get(status, "sandbox"), "name");
    struct pod_state owner = { .instance = text_at(labels, POD_LABEL_INSTANCE),
                               .cluster = text_at(labels, POD_LABEL_CLUSTER) };

    *out = (struct claim_state){ 0 };
    if (!*uid || strlen(uid) >= sizeof(out->uid) || uid[strspn(uid, "0123456789abcdefABCDEF-")] ||
        strlen(sandbox) >= sizeof(out->sandbox))
        return false;
    memcpy(out->uid, uid, strlen(uid) + 1);
    if (sandbox[strspn(sandbox, "abcdefghijklmnopqrstuvwxyz0123456789-.")] == '\0')
        memcpy(out->sandbox, sandbox, strlen(sandbox) + 1);
    out->is_terminating = *text_at(metadata, "deletionTimestamp");
    out->is_ours = kubernetes_knows(kube, &owner) &&
                   str_equal(text_at(labels, POD_LABEL_SANDBOX), id);
    read_ready(status, out);
    return true;
}

/* --- what it cannot have ---------------------------------------------------------------------- */

static int refuse_limit(struct error *err, const struct pod_order *order, const char *name,
                        uint64_t asked, uint64_t is)
{
    error_named(err, ERR_BACKEND, "resources_differ",
                "%s: the SandboxTemplate of the warm pool %s has a limit of %" PRIu64
                ", and %" PRIu64 " was asked for",
                name, order->image, is, asked);
    return error_hint(err,
                      "a claim has the limits of its template: set sandbox.%s and the flavors to "
                      "them, or take another warm pool",
                      name);
}

int claim_check_pod(const struct pod_order *order, const struct pod_state *state, struct error *err)
{
    const struct sandbox_limits *asked = &order->spec->limits;
    const struct sandbox_limits *is = &state->limits;

    if (!state->has_container) {
        error_named(err, ERR_BACKEND, "pod_stuck",
                    "the SandboxTemplate of the warm pool %s has no container " POD_CONTAINER,
                    order->image);
        return error_hint(err, "its first process must be sandglass-init: "
                               "docs/how-to/kubernetes-claims.md");
    }
    if (asked->memory_bytes != is->memory_bytes)
        return refuse_limit(err, order, "memory", asked->memory_bytes, is->memory_bytes);
    if (asked->disk_bytes != is->disk_bytes)
        return refuse_limit(err, order, "disk", asked->disk_bytes, is->disk_bytes);
    if (asked->cpu_millis != is->cpu_millis)
        return refuse_limit(err, order, "cpus", asked->cpu_millis, is->cpu_millis);
    return 0;
}

int claim_check_network(const struct config *config, const struct sandbox_spec *spec,
                        struct error *err)
{
    if ((int)spec->network.mode == config->sandbox.network)
        return 0;
    error_named(err, ERR_INVALID, "backend_unable",
                "network: a claim has the network of its SandboxTemplate, which is \"%s\" by "
                "sandbox.network",
                config->sandbox.network == CONFIG_NETWORK_OPEN ? "open" : "none");
    return error_hint(err, "leave network out, or use another backend");
}

/* The operator's template says these. */
int claim_check_settings(const struct config *config, struct error *err)
{
    static const char *const of_template[] = {
        "kubernetes.image",         "kubernetes.pull",          "kubernetes.pull_secrets",
        "kubernetes.runtime_class", "kubernetes.node_selector", "kubernetes.tolerations",
        "kubernetes.user",          "kubernetes.read_only",     "kubernetes.gpu_resource",
        "kubernetes.cpu_request",
    };

    if (config->kubernetes.kind != KUBERNETES_CLAIM)
        return 0;
    for (size_t i = 0; i < ARRAY_LENGTH(of_template); i++) {
        if (config_is_default(config, of_template[i]))
            continue;
        error_set(err, ERR_INVALID, "%s: with kubernetes.kind: claim the SandboxTemplate says it",
                  of_template[i]);
        return error_hint(err, "remove the setting");
    }
    if (*config->kubernetes.warm_pool && !is_name(config->kubernetes.warm_pool))
        return error_set(err, ERR_INVALID,
                         "kubernetes.warm_pool: \"%.100s\" cannot be the name of a SandboxWarmPool",
                         config->kubernetes.warm_pool);
    return 0;
}
