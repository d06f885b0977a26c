/* SPDX-License-Identifier: Apache-2.0 */
#include "backend/kubernetes/kubernetes_private.h"

#include "backend/embed.h"
#include "backend/registry.h"
#include "base/alloc.h"
#include "base/log.h"
#include "base/macros.h"
#include "base/str.h"
#include "config/config.h"
#include "wire/image_ref.h"
#include "wire/json.h"
#include "wire/sha256.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

enum { HASH_BYTES = 8, INSTANCE_AS_IS = 32 };

static void kubernetes_free(struct backend *backend);

struct kubernetes_backend *kubernetes_from(const struct backend *backend)
{
    assert(backend->ops->free == kubernetes_free);
    return container_of(backend, struct kubernetes_backend, base);
}

/* --- jobs ------------------------------------------------------------------------------------- */

static void cancel_call(struct remote_job *job)
{
    kube_cancel(&container_of(job, struct kube_op, base)->call);
}

void *kube_op_new(size_t size, struct kubernetes_backend *backend, struct backend_op *op,
                  const char *id)
{
    struct kube_op *job = remote_job_new(&backend->jobs, size, op, id);

    job->backend = backend;
    return job;
}

void kube_op_done(struct kube_op *job)
{
    remote_job_done(&job->base);
}

static void kubernetes_cancel(struct backend *backend, struct backend_op *op)
{
    (void)remote_jobs_cancel(&kubernetes_from(backend)->jobs, op);
}

/* --- secrets and labels ----------------------------------------------------------------------- */

int kubernetes_need_secret(struct kubernetes_backend *kube, struct error *err)
{
    if (!kube->secret.is_known && relay_secret_open(kube->state_dir, kube->secret.bytes, err) < 0)
        return -1;
    kube->secret.is_known = true;
    return 0;
}

bool kubernetes_knows(const struct kubernetes_backend *kube, const struct pod_state *state)
{
    return str_equal(state->instance, kube->instance) ||
           (*kube->cluster && str_equal(state->cluster, kube->cluster));
}

static void hash_text(const void *text, size_t length, char out_hex[2 * HASH_BYTES + 1])
{
    uint8_t digest[SHA256_SIZE];
    struct sha256 hash;

    sha256_init(&hash);
    sha256_add(&hash, text, length);
    sha256_finish(&hash, digest);
    for (size_t i = 0; i < HASH_BYTES; i++)
        snprintf(out_hex + 2 * i, 3, "%02x", digest[i]);
}

/* As the names of objects and the values of labels may be. */
static bool is_plain(const char *text)
{
    size_t length = strlen(text);

    return length && length <= INSTANCE_AS_IS && text[0] != '-' && text[length - 1] != '-' &&
           strspn(text, "abcdefghijklmnopqrstuvwxyz0123456789-") == length;
}

static void name_scope(struct kubernetes_backend *kube, const char *state_path)
{
    const char *instance = kube->config->instance;
    char hash[2 * HASH_BYTES + 1];

    hash_text(instance, strlen(instance), hash);
    snprintf(kube->instance, sizeof(kube->instance), "%s", is_plain(instance) ? instance : hash);
    hash_text(state_path, strlen(state_path), hash);
    snprintf(kube->state, sizeof(kube->state), "%s", hash);
    snprintf(kube->scope, sizeof(kube->scope), "sandglass-%s",
             *kube->cluster ? kube->cluster : kube->instance);
    hash_text(embedded_init, (size_t)(embedded_init_end - embedded_init), hash);
    snprintf(kube->init_name, sizeof(kube->init_name), "%s-init-%s", kube->scope, hash);
}

/* All nodes use this cluster: each can speak to the pods of the others, and take them over. */
static void share_pods(struct kubernetes_backend *kube, const uint8_t node_key[RELAY_SECRET_SIZE])
{
    uint8_t name[RELAY_KEY_SIZE];

    relay_key_derive(node_key, "pods", kube->secret.bytes);
    kube->secret.is_known = true;
    relay_key_derive(node_key, "cluster", name);
    for (size_t i = 0; i < (KUBE_CLUSTER_SIZE - 1) / 2; i++)
        snprintf(kube->cluster + 2 * i, 3, "%02x", name[i]);
    kube->ops.capabilities.shared = true;
}

