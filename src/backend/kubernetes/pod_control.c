/* SPDX-License-Identifier: Apache-2.0 */
/* Pods of earlier daemons, the end of pods, and the list of them. */

#include "backend/kubernetes/kubernetes_private.h"

#include "base/alloc.h"
#include "base/backoff.h"
#include "base/buffer.h"
#include "base/log.h"
#include "base/macros.h"
#include "base/str.h"
#include "bridge/bridge.h"
#include "wire/http/http.h"

#include <stdio.h>
#include <string.h>

static struct kube_op *job_of(struct kube_call *call)
{
    return container_of(call, struct kube_op, call);
}

static void pod_path(const struct kube_op *job, char path[KUBE_PATH_SIZE])
{
    const struct pod *pod = pod_find(job->backend, job->base.id);
    char name[POD_NAME_SIZE];

    pod_name(job->base.id, name);
    snprintf(path, KUBE_PATH_SIZE, "/api/v1/namespaces/%s/pods/%s",
             kube_client_namespace(job->backend->client),
             *job->pod           ? job->pod
             : pod && *pod->name ? pod->name
                                 : name);
}

void kube_op_get_pod(struct kube_op *job, kube_done_fn *done)
{
    char path[KUBE_PATH_SIZE];

    pod_path(job, path);
    kube_request(job->backend->client, &job->call, HTTP_GET, path, NULL, KUBE_REQUEST_MS, done);
}

/* A second of grace is for init, which ends at once; without it the API server would forget a pod whose
 * processes still run. */
void kube_op_delete_pod(struct kube_op *job, const char *uid, kube_done_fn *done)
{
    scoped(free) char *body = xasprintf("{\"apiVersion\":\"v1\",\"kind\":\"DeleteOptions\","
                                        "\"gracePeriodSeconds\":1,"
                                        "\"preconditions\":{\"uid\":\"%s\"}}",
                                        uid);
    char path[KUBE_PATH_SIZE];

    pod_path(job, path);
    kube_request(job->backend->client, &job->call, HTTP_DELETE, path, body, KUBE_REQUEST_MS, done);
}

/* --- adopt ------------------------------------------------------------------------------------ */

struct adopt {
    struct kube_op job;
    struct pod_handle handle;
};

static int gone(struct error *err, const char *id)
{
    return error_set(err, ERR_GONE, "sandbox %s has ended", id);
}

static int take_over(struct adopt *adopt, const struct pod_state *state, struct error *err)
{
    struct kubernetes_backend *kube = adopt->job.backend;
    const struct pod_handle *handle = &adopt->handle;
    struct pod *pod = pod_find(kube, adopt->job.base.id);

    if (state->verdict == POD_ENDED || !str_equal(state->uid, handle->uid) ||
        state->restarts > handle->restarts)
        return gone(err, adopt->job.base.id);
    if (state->verdict != POD_RUNS)
        return error_set(err, ERR_UNAVAILABLE, "the pod of sandbox %s is not known to run",
                         adopt->job.base.id);
    if (pod && pod->phase != POD_MAKING)
        return pod->phase >= POD_DYING ? gone(err, adopt->job.base.id) : 0;
    pod_free(pod);
    pod = pod_new(kube, adopt->job.base.id, handle->is_claimed ? "" : state->name);
    pod->restarts = handle->restarts;
    pod_note(pod, state, false);
    if (pod_begin(pod, POD_ADOPTED, err) == 0)
        return 0;
    pod_free(pod); /* the core asks again */
    return -1;
}

static void on_adopted(struct kube_call *call)
{
    struct adopt *adopt = container_of(job_of(call), struct adopt, job);
    struct backend_op *op = adopt->job.base.op;
    struct pod_state state;

    if (call->err.code == ERR_NOT_FOUND)
        gone(&op->err, adopt->job.base.id);
    else if (call->err.code)
        op->err = call->err;
    else if (!pod_state_read(call->body, &state))
        error_set(&op->err, ERR_BACKEND, "the API server did not describe the pod");
    else if (take_over(adopt, &state, &op->err) == 0)
        pod_write_handle(pod_find(adopt->job.backend, adopt->job.base.id),
                         &op->result.made.sandbox);
    kube_op_done(&adopt->job);
}

void kubernetes_adopt(struct backend *backend, const struct backend_sandbox *sandbox,
                      struct backend_op *op)
{
    struct adopt *adopt = kube_op_new(sizeof(*adopt), kubernetes_from(backend), op, sandbox->id);

