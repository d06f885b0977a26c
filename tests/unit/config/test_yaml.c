/* SPDX-License-Identifier: Apache-2.0 */
#include "config/config.h"

#include "base/macros.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static void load(struct config *config, const char *text)
{
    struct error err = { 0 };

    if (config_load_text(config, text, strlen(text), "test.yaml", &err) < 0)
        fail_msg("%s", err.message);
}

static void assert_refused(const char *text, const char *expected)
{
    struct config config = { 0 };
    struct error err = { 0 };

    if (config_load_text(&config, text, strlen(text), "test.yaml", &err) == 0) {
        config_fini(&config);
        fail_msg("accepted: %s", text);
    }
    assert_int_equal(err.code, ERR_INVALID);
    if (!strstr(err.message, expected))
        fail_msg("\"%s\" does not say \"%s\"", err.message, expected);
    assert_null(config.origins);
}

static void an_empty_file_gives_the_defaults_of_the_manual(void **state UNUSED)
{
    scoped(config_fini) struct config config = { 0 };

    load(&config, "# nothing\n");
    assert_string_equal(config.sandbox.backend, "native");
    assert_string_equal(config.sandbox.template_name, "host");
    assert_int_equal(config.sandbox.memory_bytes, 2UL << 30);
    assert_int_equal(config.sandbox.disk_bytes, 4UL << 30);
    assert_int_equal(config.sandbox.cpu_millis, 1000);
    assert_int_equal(config.sandbox.pids, 256);
    assert_int_equal(config.sandbox.network, CONFIG_NETWORK_NONE);
    assert_int_equal(config.sandbox.env_pass.count, 6);
    assert_true(config.sandbox.auto_restart);
    assert_int_equal(config.session.idle_timeout_ms, 30 * 60 * 1000);
    assert_int_equal(config.session.timeout_ms, 0);
    assert_int_equal(config.session.max_lifetime_ms, 24 * 3600 * 1000);
    assert_int_equal(config.session.grace_ms, 30 * 1000);
    assert_int_equal(config.session.retention_ms, 24 * 3600 * 1000);
    assert_int_equal(config.capacity.max_sandboxes, 1000);
    assert_int_equal(config.capacity.max_per_owner, 100);
    assert_int_equal(config.capacity.overflow, OVERFLOW_EVICT);
    assert_int_equal(config.pool_size, 4);
    assert_int_equal(config.exec.timeout_ms, 0);
    assert_int_equal(config.exec.grace_ms, 2000);
    assert_int_equal(config.exec.output_capture_bytes, 64 << 10);
    assert_int_equal(config.exec.output_spool_bytes, 64 << 20);
    assert_int_equal(config.auth.mode, AUTH_MODE_NONE);
    assert_int_equal(config.shutdown.policy, SHUTDOWN_KEEP);
    assert_int_equal(config.log.level, LOG_INFO);
    assert_int_equal(config.flavors.count, 1);
    assert_string_equal(config.flavors.items[0].name, "cpu-basic");
    assert_true(config.flavors.items[0].price_per_hour == 0);
}

static void nested_mappings_and_dotted_keys_are_the_same(void **state UNUSED)
{
    scoped(config_fini) struct config config = { 0 };

    load(&config, "session:\n"
                  "  idle_timeout: 90s\n"
                  "  timeout: 2.5\n"
                  "sandbox.memory: 512m\n"
                  "sandbox:\n"
                  "  cpus: 0.25\n"
                  "  direct.uid: 1000\n"
                  "  network: open\n"
                  "  auto_restart: off\n"
                  "capacity:\n"
                  "log: {level: debug}\n");
    assert_int_equal(config.session.idle_timeout_ms, 90000);
    assert_int_equal(config.session.timeout_ms, 2500);
    assert_int_equal(config.sandbox.memory_bytes, 512 << 20);
    assert_int_equal(config.sandbox.cpu_millis, 250);
    assert_int_equal(config.sandbox.direct_uid, 1000);
    assert_int_equal(config.sandbox.network, CONFIG_NETWORK_OPEN);
    assert_false(config.sandbox.auto_restart);
    assert_int_equal(config.log.level, LOG_DEBUG);
}

