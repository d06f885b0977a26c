/* SPDX-License-Identifier: Apache-2.0 */
#include "core/run/language.h"

#include "base/error.h"
#include "base/macros.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

static const char *const names[] = { "python", "bash", "javascript" };

static void every_language_has_an_interpreter_a_suffix_and_a_driver(void **state UNUSED)
{
    static const struct {
        const char *interpreter, *suffix;
    } expected[] = { { "python3", "py" }, { "bash", "sh" }, { "node", "js" } };

    for (size_t i = 0; i < ARRAY_LENGTH(names); i++) {
        const struct language *language = language_find(names[i]);

        assert_non_null(language);
        assert_string_equal(language->name, names[i]);
        assert_string_equal(language->interpreter, expected[i].interpreter);
        assert_string_equal(language->suffix, expected[i].suffix);
        assert_true(strlen(language->driver) > 100);
    }
}

static void no_two_languages_share_a_driver(void **state UNUSED)
{
    for (size_t i = 0; i < ARRAY_LENGTH(names); i++)
        for (size_t j = 0; j < i; j++)
            assert_string_not_equal(language_find(names[i])->driver,
                                    language_find(names[j])->driver);
}

static void the_default_is_python(void **state UNUSED)
{
    assert_ptr_equal(language_python(), language_find("python"));
    assert_ptr_equal(language_python(), language_find(LANGUAGE_DEFAULT));
}

static void names_are_compared_as_they_are(void **state UNUSED)
{
    assert_null(language_find("Python"));
    assert_null(language_find("python3"));
    assert_null(language_find("pyth"));
    assert_null(language_find(""));
    assert_null(language_find("python "));
}

static void known_names_and_no_name_pass_the_check(void **state UNUSED)
{
    struct error err = { 0 };

    assert_int_equal(language_check(NULL, &err), 0);
    for (size_t i = 0; i < ARRAY_LENGTH(names); i++)
        assert_int_equal(language_check(names[i], &err), 0);
    assert_int_equal(err.code, ERR_NONE);
}

static void an_unknown_name_is_refused_with_the_known_ones(void **state UNUSED)
{
    struct error err = { 0 };

    assert_int_equal(language_check("cobol", &err), -1);
    assert_int_equal(err.code, ERR_INVALID);
    assert_string_equal(err.name, "unsupported_language");
    assert_non_null(strstr(err.message, "\"cobol\""));
    for (size_t i = 0; i < ARRAY_LENGTH(names); i++)
        assert_non_null(strstr(err.message, names[i]));
    assert_non_null(strstr(err.hint, "argv"));
}

static void a_long_name_is_cut_in_the_message(void **state UNUSED)
{
    char name[400];
    struct error err = { 0 };

    memset(name, 'x', sizeof(name) - 1);
    name[sizeof(name) - 1] = '\0';
    assert_int_equal(language_check(name, &err), -1);
    name[33] = '\0';
    assert_null(strstr(err.message, name));
    name[32] = '\0';
    assert_non_null(strstr(err.message, name));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_language_has_an_interpreter_a_suffix_and_a_driver),
        cmocka_unit_test(no_two_languages_share_a_driver),
        cmocka_unit_test(the_default_is_python),
        cmocka_unit_test(names_are_compared_as_they_are),
        cmocka_unit_test(known_names_and_no_name_pass_the_check),
        cmocka_unit_test(an_unknown_name_is_refused_with_the_known_ones),
        cmocka_unit_test(a_long_name_is_cut_in_the_message),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
