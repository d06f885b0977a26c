/* SPDX-License-Identifier: Apache-2.0 */
#include "backend/kubernetes/kubernetes_private.h"
#include "base/buffer.h"
#include "base/macros.h"
#include "config/config.h"
#include "wire/json.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static struct config config;

static int set_up(void **state)
{
    (void)state;
    assert_int_equal(config_load_text(&config, "", 0, "test", NULL), 0);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    config_fini(&config);
    return 0;
}

static int set(const char *key, const char *value)
{
    struct error err = { 0 };

    assert_int_equal(config_set(&config, key, value, "test", &err), 0);
    return placement_check(&config, &err);
}

static void selectors_and_tolerations_become_json(void **state)
{
    scoped(buffer_fini) struct buffer text = BUFFER_INIT(4096);
    struct json_writer json = JSON_WRITER(&text);

    (void)state;
    assert_int_equal(set("kubernetes.node_selector", "kubernetes.io/arch=amd64,pool=boxes"), 0);
    assert_int_equal(set("kubernetes.tolerations", "boxes=yes:NoSchedule,gpu,a.b/c:NoExecute"), 0);
    json_begin_object(&json, NULL);
    placement_put(&config, &json);
    json_end_object(&json);
    assert_string_equal(
        buffer_text(&text),
        "{\"nodeSelector\":{\"kubernetes.io/arch\":\"amd64\",\"pool\":\"boxes\"},"
        "\"tolerations\":[{\"key\":\"boxes\",\"operator\":\"Equal\",\"value\":\"yes\",\"effect\":"
        "\"NoSchedule\"},{\"key\":\"gpu\",\"operator\":\"Exists\"},{\"key\":\"a.b/c\",\"operator\":"
        "\"Exists\",\"effect\":\"NoExecute\"}]}");
}

static void what_no_cluster_takes_is_refused(void **state)
{
    static const struct {
        const char *key, *value;
    } rows[] = {
        { "kubernetes.node_selector", "arch" },     { "kubernetes.node_selector", "=x" },
        { "kubernetes.node_selector", "a b=c" },    { "kubernetes.node_selector", "a=b c" },
        { "kubernetes.node_selector", "/a=b" },     { "kubernetes.tolerations", "a:Never" },
        { "kubernetes.tolerations", ":NoExecute" }, { "kubernetes.tolerations", "a=b=c" },
        { "kubernetes.namespace", "A/../b" },       { "kubernetes.runtime_class", "x y" },
        { "kubernetes.pull_secrets", "a/b" },       { "kubernetes.gpu_resource", "gpu" },
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_LENGTH(rows); i++) {
        print_message("# %s: %s\n", rows[i].key, rows[i].value);
        config_fini(&config);
        assert_int_equal(config_load_text(&config, "", 0, "test", NULL), 0);
        assert_int_equal(set(rows[i].key, rows[i].value), -1);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(selectors_and_tolerations_become_json, set_up, tear_down),
        cmocka_unit_test_setup_teardown(what_no_cluster_takes_is_refused, set_up, tear_down),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
