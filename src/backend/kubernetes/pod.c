/* SPDX-License-Identifier: Apache-2.0 */
#include "backend/kubernetes/kubernetes_private.h"

#include "base/alloc.h"
#include "base/backoff.h"
#include "base/log.h"
#include "base/macros.h"
#include "base/str.h"
#include "bridge/bridge.h"
#include "config/config.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LOOK_MS = 10 * 1000, CAUSE_US = 3 * 1000 * 1000 };

static const struct backoff look_backoff_us = { .first = 500 * 1000, .most = 30 * 1000 * 1000 };

static void on_look_again(struct timer *timer);
static void on_exec_refused(struct tunnel *tunnel);
static void on_line_end(struct pod_line *line);

static struct loop *loop_of(const struct pod *pod)
{
    return pod->kube->base.loop;
}

/* Pods have the names of hosts: no underscore. */
void pod_name(const char *id, char name[POD_NAME_SIZE])
{
    snprintf(name, POD_NAME_SIZE, "%s", id);
    for (; *name; name++)
        if (*name == '_')
            *name = '-';
}

struct pod *pod_find(const struct kubernetes_backend *kube, const char *id)
{
    return map_get(&kube->pods, id);
}

struct pod *pod_new(struct kubernetes_backend *kube, const char *id, const char *name)
{
    struct pod *pod = xnew(struct pod);

    assert(!pod_find(kube, id));
    snprintf(pod->id, sizeof(pod->id), "%s", id);
    snprintf(pod->name, sizeof(pod->name), "%s", name);
    pod->is_claimed = !*name;
    pod->kube = kube;
    timer_init(&pod->again, kube->base.loop, on_look_again);
    tunnel_init(&pod->tunnel, kube->base.loop, kube->client, pod->name, on_exec_refused);
    pod_line_init(&pod->line, kube->base.loop, on_line_end);
    map_put(&kube->pods, pod->id, pod);
    return pod;
}

void pod_free(struct pod *pod)
{
    if (!pod)
        return;
    map_remove(&pod->kube->pods, pod->id);
    bridge_free(pod->bridge);
    pump_fini(&pod->tunnel.base);
    pump_fini(&pod->line.base);
    kube_cancel(&pod->look);
    timer_stop(&pod->again);
    backend_watch_drop(pod->watch);
    loop_undefer(loop_of(pod), &pod->late);
    free(pod);
}

/* The node is for people, and shortened where the rest needs the room. */
void pod_write_handle(const struct pod *pod, struct backend_sandbox *sandbox)
{
    memcpy(sandbox->id, pod->id, sizeof(sandbox->id));
    if (pod->is_claimed)
        snprintf(sandbox->handle, sizeof(sandbox->handle), "%s,%.60s,%u,%s", pod->last.uid,
                 pod->last.node, pod->restarts, pod->name);
    else
        snprintf(sandbox->handle, sizeof(sandbox->handle), "%s,%s", pod->last.uid, pod->last.node);
}

/* Behind the node: "RESTARTS,NAME". */
static bool parse_claimed(const char *text, struct pod_handle *out)
{
    size_t length = strspn(text, "0123456789");
    const char *name = text + length + 1;

    if (!length || length > 9 || text[length] != ',' || !*name ||
        strlen(name) >= sizeof(out->name) || strchr(name, '/'))
        return false;
    out->is_claimed = true;
    out->restarts = (unsigned)strtoul(text, NULL, 10);
    memcpy(out->name, name, strlen(name) + 1);
    return true;
}

bool pod_parse_handle(const char *text, struct pod_handle *out)
{
    size_t length = strspn(text, "0123456789abcdefABCDEF-");
    const char *rest;

    *out = (struct pod_handle){ 0 };
    if (!length || length >= sizeof(out->uid) || text[length] != ',')
        return false;
    memcpy(out->uid, text, length);
    rest = strchr(text + length + 1, ',');
    return !rest || parse_claimed(rest + 1, out);
}

