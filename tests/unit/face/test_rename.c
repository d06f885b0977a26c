/* SPDX-License-Identifier: Apache-2.0 */
/* Old names of fields and parameters: what they mean for a route. */

#include "face/rename.h"

#include "base/macros.h"
#include "face/route.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

static const struct rename table[] = {
    { "timeout", "timeout_seconds" },
    { "timeout", "lease_seconds" },
    { "expires", "valid_seconds", "/ports/" },
    { "wait", "wait_seconds" },
    { 0 },
};

static const struct json_field lease_fields[] = { { .name = "lease_seconds" },
                                                  { .name = "valid_seconds" } };
static const struct json_field both_fields[] = { { .name = "lease_seconds" },
                                                 { .name = "timeout_seconds" } };
static const struct json_field old_fields[] = { { .name = "timeout" },
                                                { .name = "timeout_seconds" } };
static const struct route_parameter parameters[] = { { "wait_seconds", "number", "" }, { 0 } };

static const struct route lease_route = { .path = "/sessions",
                                          .fields = lease_fields,
                                          .field_count = ARRAY_LENGTH(lease_fields),
                                          .parameters = parameters };
static const struct route both_route = { .path = "/execute",
                                         .fields = both_fields,
                                         .field_count = ARRAY_LENGTH(both_fields) };
static const struct route old_route = { .path = "/old",
                                        .fields = old_fields,
                                        .field_count = ARRAY_LENGTH(old_fields) };

static void a_route_takes_the_new_name_that_it_has(void **state UNUSED)
{
    assert_string_equal(rename_find(table, &lease_route, "timeout", true)->new_name,
                        "lease_seconds");
    assert_null(rename_find(table, &lease_route, "unknown", true));
    assert_null(rename_find(NULL, &lease_route, "timeout", true));
}

static void the_first_row_decides_where_a_route_has_both(void **state UNUSED)
{
    assert_string_equal(rename_find(table, &both_route, "timeout", true)->new_name,
                        "timeout_seconds");
}

static void a_name_that_the_route_has_is_not_renamed(void **state UNUSED)
{
    assert_null(rename_find(table, &old_route, "timeout", true));
}

static void a_row_may_be_for_some_paths_alone(void **state UNUSED)
{
    struct route ports = lease_route;

    ports.path = "/sessions/{session}/ports/{port}/url";
    assert_null(rename_find(table, &lease_route, "expires", true));
    assert_string_equal(rename_find(table, &ports, "expires", true)->new_name, "valid_seconds");
}

static void parameters_and_fields_are_told_apart(void **state UNUSED)
{
    assert_string_equal(rename_find(table, &lease_route, "wait", false)->new_name, "wait_seconds");
    assert_null(rename_find(table, &lease_route, "wait", true));
    assert_null(rename_find(table, &lease_route, "timeout", false));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_route_takes_the_new_name_that_it_has),
        cmocka_unit_test(the_first_row_decides_where_a_route_has_both),
        cmocka_unit_test(a_name_that_the_route_has_is_not_renamed),
        cmocka_unit_test(a_row_may_be_for_some_paths_alone),
        cmocka_unit_test(parameters_and_fields_are_told_apart),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
