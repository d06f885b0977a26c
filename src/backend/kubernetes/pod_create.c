/* SPDX-License-Identifier: Apache-2.0 */
/* From an image, or from a warm pool, to a pod with an init in it. A failure leaves what is there to destroy(), which the core
 * calls. */

#include "backend/kubernetes/kubernetes_private.h"

#include "base/alloc.h"
#include "base/backoff.h"
#include "base/log.h"
#include "base/macros.h"
#include "base/str.h"
#include "config/config.h"

#include <stdio.h>
#include <string.h>

enum {
    CREATE_MS = 60 * 1000,
    POLL_US = 2 * 1000 * 1000,
    CLAIM_POLL_US = 500 * 1000, /* of a claim that is not bound: nothing watches it */
    TOLD_US = 1000 * 1000,
    REACH_US = 10 * 1000 * 1000, /* a cluster may need a moment to admit the daemon to a new pod */
};

static const struct backoff reach_backoff_us = { .first = 100 * 1000, .most = 2 * 1000 * 1000 };

struct create {
    struct kube_op job;
    struct workflow workflow;
    struct sandbox_spec spec; /* its texts are owned */
    char *image;              /* owned; or the warm pool */
    struct pod *pod;          /* borrowed; NULL before it is asked for */
    struct ground_wait ground;
    struct timer timer;     /* looks at the clock, and at the pod where the watch is down */
    struct deferred turn;   /* the watch has told of it */
    int64_t began_us;       /* waiting */
    int64_t reached_for_us; /* since when its gate is tried; 0: it is not */
    unsigned attempts;      /* that have failed */
    int64_t unplaced_us;    /* since when no node can take it; 0: one can */
    int64_t told_us;        /* when progress was last told */
    bool is_worth_retrying; /* the next attempt may end otherwise */
    bool is_refused;        /* the claim will not be bound: the pod's reason and words say why */
};

static struct create *create_of(struct workflow *workflow)
{
    return container_of(workflow, struct create, workflow);
}

static struct create *create_of_call(struct kube_call *call)
{
    return container_of(container_of(call, struct kube_op, call), struct create, job);
}

static struct loop *loop_of(const struct create *create)
{
    return create->job.backend->base.loop;
}

static void clear(void *job)
{
    struct create *create = job;

    workflow_drop(&create->workflow);
    ground_forget(&create->ground);
    timer_stop(&create->timer);
    loop_undefer(loop_of(create), &create->turn);
    free((char *)create->spec.source.name);
    free((char *)create->spec.session);
    free((char *)create->spec.owner);
    free(create->image);
}

/* --- the namespace ---------------------------------------------------------------------------- */

static void on_ground(struct ground_wait *wait, const struct error *err)
{
    workflow_step_done(&container_of(wait, struct create, ground)->workflow, err);
}

static void prepare(struct workflow *workflow)
{
    struct create *create = create_of(workflow);

    ground_need(create->job.backend, &create->ground, on_ground);
}

/* --- the request ------------------------------------------------------------------------------ */

/* The name is derived from a random id: a pod with our labels was made by a request whose answer was lost.
 * Anything else is left alone. */
static bool is_ours(const struct create *create, const struct pod_state *state)
{
    return kubernetes_knows(create->job.backend, state) &&
           str_equal(state->sandbox, create->job.base.id);
}

static void on_conflicting(struct kube_call *call)
{
    struct create *create = create_of_call(call);
    struct error err = call->err;
    struct pod_state state;

    if (!err.code && pod_state_read(call->body, &state) && is_ours(create, &state)) {
        pod_note(create->pod, &state, false);
        workflow_step_done(&create->workflow, NULL);
        return;
    }
    if (!err.code) {
        error_named(&err, ERR_CONFLICT, "name_conflict", "another pod has the name %s",
                    create->pod->name);
        error_hint(&err, "it is not of this instance, and was left alone");
    } else if (err.code == ERR_NOT_FOUND) {
        error_named(&err, ERR_UNAVAILABLE, "kubernetes_unavailable",
                    "the API server did not say whether it has made the pod");
        err.retryable = true;
    }
    workflow_step_done(&create->workflow, &err);
}

/* Whether the pod may be there although the answer is no success. */
static bool is_uncertain(const struct kube_call *call)
{
    return call->status == 409 || call->status == 0 || call->status >= 500;
}