    op->result.made.frozen = false;
    if (!pod_parse_handle(sandbox->handle, &adopt->handle)) {
        error_set(&op->err, ERR_GONE, "the record of sandbox %s has no pod", sandbox->id);
        remote_job_done_later(&adopt->job.base);
        return;
    }
    memcpy(adopt->job.pod, adopt->handle.name, sizeof(adopt->job.pod));
    kube_op_get_pod(&adopt->job, on_adopted);
}

/* --- destroy ---------------------------------------------------------------------------------- */

/* Done when the API server says that the pod is gone, by the watch or when it is asked. */
struct destroy {
    struct kube_op job;
    struct timer again;
    char uid[POD_UID_SIZE];
    char node[POD_NODE_SIZE];
    unsigned looks;
    int64_t began_us;
    bool is_gone;
};

enum { DESTROY_US = 120 * 1000 * 1000 };

static const struct backoff destroy_backoff_us = { .first = 250 * 1000, .most = 5 * 1000 * 1000 };

static void on_found(struct kube_call *call);

static struct destroy *destroy_of(struct kube_call *call)
{
    return container_of(job_of(call), struct destroy, job);
}

static void clear_destroy(void *job)
{
    timer_stop(&((struct destroy *)job)->again);
}

static void destroyed(struct destroy *destroy)
{
    kube_cancel(&destroy->job.call);
    pod_free(pod_find(destroy->job.backend, destroy->job.base.id));
    kube_op_done(&destroy->job);
}

static void give_up(struct destroy *destroy)
{
    struct error *err = &destroy->job.base.op->err;

    error_named(err, ERR_UNAVAILABLE, "pod_terminating",
                "the pod of sandbox %s is still terminating on node %s", destroy->job.base.id,
                *destroy->node ? destroy->node : "(none)");
    error_hint(err, "see whether the node works; a pod is never removed by force, as its processes "
                    "may still run");
    err->retryable = true;
    kube_op_done(&destroy->job);
}

static void look_again(struct destroy *destroy)
{
    int64_t now_us = loop_now_us(destroy->job.backend->base.loop);

    if (now_us - destroy->began_us > DESTROY_US)
        give_up(destroy);
    else
        timer_arm_in(&destroy->again, backoff_delay(&destroy_backoff_us, ++destroy->looks));
}

static void on_again(struct timer *timer)
{
    struct destroy *destroy = container_of(timer, struct destroy, again);

    if (destroy->is_gone)
        destroyed(destroy);
    else if (!kube_is_asked(&destroy->job.call))
        kube_op_get_pod(&destroy->job, on_found);
}

static void fail_destroy(struct destroy *destroy, const struct error *err)
{
    destroy->job.base.op->err = *err;
    destroy->job.base.op->err.retryable = true;
    kube_op_done(&destroy->job);
}

static void on_deleting(struct kube_call *call)
{
    struct destroy *destroy = destroy_of(call);

    if (call->err.code == ERR_NOT_FOUND || destroy->is_gone)
        destroyed(destroy);
    else if (call->err.code && call->status != 409) /* 409: another one has its name: look */
        fail_destroy(destroy, &call->err);
    else
        look_again(destroy);
}

/* A name may be another's: only what carries our labels is removed. */
static void on_found(struct kube_call *call)
{
    struct destroy *destroy = destroy_of(call);
    struct pod_state state;

    if (call->err.code == ERR_NOT_FOUND || destroy->is_gone) {
        destroyed(destroy);
    } else if (call->err.code) {
        fail_destroy(destroy, &call->err);
    } else if (!pod_state_read(call->body, &state)) {
        error_set(&call->err, ERR_BACKEND, "the API server did not describe the pod");
        fail_destroy(destroy, &call->err);
    } else if (!kubernetes_knows(destroy->job.backend, &state) ||
               !str_equal(state.sandbox, destroy->job.base.id) ||
               (*destroy->uid && !str_equal(destroy->uid, state.uid))) {
        destroyed(destroy);
    } else {
        memcpy(destroy->uid, state.uid, sizeof(destroy->uid));
        memcpy(destroy->node, state.node, sizeof(destroy->node));
        if (state.is_terminating)
            look_again(destroy);
        else
            kube_op_delete_pod(&destroy->job, destroy->uid, on_deleting);
    }
}

