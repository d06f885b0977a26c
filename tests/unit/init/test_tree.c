/* SPDX-License-Identifier: Apache-2.0 */
#include "init/tree.h"

#include "base/macros.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

static bool parse(const char *text, int *out_parent, char *out_state)
{
    return tree_parse_stat(text, strlen(text), out_parent, out_state);
}

static void the_parent_is_found_behind_any_name(void **state UNUSED)
{
    int parent = 0;
    char letter = 0;

    assert_true(parse("12 (sh) S 7 12 12 0 -1 4194304", &parent, &letter));
    assert_int_equal(parent, 7);
    assert_int_equal(letter, 'S');
    assert_true(parse("12 (a) R 99 (b) Z 8 12 12", &parent, &letter));
    assert_int_equal(parent, 8);
    assert_int_equal(letter, 'Z');
    assert_true(parse("1 () R 0 1", &parent, &letter));
    assert_int_equal(parent, 0);
}

static void what_is_no_stat_is_refused(void **state UNUSED)
{
    static const char *const bad[] = { "",
                                       ")",
                                       "12",
                                       "12 (sh",
                                       "12 (sh)",
                                       "12 (sh) S",
                                       "12 (sh) S 7",
                                       "12 (sh) S -7 1",
                                       "12 (sh) S x 1",
                                       "12 (sh)S 7 1" };
    int parent;
    char letter;

    for (size_t i = 0; i < ARRAY_LENGTH(bad); i++)
        assert_false(parse(bad[i], &parent, &letter));
}

static bool is_dying(const char *text)
{
    return tree_parse_is_dying(text, strlen(text));
}

static void who_was_killed_is_dying(void **state UNUSED)
{
#define STAT(flags, pending)                                                                      \
    "12 (a b) S 7 12 12 0 -1 " flags " 1 0 0 0 0 0 0 0 20 0 1 0 99 1000 10 18446744073709551615 " \
    "0 0 0 0 0 " pending " 0 0 0 0 0 0 17 0 0 0\n"
    assert_false(is_dying(STAT("4194304", "0")));
    assert_false(is_dying(STAT("4194368", "65536")));
    assert_true(is_dying(STAT("4194308", "0")));
    assert_true(is_dying(STAT("4194304", "256")));
    assert_true(is_dying("12 (sh) S 7 12 12 0 -1 4194304 "));
    assert_true(is_dying(""));
#undef STAT
}

static void descendants_are_found_in_any_order(void **state UNUSED)
{
    struct tree_entry entries[] = {
        { .pid = 1, .parent = 0, .alive = true },    { .pid = 5, .parent = 90, .alive = true },
        { .pid = 10, .parent = 1, .alive = true },   { .pid = 20, .parent = 5, .alive = true },
        { .pid = 30, .parent = 10, .alive = true },  { .pid = 50, .parent = 1, .alive = true },
        { .pid = 90, .parent = 50, .alive = false },
    };

    assert_int_equal(tree_mark(entries, ARRAY_LENGTH(entries), 50), 2);
    assert_true(entries[6].marked);
    assert_true(entries[1].marked);
    assert_true(entries[3].marked);
    assert_false(entries[5].marked);
    assert_false(entries[2].marked);
    assert_false(entries[4].marked);
}

static void a_circle_of_parents_does_not_hang(void **state UNUSED)
{
    struct tree_entry entries[] = {
        { .pid = 2, .parent = 3, .alive = true },
        { .pid = 3, .parent = 2, .alive = true },
        { .pid = 4, .parent = 1, .alive = true },
    };

    assert_int_equal(tree_mark(entries, ARRAY_LENGTH(entries), 1), 1);
    assert_int_equal(tree_mark(entries, 0, 1), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_parent_is_found_behind_any_name),
        cmocka_unit_test(what_is_no_stat_is_refused),
        cmocka_unit_test(who_was_killed_is_dying),
        cmocka_unit_test(descendants_are_found_in_any_order),
        cmocka_unit_test(a_circle_of_parents_does_not_hang),
    };

    return cmocka_run_group_tests_name("init/tree", tests, NULL, NULL);
}
