/* SPDX-License-Identifier: Apache-2.0 */
#include "base/mask.h"

#include "base/alloc.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static struct mask *mask_of(const char *const *values)
{
    struct mask *mask = mask_new();

    for (size_t i = 0; values[i]; i++)
        mask_add(mask, values[i], strlen(values[i]));
    return mask;
}

/* The text as a whole, and in chunks of every size. */
static void check(const char *const *values, const char *text, const char *expected)
{
    scoped(mask_free) struct mask *mask = mask_of(values);
    scoped(free) char *whole = mask_text(mask, text);

    assert_string_equal(whole, expected);
    for (size_t chunk = 1; chunk <= strlen(text); chunk++) {
        scoped(buffer_fini) struct buffer out = BUFFER_INIT(100000);
        scoped(mask_stream_fini) struct mask_stream stream = MASK_STREAM(mask);

        for (size_t at = 0; at < strlen(text); at += chunk) {
            size_t left = strlen(text) - at;

            mask_feed(&stream, text + at, left < chunk ? left : chunk, &out);
        }
        mask_end(&stream, &out);
        assert_string_equal(buffer_text(&out), expected);
    }
}

#define VALUES(...) ((const char *const[]){ __VA_ARGS__, NULL })

static void a_value_is_masked_wherever_a_chunk_ends(void **state UNUSED)
{
    check(VALUES("hunter22"), "", "");
    check(VALUES("hunter22"), "nothing here", "nothing here");
    check(VALUES("hunter22"), "hunter22", "[redacted]");
    check(VALUES("hunter22"), "a hunter22 and hunter2", "a [redacted] and hunter2");
    check(VALUES("hunter22"), "huntehunter22hunter", "hunte[redacted]hunter");
    check(VALUES("hunter22", "token-1"), "x token-1 y hunter22", "x [redacted] y [redacted]");
}

static void what_begins_again_inside_a_failed_match_is_found(void **state UNUSED)
{
    check(VALUES("aaab"), "aaaaaab", "aaa[redacted]");
    check(VALUES("abcabd"), "abcabcabd", "abc[redacted]");
    check(VALUES("abababc"), "ababababc", "ab[redacted]");
}

static void nothing_of_overlapping_values_is_left(void **state UNUSED)
{
    check(VALUES("abcd", "cdef"), "xabcdefx", "x[redacted]x");
    check(VALUES("abcdefgh", "cdef"), "xabcdefghx", "x[redacted]x");
    check(VALUES("abcdefgh", "cdef"), "xabcdefgx", "xab[redacted]gx");
    check(VALUES("aaaa"), "aaaaaaa", "[redacted]");
    check(VALUES("bcde", "fghi", "abcdefghij"), "abcdefghij", "[redacted]");
}

static void a_value_is_known_without_its_line_end_and_by_its_lines(void **state UNUSED)
{
    check(VALUES("s3cret\r\n"), "is s3cret.", "is [redacted].");
    check(VALUES("-----BEGIN\nline-one-of-it\nxy\n"), "> line-one-of-it xy", "> [redacted] xy");
}

static void a_value_that_is_in_every_text_is_left(void **state UNUSED)
{
    scoped(mask_free) struct mask *mask = mask_of(VALUES("", "1", "yes", "\n\n"));

    assert_true(mask_is_empty(mask));
    assert_true(mask_is_empty(NULL));
    check(VALUES("", "yes"), "yes 1", "yes 1");
}

static void bytes_that_are_no_text_are_masked_too(void **state UNUSED)
{
    scoped(mask_free) struct mask *mask = mask_new();
    scoped(buffer_fini) struct buffer out = BUFFER_INIT(100);

    mask_add(mask, "\0\xff\0\xfe", 4);
    mask_append(mask, "a\0\xff\0\xfe\0", 6, &out);
    assert_int_equal(out.length, 1 + strlen(MASK_TEXT) + 1);
    assert_memory_equal(out.data, "a" MASK_TEXT "\0", out.length);
}

static void only_the_beginning_of_a_value_is_held_back(void **state UNUSED)
{
    scoped(mask_free) struct mask *mask = mask_of(VALUES("password"));
    scoped(buffer_fini) struct buffer out = BUFFER_INIT(100);
    scoped(mask_stream_fini) struct mask_stream stream = MASK_STREAM(mask);

    mask_feed(&stream, "the pas", 7, &out);
    assert_string_equal(buffer_text(&out), "the ");
    mask_feed(&stream, "t", 1, &out);
    assert_string_equal(buffer_text(&out), "the past");
}

static void a_value_that_comes_later_is_for_the_next_stream(void **state UNUSED)
{
    scoped(mask_free) struct mask *mask = mask_of(VALUES("password"));
    scoped(mask_free) struct mask *kept = mask_ref(mask);
    scoped(buffer_fini) struct buffer out = BUFFER_INIT(100);
    scoped(mask_stream_fini) struct mask_stream stream = MASK_STREAM(mask);
    scoped(free) char *next = NULL;

    mask_feed(&stream, "pass", 4, &out);
    mask_add(mask, "later", 5);
    mask_feed(&stream, "word later", 10, &out);
    mask_end(&stream, &out);
    assert_string_equal(buffer_text(&out), "[redacted] later");
    next = mask_text(kept, "later");
    assert_string_equal(next, "[redacted]");
}

/* A text that is almost a long value everywhere takes no longer than any other. */
static void a_hostile_text_takes_linear_time(void **state UNUSED)
{
    enum { VALUE = 100 * 1000, TEXT = 2 * 1000 * 1000 };
    scoped(mask_free) struct mask *mask = mask_new();
    scoped(buffer_fini) struct buffer out = BUFFER_INIT(2 * TEXT);
    scoped(free) char *value = xmalloc(VALUE);
    scoped(free) char *text = xmalloc(TEXT);

    memset(value, 'a', VALUE);
    memset(text, 'a', TEXT);
    value[VALUE - 1] = 'b';
    mask_add(mask, value, VALUE);
    mask_append(mask, text, TEXT, &out);
    assert_int_equal(out.length, TEXT);
    mask_add(mask, text, VALUE);
    buffer_clear(&out);
    mask_append(mask, text, TEXT, &out);
    assert_string_equal(buffer_text(&out), MASK_TEXT);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_value_is_masked_wherever_a_chunk_ends),
        cmocka_unit_test(what_begins_again_inside_a_failed_match_is_found),
        cmocka_unit_test(nothing_of_overlapping_values_is_left),
        cmocka_unit_test(a_value_is_known_without_its_line_end_and_by_its_lines),
        cmocka_unit_test(a_value_that_is_in_every_text_is_left),
        cmocka_unit_test(bytes_that_are_no_text_are_masked_too),
        cmocka_unit_test(only_the_beginning_of_a_value_is_held_back),
        cmocka_unit_test(a_value_that_comes_later_is_for_the_next_stream),
        cmocka_unit_test(a_hostile_text_takes_linear_time),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
