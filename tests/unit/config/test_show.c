/* SPDX-License-Identifier: Apache-2.0 */
#include "config/config.h"

#include "base/macros.h"
#include "config/settings.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { SHOWN_MAXIMUM = 1 << 20 };

static const char text[] = "session:\n"
                           "  idle_timeout: 1h30m\n"
                           "  timeout: 0.25s\n"
                           "  grace: 61s\n"
                           "  max_lifetime: 30d\n"
                           "exec: {output_spool: 1536k, grace: 250ms}\n"
                           "instance: \"a: b $$ \\\"q\\\" \\u00e9\\u2028\\U0001F600\"\n"
                           "user: \"null\"\n"
                           "sandbox:\n"
                           "  cpus: 1.25\n"
                           "  env: {set: {TOKEN: hunter2}}\n"
                           "  mounts: [{host_path: /a b, path: /b}]\n"
                           "flavors: [{name: x, price_per_hour: 0.5}, {name: y}]\n";

static void load(struct config *config, const char *yaml)
{
    struct error err = { 0 };

    if (config_load_text(config, yaml, strlen(yaml), "test.yaml", &err) < 0)
        fail_msg("%s", err.message);
}

static char *show(const struct config *config, bool json)
{
    struct buffer out = BUFFER_INIT(SHOWN_MAXIMUM);

    config_show(config, &out, json);
    assert_false(out.overflowed);
    return buffer_steal_text(&out);
}

static void assert_contains(const char *shown, const char *part)
{
    if (!strstr(shown, part))
        fail_msg("no \"%s\" in:\n%s", part, shown);
}

static void every_setting_is_shown_with_its_origin(void **state UNUSED)
{
    scoped(config_fini) struct config config = { 0 };
    scoped(free) char *shown = NULL;

    load(&config, text);
    shown = show(&config, false);
    assert_contains(shown, "session.idle_timeout: 90m");
    assert_contains(shown, "# test.yaml:2\n");
    assert_contains(shown, "session.timeout: 250ms");
    assert_contains(shown, "session.grace: 61s");
    assert_contains(shown, "session.max_lifetime: 30d");
    assert_contains(shown, "session.retention: 24h ");
    assert_contains(shown, "exec.output_spool: 1536k");
    assert_contains(shown, "sandbox.memory: 2g ");
    assert_contains(shown, "sandbox.network: none ");
    assert_contains(shown, "  # default\n");
    for (const struct setting *row = settings; row->key; row++)
        assert_contains(shown, row->key);
}

static void json_has_numbers_in_plain_units(void **state UNUSED)
{
    scoped(config_fini) struct config config = { 0 };
    scoped(free) char *shown = NULL;

    load(&config, text);
    shown = show(&config, true);
    assert_contains(shown,
                    "\"session.idle_timeout\": {\"value\": 5400, \"origin\": \"test.yaml:2\"}");
    assert_contains(shown, "\"session.timeout\": {\"value\": 0.25,");
    assert_contains(shown, "\"exec.output_spool\": {\"value\": 1572864,");
    assert_contains(shown, "\"sandbox.cpus\": {\"value\": 1.25,");
    assert_contains(shown, "\"price_per_hour\": null");
    assert_contains(shown, "\"sandbox.auto_restart\": {\"value\": true, \"origin\": \"default\"}");
    assert_contains(shown, "a: b $ \\\"q\\\" \\u00e9\\u2028\xf0\x9f\x98\x80");
    assert_int_equal(shown[0], '{');
    assert_string_equal(shown + strlen(shown) - 3, "\n}\n");
}

static void values_for_sandboxes_are_not_shown(void **state UNUSED)
{
    scoped(config_fini) struct config config = { 0 };
    scoped(free) char *yaml = NULL;
    scoped(free) char *json = NULL;

    load(&config, text);
    yaml = show(&config, false);
    json = show(&config, true);
    assert_contains(yaml, "TOKEN: \"***\"");
    assert_null(strstr(yaml, "hunter2"));
    assert_null(strstr(json, "hunter2"));
}

static void what_is_shown_reads_back_as_the_same(void **state UNUSED)
{
    scoped(config_fini) struct config config = { 0 };
    scoped(config_fini) struct config copy = { 0 };
    scoped(free) char *shown = NULL;

    load(&config, text);
    shown = show(&config, false);
    load(&copy, shown);
    assert_string_equal(copy.instance, config.instance);
    assert_string_equal(copy.user, "null");
    assert_int_equal(copy.session.grace_ms, 61000);
    assert_int_equal(copy.session.timeout_ms, 250);
    assert_int_equal(copy.sandbox.cpu_millis, 1250);
    assert_string_equal(copy.sandbox.mounts.items[0].host_path, "/a b");
    assert_int_equal(copy.flavors.count, 2);
    assert_true(copy.flavors.items[1].price_per_hour < 0);
}

static void the_description_tells_type_range_and_default(void **state UNUSED)
{
    scoped(buffer_fini) struct buffer out = BUFFER_INIT(SHOWN_MAXIMUM);

    config_describe(&out);
    assert_contains(buffer_text(&out), "session.idle_timeout\n"
                                       "    duration, 100ms to 366d, or 0 for none; default 30m\n");
    assert_contains(buffer_text(&out), "    none | keys | jwt; default none\n");
    for (const struct setting *row = settings; row->key; row++)
        assert_contains(buffer_text(&out), row->help);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_setting_is_shown_with_its_origin),
        cmocka_unit_test(json_has_numbers_in_plain_units),
        cmocka_unit_test(values_for_sandboxes_are_not_shown),
        cmocka_unit_test(what_is_shown_reads_back_as_the_same),
        cmocka_unit_test(the_description_tells_type_range_and_default),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