static void on_made(struct kube_call *call)
{
    struct create *create = create_of_call(call);
    struct error err = call->err;
    struct pod_state state;

    if (err.code && is_uncertain(call)) {
        kube_op_get_pod(&create->job, on_conflicting);
        return;
    }
    if (!err.code && !pod_state_read(call->body, &state))
        error_set(&err, ERR_BACKEND, "the API server did not describe the pod");
    if (!err.code)
        pod_note(create->pod, &state, false);
    workflow_step_done(&create->workflow, err.code ? &err : NULL);
}

/* --- the request for a claim ------------------------------------------------------------------ */

static void on_conflicting_claim(struct kube_call *call)
{
    struct create *create = create_of_call(call);
    struct error err = call->err;
    struct claim_state state;

    if (!err.code && claim_read(create->job.backend, create->job.base.id, call->body, &state) &&
        state.is_ours) {
        workflow_step_done(&create->workflow, NULL);
        return;
    }
    if (!err.code) {
        error_named(&err, ERR_CONFLICT, "name_conflict", "another claim has the name of sandbox %s",
                    create->job.base.id);
        error_hint(&err, "it is not of this instance, and was left alone");
    } else if (err.code == ERR_NOT_FOUND) {
        error_named(&err, ERR_UNAVAILABLE, "kubernetes_unavailable",
                    "the API server did not say whether it has made the claim");
        err.retryable = true;
    }
    workflow_step_done(&create->workflow, &err);
}

static void on_claimed(struct kube_call *call)
{
    struct create *create = create_of_call(call);

    if (call->err.code && is_uncertain(call))
        kube_op_get_claim(&create->job, on_conflicting_claim);
    else
        workflow_step_done(&create->workflow, call->err.code ? &call->err : NULL);
}

static void begin_pod(struct create *create)
{
    struct kubernetes_backend *kube = create->job.backend;
    char name[POD_NAME_SIZE];

    pod_name(create->job.base.id, name);
    pod_free(pod_find(kube, create->job.base.id)); /* of an earlier attempt */
    create->pod = pod_new(kube, create->job.base.id, kubernetes_claims(kube) ? "" : name);
    create->pod->limits = create->spec.limits;
}

static struct pod_order order_of(const struct create *create)
{
    return (struct pod_order){ .kube = create->job.backend,
                               .spec = &create->spec,
                               .image = create->image };
}

static void claim(struct create *create)
{
    struct kubernetes_backend *kube = create->job.backend;
    struct pod_order order = order_of(create);
    scoped(free) char *body = claim_json(&order);
    char path[KUBE_PATH_SIZE];
    struct error err = { 0 };

    if (!body) {
        error_set(&err, ERR_INVALID, "the description of the claim is too long");
        workflow_step_done(&create->workflow, &err);
        return;
    }
    begin_pod(create);
    claims_path(kube, path);
    kube_request(kube->client, &create->job.call, HTTP_POST, path, body, CREATE_MS, on_claimed);
}

/* --- the request for a pod -------------------------------------------------------------------- */

static int write_key(struct create *create, char out_text[2 * RELAY_KEY_SIZE + 1],
                     struct error *err)
{
    struct kubernetes_backend *kube = create->job.backend;
    uint8_t key[RELAY_KEY_SIZE];

    if (kubernetes_need_secret(kube, err) < 0)
        return -1;
    relay_key_derive(kube->secret.bytes, create->job.base.id, key);
    for (size_t i = 0; i < sizeof(key); i++)
        snprintf(out_text + 2 * i, 3, "%02x", key[i]);
    explicit_bzero(key, sizeof(key));
    return 0;
}

static void make(struct workflow *workflow)
{
    struct create *create = create_of(workflow);
    struct kubernetes_backend *kube = create->job.backend;
    char key[2 * RELAY_KEY_SIZE + 1];
    struct pod_order order = order_of(create);
    scoped(free) char *body = NULL;
    char path[KUBE_PATH_SIZE];
    struct error err = { 0 };

    if (kubernetes_claims(kube)) {
        claim(create);
        return;
    }
    order.key = key;
    if (write_key(create, key, &err) == 0) {
        body = pod_spec_json(&order);
        explicit_bzero(key, sizeof(key));
    }
    if (!body && !err.code)
        error_set(&err, ERR_INVALID, "the description of the pod is too long");
    if (err.code) {
        workflow_step_done(workflow, &err);
        return;
    }
    begin_pod(create);
    snprintf(path, sizeof(path), "/api/v1/namespaces/%s/pods", kube_client_namespace(kube->client));
    kube_request(kube->client, &create->job.call, HTTP_POST, path, body, CREATE_MS, on_made);
    explicit_bzero(body, strlen(body));
}