/* The watch is quicker than the next look. */
static void on_destroyed_pod(struct kube_op *job, const struct pod_state *state, bool is_deleted)
{
    struct destroy *destroy = container_of(job, struct destroy, job);

    if (!is_deleted || !str_equal(state->uid, destroy->uid))
        return;
    destroy->is_gone = true;
    timer_arm_in(&destroy->again, 0);
}

void pod_destroy(struct kubernetes_backend *kube, const char *id, struct backend_op *op)
{
    struct destroy *destroy = kube_op_new(sizeof(*destroy), kube, op, id);
    const struct pod *pod = pod_find(kube, id);

    destroy->job.base.clear = clear_destroy;
    destroy->job.on_pod = on_destroyed_pod;
    destroy->began_us = loop_now_us(kube->base.loop);
    timer_init(&destroy->again, kube->base.loop, on_again);
    if (pod && *pod->last.uid) {
        memcpy(destroy->uid, pod->last.uid, sizeof(destroy->uid));
        memcpy(destroy->node, pod->last.node, sizeof(destroy->node));
        if (pod->bridge)
            bridge_set_frozen(pod->bridge, true); /* nothing connects to it again */
        kube_op_delete_pod(&destroy->job, destroy->uid, on_deleting);
    } else {
        kube_op_get_pod(&destroy->job, on_found);
    }
}

void kubernetes_destroy(struct backend *backend, const char *id, struct backend_op *op)
{
    struct kubernetes_backend *kube = kubernetes_from(backend);
    const struct pod *pod = pod_find(kube, id);

    if (pod ? pod->is_claimed : kubernetes_claims(kube))
        claim_destroy(kube, id, op);
    else
        pod_destroy(kube, id, op);
}

/* --- strays ----------------------------------------------------------------------------------- */

/* The API server may finish a create whose client has left: the pod appears after the sandbox was
 * destroyed. */
struct stray {
    struct list node;
    struct backend_op op;
    char id[ID_SIZE];
};

static void on_stray_removed(struct backend_op *op)
{
    struct stray *stray = container_of(op, struct stray, op);

    if (op->err.code)
        log_warn("cannot remove a pod that came too late", kv("sandbox", stray->id),
                 kv("error", op->err.message));
    list_remove(&stray->node);
    free(stray);
}

void stray_consider(struct kubernetes_backend *kube, const struct pod_state *state)
{
    struct stray *stray;

    if (!str_equal(state->instance, kube->instance) || !str_equal(state->state, kube->state) ||
        state->verdict == POD_RUNS || state->verdict == POD_ENDED || state->is_terminating ||
        pod_find(kube, state->sandbox) || remote_jobs_have(&kube->jobs, state->sandbox))
        return;
    log_info("removing a pod that came too late", kv("sandbox", state->sandbox));
    stray = xnew(struct stray);
    stray->op.done = on_stray_removed;
    snprintf(stray->id, sizeof(stray->id), "%s", state->sandbox);
    list_init(&stray->node);
    list_append(&kube->strays, &stray->node);
    kubernetes_destroy(&kube->base, stray->id, &stray->op);
}

void strays_fini(struct kubernetes_backend *kube)
{
    struct stray *stray;

    while ((stray = list_first(&kube->strays, struct stray, node))) {
        list_remove(&stray->node);
        free(stray);
    }
}

/* --- list ------------------------------------------------------------------------------------- */

enum { LIST_ITEMS = 500 };

static void add_id(struct backend_op *op, const char *id)
{
    op->result.list.ids =
        xrealloc(op->result.list.ids, op->result.list.count + 1, sizeof(op->result.list.ids[0]));
    snprintf(op->result.list.ids[op->result.list.count++], ID_SIZE, "%s", id);
}

/* Claims first where there are some, then plain pods: no pod that was claimed has their labels. */
struct listing {
    struct kube_op job;
    bool is_of_claims;
};

static void ask_list(struct listing *listing, const char *next);

static void fail_list(struct kube_op *job, const struct error *err)
{
    free(job->base.op->result.list.ids);
    job->base.op->result.list.ids = NULL;
    job->base.op->result.list.count = 0;
    job->base.op->err = *err;
    kube_op_done(job);
}

