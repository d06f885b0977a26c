/* SPDX-License-Identifier: Apache-2.0 */
#include "backend/kubernetes/pod_state.h"

#include "base/macros.h"
#include "base/scoped.h"
#include "wire/json.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define UID "0b4c1d5e-0000-4000-8000-123456789abc"

/* A pod with this metadata beside the uid, and this status. */
static json_t *pod(const char *metadata, const char *status)
{
    char text[4096];
    json_t *document;

    snprintf(text, sizeof(text),
             "{\"metadata\":{\"uid\":\"" UID
             "\",\"labels\":{\"sandglass.io/sandbox\":\"sbx_x\"}%s},"
             "\"spec\":{\"nodeName\":\"node1\"},\"status\":{%s}}",
             metadata, status);
    document = json_loads(text, 0, NULL);
    assert_non_null(document);
    return document;
}

#define CONTAINER(state) "\"containerStatuses\":[{\"name\":\"sandbox\",\"state\":{" state "}}]"
#define RUNNING "\"phase\":\"Running\"," CONTAINER("\"running\":{}")
#define WAITING(reason, message)                                           \
    "\"phase\":\"Pending\"," CONTAINER("\"waiting\":{\"reason\":\"" reason \
                                       "\",\"message\":\"" message "\"}")
#define TERMINATED(reason, code)                                             \
    "\"phase\":\"Failed\"," CONTAINER("\"terminated\":{\"reason\":\"" reason \
                                      "\",\"exitCode\":" code "}")
#define DELETED ",\"deletionTimestamp\":\"2026-11-17T00:00:00Z\""
#define DISRUPTED(reason)                                                                      \
    ",\"conditions\":[{\"type\":\"DisruptionTarget\",\"status\":\"True\",\"reason\":\"" reason \
    "\"}]"

static void verdicts_are_told_apart(void **state)
{
    static const struct {
        const char *status;
        enum pod_verdict verdict;
        bool is_image;
        const char *reason;
    } rows[] = {
        { "\"phase\":\"Pending\"", POD_WAITS, false, "" },
        { "", POD_WAITS, false, "" },
        { WAITING("ContainerCreating", ""), POD_WAITS, false, "ContainerCreating" },
        { WAITING("ErrImagePull", "connection reset"), POD_WAITS, true, "ErrImagePull" },
        { WAITING("ErrImagePull", "docker.io/x:1: not found"), POD_STUCK, true, "ErrImagePull" },
        { WAITING("ErrImagePull", "pull access denied"), POD_STUCK, true, "ErrImagePull" },
        { WAITING("ImagePullBackOff", "Back-off"), POD_STUCK, true, "ImagePullBackOff" },
        { WAITING("ErrImageNeverPull", ""), POD_STUCK, true, "ErrImageNeverPull" },
        { WAITING("InvalidImageName", ""), POD_STUCK, true, "InvalidImageName" },
        { WAITING("CreateContainerConfigError", "secret not found"), POD_STUCK, false,
          "CreateContainerConfigError" },
        { WAITING("RunContainerError", ""), POD_STUCK, false, "RunContainerError" },
        { "\"phase\":\"Pending\",\"conditions\":[{\"type\":\"PodScheduled\",\"status\":\"False\","
          "\"reason\":\"Unschedulable\",\"message\":\"0/1 nodes are available\"}]",
          POD_UNSCHEDULABLE, false, "Unschedulable" },
        { "\"phase\":\"Pending\",\"conditions\":[{\"type\":\"PodScheduled\",\"status\":\"False\","
          "\"reason\":\"SchedulingGated\"}]",
          POD_WAITS, false, "SchedulingGated" },
        { RUNNING, POD_RUNS, false, "" },
        { "\"phase\":\"Unknown\"", POD_RUNS, false, "" },
        { TERMINATED("Error", "1"), POD_ENDED, false, "Error" },
        { "\"phase\":\"Succeeded\"", POD_ENDED, false, "" },
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_LENGTH(rows); i++) {
        scoped(json_decref) json_t *document = pod("", rows[i].status);
        struct pod_state read;

        print_message("# %s\n", rows[i].status);
        assert_true(pod_state_read(document, &read));
        assert_int_equal(read.verdict, rows[i].verdict);
        assert_int_equal(read.is_image, rows[i].is_image);
        assert_string_equal(read.reason, rows[i].reason);
        assert_string_equal(read.uid, UID);
        assert_string_equal(read.node, "node1");
        assert_string_equal(read.sandbox, "sbx_x");
        assert_string_equal(read.instance, "");
    }
}