/* --- waiting for it --------------------------------------------------------------------------- */

static int refuse_image(const struct create *create, struct error *err)
{
    const struct pod_state *last = &create->pod->last;

    error_named(err, ERR_INVALID, "image_not_found", "no node can get the image %s: %s%s%.300s",
                create->image, last->reason, *last->words ? ": " : "", last->words);
    return error_hint(err, "see whether the name is right, and whether nodes may pull it "
                           "(kubernetes.pull_secrets, kubernetes.pull)");
}

static int refuse_stuck(const struct create *create, struct error *err)
{
    const struct pod_state *last = &create->pod->last;

    if (last->is_image)
        return refuse_image(create, err);
    error_named(err, ERR_BACKEND, "pod_stuck", "the pod does not start: %s%s%.300s", last->reason,
                *last->words ? ": " : "", last->words);
    return error_hint(err, "see 'kubectl describe pod %s'", create->pod->name);
}

static int refuse_claim(const struct create *create, struct error *err)
{
    const struct pod_state *last = &create->pod->last;

    error_named(err, ERR_INVALID, "template_unknown",
                "the warm pool %s gives no sandbox: %s%s%.300s", create->image, last->reason,
                *last->words ? ": " : "", last->words);
    return error_hint(err, "see 'kubectl get sandboxwarmpools,sandboxtemplates', and "
                           "kubernetes.warm_pool");
}

static int refuse_ended(struct create *create, struct error *err)
{
    const struct pod_state *last = &create->pod->last;
    const char *why = last->end.oom ? "oom" : *last->end.detail ? last->end.detail : last->reason;

    error_named(err, ERR_BACKEND, "sandbox_died", "the pod ended at once: %s, code %d%s%.300s", why,
                last->end.code, *last->words ? ": " : "", last->words);
    create->is_worth_retrying = !str_equal(last->reason, "StartError");
    return -1;
}

static int refuse_unplaced(const struct create *create, struct error *err)
{
    error_named(err, ERR_LIMIT, "unschedulable", "no node can take the sandbox: %.300s",
                create->pod->last.words);
    return error_hint(err, "choose a smaller flavor, end other sandboxes, or add nodes; "
                           "kubernetes.schedule_timeout says how long is waited");
}

static int refuse_late(const struct create *create, struct error *err)
{
    const struct pod_state *last = &create->pod->last;
    char limit[STR_UNIT_SIZE];

    if (last->is_image)
        return refuse_image(create, err);
    str_format_duration(create->job.backend->config->kubernetes.start_timeout_ms, limit);
    error_named(err, ERR_TIMEOUT, "start_timeout", "the pod does not run after %s%s%s%s%.200s",
                limit, *last->reason ? ": " : "", last->reason, *last->words ? ": " : "",
                last->words);
    return error_hint(err, "see 'kubectl describe pod %s', and kubernetes.start_timeout",
                      create->pod->name);
}

static void tell_progress(struct create *create)
{
    struct backend_op *op = create->job.base.op;
    int64_t now_us = loop_now_us(loop_of(create));

    if (!op->on_progress || now_us - create->told_us < TOLD_US)
        return;
    create->told_us = now_us;
    op->on_progress(op, create->unplaced_us ? "waiting for a node" : "starting the pod", 0, 0);
}

static bool is_over(const struct create *create, int64_t since_us, int64_t limit_ms)
{
    return loop_now_us(loop_of(create)) - since_us >= limit_ms * 1000;
}

/* 1: it runs; 0: it is waited for; -1: it will not. */
static int judge(struct create *create, struct error *err)
{
    const struct config *config = create->job.backend->config;
    const struct pod_state *last = &create->pod->last;

    if (last->verdict != POD_UNSCHEDULABLE)
        create->unplaced_us = 0;
    else if (!create->unplaced_us)
        create->unplaced_us = loop_now_us(loop_of(create));
    switch (last->verdict) {
    case POD_RUNS:
        return 1;
    case POD_ENDED:
        return refuse_ended(create, err);
    case POD_STUCK:
        return refuse_stuck(create, err);
    case POD_UNSCHEDULABLE:
        if (is_over(create, create->unplaced_us, config->kubernetes.schedule_timeout_ms))
            return refuse_unplaced(create, err);
        break;
    case POD_WAITS:
        break;
    }
    if (create->is_refused)
        return refuse_claim(create, err);
    if (last->is_terminating)
        return error_named(err, ERR_BACKEND, "sandbox_died", "the pod was deleted by others");
    return is_over(create, create->began_us, config->kubernetes.start_timeout_ms)
               ? refuse_late(create, err)
               : 0;
}