static void go_on(struct listing *listing, const char *next)
{
    if (str_is_empty(next) && !listing->is_of_claims) {
        kube_op_done(&listing->job);
        return;
    }
    if (str_is_empty(next))
        listing->is_of_claims = false;
    ask_list(listing, next);
}

static void on_listed(struct kube_call *call)
{
    struct kube_op *job = job_of(call);
    struct listing *listing = container_of(job, struct listing, job);
    const json_t *metadata = json_object_get(call->body, "metadata");
    const char *next = json_string_value(json_object_get(metadata, "continue"));
    const json_t *item;
    size_t i;

    if (call->err.code == ERR_NOT_FOUND && listing->is_of_claims) {
        go_on(listing, NULL); /* the cluster does not know claims */
        return;
    }
    if (call->err.code) {
        fail_list(job, &call->err);
        return;
    }
    json_array_foreach(json_object_get(call->body, "items"), i, item)
    {
        const json_t *labels = json_object_get(json_object_get(item, "metadata"), "labels");
        const char *id = json_string_value(json_object_get(labels, POD_LABEL_SANDBOX));

        if (id && id_is_valid(id, ID_SANDBOX))
            add_id(job->base.op, id);
    }
    go_on(listing, next);
}

static void list_path(const struct listing *listing, char path[KUBE_PATH_SIZE])
{
    const struct kubernetes_backend *kube = listing->job.backend;

    if (listing->is_of_claims)
        claims_path(kube, path);
    else
        snprintf(path, KUBE_PATH_SIZE, "/api/v1/namespaces/%s/pods",
                 kube_client_namespace(kube->client));
}

static void ask_list(struct listing *listing, const char *next)
{
    const struct kubernetes_backend *kube = listing->job.backend;
    char list[KUBE_PATH_SIZE];
    scoped(buffer_fini) struct buffer path = BUFFER_INIT(64 * 1024);
    scoped(free) char *selector =
        xasprintf(POD_LABEL_INSTANCE "=%s," POD_LABEL_STATE "=%s", kube->instance, kube->state);

    list_path(listing, list);
    buffer_appendf(&path, "%s?limit=%d&labelSelector=", list, LIST_ITEMS);
    (void)http_escape(&path, selector);
    if (!str_is_empty(next)) {
        (void)buffer_append_text(&path, "&continue=");
        (void)http_escape(&path, next);
    }
    kube_request(kube->client, &listing->job.call, HTTP_GET, buffer_text(&path), NULL,
                 KUBE_REQUEST_MS, on_listed);
}

void kubernetes_list(struct backend *backend, struct backend_op *op)
{
    struct kubernetes_backend *kube = kubernetes_from(backend);
    struct listing *listing = kube_op_new(sizeof(*listing), kube, op, "");

    op->result.list.ids = NULL;
    op->result.list.count = 0;
    listing->is_of_claims = kubernetes_claims(kube);
    ask_list(listing, NULL);
}

/* --- what pods cannot do ---------------------------------------------------------------------- */

static void refuse(struct backend *backend, const char *id, struct backend_op *op, const char *what)
{
    struct kube_op *job = kube_op_new(sizeof(*job), kubernetes_from(backend), op, id);

    if (!pod_find(job->backend, id)) {
        error_set(&op->err, ERR_GONE, "there is no sandbox %s", id);
    } else {
        error_named(&op->err, ERR_INVALID, "not_supported", "the backend kubernetes cannot %s",
                    what);
        error_hint(&op->err, "Kubernetes has no means for it");
    }
    remote_job_done_later(&job->base);
}

static bool limits_equal(const struct sandbox_limits *a, const struct sandbox_limits *b)
{
    return a->memory_bytes == b->memory_bytes && a->disk_bytes == b->disk_bytes &&
           a->cpu_millis == b->cpu_millis;
}

void kubernetes_update(struct backend *backend, const char *id, const struct sandbox_limits *limits,
                       struct backend_op *op)
{
    struct kubernetes_backend *kube = kubernetes_from(backend);
    const struct pod *pod = pod_find(kube, id);

    if (pod && limits_equal(&pod->limits, limits))
        remote_job_done_later(remote_job_new(&kube->jobs, sizeof(struct kube_op), op, id));
    else
        refuse(backend, id, op, "change the limits of a pod");
}

void kubernetes_freeze(struct backend *backend, const char *id, bool frozen UNUSED,
                       struct backend_op *op)
{
    refuse(backend, id, op, "freeze a sandbox");
}
