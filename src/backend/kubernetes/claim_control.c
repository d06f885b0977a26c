/* SPDX-License-Identifier: Apache-2.0 */
/* Removing a claim: its controller deletes the pod, and both have to be gone. */

#include "backend/kubernetes/kubernetes_private.h"

#include "base/alloc.h"
#include "base/backoff.h"
#include "base/buffer.h"
#include "base/macros.h"
#include "base/str.h"
#include "bridge/bridge.h"

#include <stdio.h>
#include <string.h>

enum { DESTROY_US = 120 * 1000 * 1000 };

static const struct backoff destroy_backoff_us = { .first = 250 * 1000, .most = 5 * 1000 * 1000 };

struct removal {
    struct kube_op job;
    struct timer again;
    unsigned looks;
    int64_t began_us;
    bool is_stranger; /* no daemon of this process has made or adopted it */
};

static void on_found(struct kube_call *call);

static struct removal *removal_of(struct kube_call *call)
{
    return container_of(container_of(call, struct kube_op, call), struct removal, job);
}

static void clear(void *job)
{
    timer_stop(&((struct removal *)job)->again);
}

/* Where the setting was changed, it may have been a plain pod. */
static void finish(struct removal *removal)
{
    struct kubernetes_backend *kube = removal->job.backend;
    struct backend_op *op = removal->job.base.op;
    char id[ID_SIZE];

    memcpy(id, removal->job.base.id, sizeof(id));
    pod_free(pod_find(kube, id));
    if (!removal->is_stranger) {
        kube_op_done(&removal->job);
        return;
    }
    remote_job_drop(&removal->job.base);
    pod_destroy(kube, id, op);
}

static void fail(struct removal *removal, const struct error *err)
{
    removal->job.base.op->err = *err;
    removal->job.base.op->err.retryable = true;
    kube_op_done(&removal->job);
}

static void look_again(struct removal *removal)
{
    struct error err = { 0 };
    int64_t now_us = loop_now_us(removal->job.backend->base.loop);

    if (now_us - removal->began_us <= DESTROY_US) {
        timer_arm_in(&removal->again, backoff_delay(&destroy_backoff_us, ++removal->looks));
        return;
    }
    error_named(&err, ERR_UNAVAILABLE, "pod_terminating",
                "the claim or the pod of sandbox %s is still terminating", removal->job.base.id);
    error_hint(&err,
               "see whether the controller of agent-sandbox and the node of the pod work; nothing "
               "is removed by force, as its processes may still run");
    fail(removal, &err);
}

static void on_again(struct timer *timer)
{
    struct removal *removal = container_of(timer, struct removal, again);

    if (!kube_is_asked(&removal->job.call))
        kube_op_get_claim(&removal->job, on_found);
}

/* --- the pod, when the claim is gone ---------------------------------------------------------- */

static void on_pods(struct kube_call *call)
{
    struct removal *removal = removal_of(call);

    if (call->err.code)
        fail(removal, &call->err);
    else if (json_array_size(json_object_get(call->body, "items")))
        look_again(removal);
    else
        finish(removal);
}

static void look_for_pods(struct removal *removal)
{
    const struct kubernetes_backend *kube = removal->job.backend;
    scoped(buffer_fini) struct buffer path = BUFFER_INIT(4096);
    scoped(free) char *selector = xasprintf(POD_CLAIM_LABEL "sandbox=%s", removal->job.base.id);

    buffer_appendf(&path, "/api/v1/namespaces/%s/pods?limit=1&labelSelector=",
                   kube_client_namespace(kube->client));
    (void)http_escape(&path, selector);
    kube_request(kube->client, &removal->job.call, HTTP_GET, buffer_text(&path), NULL,
                 KUBE_REQUEST_MS, on_pods);
}

/* --- the claim -------------------------------------------------------------------------------- */

static void on_deleting(struct kube_call *call)
{
    struct removal *removal = removal_of(call);

    if (call->err.code == ERR_NOT_FOUND)
        look_for_pods(removal);
    else if (call->err.code && call->status != 409) /* 409: another one has its name: look */
        fail(removal, &call->err);
    else
        look_again(removal);
}

/* In the foreground: the claim stays until its Sandbox and the pod are gone. */
static void delete_claim(struct removal *removal, const char *uid)
{
    scoped(free) char *body = xasprintf("{\"apiVersion\":\"v1\",\"kind\":\"DeleteOptions\","
                                        "\"propagationPolicy\":\"Foreground\","
                                        "\"preconditions\":{\"uid\":\"%s\"}}",
                                        uid);
    char name[POD_NAME_SIZE];
    char path[KUBE_PATH_SIZE];
    size_t length;

    pod_name(removal->job.base.id, name);
    claims_path(removal->job.backend, path);
    length = strlen(path);
    snprintf(path + length, sizeof(path) - length, "/%s", name);
    kube_request(removal->job.backend->client, &removal->job.call, HTTP_DELETE, path, body,
                 KUBE_REQUEST_MS, on_deleting);
}

/* A name may be another's: only what carries our labels is removed. */
static void on_found(struct kube_call *call)
{
    struct removal *removal = removal_of(call);
    struct claim_state state;

    if (call->err.code == ERR_NOT_FOUND) {
        look_for_pods(removal);
    } else if (call->err.code) {
        fail(removal, &call->err);
    } else if (!claim_read(removal->job.backend, removal->job.base.id, call->body, &state)) {
        error_set(&call->err, ERR_BACKEND, "the API server did not describe the claim");
        fail(removal, &call->err);
    } else if (!state.is_ours) {
        look_for_pods(removal);
    } else if (state.is_terminating) {
        look_again(removal);
    } else {
        delete_claim(removal, state.uid);
    }
}

/* The watch is quicker than the next look. */
static void on_pod(struct kube_op *job, const struct pod_state *state UNUSED, bool is_deleted)
{
    struct removal *removal = container_of(job, struct removal, job);

    if (is_deleted)
        timer_arm_in(&removal->again, 0);
}

void claim_destroy(struct kubernetes_backend *kube, const char *id, struct backend_op *op)
{
    struct removal *removal = kube_op_new(sizeof(*removal), kube, op, id);
    const struct pod *pod = pod_find(kube, id);

    removal->job.base.clear = clear;
    removal->job.on_pod = on_pod;
    removal->began_us = loop_now_us(kube->base.loop);
    removal->is_stranger = !pod;
    timer_init(&removal->again, kube->base.loop, on_again);
    if (pod && pod->bridge)
        bridge_set_frozen(pod->bridge, true); /* nothing connects to it again */
    kube_op_get_claim(&removal->job, on_found);
}
