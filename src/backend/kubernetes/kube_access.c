/* SPDX-License-Identifier: Apache-2.0 */
#include "backend/kubernetes/kube_access.h"

#include "backend/kubernetes/kube_client.h"
#include "base/alloc.h"
#include "base/clock.h"
#include "base/macros.h"
#include "config/config.h"

#include <stdio.h>
#include <string.h>

#define REVIEWS "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"

enum { REVIEW_MS = 10 * 1000 };

struct right {
    const char *group;
    const char *resource;
    const char *sub; /* "" without one */
    const char *verb;
};

/* As the Roles of deploy/ and of the pages have them. */
static const struct right for_pods[] = {
    { "", "pods", "", "create" },
    { "", "pods", "", "get" },
    { "", "pods", "", "list" },
    { "", "pods", "", "watch" },
    { "", "pods", "", "delete" },
    { "", "pods", "exec", "create" },
    { "", "pods", "exec", "get" },
    { "", "configmaps", "", "create" },
    { "", "configmaps", "", "get" },
    { "networking.k8s.io", "networkpolicies", "", "create" },
    { "networking.k8s.io", "networkpolicies", "", "get" },
    { 0 },
};

static const struct right for_claims[] = {
    { "extensions.agents.x-k8s.io", "sandboxclaims", "", "create" },
    { "extensions.agents.x-k8s.io", "sandboxclaims", "", "get" },
    { "extensions.agents.x-k8s.io", "sandboxclaims", "", "list" },
    { "extensions.agents.x-k8s.io", "sandboxclaims", "", "delete" },
    { "", "pods", "", "get" },
    { "", "pods", "", "list" },
    { "", "pods", "", "watch" },
    { "", "pods", "exec", "create" },
    { "", "pods", "exec", "get" },
    { "", "configmaps", "", "create" },
    { "", "configmaps", "", "get" },
    { 0 },
};

struct question {
    struct kube_call call;
    struct loop *loop; /* borrowed */
    bool is_allowed;
    struct error err;
};

static void on_answer(struct kube_call *call)
{
    struct question *question = container_of(call, struct question, call);
    const json_t *status = json_object_get(call->body, "status");

    question->err = call->err;
    question->is_allowed = json_is_true(json_object_get(status, "allowed"));
    loop_stop(question->loop);
}

static bool is_allowed(struct loop *loop, struct kube_client *client, const struct right *right,
                       struct error *err)
{
    struct question question = { .loop = loop };
    scoped(free) char *body = xasprintf(
        "{\"apiVersion\":\"authorization.k8s.io/v1\",\"kind\":\"SelfSubjectAccessReview\","
        "\"spec\":{\"resourceAttributes\":{\"namespace\":\"%s\",\"verb\":\"%s\","
        "\"group\":\"%s\",\"resource\":\"%s\",\"subresource\":\"%s\"}}}",
        kube_client_namespace(client), right->verb, right->group, right->resource, right->sub);

    kube_request(client, &question.call, HTTP_POST, REVIEWS, body, REVIEW_MS, on_answer);
    loop_run(loop);
    *err = question.err;
    return question.is_allowed;
}

static void add_missing(struct kube_access *access, const struct right *right)
{
    size_t length = strlen(access->names);

    snprintf(access->names + length, sizeof(access->names) - length, "%s%s %s%s%s",
             access->missing++ ? ", " : "", right->verb, right->resource, *right->sub ? "/" : "",
             right->sub);
}

static struct kube_client *open_client(struct loop *loop, const struct config *config,
                                       struct error *err)
{
    scoped(kube_config_fini) struct kube_config kube = { 0 };
    struct kube_client_options options = { .loop = loop, .config = &kube, .state_path = "/tmp" };

    if (kube_config_load(&kube, config, err) < 0)
        return NULL;
    options.namespace = *config->kubernetes.namespace ? config->kubernetes.namespace
                        : kube.namespace              ? kube.namespace
                                                      : "default";
    return kube_client_new(&options, err);
}

void kube_access_look(struct kube_access *access, const struct config *config)
{
    const struct right *right = config->kubernetes.kind == KUBERNETES_CLAIM ? for_claims : for_pods;
    scoped(loop_free) struct loop *loop = loop_new(&clock_system);
    scoped(kube_client_free) struct kube_client *client = NULL;

    *access = (struct kube_access){ 0 };
    client = open_client(loop, config, &access->err);
    if (!client)
        return;
    snprintf(access->namespace, sizeof(access->namespace), "%s", kube_client_namespace(client));
    for (; right->verb && !access->err.code; right++)
        if (!is_allowed(loop, client, right, &access->err) && !access->err.code)
            add_missing(access, right);
}
