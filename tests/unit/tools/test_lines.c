/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/lines.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

static const char *read_lines(struct lines *lines, const char *text, size_t step)
{
    for (size_t at = 0; at < strlen(text); at += step)
        lines_feed(lines, text + at, MIN(step, strlen(text) - at));
    lines_end(lines);
    return buffer_text(&lines->text);
}

static void lines_have_their_numbers_wherever_a_piece_ends(void **state)
{
    (void)state;
    for (size_t step = 1; step < 16; step++) {
        struct lines lines;

        lines_init(&lines, 2, 2, 100, 1000);
        assert_string_equal(read_lines(&lines, "one\ntwo\r\n\nfour\nfive", step),
                            "     2\ttwo\n     3\t\n");
        assert_true(lines_are_done(&lines));
        assert_int_equal(lines.number, 5);
        lines_fini(&lines);
    }
}

static void the_last_line_needs_no_end(void **state)
{
    struct lines lines;

    (void)state;
    lines_init(&lines, 1, 10, 100, 1000);
    assert_string_equal(read_lines(&lines, "one\ntwo", 64), "     1\tone\n     2\ttwo\n");
    assert_false(lines_are_done(&lines));
    lines_fini(&lines);
    lines_init(&lines, 1, 10, 100, 1000);
    assert_string_equal(read_lines(&lines, "", 64), "");
    assert_int_equal(lines.number, 0);
    lines_fini(&lines);
}

static void a_long_line_is_cut_after_characters(void **state)
{
    struct lines lines;

    (void)state;
    lines_init(&lines, 1, 10, 3, 1000);
    assert_string_equal(read_lines(&lines, "\u00e4\u00e4\u00e4\n\u00e4\u00e4\u00e4\u00e4\nok\n", 1),
                        "     1\t\u00e4\u00e4\u00e4\n"
                        "     2\t\u00e4\u00e4\u00e4 \u2026 [line cut: it has 8 bytes]\n"
                        "     3\tok\n");
    assert_int_equal(lines.cut, 1);
    lines_fini(&lines);
}

static void only_whole_lines_are_shown(void **state)
{
    struct lines lines;

    (void)state;
    lines_init(&lines, 1, 10, 100, 30);
    assert_string_equal(read_lines(&lines, "0123456789\n0123456789\nx\n", 7),
                        "     1\t0123456789\n");
    assert_true(lines.is_full && lines_are_done(&lines));
    assert_int_equal(lines.shown, 1);
    assert_int_equal(lines.number, 3);
    lines_fini(&lines);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(lines_have_their_numbers_wherever_a_piece_ends),
        cmocka_unit_test(the_last_line_needs_no_end),
        cmocka_unit_test(a_long_line_is_cut_after_characters),
        cmocka_unit_test(only_whole_lines_are_shown),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
