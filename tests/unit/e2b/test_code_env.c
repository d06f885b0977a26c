/* SPDX-License-Identifier: Apache-2.0 */
/* Variables that are set for one run of code. */

#include "e2b/code.h"

#include "base/alloc.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static void quotes_in_a_value_stay_in_the_value(void **state UNUSED)
{
    scoped(json_decref) json_t *variables = json_pack("{s:s}", "A", "it's $HOME");
    scoped(free) char *set = NULL;
    scoped(free) char *restore = NULL;
    struct error err = { 0 };

    assert_int_equal(e2b_env_code("bash", variables, &set, &restore, &err), 0);
    assert_non_null(strstr(set, "export A='it'\\''s $HOME'\n"));
    assert_non_null(strstr(restore, "unset A;"));
}

static void a_name_that_bash_cannot_have_is_refused(void **state UNUSED)
{
    static const char *const names[] = { "a-b", "1a", "a;b", "" };

    for (size_t i = 0; i < ARRAY_LENGTH(names); i++) {
        scoped(json_decref) json_t *variables = json_pack("{s:s}", names[i], "x");
        char *set = NULL, *restore = NULL;
        struct error err = { 0 };

        assert_int_equal(e2b_env_code("bash", variables, &set, &restore, &err), -1);
        assert_int_equal(err.code, ERR_INVALID);
    }
}

static void objects_are_literals_of_python_and_javascript(void **state UNUSED)
{
    scoped(json_decref) json_t *variables = json_pack("{s:s}", "A", "\"%s\n");
    static const char *const languages[] = { "python", "javascript" };

    for (size_t i = 0; i < ARRAY_LENGTH(languages); i++) {
        scoped(free) char *set = NULL;
        scoped(free) char *restore = NULL;
        struct error err = { 0 };

        assert_int_equal(e2b_env_code(languages[i], variables, &set, &restore, &err), 0);
        assert_non_null(strstr(set, "{\"A\":\"\\\"%s\\n\"}"));
        assert_non_null(strstr(restore, "__sandglass_env"));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(quotes_in_a_value_stay_in_the_value),
        cmocka_unit_test(a_name_that_bash_cannot_have_is_refused),
        cmocka_unit_test(objects_are_literals_of_python_and_javascript),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