static void lists_maps_and_items_are_read(void **state UNUSED)
{
    scoped(config_fini) struct config config = { 0 };

    load(&config, "listen: [\"unix:/run/a b.sock\", 127.0.0.1:80]\n"
                  "sandbox:\n"
                  "  env:\n"
                  "    pass: PATH, HOME\n"
                  "    set: {A: \"1\", B: two words}\n"
                  "  mounts:\n"
                  "    - {host_path: /usr, path: /mnt, read_only: true}\n"
                  "    - host_path: /tmp\n"
                  "      path: /other\n"
                  "flavors:\n"
                  "  - {name: gpu, memory: 1g, cpus: 4, gpus: 1, price_per_hour: 1.25,\n"
                  "     needs_approval: true, backend: direct}\n"
                  "  - {name: plain}\n");
    assert_int_equal(config.listen.count, 2);
    assert_string_equal(config.listen.items[0], "unix:/run/a b.sock");
    assert_int_equal(config.sandbox.env_pass.count, 2);
    assert_string_equal(config.sandbox.env_pass.items[1], "HOME");
    assert_int_equal(config.sandbox.env_set.count, 2);
    assert_string_equal(config.sandbox.env_set.items[1].value, "two words");
    assert_int_equal(config.sandbox.mounts.count, 2);
    assert_true(config.sandbox.mounts.items[0].read_only);
    assert_false(config.sandbox.mounts.items[1].read_only);
    assert_string_equal(config.sandbox.mounts.items[1].path, "/other");
    assert_int_equal(config.flavors.count, 2);
    assert_int_equal(config.flavors.items[0].memory_bytes, 1 << 30);
    assert_int_equal(config.flavors.items[0].cpu_millis, 4000);
    assert_true(config.flavors.items[0].price_per_hour == 1250000);
    assert_true(config.flavors.items[1].price_per_hour < 0);
    assert_string_equal(config.flavors.items[1].backend, "");
}

static void variables_are_replaced_in_values(void **state UNUSED)
{
    scoped(config_fini) struct config config = { 0 };

    setenv("SG_TEST_DIR", "/srv/$x", 1);
    setenv("SG_TEST_EMPTY", "", 1);
    unsetenv("SG_TEST_UNSET");
    load(&config, "state_dir: ${SG_TEST_DIR}/${SG_TEST_UNSET:-a:b}/c$$${SG_TEST_EMPTY}\n"
                  "runtime_dir: ${SG_TEST_EMPTY:-/run/x}\n"
                  "sandbox.env.set:\n"
                  "  COPY: $SG_TEST_DIR\n"
                  "  TEXT: $$SG_TEST_DIR\n"
                  "  PART: x$SG_TEST_DIR\n"
                  "  EXPANDED: ${SG_TEST_DIR}\n");
    assert_string_equal(config.state_dir, "/srv/$x/a:b/c$");
    assert_string_equal(config.runtime_dir, "/run/x");
    assert_string_equal(config.sandbox.env_set.items[0].value, "/srv/$x");
    assert_string_equal(config.sandbox.env_set.items[1].value, "$SG_TEST_DIR");
    assert_string_equal(config.sandbox.env_set.items[2].value, "x$SG_TEST_DIR");
    assert_string_equal(config.sandbox.env_set.items[3].value, "/srv/$x");
}

static void an_unset_variable_is_an_error_that_names_it(void **state UNUSED)
{
    unsetenv("SG_TEST_UNSET");
    assert_refused("\nstate_dir: /a/${SG_TEST_UNSET}\n",
                   "test.yaml:2: state_dir: the variable SG_TEST_UNSET is not set");
    assert_refused("sandbox:\n  env:\n    set:\n      KEY: $SG_TEST_UNSET\n",
                   "test.yaml:4: sandbox.env.set: KEY: $SG_TEST_UNSET is not set");
    assert_refused("state_dir: /a/${SG_TEST_UNSET\n", "is not ${NAME}");
    assert_refused("state_dir: /a/${}\n", "is not ${NAME}");
    assert_refused("state_dir: /a/${A:=b}\n", "is not ${NAME}");
}

static void unknown_keys_name_the_nearest_one(void **state UNUSED)
{
    assert_refused("session:\n  idel_timeout: 5m\n",
                   "test.yaml:2: unknown setting \"session.idel_timeout\"; did you mean "
                   "\"session.idle_timeout\"?");
    assert_refused("sesion:\n  timeout: 5m\n", "did you mean \"session\"?");
    assert_refused("idle_timeout: 5m\n", "did you mean \"session.idle_timeout\"?");
    assert_refused("sandbox.mounts:\n  - {hostpath: /a}\n", "did you mean \"host_path\"?");
    assert_refused("flavors: [{nam: x}]\n", "did you mean \"name\"?");
    assert_refused("completely_different: 1\n", "unknown setting \"completely_different\"");
}