/* --- the watch of all pods -------------------------------------------------------------------- */

static struct kubernetes_backend *kube_of(struct kube_watch *watch)
{
    return container_of(watch, struct kubernetes_backend, watch);
}

static void tell_jobs(struct kubernetes_backend *kube, const struct pod_state *state,
                      bool is_deleted)
{
    struct kube_op *job;

    list_for_each (job, &kube->jobs.list, base.node)
        if (job->on_pod && str_equal(job->base.id, state->sandbox))
            job->on_pod(job, state, is_deleted);
}

static void on_object(struct kube_watch *watch, const json_t *object, bool is_deleted)
{
    struct kubernetes_backend *kube = kube_of(watch);
    struct pod_state state;
    struct pod *pod;

    if (!pod_state_read(object, &state) || !id_is_valid(state.sandbox, ID_SANDBOX))
        return;
    pod = pod_find(kube, state.sandbox);
    if (pod && *pod->last.uid && !str_equal(pod->last.uid, state.uid)) {
        if (!is_deleted)
            pod_suspect(
                pod); /* another one has its labels: the end of this one may have been missed */
    } else if (pod) {
        pod->round = kube->round;
        pod_note(pod, &state, is_deleted);
    } else if (!is_deleted && kube_watch_is_up(watch)) {
        stray_consider(kube, &state);
    }
    tell_jobs(kube, &state, is_deleted);
}

static void on_list_begin(struct kube_watch *watch)
{
    kube_of(watch)->round++;
}

/* Those that the list does not have may have ended while the stream was cut. */
static void on_list_end(struct kube_watch *watch)
{
    struct kubernetes_backend *kube = kube_of(watch);
    struct map_slot *slot;

    error_keep(&kube->trouble, NULL);
    map_for_each (slot, &kube->pods) {
        struct pod *pod = slot->value;

        if (pod->round != kube->round)
            pod_suspect(pod);
    }
}

/* That the API server is away says nothing about its pods. */
static void on_down(struct kube_watch *watch, const struct error *err)
{
    struct kubernetes_backend *kube = kube_of(watch);

    if (!kube->trouble)
        log_warn("the Kubernetes API server does not answer; its sandboxes go on",
                 kv("server", kube_client_url(kube->client)), kv("error", err->message));
    error_keep(&kube->trouble, err);
}

static const struct kube_watch_handler watch_handler = {
    .on_object = on_object,
    .on_list_begin = on_list_begin,
    .on_list_end = on_list_end,
    .on_down = on_down,
};

static void watch_pods(struct kubernetes_backend *kube)
{
    const char *prefix = kubernetes_claims(kube) ? POD_CLAIM_LABEL : POD_LABEL;
    scoped(free) char *selector = *kube->cluster
                                      ? xasprintf("%scluster=%s", prefix, kube->cluster)
                                      : xasprintf("%sinstance=%s", prefix, kube->instance);
    scoped(free) char *path =
        xasprintf("/api/v1/namespaces/%s/pods", kube_client_namespace(kube->client));

    kube_watch_start(kube->client, &kube->watch, path, selector, &watch_handler);
}

/* --- what it can do --------------------------------------------------------------------------- */

static int kubernetes_check(struct backend *backend, struct error *err)
{
    struct kubernetes_backend *kube = kubernetes_from(backend);

    if (kube->trouble && !kube_watch_is_up(&kube->watch)) {
        *err = *kube->trouble;
        return -1;
    }
    if (!kube->ground.trouble)
        return 0;
    *err = *kube->ground.trouble;
    ground_look_again(kube);
    return -1;
}