/* --- its end ---------------------------------------------------------------------------------- */

static void on_late(struct deferred *deferred)
{
    struct pod *pod = container_of(deferred, struct pod, late);
    struct backend_watch *watch = steal_ptr(&pod->watch);

    if (watch)
        backend_watch_end(watch, &pod->end);
}

static void end(struct pod *pod, const struct backend_end *how)
{
    pod->phase = POD_OVER;
    pod->end = *how;
    timer_stop(&pod->again);
    kube_cancel(&pod->look);
    if (pod->bridge)
        bridge_set_frozen(pod->bridge, true); /* nothing is there to connect to */
    loop_defer(loop_of(pod), &pod->late, on_late);
}

static void log_node(const struct pod *pod, const struct pod_state *state)
{
    if (state->is_node_silent && !pod->last.is_node_silent)
        log_warn("the node of a sandbox does not report; the sandbox may go on",
                 kv("sandbox", pod->id), kv("node", state->node));
}

/* What is there now has the name, and nothing else of the sandbox that was. */
static const struct backend_end replaced = { .detail = "replaced" };

/* The kubelet may say why a moment later. */
static void note_end(struct pod *pod, const struct pod_state *state)
{
    if (state->is_settled || state->end.oom || *state->end.detail) {
        end(pod, &state->end);
        return;
    }
    if (pod->phase == POD_DYING)
        return;
    pod->phase = POD_DYING;
    bridge_set_frozen(pod->bridge, true);
    kube_cancel(&pod->look);
    timer_arm_in(&pod->again, CAUSE_US);
}

void pod_note(struct pod *pod, const struct pod_state *state, bool is_deleted)
{
    struct backend_end gone;

    if (*pod->last.uid && !str_equal(pod->last.uid, state->uid))
        return; /* another one with its name */
    log_node(pod, state);
    if (!*pod->name)
        snprintf(pod->name, sizeof(pod->name), "%s", state->name);
    pod->last = *state;
    pod->last.instance = pod->last.cluster = pod->last.sandbox = pod->last.state = NULL;
    pod->last.name = NULL;
    if (pod->phase != POD_LIVE && pod->phase != POD_DYING)
        return;
    gone = pod_state_gone(state);
    if (state->verdict == POD_ENDED && !is_deleted)
        note_end(pod, state);
    else if (is_deleted)
        end(pod, &gone);
    else if (state->restarts > pod->restarts)
        end(pod, &replaced);
}

/* --- asking for it ---------------------------------------------------------------------------- */

static void on_look(struct kube_call *call)
{
    struct pod *pod = container_of(call, struct pod, look);
    struct backend_end gone = pod_state_gone(&pod->last);
    struct pod_state state;

    if (pod->phase != POD_LIVE)
        return;
    if (call->err.code == ERR_NOT_FOUND) {
        end(pod, &gone);
    } else if (call->err.code || !pod_state_read(call->body, &state)) {
        timer_arm_in(&pod->again, backoff_delay(&look_backoff_us, ++pod->looks));
    } else if (!str_equal(state.uid, pod->last.uid)) {
        end(pod, pod->is_claimed ? &replaced : &gone);
    } else {
        pod->looks = 0;
        pod_note(pod, &state, false);
    }
}

static void look(struct pod *pod)
{
    char path[KUBE_PATH_SIZE];

    if (kube_is_asked(&pod->look))
        return;
    timer_stop(&pod->again);
    snprintf(path, sizeof(path), "/api/v1/namespaces/%s/pods/%s",
             kube_client_namespace(pod->kube->client), pod->name);
    kube_request(pod->kube->client, &pod->look, HTTP_GET, path, NULL, LOOK_MS, on_look);
}

static void on_look_again(struct timer *timer)
{
    struct pod *pod = container_of(timer, struct pod, again);

    if (pod->phase == POD_DYING)
        end(pod, &pod->last.end); /* no cause has come */
    else
        look(pod);
}

