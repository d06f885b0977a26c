/* SPDX-License-Identifier: Apache-2.0 */
/* What the command line makes of documents, and which it writes. */

#include "cli/run/attach.h"
#include "cli/session/create_options.h"
#include "cli/session/sessions.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static int code_of(const char *text)
{
    scoped(json_decref) json_t *document = json_loads(text, 0, NULL);

    assert_non_null(document);
    return execution_exit_code(document);
}

static void the_exit_code_is_the_programs(void **state UNUSED)
{
    assert_int_equal(code_of("{\"state\":\"exited\",\"exit_code\":0}"), 0);
    assert_int_equal(code_of("{\"state\":\"exited\",\"exit_code\":255}"), 255);
    assert_int_equal(code_of("{\"state\":\"exited\",\"exit_code\":127,\"error\":\"no such file\"}"),
                     127);
}

static void a_signal_is_128_and_its_number(void **state UNUSED)
{
    assert_int_equal(code_of("{\"state\":\"exited\",\"exit_code\":null,\"signal\":11}"), 139);
    assert_int_equal(code_of("{\"state\":\"crashed\",\"exit_code\":-1,\"signal\":9}"), 137);
}

static void a_timeout_is_124_however_it_died(void **state UNUSED)
{
    assert_int_equal(code_of("{\"state\":\"timeout\",\"exit_code\":null,\"signal\":15}"), 124);
    assert_int_equal(code_of("{\"state\":\"timeout\",\"exit_code\":0}"), 124);
}

static void an_end_without_code_and_signal_is_sandglass_failing(void **state UNUSED)
{
    assert_int_equal(code_of("{\"state\":\"crashed\",\"exit_code\":null,\"signal\":null}"), 125);
    assert_int_equal(code_of("{}"), 125);
}

static void the_clock_that_ends_a_session_is_the_one_the_daemon_names(void **state UNUSED)
{
    scoped(json_decref) json_t *session =
        json_loads("{\"next_end\":{\"reason\":\"lifetime\",\"in_seconds\":12.5}}", 0, NULL);
    scoped(json_decref) json_t *endless = json_loads("{\"next_end\":null}", 0, NULL);
    struct session_end end = session_next_end_of(session);

    assert_string_equal(end.kind, "lifetime");
    assert_true(end.remaining_s > 12 && end.remaining_s < 13);
    assert_true(session_next_end_of(endless).remaining_s < 0);
}

static void filters_are_encoded_for_a_query(void **state UNUSED)
{
    const char *items[] = { "team=a b", "x=1&2", NULL };
    struct text_list labels = { items, 2 };
    struct text_list none = { 0 };
    scoped(free) char *query = sessions_query(&(struct sessions_filter){ &labels, "open", NULL });
    scoped(free) char *empty = sessions_query(&(struct sessions_filter){ .labels = &none });

    assert_string_equal(query, "?label=team%3Da%20b&label=x%3D1%262&state=open");
    assert_string_equal(empty, "");
}

static void a_session_reference_is_one_segment_of_the_path(void **state UNUSED)
{
    scoped(free) char *target = session_target("key:a/b?c", "/executions/%s", "exe_1");

    assert_string_equal(target, "/api/v1/sessions/key:a%2Fb%3Fc/executions/exe_1");
}

static void the_body_of_a_new_session_has_what_was_given_and_no_more(void **state UNUSED)
{
    const char *env[] = { "A=1", "B=x=y", "A=2", NULL };
    struct create_args args = {
        .memory = "512m",
        .cpus = "1.5",
        .pids = "64",
        .variables.env = { env, 3 },
        .auto_restart = "off",
        .no_preload = true,
    };
    scoped(buffer_fini) struct buffer body = BUFFER_INIT(65536);
    struct error err;

    assert_int_equal(create_write_body(&args, "30m", &body, &err), 0);
    assert_string_equal(
        buffer_text(&body),
        "{\"env\":{\"B\":\"x=y\",\"A\":\"2\"},\"memory_bytes\":\"512m\",\"cpus\":1.500,"
        "\"pids\":64,\"lease_seconds\":\"30m\",\"preload\":false,\"auto_restart\":false}");
}

static void a_bare_name_takes_our_own_variable(void **state UNUSED)
{
    const char *env[] = { "SANDGLASS_TEST_VARIABLE", NULL };
    struct create_args args = { .variables.env = { env, 1 } };
    scoped(buffer_fini) struct buffer body = BUFFER_INIT(65536);
    struct error err;

    unsetenv("SANDGLASS_TEST_VARIABLE");
    assert_int_equal(create_write_body(&args, NULL, &body, &err), -1);
    assert_int_equal(err.code, ERR_INVALID);
    setenv("SANDGLASS_TEST_VARIABLE", "mine", 1);
    buffer_clear(&body);
    assert_int_equal(create_write_body(&args, NULL, &body, &err), 0);
    assert_string_equal(buffer_text(&body), "{\"env\":{\"SANDGLASS_TEST_VARIABLE\":\"mine\"}}");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_exit_code_is_the_programs),
        cmocka_unit_test(a_signal_is_128_and_its_number),
        cmocka_unit_test(a_timeout_is_124_however_it_died),
        cmocka_unit_test(an_end_without_code_and_signal_is_sandglass_failing),
        cmocka_unit_test(the_clock_that_ends_a_session_is_the_one_the_daemon_names),
        cmocka_unit_test(filters_are_encoded_for_a_query),
        cmocka_unit_test(a_session_reference_is_one_segment_of_the_path),
        cmocka_unit_test(the_body_of_a_new_session_has_what_was_given_and_no_more),
        cmocka_unit_test(a_bare_name_takes_our_own_variable),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