static int begin_bridge(struct create *create, struct error *err)
{
    struct pod *pod = create->pod;
    struct pod_order order = order_of(create);

    if (!pod->is_claimed)
        return pod_begin(pod, POD_MADE, err);
    if (claim_check_pod(&order, &pod->last, err) < 0)
        return -1;
    return pod_begin(pod, POD_CLAIMED, err);
}

static void look_at(struct create *create)
{
    struct error err = { 0 };
    int verdict = judge(create, &err);

    if (verdict == 0) {
        tell_progress(create);
        timer_arm_in(&create->timer, *create->pod->name ? POLL_US : CLAIM_POLL_US);
        return;
    }
    timer_stop(&create->timer);
    kube_cancel(&create->job.call);
    if (verdict > 0)
        (void)begin_bridge(create, &err);
    workflow_step_done(&create->workflow, err.code ? &err : NULL);
}

/* 1: the line is there; 0: it is waited for; -1: it will not come. */
static int judge_line(const struct create *create, struct error *err)
{
    const struct pod *pod = create->pod;

    if (pod->phase >= POD_DYING)
        return error_named(err, ERR_BACKEND, "sandbox_died",
                           "the pod ended before it could be reached");
    if (pod->line.base.state != PUMP_IDLE)
        return pod->line.base.state == PUMP_WAITING;
    if (!pod->line.err.code)
        return 1; /* the bridge has taken it */
    if (!is_over(create, create->reached_for_us, REACH_US / 1000))
        return 0;
    *err = pod->line.err;
    err->code = ERR_BACKEND;
    return -1;
}

static void look_at_line(struct create *create)
{
    struct error err = { 0 };
    int verdict = judge_line(create, &err);

    if (verdict == 0) {
        if (create->pod->line.base.state == PUMP_IDLE)
            timer_arm_in(&create->timer, backoff_delay(&reach_backoff_us, ++create->attempts));
        return;
    }
    timer_stop(&create->timer);
    create->job.on_line = NULL;
    workflow_step_done(&create->workflow, verdict < 0 ? &err : NULL);
}

static void on_turn(struct deferred *deferred)
{
    struct create *create = container_of(deferred, struct create, turn);

    if (create->reached_for_us)
        look_at_line(create);
    else if (create->began_us)
        look_at(create);
}

static void on_pod(struct kube_op *job, const struct pod_state *state UNUSED,
                   bool is_deleted UNUSED)
{
    struct create *create = container_of(job, struct create, job);

    if (create->began_us && workflow_is_running(&create->workflow))
        loop_defer(loop_of(create), &create->turn, on_turn);
}

static void die(struct create *create, const char *why)
{
    struct error err = { 0 };

    timer_stop(&create->timer);
    error_named(&err, ERR_BACKEND, "sandbox_died", "%s", why);
    workflow_step_done(&create->workflow, &err);
}

/* The pod of the Sandbox that a claim is bound to: it is ours when the controller has said so there. */
static void on_bound_polled(struct kube_call *call)
{
    struct create *create = create_of_call(call);
    struct pod_state state;

    create->job.pod[0] = '\0';
    if (!call->err.code && pod_state_read(call->body, &state) && is_ours(create, &state))
        pod_note(create->pod, &state, false);
    look_at(create);
}

/* Without the watch, or where it has missed something, the pod itself is asked about. */
static void on_polled(struct kube_call *call)
{
    struct create *create = create_of_call(call);
    struct pod_state state;

    if (call->err.code == ERR_NOT_FOUND) {
        die(create, "the pod was deleted by others");
        return;
    }
    if (!call->err.code && pod_state_read(call->body, &state)) {
        if (*create->pod->last.uid && !str_equal(create->pod->last.uid, state.uid)) {
            die(create, "the pod was replaced before it could be used");
            return;
        }
        if (is_ours(create, &state))
            pod_note(create->pod, &state, false);
    }
    look_at(create);
}

