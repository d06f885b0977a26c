/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/match.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

/* The content with the first match edited, or "N times" when there is not exactly one. */
static const char *edit(const char *content, const char *old, const char *new, enum match_edit how,
                        enum match_way *out_way)
{
    static char text[4096];
    scoped(buffer_fini) struct buffer out = BUFFER_INIT(sizeof(text) - 1);
    struct matches matches;

    matches_find(&matches, content, strlen(content), old);
    if (out_way)
        *out_way = matches.way;
    if (matches.count == 1) {
        assert_int_equal(matches_apply(&matches, 1, how, content, strlen(content), new, &out), 0);
        snprintf(text, sizeof(text), "%s", buffer_text(&out));
    } else {
        snprintf(text, sizeof(text), "%zu times", matches.count);
    }
    matches_fini(&matches);
    return text;
}

static void a_text_is_found_the_closest_way(void **state)
{
    static const struct {
        const char *content, *old, *expected;
        enum match_way way;
    } cases[] = {
        { "a b c", "b", "a X c", MATCH_EXACT },
        { "a  \nb\n", "a\nb", "X\n", MATCH_LINE_ENDS },
        { "a\nb\n", "a  \nb", "X\n", MATCH_LINE_ENDS },
        { "a\r\nb\r\nc\r\n", "a\nb\n", "Xc\r\n", MATCH_LINE_ENDS },
        { "    if x:\n\ty\n", "if x:\n    y\n", "    X", MATCH_LINE_MARGINS },
        { "    if x:\n\ty\n", "  if x:\n    y\n", "X", MATCH_LINE_MARGINS },
        { "say \u201chello\u201d \u2013 now", "\"hello\" - now", "say X", MATCH_TYPOGRAPHY },
        { "say \"it's\"", "\u201cit\u2019s\u201d", "say X", MATCH_TYPOGRAPHY },
        { "a\u00a0b", "a b", "X", MATCH_TYPOGRAPHY },
        { "a\u200bb", "ab", "X", MATCH_TYPOGRAPHY },
        { "wait\u2026", "wait...", "X", MATCH_TYPOGRAPHY },
        { "\u3000a b", "a b", "\u3000X", MATCH_EXACT },
        { "", "a", "0 times", MATCH_TYPOGRAPHY },
        { "abc", "d", "0 times", MATCH_TYPOGRAPHY },
        { "a\n\n\nb", "  \n ", "0 times", MATCH_EXACT }, /* nothing but spaces is everywhere */
        { "x x", "x", "2 times", MATCH_EXACT },
        { "aaaa", "aa", "2 times", MATCH_EXACT },
        { "a \nb\na \nb", "a\nb", "2 times", MATCH_LINE_ENDS },
    };
    enum match_way way;

    (void)state;
    for (size_t i = 0; i < ARRAY_LENGTH(cases); i++) {
        assert_string_equal(edit(cases[i].content, cases[i].old, "X", MATCH_REPLACE, &way),
                            cases[i].expected);
        if (strstr(cases[i].expected, "times") == NULL)
            assert_int_equal(way, cases[i].way);
    }
}

static void text_goes_around_a_match(void **state)
{
    (void)state;
    assert_string_equal(edit("a b c", "b", "X", MATCH_APPEND_AFTER, NULL), "a bX c");
    assert_string_equal(edit("a b c", "b", "X", MATCH_PREPEND_BEFORE, NULL), "a Xb c");
    assert_string_equal(edit("a \nb\n", "a\nb", "X", MATCH_APPEND_AFTER, NULL), "a \nbX\n");
}

static void a_file_keeps_its_line_ends(void **state)
{
    (void)state;
    assert_string_equal(edit("a\r\nb\r\n", "b", "x\ny", MATCH_REPLACE, NULL), "a\r\nx\r\ny\r\n");
    assert_string_equal(edit("a\r\nb\r\n", "b", "x\r\ny", MATCH_REPLACE, NULL), "a\r\nx\r\ny\r\n");
    assert_string_equal(edit("a\nb\n", "b", "x\ny", MATCH_REPLACE, NULL), "a\nx\ny\n");
}

static void where_it_may_have_been_meant(void **state)
{
    static const char content[] = "one\n  two \nthree";

    (void)state;
    assert_int_equal(match_nearest_line(content, strlen(content), "two\nfour"), 2);
    assert_int_equal(match_nearest_line(content, strlen(content), "\n\n three \nx"), 3);
    assert_int_equal(match_nearest_line(content, strlen(content), "five"), 0);
    assert_int_equal(match_nearest_line(content, strlen(content), " \n"), 0);
}

static void what_does_not_fit_is_told(void **state)
{
    scoped(buffer_fini) struct buffer out = BUFFER_INIT(4);
    struct matches matches;

    (void)state;
    matches_find(&matches, "abc", 3, "b");
    assert_int_equal(matches_apply(&matches, 1, MATCH_REPLACE, "abc", 3, "12345", &out), -1);
    matches_fini(&matches);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_text_is_found_the_closest_way),
        cmocka_unit_test(text_goes_around_a_match),
        cmocka_unit_test(a_file_keeps_its_line_ends),
        cmocka_unit_test(where_it_may_have_been_meant),
        cmocka_unit_test(what_does_not_fit_is_told),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
