/* SPDX-License-Identifier: Apache-2.0 */
#include "init/text.h"

#include "base/macros.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

static bool to_u32(const char *text, uint32_t maximum, uint32_t *out_value)
{
    return text_to_u32(text, text + strlen(text), maximum, out_value);
}

static void numbers_are_whole_and_in_range(void **state UNUSED)
{
    static const char *const bad[] = { "",   "-1",  "+1",
                                       " 1", "1 ",  "0x1",
                                       "1a", "101", "99999999999999999999" };
    uint32_t value = 7;

    assert_true(to_u32("100", 100, &value));
    assert_int_equal(value, 100);
    assert_true(to_u32("0007", 100, &value));
    assert_int_equal(value, 7);
    for (size_t i = 0; i < ARRAY_LENGTH(bad); i++)
        assert_false(to_u32(bad[i], 100, &value));
    assert_int_equal(value, 7);
}

static void masks_are_hexadecimal(void **state UNUSED)
{
    uint64_t value;

    assert_true(text_to_hex64("1ffFFFFFFff", &value));
    assert_true(value == 0x1ffffffffffull);
    assert_true(text_to_hex64("ffffffffffffffff", &value));
    assert_true(value == UINT64_MAX);
    assert_false(text_to_hex64("", &value));
    assert_false(text_to_hex64("0x1", &value));
    assert_false(text_to_hex64("11111111111111111", &value));
}

static void numbers_are_written_in_full(void **state UNUSED)
{
    char text[TEXT_NUMBER_SIZE];

    assert_int_equal(text_from_u64(0, text), 1);
    assert_string_equal(text, "0");
    assert_int_equal(text_from_u64(UINT64_MAX, text), 20);
    assert_string_equal(text, "18446744073709551615");
}

static void texts_are_joined_only_where_they_fit(void **state UNUSED)
{
    char out[8];

    assert_int_equal(text_concat(out, sizeof(out), "abcdef", 3, "4567"), 0);
    assert_string_equal(out, "abc4567");
    assert_int_equal(text_concat(out, sizeof(out), "abcdef", 4, "4567"), -1);
    assert_int_equal(text_concat(out, sizeof(out), "abcdefghi", 9, ""), -1);
}

static void a_variable_is_found_by_its_whole_name(void **state UNUSED)
{
    const char *env[] = { "HOMER=x", "PATH", "HOME=", NULL };

    assert_true(text_has_variable(env, "HOME"));
    assert_true(text_has_variable(env, "HOMER"));
    assert_false(text_has_variable(env, "PATH"));
    assert_false(text_has_variable(env, "HOM"));
    assert_true(text_has_same_variable(env, "HOME=/root"));
    assert_false(text_has_same_variable(env, "HOM=/root"));
    assert_false(text_has_same_variable(env, "PATH=/bin"));
}

static void the_last_component_is_a_name_or_nothing(void **state UNUSED)
{
    static const struct {
        const char *path;
        const char *name;
        size_t parent;
    } cases[] = {
        { "a", "a", 0 },   { "/a", "a", 1 },    { "/a/b", "b", 3 },   { "a/b///", "b", 2 },
        { "/", NULL, 0 },  { "", NULL, 0 },     { "/a/..", NULL, 0 }, { ".", NULL, 0 },
        { "..", NULL, 0 }, { "a/./", NULL, 0 }, { "...", "...", 0 },  { "/..a", "..a", 1 },
    };

    for (size_t i = 0; i < ARRAY_LENGTH(cases); i++) {
        size_t length = 0;
        size_t parent = 0;
        const char *name = text_base_name(cases[i].path, &length, &parent);

        if (!cases[i].name) {
            assert_null(name);
            continue;
        }
        assert_int_equal(length, strlen(cases[i].name));
        assert_memory_equal(name, cases[i].name, length);
        assert_int_equal(parent, cases[i].parent);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(numbers_are_whole_and_in_range),
        cmocka_unit_test(masks_are_hexadecimal),
        cmocka_unit_test(numbers_are_written_in_full),
        cmocka_unit_test(texts_are_joined_only_where_they_fit),
        cmocka_unit_test(a_variable_is_found_by_its_whole_name),
        cmocka_unit_test(the_last_component_is_a_name_or_nothing),
    };

    return cmocka_run_group_tests_name("init/text", tests, NULL, NULL);
}