/* Of a claim that the watch has shown no pod for: why, or which. */
static void on_claim_polled(struct kube_call *call)
{
    struct create *create = create_of_call(call);
    struct pod_state *last = &create->pod->last;
    struct claim_state state;

    if (call->err.code == ERR_NOT_FOUND) {
        die(create, "the claim was deleted by others");
        return;
    }
    if (!call->err.code &&
        claim_read(create->job.backend, create->job.base.id, call->body, &state)) {
        memcpy(last->reason, state.reason, sizeof(last->reason));
        memcpy(last->words, state.words, sizeof(last->words));
        create->is_refused = state.is_stuck;
        if (*state.sandbox && !state.is_stuck) {
            memcpy(create->job.pod, state.sandbox, sizeof(create->job.pod));
            kube_op_get_pod(&create->job, on_bound_polled);
            return;
        }
    }
    look_at(create);
}

static void on_timer(struct timer *timer)
{
    struct create *create = container_of(timer, struct create, timer);

    if (create->reached_for_us) {
        pump_start(&create->pod->line.base);
        return;
    }
    if (kube_is_asked(&create->job.call))
        return;
    if (*create->pod->name)
        kube_op_get_pod(&create->job, on_polled);
    else
        kube_op_get_claim(&create->job, on_claim_polled);
}

static void wait_for(struct workflow *workflow)
{
    struct create *create = create_of(workflow);

    create->began_us = loop_now_us(loop_of(create));
    look_at(create);
}

/* --- reaching it ------------------------------------------------------------------------------ */

static void on_line(struct kube_op *job)
{
    struct create *create = container_of(job, struct create, job);

    loop_defer(loop_of(create), &create->turn, on_turn);
}

/* An exec needs only the API server, which has just answered: the bridge opens it. An address is tried
 * now, so that a network without a way to pods is an error of the first session. */
static void reach(struct workflow *workflow)
{
    struct create *create = create_of(workflow);

    pump_start(pod_pump(create->pod));
    if (!pod_has_line(create->pod)) {
        workflow_step_done(workflow, NULL);
        return;
    }
    create->reached_for_us = loop_now_us(loop_of(create));
    create->job.on_line = on_line;
    loop_defer(loop_of(create), &create->turn, on_turn); /* the attempt may have ended at once */
}

/* --- all of it -------------------------------------------------------------------------------- */

static const struct workflow_step create_steps[] = {
    { "prepare the namespace", prepare },
    { "create the pod", make },
    { "wait for the pod", wait_for },
    { "reach the pod", reach },
    { 0 },
};

static void on_created(struct workflow *workflow)
{
    struct create *create = create_of(workflow);
    struct backend_op *op = create->job.base.op;

    if (workflow->err)
        op->err = *workflow->err;
    if (op->err.code && op->err.code != ERR_UNAVAILABLE && !create->is_worth_retrying)
        op->err.retryable = false; /* a cluster gives the same answer to the same question */
    if (!workflow->err)
        pod_write_handle(create->pod, &op->result.made.sandbox);
    kube_op_done(&create->job);
}

static char *copy(const char *text)
{
    return xstrdup(text ? text : "");
}

/* One that is being made, or was. What a failed attempt has left is made anew. */
static bool exists(const struct kubernetes_backend *kube, const char *id)
{
    const struct pod *pod = pod_find(kube, id);

    return remote_jobs_have(&kube->jobs, id) || (pod && pod->phase != POD_MAKING);
}

static const char *source_of(const struct kubernetes_backend *kube, const struct sandbox_spec *spec,
                             struct error *err)
{
    if (!kubernetes_claims(kube))
        return pod_image(kube, spec->source.name, err);
    return claim_check_network(kube->config, spec, err) < 0
               ? NULL
               : claim_pool(kube, spec->source.name, err);
}

void kubernetes_create(struct backend *backend, const struct sandbox_spec *spec,
                       struct backend_op *op)
{
    struct kubernetes_backend *kube = kubernetes_from(backend);
    bool is_second = exists(kube, spec->id);
    struct create *create = kube_op_new(sizeof(*create), kube, op, spec->id);
    const char *image = is_second ? NULL : source_of(kube, spec, &op->err);

    if (is_second)
        error_set(&op->err, ERR_CONFLICT, "sandbox %s exists already", spec->id);
    create->job.base.clear = clear;
    create->job.on_pod = on_pod;
    timer_init(&create->timer, backend->loop, on_timer);
    create->spec = *spec;
    create->spec.source.name = copy(spec->source.name);
    create->spec.session = copy(spec->session);
    create->spec.owner = copy(spec->owner);
    if (!image) {
        remote_job_done_later(&create->job.base);
        return;
    }
    create->image = xstrdup(image);
    op->result.made.limits = (struct sandbox_limits){ 0 };
    op->result.made.gpus = 0;
    workflow_start(&create->workflow, backend->loop, create_steps, on_created);
}
