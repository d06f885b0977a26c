/* SPDX-License-Identifier: Apache-2.0 */
#include "e2b/token.h"

#include "base/macros.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

static const char token[] = "0tQG31xiMp0IOQfaz9dcwi72L1CPo8e0";

static void signatures_are_those_of_the_clients(void **state UNUSED)
{
    const struct e2b_signature facts = { .path = "hello.txt", .operation = "read", .user = "user" };
    char text[E2B_SIGNATURE_SIZE];

    e2b_signature_write(&facts, token, text);
    assert_string_equal(text, "v1_gUtH/s9YCJWgCizjfUxuWfhFE4QSydOWEIIvfLwDr6E");
}

static void every_fact_changes_the_signature(void **state UNUSED)
{
    const struct e2b_signature facts = { .path = "a", .operation = "read", .user = "user" };
    struct e2b_signature other = facts;
    char text[E2B_SIGNATURE_SIZE];

    e2b_signature_write(&facts, token, text);
    assert_true(e2b_signature_is(&facts, token, text));
    assert_false(e2b_signature_is(&facts, "other", text));
    assert_false(e2b_signature_is(&facts, token, ""));
    text[5] = text[5] == 'a' ? 'b' : 'a';
    assert_false(e2b_signature_is(&facts, token, text));
    e2b_signature_write(&facts, token, text);
    other.path = "b";
    assert_false(e2b_signature_is(&other, token, text));
    other = facts;
    other.operation = "write";
    assert_false(e2b_signature_is(&other, token, text));
    other = facts;
    other.user = "root";
    assert_false(e2b_signature_is(&other, token, text));
    other = facts;
    other.expiration = "1";
    assert_false(e2b_signature_is(&other, token, text));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(signatures_are_those_of_the_clients),
        cmocka_unit_test(every_fact_changes_the_signature),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
