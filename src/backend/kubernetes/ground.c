/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What pods need in their namespace, made once and looked at again before a create when the last look is
 * old, as others may delete it:
 *
 *   SCOPE             a ConfigMap that owns everything: deleting it removes all pods
 *   SCOPE-init-HASH   a ConfigMap with init of this release, mounted into every pod: no image has to have
 *                     it, and no second container has to bring it
 *   SCOPE-none        a NetworkPolicy: nothing in, nothing out
 *   SCOPE-open        a NetworkPolicy: nothing in, everything out
 *   SCOPE-address-…   a NetworkPolicy, with kubernetes.transport: address: the port of the gate in
 *
 * A claim needs the first of them alone, and a cluster that knows claims.
 */

#include "backend/kubernetes/kubernetes_private.h"

#include "backend/embed.h"
#include "base/alloc.h"
#include "base/buffer.h"
#include "base/macros.h"
#include "base/str.h"
#include "config/config.h"
#include "wire/base64.h"
#include "wire/json.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

enum { FRESH_US = 30 * 1000 * 1000, BODY_MAXIMUM = 2 * 1024 * 1024 };

#define CORE "/api/v1"
#define NETWORKING "/apis/networking.k8s.io/v1"

static struct kubernetes_backend *kube_of(struct workflow *workflow)
{
    return container_of(container_of(workflow, struct ground, workflow), struct kubernetes_backend,
                        ground);
}

static struct kubernetes_backend *kube_of_call(struct kube_call *call)
{
    return container_of(container_of(call, struct ground, call), struct kubernetes_backend, ground);
}

/* --- documents -------------------------------------------------------------------------------- */

void ground_put_owner(const struct kubernetes_backend *kube, struct json_writer *json)
{
    json_begin_array(json, "ownerReferences");
    json_begin_object(json, NULL);
    json_put_text(json, "apiVersion", "v1");
    json_put_text(json, "kind", "ConfigMap");
    json_put_text(json, "name", kube->scope);
    json_put_text(json, "uid", kube->ground.owner_uid);
    json_end_object(json);
    json_end_array(json);
}

static void put_metadata(const struct kubernetes_backend *kube, struct json_writer *json,
                         const char *name, bool is_owned)
{
    json_begin_object(json, "metadata");
    json_put_text(json, "name", name);
    json_begin_object(json, "labels");
    json_put_text(json, "app.kubernetes.io/managed-by", "sandglass");
    json_end_object(json);
    if (is_owned)
        ground_put_owner(kube, json);
    json_end_object(json);
}

static char *owner_json(const struct kubernetes_backend *kube)
{
    scoped(buffer_fini) struct buffer text = BUFFER_INIT(BODY_MAXIMUM);
    struct json_writer json = JSON_WRITER(&text);

    json_begin_object(&json, NULL);
    json_put_text(&json, "apiVersion", "v1");
    json_put_text(&json, "kind", "ConfigMap");
    put_metadata(kube, &json, kube->scope, false);
    json_begin_object(&json, "data");
    json_put_text(
        &json, "README",
        "All sandboxes of a Sandglass instance belong to this object: deleting it deletes "
        "them.");
    json_end_object(&json);
    json_end_object(&json);
    return buffer_steal_text(&text);
}

static char *init_json(const struct kubernetes_backend *kube)
{
    scoped(buffer_fini) struct buffer text = BUFFER_INIT(BODY_MAXIMUM);
    struct json_writer json = JSON_WRITER(&text);
    scoped(free) char *content =
        base64_encode(embedded_init, (size_t)(embedded_init_end - embedded_init));

    json_begin_object(&json, NULL);
    json_put_text(&json, "apiVersion", "v1");
    json_put_text(&json, "kind", "ConfigMap");
    put_metadata(kube, &json, kube->init_name, true);
    json_put_bool(&json, "immutable", true);
    json_begin_object(&json, "binaryData");
    json_put_text(&json, "sandglass-init", content);
    json_end_object(&json);
    json_end_object(&json);
    return buffer_steal_text(&text);
}

/* All pods of the instance or cluster; those with this network where it is not NULL. */
static void put_pod_selector(const struct kubernetes_backend *kube, struct json_writer *json,
                             const char *network)
{
    json_begin_object(json, "podSelector");
    json_begin_object(json, "matchLabels");
    if (*kube->cluster)
        json_put_text(json, POD_LABEL_CLUSTER, kube->cluster);
    else
        json_put_text(json, POD_LABEL_INSTANCE, kube->instance);
    if (network)
        json_put_text(json, POD_LABEL_NETWORK, network);
    json_end_object(json);
    json_end_object(json);
}