static void wrong_values_are_refused_with_their_place(void **state UNUSED)
{
    static const char *const wrong[][2] = {
        { "a\n", "test.yaml:1: the file must be a mapping" },
        { "- a\n", "must be a mapping" },
        { "session: 5m\n", "\"session\" is a group of settings" },
        { "session:\n  timeout: [1]\n", "test.yaml:2: session.timeout: must be one value" },
        { "session:\n  timeout: {a: 1}\n", "must be one value" },
        { "session:\n  timeout:\n", "session.timeout: has no value" },
        { "session:\n  timeout: soon\n", "\"soon\" is not a duration" },
        { "session:\n  timeout: -5\n", "is not a duration" },
        { "session:\n  idle_timeout: 9000d\n",
          "9000d is out of range: 100ms to 366d, or 0 for none" },
        { "session:\n  preload: maybe\n", "\"maybe\" is not true or false" },
        { "sandbox: {memory: 1}\n", "1 is out of range: 4m to 64t" },
        { "sandbox: {memory: lots}\n", "is not a size" },
        { "sandbox: {cpus: one}\n", "\"one\" is not a number" },
        { "sandbox: {cpus: 1.2.3}\n", "is not a number" },
        { "sandbox: {cpus: 0}\n", "out of range: 0.01 to 4096" },
        { "sandbox: {pids: 1.5}\n", "\"1.5\" is not a whole number" },
        { "sandbox: {pids: 99999999999999999999}\n", "is not a whole number" },
        { "sandbox: {network: bridge}\n", "\"bridge\" is not one of none, open" },
        { "sandbox: {backend: vm}\n", "\"vm\" is not one of native, direct" },
        { "state_dir: relative\n", "\"relative\" is not an absolute path" },
        { "state_dir: \"/a\\0b\"\n", "contains a NUL" },
        { "listen: {a: b}\n", "listen: must be one value" },
        { "listen: [[a]]\n", "listen: must be one value" },
        { "sandbox: {env: {set: [a]}}\n", "must be a mapping of names to values" },
        { "sandbox: {env: {set: {\"A B\": c}}}\n", "is not a valid variable name" },
        { "sandbox: {env: {set: {A: b, A: c}}}\n", "\"A\" is set twice" },
        { "sandbox: {env: {set: {A: [1]}}}\n", "A: must be one value" },
        { "sandbox: {mounts: {a: b}}\n", "must be a list of mappings" },
        { "sandbox: {mounts: [a]}\n", "each item must be a mapping" },
        { "sandbox:\n  mounts:\n  - host_path: /a\n", "\"path\" is missing" },
        { "sandbox: {mounts: [{host_path: a, path: /b}]}\n",
          "host_path: \"a\" is not an absolute" },
        { "sandbox: {mounts: [{path: /b, path: /b}]}\n", "\"path\" is set twice" },
        { "flavors: [{name: a, price_per_hour: free}]\n", "\"free\" is not a number" },
        { "flavors: [{memory: 1g}]\n", "\"name\" is missing" },
        { "flavors: [{name: a, backend: vm}]\n", "is not one of native" },
    };

    for (size_t i = 0; i < ARRAY_LENGTH(wrong); i++)
        assert_refused(wrong[i][0], wrong[i][1]);
}

static void what_is_set_twice_is_refused(void **state UNUSED)
{
    assert_refused("session:\n  timeout: 1\n  timeout: 2\n", "duplicate key \"session.timeout\"");
    assert_refused("session:\n  timeout: 1\nsession:\n  grace: 2\n", "duplicate key \"session\"");
    assert_refused("session:\n  timeout: 1\nsession.timeout: 2\n",
                   "test.yaml:3: \"session.timeout\" is already set at test.yaml:2");
}

static void what_is_not_plain_yaml_is_refused(void **state UNUSED)
{
    assert_refused("session: {\n", "not valid YAML");
    assert_refused("\tsession: 1\n", "test.yaml:1: not valid YAML");
    assert_refused("instance: &a x\nuser: *a\n", "aliases are not supported");
    assert_refused("a: &a [*a]\n", "unknown setting");
    assert_refused("? [a]\n: b\n", "a key: must be one value");
    assert_refused("---\ninstance: a\n---\ninstance: b\n", "more than one document");
    assert_refused("instance: \xff\n", "not valid YAML");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_empty_file_gives_the_defaults_of_the_manual),
        cmocka_unit_test(nested_mappings_and_dotted_keys_are_the_same),
        cmocka_unit_test(lists_maps_and_items_are_read),
        cmocka_unit_test(variables_are_replaced_in_values),
        cmocka_unit_test(an_unset_variable_is_an_error_that_names_it),
        cmocka_unit_test(unknown_keys_name_the_nearest_one),
        cmocka_unit_test(wrong_values_are_refused_with_their_place),
        cmocka_unit_test(what_is_set_twice_is_refused),
        cmocka_unit_test(what_is_not_plain_yaml_is_refused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
