/* SPDX-License-Identifier: Apache-2.0 */
#include "backend/kubernetes/kubernetes_private.h"
#include "base/macros.h"
#include "config/config.h"
#include "wire/json.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define UID "0b4c1d5e-0000-4000-8000-123456789abc"

static struct config config;
static struct kubernetes_backend kube;

static int set_up(void **state)
{
    (void)state;
    assert_int_equal(config_load_text(&config, "", 0, "test", NULL), 0);
    kube = (struct kubernetes_backend){ .config = &config, .instance = "mine", .state = "s" };
    snprintf(kube.ground.owner_uid, sizeof(kube.ground.owner_uid), UID);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    config_fini(&config);
    return 0;
}

static void set(const char *key, const char *value)
{
    struct error err = { 0 };

    assert_int_equal(config_set(&config, key, value, "test", &err), 0);
}

/* --- what is asked for ------------------------------------------------------------------------ */

static void a_template_is_the_name_of_a_warm_pool(void **state)
{
    static const char *const wrong[] = { "python:3.12", "UPPER", "-x", "x-", "a/b", "a b", "../x" };
    struct error err = { 0 };

    (void)state;
    assert_null(claim_pool(&kube, "", &err));
    assert_string_equal(err.name, "template_unknown");
    set("kubernetes.warm_pool", "small");
    assert_string_equal(claim_pool(&kube, "", &err), "small");
    assert_string_equal(claim_pool(&kube, "host", &err), "small");
    assert_string_equal(claim_pool(&kube, "large-2", &err), "large-2");
    for (size_t i = 0; i < ARRAY_LENGTH(wrong); i++)
        assert_null(claim_pool(&kube, wrong[i], &err));
}

/* Each of them would start a new pod instead of taking one that waits. */
static void a_claim_has_no_variables_and_no_volumes(void **state)
{
    struct sandbox_spec spec = {
        .id = "sbx_x", .session = "ses_\"x", .owner = "ann", .generation = 3
    };
    struct pod_order order = { .kube = &kube, .spec = &spec, .image = "small" };
    scoped(free) char *text = claim_json(&order);
    scoped(json_decref) json_t *claim = json_loads(text, 0, NULL);
    const json_t *metadata = json_object_get(claim, "metadata");
    const json_t *wanted = json_object_get(claim, "spec");
    const json_t *labels =
        json_object_get(json_object_get(wanted, "additionalPodMetadata"), "labels");
    const json_t *lifecycle = json_object_get(wanted, "lifecycle");

    (void)state;
    assert_string_equal(json_string_value(json_object_get(metadata, "name")), "sbx-x");
    assert_int_equal(json_object_size(wanted), 3);
    assert_string_equal(
        json_string_value(json_object_get(json_object_get(wanted, "warmPoolRef"), "name")),
        "small");
    assert_string_equal(json_string_value(json_object_get(labels, POD_CLAIM_LABEL "sandbox")),
                        "sbx_x");
    assert_string_equal(json_string_value(json_object_get(lifecycle, "shutdownPolicy")),
                        "DeleteForeground");
    assert_non_null(json_object_get(lifecycle, "shutdownTime"));
}

/* --- what is told ----------------------------------------------------------------------------- */

static struct claim_state read_claim(const char *labels, const char *rest)
{
    scoped(free) char *text = NULL;
    scoped(json_decref) json_t *document = NULL;
    struct claim_state read;

    assert_true(asprintf(&text, "{\"metadata\":{\"uid\":\"" UID "\",\"labels\":{%s}},%s}", labels,
                         rest) > 0);
    document = json_loads(text, 0, NULL);
    assert_non_null(document);
    assert_true(claim_read(&kube, "sbx_x", document, &read));
    return read;
}

#define OURS "\"sandglass.io/instance\":\"mine\",\"sandglass.io/sandbox\":\"sbx_x\""
#define READY(status, reason)                                                            \
    "\"conditions\":[{\"type\":\"Ready\",\"status\":\"" status "\",\"reason\":\"" reason \
    "\",\"message\":\"words\\nof it\"}]"

static void a_claim_says_what_it_is_bound_to_or_why_not(void **state)
{
    struct claim_state bound = read_claim(
        OURS, "\"status\":{\"sandbox\":{\"name\":\"small-abcde\"}," READY("True", "") "}");
    struct claim_state stuck =
        read_claim(OURS, "\"status\":{" READY("False", "WarmPoolNotFound") "}");
    struct claim_state waits =
        read_claim(OURS, "\"status\":{" READY("False", "DependenciesNotReady") "}");
    struct claim_state fresh = read_claim(OURS, "\"spec\":{}");

    (void)state;
    assert_true(bound.is_ours && !bound.is_stuck);
    assert_string_equal(bound.sandbox, "small-abcde");
    assert_true(stuck.is_stuck);
    assert_string_equal(stuck.words, "words of it");
    assert_false(waits.is_stuck);
    assert_string_equal(waits.reason, "DependenciesNotReady");
    assert_true(fresh.is_ours && !fresh.is_stuck && !*fresh.sandbox);
}

static void claims_of_others_are_not_ours(void **state)
{
    (void)state;
    assert_false(read_claim("", "\"x\":0").is_ours);
    assert_false(read_claim("\"sandglass.io/instance\":\"theirs\","
                            "\"sandglass.io/sandbox\":\"sbx_x\"",
                            "\"x\":0")
                     .is_ours);
    assert_false(read_claim("\"sandglass.io/instance\":\"mine\","
                            "\"sandglass.io/sandbox\":\"sbx_y\"",
                            "\"x\":0")
                     .is_ours);
}