/* A policy of no rule for a direction that it names lets nothing pass. */
static char *policy_json(const struct kubernetes_backend *kube, const char *name,
                         const char *network, bool is_open)
{
    scoped(buffer_fini) struct buffer text = BUFFER_INIT(BODY_MAXIMUM);
    struct json_writer json = JSON_WRITER(&text);

    json_begin_object(&json, NULL);
    json_put_text(&json, "apiVersion", "networking.k8s.io/v1");
    json_put_text(&json, "kind", "NetworkPolicy");
    put_metadata(kube, &json, name, true);
    json_begin_object(&json, "spec");
    put_pod_selector(kube, &json, network);
    json_begin_array(&json, "policyTypes");
    json_put_text(&json, NULL, "Ingress");
    json_put_text(&json, NULL, "Egress");
    json_end_array(&json);
    json_begin_array(&json, "egress");
    if (is_open)
        json_put_raw(&json, NULL, "{}");
    json_end_array(&json);
    json_end_object(&json);
    json_end_object(&json);
    return buffer_steal_text(&text);
}

/* Where the daemon's namespace is known, pods of that namespace may connect, but no sandbox. A daemon
 * elsewhere may have any address. */
static void put_sources(const struct kubernetes_backend *kube, struct json_writer *json)
{
    static const char *const labels[] = { POD_LABEL_SANDBOX, POD_CLAIM_LABEL "sandbox" };

    if (!*kube->home)
        return;
    json_begin_array(json, "from");
    json_begin_object(json, NULL);
    json_begin_object(json, "namespaceSelector");
    json_begin_object(json, "matchLabels");
    json_put_text(json, "kubernetes.io/metadata.name", kube->home);
    json_end_object(json);
    json_end_object(json);
    json_begin_object(json, "podSelector");
    json_begin_array(json, "matchExpressions");
    for (size_t i = 0; i < ARRAY_LENGTH(labels); i++) {
        json_begin_object(json, NULL);
        json_put_text(json, "key", labels[i]);
        json_put_text(json, "operator", "DoesNotExist");
        json_end_object(json);
    }
    json_end_array(json);
    json_end_object(json);
    json_end_object(json);
    json_end_array(json);
}

static void put_gate_rule(const struct kubernetes_backend *kube, struct json_writer *json)
{
    json_begin_array(json, "ingress");
    json_begin_object(json, NULL);
    put_sources(kube, json);
    json_begin_array(json, "ports");
    json_begin_object(json, NULL);
    json_put_text(json, "protocol", "TCP");
    json_put_int(json, "port", kube->config->kubernetes.port);
    json_end_object(json);
    json_end_array(json);
    json_end_object(json);
    json_end_array(json);
}

/* Policies add up: the other two stay as they are for daemons that need no gate. */
char *ground_gate_policy(const struct kubernetes_backend *kube, const char *name)
{
    scoped(buffer_fini) struct buffer text = BUFFER_INIT(BODY_MAXIMUM);
    struct json_writer json = JSON_WRITER(&text);

    json_begin_object(&json, NULL);
    json_put_text(&json, "apiVersion", "networking.k8s.io/v1");
    json_put_text(&json, "kind", "NetworkPolicy");
    put_metadata(kube, &json, name, true);
    json_begin_object(&json, "spec");
    put_pod_selector(kube, &json, NULL);
    json_begin_array(&json, "policyTypes");
    json_put_text(&json, NULL, "Ingress");
    json_end_array(&json);
    put_gate_rule(kube, &json);
    json_end_object(&json);
    json_end_object(&json);
    return buffer_steal_text(&text);
}

/* --- an object: looked for, and made when it is missing --------------------------------------- */

static void list_path(const struct kubernetes_backend *kube, const char *kind,
                      char path[KUBE_PATH_SIZE])
{
    snprintf(path, KUBE_PATH_SIZE, "%s/namespaces/%s/%s",
             str_equal(kind, "configmaps") ? CORE : NETWORKING, kube_client_namespace(kube->client),
             kind);
}

static void look_for(struct kubernetes_backend *kube, const char *kind, const char *name,
                     kube_done_fn *done)
{
    char list[KUBE_PATH_SIZE];
    scoped(free) char *path = NULL;

    list_path(kube, kind, list);
    path = xasprintf("%s/%s", list, name);
    kube_request_metadata(kube->client, &kube->ground.call, path, KUBE_REQUEST_MS, done);
}

static void make(struct kubernetes_backend *kube, const char *kind, const char *body,
                 kube_done_fn *done)
{
    char path[KUBE_PATH_SIZE];

    list_path(kube, kind, path);
    kube_request(kube->client, &kube->ground.call, HTTP_POST, path, body, KUBE_REQUEST_MS, done);
}

