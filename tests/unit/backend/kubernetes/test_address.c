/* SPDX-License-Identifier: Apache-2.0 */
/* kubernetes.transport: address: what a pod and a policy say, and which way a pod is reached. */

#include "backend/kubernetes/kubernetes_private.h"
#include "backend/registry.h"
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
    kube =
        (struct kubernetes_backend){ .config = &config, .instance = "mine", .scope = "sandglass" };
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

/* The state of a pod whose container has these ports, and whose status has this. */
static struct pod_state read_pod(const char *ports, const char *status)
{
    struct pod_state state;
    json_t *document;
    char text[1024];

    snprintf(text, sizeof(text),
             "{\"metadata\":{\"uid\":\"" UID "\"},\"spec\":{\"containers\":[{\"name\":\"other\","
             "\"ports\":[{\"name\":\"sandglass-gate\",\"containerPort\":1}]},"
             "{\"name\":\"sandbox\",\"ports\":%s}]},\"status\":{%s}}",
             ports, status);
    document = json_loads(text, 0, NULL);
    assert_non_null(document);
    assert_true(pod_state_read(document, &state));
    json_decref(document);
    return state;
}

#define GATE(port)                                                            \
    "[{\"name\":\"http\",\"containerPort\":80},{\"name\":\"sandglass-gate\"," \
    "\"containerPort\":" port "}]"

static void a_pod_tells_its_address_and_the_port_of_its_gate(void **state)
{
    struct pod_state pod = read_pod(GATE("4247"), "\"podIP\":\"10.1.2.3\"");

    (void)state;
    assert_int_equal(pod.port, 4247);
    assert_string_equal(pod.address, "10.1.2.3");
    pod = read_pod(GATE("4247"), "\"podIP\":\"fd00:10:244:1:2:3:4:5\"");
    assert_string_equal(pod.address, "fd00:10:244:1:2:3:4:5");
    pod = read_pod(GATE("4247"), "\"podIP\":7");
    assert_string_equal(pod.address, "");
    pod = read_pod(GATE("4247"),
                   "\"podIP\":\"10.1.2.3.10.1.2.3.10.1.2.3.10.1.2.3.10.1.2.3.10.1.2.3\"");
    assert_string_equal(pod.address, "");
    assert_int_equal(read_pod("[]", "").port, 0);
    assert_int_equal(read_pod("7", "").port, 0);
    assert_int_equal(read_pod(GATE("-1"), "").port, 0);
    assert_int_equal(read_pod(GATE("65536"), "").port, 0);
    assert_int_equal(read_pod(GATE("\"x\""), "").port, 0);
}

static void a_pod_has_the_way_that_it_was_made_for(void **state)
{
    struct pod pod = { .kube = &kube };

    (void)state;
    pod.last.port = 4247;
    assert_ptr_equal(pod_pump(&pod), &pod.tunnel.base); /* exec is the default */
    set("kubernetes.transport", "address");
    assert_ptr_equal(pod_pump(&pod), &pod.line.base);
    pod.last.port = 0;
    assert_ptr_equal(pod_pump(&pod), &pod.tunnel.base);
    pod.last.port = 4248;
    assert_ptr_equal(pod_pump(&pod), &pod.tunnel.base);
}

static json_t *policy(void)
{
    char *text = ground_gate_policy(&kube, "name");
    json_t *document = json_loads(text, 0, NULL);

    assert_non_null(document);
    free(text);
    return document;
}

static const json_t *ingress_of(const json_t *document)
{
    const json_t *spec = json_object_get(document, "spec");

    assert_int_equal(json_array_size(json_object_get(spec, "policyTypes")), 1);
    assert_null(json_object_get(spec, "egress"));
    assert_int_equal(json_array_size(json_object_get(spec, "ingress")), 1);
    return json_array_get(json_object_get(spec, "ingress"), 0);
}

static void a_policy_admits_one_port_from_the_daemons_namespace(void **state)
{
    json_t *document, *expected;

    (void)state;
    snprintf(kube.home, sizeof(kube.home), "control");
    set("kubernetes.port", "5000");
    document = policy();
    expected = json_loads(
        "{\"from\":[{\"namespaceSelector\":{\"matchLabels\":{"
        "\"kubernetes.io/metadata.name\":\"control\"}},\"podSelector\":{\"matchExpressions\":["
        "{\"key\":\"sandglass.io/sandbox\",\"operator\":\"DoesNotExist\"},"
        "{\"key\":\"sandglass.sandbox.users.io/sandbox\",\"operator\":\"DoesNotExist\"}]}}],"
        "\"ports\":[{\"protocol\":\"TCP\",\"port\":5000}]}",
        0, NULL);
    assert_non_null(expected);
    assert_true(json_equal(ingress_of(document), expected));
    json_decref(document);
    json_decref(expected);
}

static void a_daemon_elsewhere_is_admitted_from_everywhere_at_one_port(void **state)
{
    json_t *document = policy();
    const json_t *ingress = ingress_of(document);

    (void)state;
    assert_null(json_object_get(ingress, "from"));
    assert_int_equal(json_array_size(json_object_get(ingress, "ports")), 1);
    json_decref(document);
}

static void claims_do_not_go_with_it(void **state)
{
    struct backend_settings settings = { .config = &config };
    struct error err = { 0 };

    (void)state;
    set("sandbox.backend", "kubernetes");
    set("kubernetes.transport", "address");
    assert_int_equal(kubernetes_backend_check(&settings, &err), 0);
    set("kubernetes.kind", "claim");
    assert_int_equal(kubernetes_backend_check(&settings, &err), -1);
    assert_non_null(strstr(err.message, "kubernetes.transport: address"));
    assert_non_null(strstr(err.hint, "kubernetes.transport: exec"));
}

#define WITH_CONFIG(test) cmocka_unit_test_setup_teardown(test, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        WITH_CONFIG(a_pod_tells_its_address_and_the_port_of_its_gate),
        WITH_CONFIG(a_pod_has_the_way_that_it_was_made_for),
        WITH_CONFIG(a_policy_admits_one_port_from_the_daemons_namespace),
        WITH_CONFIG(a_daemon_elsewhere_is_admitted_from_everywhere_at_one_port),
        WITH_CONFIG(claims_do_not_go_with_it),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