void pod_suspect(struct pod *pod)
{
    if (pod->phase == POD_LIVE && !timer_is_armed(&pod->again))
        look(pod);
}

static void on_exec_refused(struct tunnel *tunnel)
{
    pod_suspect(container_of(tunnel, struct pod, tunnel));
}

/* An address that does not answer says nothing about the pod: the API server is asked. */
static void on_line_end(struct pod_line *line)
{
    struct pod *pod = container_of(line, struct pod, line);
    struct kube_op *job;

    list_for_each (job, &pod->kube->jobs.list, base.node)
        if (job->on_line && str_equal(job->base.id, pod->id))
            job->on_line(job);
    if (line->err.code)
        pod_suspect(pod);
}

/* --- watches ---------------------------------------------------------------------------------- */

void kubernetes_watch(struct backend *backend, const char *id, struct backend_watch *watch)
{
    struct pod *pod = pod_find(kubernetes_from(backend), id);

    if (!pod) {
        backend_watch_drop(watch);
        return;
    }
    assert(!pod->watch);
    pod->watch = watch;
    watch->private = pod;
    if (pod->phase == POD_OVER)
        loop_defer(loop_of(pod), &pod->late, on_late);
}

void kubernetes_unwatch(struct backend *backend UNUSED, struct backend_watch *watch)
{
    struct pod *pod = watch->private;

    pod->watch = NULL;
}

bool kubernetes_is_ending(const struct backend *backend UNUSED, const struct backend_watch *watch)
{
    const struct pod *pod = watch->private;

    return pod->phase >= POD_DYING;
}

/* --- the way to its init ---------------------------------------------------------------------- */

static void on_other_boot(struct bridge *bridge, const uint8_t boot[RELAY_BOOT_SIZE] UNUSED)
{
    struct pod *pod = bridge_user(bridge);

    if (pod->phase == POD_LIVE)
        end(pod, &replaced);
}

bool pod_has_line(const struct pod *pod)
{
    const struct config *config = pod->kube->config;

    return config->kubernetes.transport == KUBERNETES_ADDRESS && pod->last.port &&
           pod->last.port == (unsigned)config->kubernetes.port;
}

struct pump *pod_pump(struct pod *pod)
{
    return pod_has_line(pod) ? &pod->line.base : &pod->tunnel.base;
}

int pod_begin(struct pod *pod, enum pod_origin origin, struct error *err)
{
    static const struct bridge_handler handler = { .on_other = on_other_boot,
                                                   .on_usage = pod_on_usage };
    struct bridge_options options = { .loop = loop_of(pod),
                                      .name = pod->id,
                                      .handler = &handler,
                                      .user = pod,
                                      .may_bind = origin == POD_CLAIMED };

    assert(pod->phase == POD_MAKING && !pod->bridge);
    if (kubernetes_need_secret(pod->kube, err) < 0)
        return -1;
    options.carrier = pump_carrier_new(pod_pump(pod));
    relay_key_derive(pod->kube->secret.bytes, pod->id, options.key);
    pod->bridge = bridge_new(&options);
    explicit_bzero(options.key, sizeof(options.key));
    pod->phase = POD_LIVE;
    if (origin != POD_ADOPTED)
        pod->restarts = pod->last.restarts;
    pod->round = pod->kube->round;
    return 0;
}

bool kubernetes_connect(struct backend *backend, const char *id, struct backend_op *op)
{
    struct pod *pod = pod_find(kubernetes_from(backend), id);

    if (!pod || pod->phase == POD_MAKING)
        error_set(&op->err, ERR_BACKEND, "sandbox %s is neither made nor adopted", id);
    else if (pod->phase >= POD_DYING)
        error_set(&op->err, ERR_GONE, "sandbox %s has ended", id);
    else
        op->result.fd = bridge_connect(pod->bridge, &op->err);
    return true;
}