/* Another daemon has made it at the same moment. */
static void on_made(struct kube_call *call)
{
    struct error *err = call->err.code == ERR_NONE || call->status == 409 ? NULL : &call->err;

    workflow_step_done(&kube_of_call(call)->ground.workflow, err);
}

static void take_owner(struct kubernetes_backend *kube, const struct kube_call *call)
{
    const json_t *metadata = json_object_get(call->body, "metadata");
    const char *uid = json_string_value(json_object_get(metadata, "uid"));
    struct error err = { 0 };

    if (str_is_empty(uid) || strlen(uid) >= POD_UID_SIZE) {
        error_set(&err, ERR_BACKEND, "the API server gives the ConfigMap %s no uid", kube->scope);
        workflow_step_done(&kube->ground.workflow, &err);
        return;
    }
    snprintf(kube->ground.owner_uid, POD_UID_SIZE, "%s", uid);
    workflow_step_done(&kube->ground.workflow, NULL);
}

static void find_owner(struct workflow *workflow);

static void on_owner_made(struct kube_call *call)
{
    struct kubernetes_backend *kube = kube_of_call(call);

    if (call->status == 409)
        find_owner(&kube->ground.workflow);
    else if (call->err.code)
        workflow_step_done(&kube->ground.workflow, &call->err);
    else
        take_owner(kube, call);
}

static void on_owner(struct kube_call *call)
{
    struct kubernetes_backend *kube = kube_of_call(call);
    scoped(free) char *body = NULL;

    if (call->err.code == ERR_NOT_FOUND) {
        body = owner_json(kube);
        make(kube, "configmaps", body, on_owner_made);
    } else if (call->err.code) {
        workflow_step_done(&kube->ground.workflow, &call->err);
    } else {
        take_owner(kube, call);
    }
}

static void find_owner(struct workflow *workflow)
{
    struct kubernetes_backend *kube = kube_of(workflow);

    look_for(kube, "configmaps", kube->scope, on_owner);
}

static void on_init(struct kube_call *call)
{
    struct kubernetes_backend *kube = kube_of_call(call);
    scoped(free) char *body = NULL;

    if (call->err.code != ERR_NOT_FOUND) {
        workflow_step_done(&kube->ground.workflow, call->err.code ? &call->err : NULL);
        return;
    }
    body = init_json(kube);
    make(kube, "configmaps", body, on_made);
}

static void find_init(struct workflow *workflow)
{
    struct kubernetes_backend *kube = kube_of(workflow);

    look_for(kube, "configmaps", kube->init_name, on_init);
}

static void policy_name(const struct kubernetes_backend *kube, const char *network,
                        char name[KUBE_INIT_NAME_SIZE])
{
    snprintf(name, KUBE_INIT_NAME_SIZE, "%s-%s", kube->scope, network);
}

static void on_policy(struct kube_call *call, const char *network, bool is_open)
{
    struct kubernetes_backend *kube = kube_of_call(call);
    char name[KUBE_INIT_NAME_SIZE];
    scoped(free) char *body = NULL;

    if (call->err.code != ERR_NOT_FOUND) {
        workflow_step_done(&kube->ground.workflow, call->err.code ? &call->err : NULL);
        return;
    }
    policy_name(kube, network, name);
    body = policy_json(kube, name, network, is_open);
    make(kube, "networkpolicies", body, on_made);
}

static void on_none(struct kube_call *call)
{
    on_policy(call, "none", false);
}

static void on_open(struct kube_call *call)
{
    on_policy(call, "open", true);
}

static void find_policy(struct kubernetes_backend *kube, const char *network, kube_done_fn *done)
{
    char name[KUBE_INIT_NAME_SIZE];

    policy_name(kube, network, name);
    look_for(kube, "networkpolicies", name, done);
}

static void find_none(struct workflow *workflow)
{
    find_policy(kube_of(workflow), "none", on_none);
}

static void find_open(struct workflow *workflow)
{
    find_policy(kube_of(workflow), "open", on_open);
}

/* The name tells which port and whose pods it admits: another setting needs another policy. */
static void gate_policy_name(const struct kubernetes_backend *kube,
                             char name[KUBE_POLICY_NAME_SIZE])
{
    snprintf(name, KUBE_POLICY_NAME_SIZE, "%s-address-%" PRId64 "%s%s", kube->scope,
             kube->config->kubernetes.port, *kube->home ? "-" : "", kube->home);
}

static void on_gate_policy(struct kube_call *call)
{
    struct kubernetes_backend *kube = kube_of_call(call);
    char name[KUBE_POLICY_NAME_SIZE];
    scoped(free) char *body = NULL;

    if (call->err.code != ERR_NOT_FOUND) {
        workflow_step_done(&kube->ground.workflow, call->err.code ? &call->err : NULL);
        return;
    }
    gate_policy_name(kube, name);
    body = ground_gate_policy(kube, name);
    make(kube, "networkpolicies", body, on_made);
}

