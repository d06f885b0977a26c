/* SPDX-License-Identifier: Apache-2.0 */
#include "backend/kubernetes/pod_state.h"

#include "base/macros.h"
#include "base/str.h"
#include "wire/relay_frame.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SIGNAL_BASE = 128, SIGNALS = 64 };

static const char *text_at(const json_t *object, const char *key)
{
    const char *text = json_string_value(json_object_get(object, key));

    return text ? text : "";
}

void pod_copy_words(char *out, size_t size, const char *text)
{
    size_t length = MIN(strlen(text), size - 1);

    if (text[length])
        length -= str_utf8_unfinished((const unsigned char *)text, length);
    for (size_t i = 0; i < length; i++)
        out[i] = (unsigned char)text[i] < ' ' || text[i] == 0x7f ? ' ' : text[i];
    out[length] = '\0';
}

static void give_reason(struct pod_state *state, const char *reason, const char *words)
{
    pod_copy_words(state->reason, sizeof(state->reason), reason);
    pod_copy_words(state->words, sizeof(state->words), words);
}

/* The condition of this type; NULL without one. */
static const json_t *condition(const json_t *status, const char *type)
{
    const json_t *row;
    size_t i;

    json_array_foreach(json_object_get(status, "conditions"), i,
                       row) if (str_equal(text_at(row, "type"), type)) return row;
    return NULL;
}

static const json_t *container_state(const json_t *status, const char *list, const char *name)
{
    const json_t *row;
    size_t i;

    json_array_foreach(
        json_object_get(status, list), i,
        row) if (str_equal(text_at(row, "name"), name)) return json_object_get(row, "state");
    return NULL;
}

/* --- how it ended ----------------------------------------------------------------------------- */

/* Words of a kubelet, of the scheduler and of controllers, and ours for them. */
static const struct {
    const char *reason;
    const char *detail;
} causes[] = {
    { "Evicted", "evicted" },
    { "EvictionByEvictionAPI", "evicted" },
    { "TerminationByKubelet", "evicted" },
    { "Preempting", "preempted" },
    { "Preempted", "preempted" },
    { "PreemptionByScheduler", "preempted" },
    { "PreemptionByKubeScheduler", "preempted" },
    { "NodeLost", "node lost" },
    { "DeletionByTaintManager", "node lost" },
    { "DeletionByPodGC", "node lost" },
    { "NodeShutdown", "node shut down" },
    { "Terminated", "node shut down" },
    { "Shutdown", "node shut down" },
    { "DeadlineExceeded", "deadline of the pod" },
    { "StartError", "init cannot be started" },
    { "ContainerStatusUnknown", "node lost" },
};

static const char *detail_of(const char *reason)
{
    for (size_t i = 0; i < ARRAY_LENGTH(causes); i++)
        if (str_equal(causes[i].reason, reason))
            return causes[i].detail;
    return "";
}

/* The kubelet's message tells a full disk from a node that is short of something. */
static const char *detail_of_eviction(const char *words)
{
    if (strstr(words, "ephemeral") || strstr(words, "emptyDir") || strstr(words, "EmptyDir"))
        return "evicted: disk";
    if (strstr(words, "low on resource: memory"))
        return "evicted: memory of the node";
    return strstr(words, "low on resource") ? "evicted: node short of disk" : "evicted";
}

static const char *detail_of_pod(const json_t *status, const struct pod_state *state)
{
    const json_t *disruption = condition(status, "DisruptionTarget");
    const char *reason = text_at(status, "reason");
    const char *detail;

    if (str_equal(reason, "Evicted"))
        return detail_of_eviction(text_at(status, "message"));
    detail = detail_of(reason);
    if (!*detail && str_equal(text_at(disruption, "status"), "True"))
        detail = detail_of(text_at(disruption, "reason"));
    return *detail || !state->is_terminating ? detail : "deleted";
}

static int exit_code(const json_t *terminated)
{
    const json_t *value = json_object_get(terminated, "exitCode");
    double code = json_number_value(value);

    return json_is_number(value) && code >= 0 && code < INT_MAX ? (int)code : -1;
}

static void read_end(const json_t *status, const json_t *terminated, struct pod_state *state)
{
    const char *reason = text_at(terminated, "reason");
    const char *detail = detail_of_pod(status, state);
    int code = exit_code(terminated);
    bool by_signal = code > SIGNAL_BASE && code <= SIGNAL_BASE + SIGNALS;
    bool is_lost = str_equal(reason, "ContainerStatusUnknown");

    state->verdict = POD_ENDED;
    state->end = (struct backend_end){ .is_known = terminated && code >= 0 && !is_lost,
                                       .oom = str_equal(reason, "OOMKilled"),
                                       .code = by_signal ? -1 : code,
                                       .signal = by_signal ? code - SIGNAL_BASE : 0 };
    if (!*detail)
        detail = detail_of(reason);
    if (!*detail && code == RELAY_EXIT_CODE)
        detail = "relay";
    /* Init exits with 0 when it is told to from outside. For the kubelet the pod has then succeeded, and
     * the reason for which it has ended the pod is lost. */
    if (!*detail && terminated && code == 0 && !is_lost)
        detail = "ended by its node";
    if (!state->end.oom)
        snprintf(state->end.detail, sizeof(state->end.detail), "%s", detail);
    give_reason(state, *reason ? reason : text_at(status, "reason"),
                *text_at(terminated, "message") ? text_at(terminated, "message")
                                                : text_at(status, "message"));
}