static void ends_have_their_causes(void **state)
{
    static const struct {
        const char *metadata, *status;
        const char *detail;
        bool oom;
        int code, signal;
    } rows[] = {
        { "", TERMINATED("OOMKilled", "137"), "", true, -1, 9 },
        { "", TERMINATED("Error", "1"), "", false, 1, 0 },
        { "", TERMINATED("Error", "70"), "relay", false, 70, 0 },
        { "", TERMINATED("Error", "137"), "", false, -1, 9 },
        { "", TERMINATED("Completed", "0"), "ended by its node", false, 0, 0 },
        { "", TERMINATED("StartError", "128"), "init cannot be started", false, 128, 0 },
        { "", TERMINATED("Error", "143") ",\"reason\":\"DeadlineExceeded\"", "deadline of the pod",
          false, -1, 15 },
        { "",
          TERMINATED("Error",
                     "137") ",\"reason\":\"Evicted\",\"message\":\"Usage of EmptyDir volume "
                            "exceeds the limit\"",
          "evicted: disk", false, -1, 9 },
        { "",
          TERMINATED("Error", "137") ",\"reason\":\"Evicted\",\"message\":\"The node was low on "
                                     "resource: memory. Threshold\"",
          "evicted: memory of the node", false, -1, 9 },
        { DELETED, TERMINATED("Error", "143"), "deleted", false, -1, 15 },
        { DELETED, TERMINATED("Error", "143") DISRUPTED("EvictionByEvictionAPI"), "evicted", false,
          -1, 15 },
        { DELETED, TERMINATED("Error", "143") DISRUPTED("PreemptionByScheduler"), "preempted",
          false, -1, 15 },
        { DELETED, TERMINATED("Error", "143") DISRUPTED("DeletionByTaintManager"), "node lost",
          false, -1, 15 },
        { "", "\"phase\":\"Failed\",\"reason\":\"NodeShutdown\"", "node shut down", false, -1, 0 },
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_LENGTH(rows); i++) {
        scoped(json_decref) json_t *document = pod(rows[i].metadata, rows[i].status);
        struct pod_state read;

        print_message("# %s\n", rows[i].status);
        assert_true(pod_state_read(document, &read));
        assert_int_equal(read.verdict, POD_ENDED);
        assert_string_equal(read.end.detail, rows[i].detail);
        assert_int_equal(read.end.oom, rows[i].oom);
        if (!read.end.is_known)
            continue;
        assert_int_equal(read.end.code, rows[i].code);
        assert_int_equal(read.end.signal, rows[i].signal);
    }
}

static const char *gone(const char *metadata, const char *status)
{
    static struct backend_end end;
    scoped(json_decref) json_t *document = pod(metadata, status);
    struct pod_state read;

    assert_true(pod_state_read(document, &read));
    end = pod_state_gone(&read);
    return end.detail;
}

static void a_pod_that_is_gone_has_the_cause_that_was_seen_last(void **state)
{
    (void)state;
    assert_string_equal(gone("", RUNNING), "deleted");
    assert_string_equal(gone(DELETED, RUNNING), "deleted");
    assert_string_equal(gone("", RUNNING DISRUPTED("EvictionByEvictionAPI")), "evicted");
    assert_string_equal(gone(DELETED, RUNNING DISRUPTED("DeletionByTaintManager")), "node lost");
    assert_string_equal(gone("",
                             RUNNING ",\"conditions\":[{\"type\":\"Ready\",\"status\":\"False\","
                                     "\"reason\":\"NodeNotReady\"}]"),
                        "node lost");
}

