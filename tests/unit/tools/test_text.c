/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/text.h"

#include "base/str.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

static void characters_and_not_bytes_are_counted(void **state)
{
    scoped(buffer_fini) struct buffer out = BUFFER_INIT(64);

    (void)state;
    assert_int_equal(text_count("a\u00e4\u20ac\xff", 7), 4);
    assert_int_equal(text_skip("a\u00e4\u20ac\xff", 7, 3), 6);
    assert_int_equal(text_skip("ab", 2, 9), 2);
    text_append(&out, "a\0b\xe2\x82", 5);
    assert_string_equal(buffer_text(&out), "a\ufffdb\ufffd\ufffd");
}

static void lines_are_counted(void **state)
{
    (void)state;
    assert_int_equal(text_count_lines("", 0), 0);
    assert_int_equal(text_count_lines("a", 1), 1);
    assert_int_equal(text_count_lines("a\n", 2), 1);
    assert_int_equal(text_count_lines("a\n\nb", 4), 3);
}

static void numbers_are_readable(void **state)
{
    char text[TEXT_NUMBER_SIZE];

    (void)state;
    assert_string_equal(text_number(0, text), "0");
    assert_string_equal(text_number(999, text), "999");
    assert_string_equal(text_number(1234567, text), "1,234,567");
}

/* Pieces of every size give the same. */
static void check_cut(const char *text, size_t limit, const char *expected, unsigned expected_news)
{
    for (size_t step = 1; step <= strlen(text); step++) {
        scoped(buffer_fini) struct buffer out = BUFFER_INIT(4096);
        struct text_cut cut;
        unsigned news = 0;

        text_cut_init(&cut, limit);
        for (size_t at = 0; at < strlen(text); at += step)
            news += text_cut_add(&cut, text + at, MIN(step, strlen(text) - at));
        text_cut_write(&cut, "/full", &out);
        assert_string_equal(buffer_text(&out), expected);
        assert_int_equal(news, expected_news);
        assert_int_equal(cut.bytes, strlen(text));
        text_cut_fini(&cut);
    }
}

static void a_text_that_fits_is_left_alone(void **state)
{
    (void)state;
    check_cut("12345678", 8, "12345678", 0);
    check_cut("\u00e4\u20ac\u00e4\u20ac", 4, "\u00e4\u20ac\u00e4\u20ac", 0);
}

static void of_a_longer_one_head_and_tail_stay(void **state)
{
    (void)state;
    check_cut("123456789", 8,
              "12\n\n... (1 of 9 characters omitted, showing the first 2 and the last 6; the full "
              "text is in /full, look at it with read or grep) ...\n\n456789",
              1);
    check_cut("\u00e4bcdefghijklmnopqrstuvwxy\u20ac", 4,
              "\u00e4\n\n... (22 of 26 characters omitted, showing the first 1 and the last 3; the "
              "full text is in /full, look at it with read or grep) ...\n\nxy\u20ac",
              1);
}

static void a_flood_of_half_characters_takes_no_memory(void **state)
{
    static char bytes[64 * 1024];
    struct text_cut cut;

    (void)state;
    memset(bytes, 0x80, sizeof(bytes));
    text_cut_init(&cut, 1000);
    for (int i = 0; i < 64; i++)
        text_cut_add(&cut, bytes, sizeof(bytes));
    assert_true(cut.tail.length < 3 * sizeof(bytes));
    assert_int_equal(cut.bytes, 64 * sizeof(bytes));
    text_cut_fini(&cut);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(characters_and_not_bytes_are_counted),
        cmocka_unit_test(lines_are_counted),
        cmocka_unit_test(numbers_are_readable),
        cmocka_unit_test(a_text_that_fits_is_left_alone),
        cmocka_unit_test(of_a_longer_one_head_and_tail_stay),
        cmocka_unit_test(a_flood_of_half_characters_takes_no_memory),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