struct backend_end pod_state_gone(const struct pod_state *last)
{
    struct backend_end end = last->end;

    if (!end.oom && !*end.detail)
        snprintf(end.detail, sizeof(end.detail), "%s",
                 last->is_node_silent ? "node lost" : "deleted");
    return end;
}

/* --- why it does not start -------------------------------------------------------------------- */

static const struct {
    const char *reason;
    bool is_image;
    bool is_final; /* the first time; others are tried again by the kubelet */
} waits[] = {
    { "ErrImageNeverPull", true, true },
    { "InvalidImageName", true, true },
    { "ImageInspectError", true, true },
    { "ErrImagePull", true, false },
    { "ImagePullBackOff", true, true },
    { "RegistryUnavailable", true, false },
    { "CreateContainerConfigError", false, true },
    { "CreateContainerError", false, true },
    { "RunContainerError", false, true },
    { "CrashLoopBackOff", false, true },
    { "PostStartHookError", false, true },
};

/* A registry that says so will not say otherwise a moment later. */
static bool image_is_refused(const char *words)
{
    static const char *const signs[] = {
        "not found",    "manifest unknown", "denied",
        "unauthorized", "does not exist",   "no match for platform"
    };

    for (size_t i = 0; i < ARRAY_LENGTH(signs); i++)
        if (strcasestr(words, signs[i]))
            return true;
    return false;
}

static void read_wait(const json_t *waiting, struct pod_state *state)
{
    const char *reason = text_at(waiting, "reason");
    const char *words = text_at(waiting, "message");

    state->verdict = POD_WAITS;
    give_reason(state, reason, words);
    for (size_t i = 0; i < ARRAY_LENGTH(waits); i++) {
        if (!str_equal(waits[i].reason, reason))
            continue;
        state->is_image = waits[i].is_image;
        if (waits[i].is_final || (waits[i].is_image && image_is_refused(words)))
            state->verdict = POD_STUCK;
        return;
    }
}

static void read_pending(const json_t *status, struct pod_state *state)
{
    const json_t *scheduled = condition(status, "PodScheduled");
    const json_t *of_container = container_state(status, "containerStatuses", POD_CONTAINER);

    if (str_equal(text_at(scheduled, "status"), "False")) {
        state->verdict = str_equal(text_at(scheduled, "reason"), "Unschedulable")
                             ? POD_UNSCHEDULABLE
                             : POD_WAITS;
        give_reason(state, text_at(scheduled, "reason"), text_at(scheduled, "message"));
        return;
    }
    read_wait(json_object_get(of_container, "waiting"), state);
}

/* --- the container ---------------------------------------------------------------------------- */

double pod_quantity(const char *text)
{
    static const struct {
        const char *suffix;
        double factor;
    } units[] = { { "m", 0.001 },    { "k", 1e3 },         { "M", 1e6 },
                  { "G", 1e9 },      { "T", 1e12 },        { "Ki", 1024 },
                  { "Mi", 1048576 }, { "Gi", 1073741824 }, { "Ti", 1099511627776 } };
    char *end;
    double value = strtod(text, &end);

    for (size_t i = 0; i < ARRAY_LENGTH(units); i++)
        if (str_equal(end, units[i].suffix))
            return value * units[i].factor;
    return value;
}

/* Within what whole numbers can hold. */
static double bounded(double value)
{
    return value > 0 ? MIN(value, 1e18) : 0; /* not a number is neither */
}

/* The row of our container in a list; NULL without one. */
static const json_t *find_container(const json_t *list)
{
    const json_t *row;
    size_t i;

    json_array_foreach(list, i, row) if (str_equal(text_at(row, "name"), POD_CONTAINER)) return row;
    return NULL;
}

/* The port of this name; 0 without one. */
static unsigned read_port(const json_t *ports, const char *name)
{
    const json_t *row;
    size_t i;

    json_array_foreach(ports, i, row)
    {
        json_int_t port = json_integer_value(json_object_get(row, "containerPort"));

        if (str_equal(text_at(row, "name"), name))
            return port > 0 && port <= UINT16_MAX ? (unsigned)port : 0;
    }
    return 0;
}