static void find_gate_policy(struct workflow *workflow)
{
    struct kubernetes_backend *kube = kube_of(workflow);
    char name[KUBE_POLICY_NAME_SIZE];

    if (kube->config->kubernetes.transport != KUBERNETES_ADDRESS) {
        workflow_step_done(workflow, NULL);
        return;
    }
    gate_policy_name(kube, name);
    look_for(kube, "networkpolicies", name, on_gate_policy);
}

/* --- agent-sandbox ---------------------------------------------------------------------------- */

static bool has_claims(const json_t *resources)
{
    const json_t *row;
    size_t i;

    json_array_foreach(json_object_get(resources, "resources"), i, row)
    {
        const char *name = json_string_value(json_object_get(row, "name"));

        if (name && str_equal(name, "sandboxclaims"))
            return true;
    }
    return false;
}

static void on_group(struct kube_call *call)
{
    struct kubernetes_backend *kube = kube_of_call(call);
    struct error err = call->err;

    if (err.code == ERR_NOT_FOUND || (!err.code && !has_claims(call->body))) {
        error_named(&err, ERR_BACKEND, "claims_not_installed",
                    "the cluster has no SandboxClaim of " CLAIM_GROUP);
        error_hint(&err, "install agent-sandbox with its extensions, or set kubernetes.kind: pod");
        error_keep(&kube->ground.trouble, &err);
    }
    workflow_step_done(&kube->ground.workflow, err.code ? &err : NULL);
}

static void find_claims(struct workflow *workflow)
{
    struct kubernetes_backend *kube = kube_of(workflow);

    kube_request(kube->client, &kube->ground.call, HTTP_GET, "/apis/" CLAIM_GROUP, NULL,
                 KUBE_REQUEST_MS, on_group);
}

static const struct workflow_step claim_steps[] = {
    { "find the owner of all claims", find_owner },
    { "find the resources of agent-sandbox", find_claims },
    { 0 },
};

static const struct workflow_step steps[] = {
    { "find the owner of all pods", find_owner },
    { "find init in the cluster", find_init },
    { "find the network policy none", find_none },
    { "find the network policy open", find_open },
    { "find the network policy of the gate", find_gate_policy },
    { 0 },
};

/* --- waiting for it --------------------------------------------------------------------------- */

static void answer(struct kubernetes_backend *kube, const struct error *err)
{
    struct list waiting = LIST_INIT(waiting);
    struct ground_wait *wait;

    list_move_all(&kube->ground.waiting, &waiting);
    while ((wait = list_first(&waiting, struct ground_wait, node))) {
        list_remove(&wait->node);
        wait->done(wait, err);
    }
}

static void on_end(struct workflow *workflow)
{
    struct kubernetes_backend *kube = kube_of(workflow);
    struct error err = { 0 };
    bool has_failed = workflow->err;

    if (has_failed)
        err = *workflow->err;
    kube->ground.state = has_failed ? GROUND_UNKNOWN : GROUND_READY;
    kube->ground.checked_us = loop_now_us(kube->base.loop);
    if (!has_failed)
        error_keep(&kube->ground.trouble, NULL);
    answer(kube, has_failed ? &err : NULL);
}

static void begin(struct kubernetes_backend *kube)
{
    struct ground *ground = &kube->ground;

    if (ground->state == GROUND_CHECKING)
        return;
    ground->state = GROUND_CHECKING;
    workflow_start(&ground->workflow, kube->base.loop,
                   kubernetes_claims(kube) ? claim_steps : steps, on_end);
}

void ground_need(struct kubernetes_backend *kube, struct ground_wait *wait, ground_fn *done)
{
    struct ground *ground = &kube->ground;
    bool is_fresh = ground->state == GROUND_READY &&
                    loop_now_us(kube->base.loop) - ground->checked_us < FRESH_US;

    wait->done = done;
    if (is_fresh) {
        done(wait, NULL);
        return;
    }
    list_append(&ground->waiting, &wait->node);
    begin(kube);
}

void ground_look_again(struct kubernetes_backend *kube)
{
    if (loop_now_us(kube->base.loop) - kube->ground.checked_us >= FRESH_US)
        begin(kube);
}

void ground_forget(struct ground_wait *wait)
{
    list_remove(&wait->node);
}

void ground_init(struct kubernetes_backend *kube)
{
    list_init(&kube->ground.waiting);
}

void ground_fini(struct kubernetes_backend *kube)
{
    kube_cancel(&kube->ground.call);
    error_keep(&kube->ground.trouble, NULL);
    workflow_drop(&kube->ground.workflow);
}