/* No field of a pod limits its processes: that is a setting of nodes. */
static struct sandbox_limits kubernetes_limits_in_force(const struct backend *backend UNUSED,
                                                        const struct sandbox_limits *limits)
{
    struct sandbox_limits in_force = *limits;

    in_force.pids = 0;
    return in_force;
}

static const char *source_of(const struct backend *backend, const char *name, struct error *err)
{
    const struct kubernetes_backend *kube = kubernetes_from(backend);

    return kubernetes_claims(kube) ? claim_pool(kube, name, err) : pod_image(kube, name, err);
}

static const char *kubernetes_default_source(const struct backend *backend)
{
    struct error ignored = { 0 };
    const char *source = source_of(backend, "", &ignored);

    return source ? source : "";
}

static int kubernetes_check_source(const struct backend *backend,
                                   const struct sandbox_source *source, struct error *err)
{
    return source_of(backend, source->name, err) ? 0 : -1;
}

static void kubernetes_list_sources(const struct backend *backend, backend_source_fn *add,
                                    void *user)
{
    const char *image = kubernetes_default_source(backend);

    if (*image)
        add(user, image);
}

static void kubernetes_put_location(const struct backend_sandbox *sandbox, struct json_writer *json)
{
    const char *comma = strchr(sandbox->handle, ',');
    char node[POD_NODE_SIZE];
    char name[POD_NAME_SIZE];
    struct pod_handle handle = { 0 };

    (void)pod_parse_handle(sandbox->handle, &handle);
    pod_name(sandbox->id, name);
    snprintf(node, sizeof(node), "%.*s", comma ? (int)strcspn(comma + 1, ",") : 0,
             comma ? comma + 1 : "");
    json_put_null(json, "pid");
    json_put_text(json, "pod", handle.is_claimed ? handle.name : name);
    json_put_text(json, "pod_node", node);
}

static const struct backend_ops kubernetes_ops = {
    .name = "kubernetes",
    .capabilities = { .usage = true,
                      .limits = true,
                      .fixed_limits = true,
                      .outlives_daemon = true,
                      .gpus = true,
                      .network = true,
                      .disk = true,
                      .templates = true,
                      .environment = true },
    .free = kubernetes_free,
    .create = kubernetes_create,
    .adopt = kubernetes_adopt,
    .watch = kubernetes_watch,
    .unwatch = kubernetes_unwatch,
    .is_ending = kubernetes_is_ending,
    .connect = kubernetes_connect,
    .cancel = kubernetes_cancel,
    .update = kubernetes_update,
    .freeze = kubernetes_freeze,
    .inspect = kubernetes_inspect,
    .destroy = kubernetes_destroy,
    .list = kubernetes_list,
    .check = kubernetes_check,
    .default_source = kubernetes_default_source,
    .check_source = kubernetes_check_source,
    .list_sources = kubernetes_list_sources,
    .limits_in_force = kubernetes_limits_in_force,
    .put_location = kubernetes_put_location,
    .report = kubernetes_report,
};

/* --- opening and closing ---------------------------------------------------------------------- */

static void kubernetes_free(struct backend *backend)
{
    struct kubernetes_backend *kube = kubernetes_from(backend);
    struct map_slot *slot;

    remote_jobs_free(&kube->jobs);
    strays_fini(kube);
    for (size_t position = 0; (slot = map_next(&kube->pods, &position)); position = 0)
        pod_free(slot->value);
    map_fini(&kube->pods);
    line_set_fini(&kube->lines);
    ground_forget(&kube->first);
    kube_watch_stop(&kube->watch);
    ground_fini(kube);
    kube_client_free(kube->client);
    error_keep(&kube->trouble, NULL);
    explicit_bzero(kube->secret.bytes, sizeof(kube->secret.bytes));
    free(kube);
}

static int open_client(struct kubernetes_backend *kube, const struct backend_options *options,
                       struct error *err)
{
    scoped(kube_config_fini) struct kube_config config = { 0 };
    struct kube_client_options client = { .loop = options->loop,
                                          .config = &config,
                                          .state_path = options->state_path };