static void read_container(const json_t *pod, struct pod_state *state)
{
    const json_t *status = json_object_get(pod, "status");
    const json_t *row = find_container(json_object_get(status, "containerStatuses"));
    const json_t *container =
        find_container(json_object_get(json_object_get(pod, "spec"), "containers"));
    const json_t *limits = json_object_get(json_object_get(container, "resources"), "limits");
    json_int_t restarts = json_integer_value(json_object_get(row, "restartCount"));

    state->has_container = container;
    state->port = read_port(json_object_get(container, "ports"), POD_PORT);
    state->restarts = restarts > 0 && restarts < INT_MAX ? (unsigned)restarts : 0;
    state->limits = (struct sandbox_limits){
        .memory_bytes = (uint64_t)bounded(pod_quantity(text_at(limits, "memory"))),
        .disk_bytes = (uint64_t)bounded(pod_quantity(text_at(limits, "ephemeral-storage"))),
        .cpu_millis =
            (uint32_t)MIN(bounded(pod_quantity(text_at(limits, "cpu")) * 1000 + 0.5), 1e9),
    };
}

static void read_labels(const json_t *labels, struct pod_state *state)
{
    state->instance = text_at(labels, POD_LABEL_INSTANCE);
    state->cluster = text_at(labels, POD_LABEL_CLUSTER);
    state->sandbox = text_at(labels, POD_LABEL_SANDBOX);
    state->state = text_at(labels, POD_LABEL_STATE);
    if (*state->sandbox || !*text_at(labels, POD_CLAIM_LABEL "sandbox"))
        return;
    state->is_claimed = true;
    state->instance = text_at(labels, POD_CLAIM_LABEL "instance");
    state->cluster = text_at(labels, POD_CLAIM_LABEL "cluster");
    state->sandbox = text_at(labels, POD_CLAIM_LABEL "sandbox");
    state->state = text_at(labels, POD_CLAIM_LABEL "state");
}

/* --- all of it -------------------------------------------------------------------------------- */

/* A kubelet gives its reason for a container that is not ready; the controller that takes a node for
 * lost gives none. */
static bool is_silent(const json_t *ready)
{
    const char *reason = text_at(ready, "reason");
    const char *status = text_at(ready, "status");

    return str_equal(reason, "NodeNotReady") || str_equal(status, "Unknown") ||
           (str_equal(status, "False") && !*reason);
}

static void read_phase(const json_t *status, struct pod_state *state)
{
    const char *phase = text_at(status, "phase");
    const json_t *of_container = container_state(status, "containerStatuses", POD_CONTAINER);
    const json_t *terminated = json_object_get(of_container, "terminated");
    const json_t *ready = condition(status, "Ready");

    /* The container of a pod that is evicted ends before the kubelet says why. */
    state->is_settled = str_equal(phase, "Failed") || str_equal(phase, "Succeeded");
    if (state->is_settled || terminated) {
        read_end(status, terminated, state);
    } else if (str_equal(phase, "Running") && json_object_get(of_container, "running")) {
        state->verdict = POD_RUNS;
        state->is_node_silent = is_silent(ready);
    } else if (str_equal(phase, "Unknown")) {
        state->verdict = POD_RUNS; /* as far as is known */
        state->is_node_silent = true;
    } else {
        read_pending(status, state);
    }
}

bool pod_state_read(const json_t *pod, struct pod_state *out_state)
{
    const json_t *metadata = json_object_get(pod, "metadata");
    const json_t *labels = json_object_get(metadata, "labels");
    const json_t *status = json_object_get(pod, "status");
    const char *uid = text_at(metadata, "uid");

    *out_state = (struct pod_state){ 0 };
    if (!*uid || strlen(uid) >= POD_UID_SIZE || uid[strspn(uid, "0123456789abcdefABCDEF-")] ||
        strlen(text_at(metadata, "name")) >= POD_FULL_NAME_SIZE || !json_is_object(status))
        return false;
    memcpy(out_state->uid, uid, strlen(uid) + 1);
    pod_copy_words(out_state->node, sizeof(out_state->node),
                   text_at(json_object_get(pod, "spec"), "nodeName"));
    out_state->is_terminating = *text_at(metadata, "deletionTimestamp");
    out_state->name = text_at(metadata, "name");
    if (strlen(text_at(status, "podIP")) < sizeof(out_state->address))
        pod_copy_words(out_state->address, sizeof(out_state->address), text_at(status, "podIP"));
    read_labels(labels, out_state);
    read_container(pod, out_state);
    read_phase(status, out_state);
    if (out_state->verdict != POD_ENDED) /* what is about to end it, if anything */
        snprintf(out_state->end.detail, sizeof(out_state->end.detail), "%s",
                 detail_of_pod(status, out_state));
    return true;
}
