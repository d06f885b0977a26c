/* SPDX-License-Identifier: Apache-2.0 */
#include "base/buffer.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static void what_is_appended_comes_out_as_text(void **state UNUSED)
{
    scoped(buffer_fini) struct buffer buffer = BUFFER_INIT(1000);

    assert_string_equal(buffer_text(&buffer), "");
    assert_int_equal(buffer_append(&buffer, "ab", 2), 0);
    assert_int_equal(buffer_append_text(&buffer, "cd"), 0);
    assert_int_equal(buffer_append_byte(&buffer, 'e'), 0);
    assert_int_equal(buffer_appendf(&buffer, "-%d-%s", 42, "x"), 0);
    assert_string_equal(buffer_text(&buffer), "abcde-42-x");
    assert_int_equal(buffer.length, 10);
}

static void appending_past_the_maximum_fails_and_changes_nothing(void **state UNUSED)
{
    scoped(buffer_fini) struct buffer buffer = BUFFER_INIT(4);

    assert_int_equal(buffer_append_text(&buffer, "abc"), 0);
    assert_int_equal(buffer_append_text(&buffer, "de"), -1);
    assert_true(buffer.overflowed);
    assert_string_equal(buffer_text(&buffer), "abc");
    assert_int_equal(buffer_appendf(&buffer, "%s", "de"), -1);
    assert_null(buffer_reserve(&buffer, 2));
    assert_null(buffer_reserve(&buffer, SIZE_MAX));
    assert_int_equal(buffer_append_byte(&buffer, 'd'), 0);
    assert_string_equal(buffer_text(&buffer), "abcd");
    assert_true(buffer.overflowed);
    buffer_clear(&buffer);
    assert_false(buffer.overflowed);
    assert_int_equal(buffer.length, 0);
}

static void bytes_are_kept_as_they_are_while_it_grows(void **state UNUSED)
{
    scoped(buffer_fini) struct buffer buffer = BUFFER_INIT(1 << 20);

    for (unsigned i = 0; i < 100000; i++)
        assert_int_equal(buffer_append_byte(&buffer, (uint8_t)(i * 7)), 0);
    for (unsigned i = 0; i < 100000; i++)
        assert_int_equal(buffer.data[i], (uint8_t)(i * 7));
}

static void reserved_room_counts_only_when_advanced(void **state UNUSED)
{
    scoped(buffer_fini) struct buffer buffer = BUFFER_INIT(1000);
    char *room = buffer_reserve(&buffer, 500);

    assert_non_null(room);
    memcpy(room, "hello", 5);
    assert_int_equal(buffer.length, 0);
    buffer_advance(&buffer, 5);
    assert_string_equal(buffer_text(&buffer), "hello");
}

static void consuming_takes_from_the_front(void **state UNUSED)
{
    scoped(buffer_fini) struct buffer buffer = BUFFER_INIT(1000);

    buffer_append_text(&buffer, "hello world");
    buffer_consume(&buffer, 6);
    assert_string_equal(buffer_text(&buffer), "world");
    buffer_consume(&buffer, 5);
    assert_int_equal(buffer.length, 0);
    buffer_consume(&buffer, 0);
}

static void stolen_text_is_the_callers_and_the_buffer_starts_again(void **state UNUSED)
{
    scoped(buffer_fini) struct buffer buffer = BUFFER_INIT(10);
    scoped(free) char *text = NULL;
    scoped(free) char *nothing = NULL;

    buffer_append_text(&buffer, "abc");
    text = buffer_steal_text(&buffer);
    assert_string_equal(text, "abc");
    assert_int_equal(buffer.length, 0);
    assert_int_equal(buffer.maximum, 10);
    nothing = buffer_steal_text(&buffer);
    assert_string_equal(nothing, "");
}

static void nothing_can_be_appended_to_nothing(void **state UNUSED)
{
    scoped(buffer_fini) struct buffer buffer = BUFFER_INIT(0);

    assert_int_equal(buffer_append(&buffer, NULL, 0), 0);
    assert_int_equal(buffer_append_byte(&buffer, 'x'), -1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_appended_comes_out_as_text),
        cmocka_unit_test(appending_past_the_maximum_fails_and_changes_nothing),
        cmocka_unit_test(bytes_are_kept_as_they_are_while_it_grows),
        cmocka_unit_test(reserved_room_counts_only_when_advanced),
        cmocka_unit_test(consuming_takes_from_the_front),
        cmocka_unit_test(stolen_text_is_the_callers_and_the_buffer_starts_again),
        cmocka_unit_test(nothing_can_be_appended_to_nothing),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