#define READY(rest) RUNNING ",\"conditions\":[{\"type\":\"Ready\"," rest "}]"

/* The controller that takes a node for lost gives no reason; a kubelet does. */
static void a_silent_node_is_no_end(void **state)
{
    static const struct {
        const char *status;
        bool is_silent;
    } rows[] = {
        { READY("\"status\":\"Unknown\""), true },
        { READY("\"status\":\"False\""), true },
        { READY("\"status\":\"False\",\"reason\":\"NodeNotReady\""), true },
        { READY("\"status\":\"False\",\"reason\":\"ContainersNotReady\""), false },
        { READY("\"status\":\"True\""), false },
        { RUNNING, false },
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_LENGTH(rows); i++) {
        scoped(json_decref) json_t *document = pod("", rows[i].status);
        struct pod_state read;

        assert_true(pod_state_read(document, &read));
        assert_int_equal(read.verdict, POD_RUNS);
        assert_int_equal(read.is_node_silent, rows[i].is_silent);
    }
}

/* As a kubelet reports an eviction: the container, then the pod. */
static void an_end_without_the_pods_own_phase_is_not_settled(void **state)
{
    scoped(json_decref) json_t *first =
        pod("", "\"phase\":\"Running\"," CONTAINER("\"terminated\":{\"exitCode\":137}"));
    scoped(json_decref) json_t *last = pod("", TERMINATED("Error", "137"));
    struct pod_state read;

    (void)state;
    assert_true(pod_state_read(first, &read));
    assert_int_equal(read.verdict, POD_ENDED);
    assert_false(read.is_settled);
    assert_true(pod_state_read(last, &read));
    assert_true(read.is_settled);
}

static void what_is_no_pod_is_refused(void **state)
{
    static const char *const texts[] = {
        "{}",
        "[]",
        "{\"metadata\":{\"uid\":\"\"},\"status\":{}}",
        "{\"metadata\":{\"uid\":\"a,b\"},\"status\":{}}",
        "{\"metadata\":{\"uid\":\"" UID UID "\"},\"status\":{}}",
        "{\"metadata\":{\"uid\":\"" UID "\"},\"status\":[]}",
        "{\"metadata\":{\"uid\":7},\"status\":{}}",
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_LENGTH(texts); i++) {
        scoped(json_decref) json_t *document = json_loads(texts[i], 0, NULL);
        struct pod_state read;

        print_message("# %s\n", texts[i]);
        assert_false(pod_state_read(document, &read));
    }
}

static void strange_values_are_taken_for_none(void **state)
{
    scoped(json_decref) json_t *document =
        pod("", "\"phase\":\"Failed\",\"conditions\":\"x\",\"reason\":{},"
                "\"containerStatuses\":[7,{\"name\":\"sandbox\",\"state\":{\"terminated\":"
                "{\"exitCode\":\"x\",\"reason\":1}}}]");
    struct pod_state read;

    (void)state;
    assert_true(pod_state_read(document, &read));
    assert_int_equal(read.verdict, POD_ENDED);
    assert_string_equal(read.end.detail, "");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(verdicts_are_told_apart),
        cmocka_unit_test(ends_have_their_causes),
        cmocka_unit_test(a_pod_that_is_gone_has_the_cause_that_was_seen_last),
        cmocka_unit_test(a_silent_node_is_no_end),
        cmocka_unit_test(an_end_without_the_pods_own_phase_is_not_settled),
        cmocka_unit_test(what_is_no_pod_is_refused),
        cmocka_unit_test(strange_values_are_taken_for_none),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