static void what_is_no_claim_is_refused(void **state)
{
    static const char *const texts[] = { "{}", "[]", "{\"metadata\":{\"uid\":\"../x\"}}",
                                         "{\"metadata\":{\"uid\":7}}" };
    struct claim_state read;

    (void)state;
    for (size_t i = 0; i < ARRAY_LENGTH(texts); i++) {
        scoped(json_decref) json_t *document = json_loads(texts[i], 0, NULL);

        assert_false(claim_read(&kube, "sbx_x", document, &read));
    }
    /* A name goes into a path. */
    assert_string_equal(
        read_claim(OURS, "\"status\":{\"sandbox\":{\"name\":\"../secrets\"}}").sandbox, "");
}

static void a_claimed_pod_is_read_by_its_own_labels(void **state)
{
    static const char text[] =
        "{\"metadata\":{\"uid\":\"" UID "\",\"name\":\"small-abcde\",\"labels\":{"
        "\"" POD_CLAIM_LABEL "instance\":\"mine\",\"" POD_CLAIM_LABEL "sandbox\":\"sbx_x\"}},"
        "\"spec\":{\"containers\":[{\"name\":\"sandbox\",\"resources\":{\"limits\":{\"memory\":"
        "\"256Mi\",\"cpu\":\"500m\",\"ephemeral-storage\":\"1Gi\"}}}]},\"status\":{\"phase\":"
        "\"Running\",\"containerStatuses\":[{\"name\":\"sandbox\",\"restartCount\":2,\"state\":{"
        "\"running\":{}}}]}}";
    scoped(json_decref) json_t *document = json_loads(text, 0, NULL);
    struct pod_state read;

    (void)state;
    assert_true(pod_state_read(document, &read));
    assert_true(read.is_claimed && read.has_container);
    assert_string_equal(read.name, "small-abcde");
    assert_string_equal(read.sandbox, "sbx_x");
    assert_int_equal(read.restarts, 2);
    assert_int_equal(read.limits.memory_bytes, 256 << 20);
    assert_int_equal(read.limits.disk_bytes, 1 << 30);
    assert_int_equal(read.limits.cpu_millis, 500);
}

/* --- what it cannot have ---------------------------------------------------------------------- */

static void other_limits_than_those_of_the_template_are_named(void **state)
{
    struct sandbox_spec spec = { .limits = {
                                     .memory_bytes = 256, .disk_bytes = 512, .cpu_millis = 500 } };
    struct pod_order order = { .kube = &kube, .spec = &spec, .image = "small" };
    struct pod_state pod = { .has_container = true, .limits = spec.limits };
    struct error err = { 0 };

    (void)state;
    assert_int_equal(claim_check_pod(&order, &pod, &err), 0);
    pod.limits.memory_bytes = 0; /* none is in force */
    assert_int_equal(claim_check_pod(&order, &pod, &err), -1);
    assert_string_equal(err.name, "resources_differ");
    assert_non_null(strstr(err.message, "memory"));
    pod.limits = spec.limits;
    pod.limits.disk_bytes = 1024;
    assert_int_equal(claim_check_pod(&order, &pod, &err), -1);
    assert_non_null(strstr(err.message, "disk"));
    pod.limits = spec.limits;
    pod.limits.cpu_millis = 1000;
    assert_int_equal(claim_check_pod(&order, &pod, &err), -1);
    assert_non_null(strstr(err.message, "cpus"));
    pod = (struct pod_state){ .limits = spec.limits };
    assert_int_equal(claim_check_pod(&order, &pod, &err), -1);
    assert_non_null(strstr(err.message, "no container sandbox"));
}

static void settings_of_the_template_are_refused(void **state)
{
    struct error err = { 0 };

    (void)state;
    set("kubernetes.runtime_class", "gvisor");
    assert_int_equal(claim_check_settings(&config, &err), 0);
    set("kubernetes.kind", "claim");
    assert_int_equal(claim_check_settings(&config, &err), -1);
    assert_non_null(strstr(err.message, "kubernetes.runtime_class"));
}

/* --- the record ------------------------------------------------------------------------------- */

static void handles_of_both_kinds_are_read_back(void **state)
{
    static const char *const wrong[] = { "",          "x",           UID,
                                         UID ",n,",   UID ",n,1",    UID ",n,x,name",
                                         UID ",n,1,", UID ",n,-1,a", UID ",n,1,a/b" };
    struct pod_handle handle;

    (void)state;
    assert_true(pod_parse_handle(UID ",node1", &handle));
    assert_string_equal(handle.uid, UID);
    assert_false(handle.is_claimed);
    assert_true(pod_parse_handle(UID ",node1,3,small-abcde", &handle));
    assert_true(handle.is_claimed);
    assert_int_equal(handle.restarts, 3);
    assert_string_equal(handle.name, "small-abcde");
    for (size_t i = 0; i < ARRAY_LENGTH(wrong); i++)
        assert_false(pod_parse_handle(wrong[i], &handle));
}

int main(void)
{
#define TEST(test) cmocka_unit_test_setup_teardown(test, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        TEST(a_template_is_the_name_of_a_warm_pool),
        TEST(a_claim_has_no_variables_and_no_volumes),
        TEST(a_claim_says_what_it_is_bound_to_or_why_not),
        TEST(claims_of_others_are_not_ours),
        TEST(what_is_no_claim_is_refused),
        TEST(a_claimed_pod_is_read_by_its_own_labels),
        TEST(other_limits_than_those_of_the_template_are_named),
        TEST(settings_of_the_template_are_refused),
        TEST(handles_of_both_kinds_are_read_back),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