    if (kube_config_load(&config, options->config, err) < 0)
        return -1;
    if (!*kube_config_path(options->config) && config.namespace)
        snprintf(kube->home, sizeof(kube->home), "%s", config.namespace);
    client.namespace = *options->config->kubernetes.namespace
                           ? options->config->kubernetes.namespace
                       : config.namespace ? config.namespace
                                          : "default";
    kube->client = kube_client_new(&client, err);
    return kube->client ? 0 : -1;
}

static struct kubernetes_backend *kubernetes_new(const struct backend_options *options)
{
    struct kubernetes_backend *kube = xnew(struct kubernetes_backend);

    kube->ops = kubernetes_ops;
    kube->base = (struct backend){ .ops = &kube->ops, .loop = options->loop };
    kube->config = options->config;
    kube->state_dir = options->state_dir;
    remote_jobs_init(&kube->jobs, kube->base.loop, cancel_call);
    list_init(&kube->strays);
    line_set_init(&kube->lines, kube->base.loop);
    list_init(&kube->first.node);
    ground_init(kube);
    if (kubernetes_claims(kube))
        kube->ops.capabilities.gpus = false; /* those of a template are not told */
    if (options->node_key)
        share_pods(kube, options->node_key);
    name_scope(kube, options->state_path);
    return kube;
}

/* What is missing is told at once, and not by the first session. */
static void on_first(struct ground_wait *wait UNUSED, const struct error *err)
{
    if (err)
        log_error("the cluster is not ready for kubernetes.kind: claim", kv("error", err->message));
}

/* An API server that is away may come back, with the sandboxes of an earlier daemon: that is reported by
 * the watch, and no reason not to start. */
struct backend *kubernetes_backend_open(const struct backend_options *options, struct error *err)
{
    struct kubernetes_backend *kube = kubernetes_new(options);

    if (open_client(kube, options, err) < 0) {
        kubernetes_free(&kube->base);
        return NULL;
    }
    watch_pods(kube);
    if (kubernetes_claims(kube))
        ground_need(kube, &kube->first, on_first);
    return &kube->base;
}

/* --- settings --------------------------------------------------------------------------------- */

static int check_image(const struct config *config, struct error *err)
{
    struct image_ref ref;

    if (str_is_empty(config->kubernetes.image) ||
        image_ref_parse(&ref, config->kubernetes.image, err) == 0)
        return 0;
    return error_wrap(err, "kubernetes.image");
}

static int check_mounts(const struct config *config, struct error *err)
{
    if (!config->sandbox.mounts.count)
        return 0;
    error_set(err, ERR_INVALID,
              "sandbox.mounts names directories of this host, which pods do not have");
    return error_hint(err, "remove sandbox.mounts, or use another backend");
}

/* The gate of a pod needs the key from its beginning; that of a claimed pod comes with the first
 * connection, in the clear. */
static int check_transport(const struct config *config, struct error *err)
{
    if (config->kubernetes.transport != KUBERNETES_ADDRESS ||
        config->kubernetes.kind != KUBERNETES_CLAIM)
        return 0;
    error_set(
        err, ERR_INVALID,
        "kubernetes.transport: address does not go with kubernetes.kind: claim: a claimed pod "
        "gets its key by exec");
    return error_hint(err, "set kubernetes.transport: exec, or kubernetes.kind: pod");
}

int kubernetes_backend_check(const struct backend_settings *settings, struct error *err)
{
    const struct config *config = settings->config;

    if (!config_names_backend(config, "kubernetes"))
        return 0;
    if (check_image(config, err) < 0 || placement_check(config, err) < 0 ||
        check_mounts(config, err) < 0 || claim_check_settings(config, err) < 0 ||
        check_transport(config, err) < 0)
        return -1;
    return str_equal(config->sandbox.backend, "kubernetes") ? pod_check_required(config, err) : 0;
}
