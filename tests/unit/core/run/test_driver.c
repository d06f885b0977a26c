/* SPDX-License-Identifier: Apache-2.0 */
#include "core/run/context/driver.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#define TOKEN "0123456789abcdef0123456789abcdef"
#define FRAME(kind, length, text) "\x1e" TOKEN kind length "\n" text

/* Everything that is told, as text: output as it is, messages in brackets. */
static void collect(struct driver_parser *parser, char *out, size_t size)
{
    const void *data;
    size_t length;
    enum driver_event event;

    while ((event = driver_parser_next(parser, &data, &length)) != DRIVER_NOTHING) {
        size_t at = strlen(out);

        if (event == DRIVER_DROPPED)
            snprintf(out + at, size - at, "[dropped]");
        else
            snprintf(out + at, size - at, event == DRIVER_OUTPUT ? "%.*s" : "[%.*s]", (int)length,
                     (const char *)data);
    }
}

static void parse(const char *input, size_t piece, char *out, size_t size)
{
    struct driver_parser parser;
    size_t total = strlen(input);

    driver_parser_init(&parser, TOKEN, 16);
    out[0] = '\0';
    for (size_t at = 0; at < total; at += piece) {
        driver_parser_feed(&parser, input + at, total - at < piece ? total - at : piece);
        collect(&parser, out, size);
    }
    driver_parser_end(&parser);
    collect(&parser, out, size);
    driver_parser_fini(&parser);
}

static void assert_parsed(const char *input, const char *expected)
{
    char out[1024];

    for (size_t piece = 1; piece <= strlen(input); piece++) {
        parse(input, piece, out, sizeof(out));
        assert_string_equal(out, expected);
    }
}

static void bytes_without_a_frame_are_output(void **state)
{
    (void)state;
    assert_parsed("hello\nworld", "hello\nworld");
}

static void frames_are_found_between_output_however_it_is_cut(void **state)
{
    (void)state;
    assert_parsed("a" FRAME("m", "0003", "xyz") "b" FRAME("m", "0000", "") "c", "a[xyz]b[]c");
}

static void parts_are_put_together(void **state)
{
    (void)state;
    assert_parsed(FRAME("p", "0002", "ab") "out" FRAME("m", "0002", "cd"), "out[abcd]");
}

static void a_message_that_is_too_large_is_dropped_and_the_next_one_told(void **state)
{
    (void)state;
    assert_parsed(FRAME("p", "000a", "0123456789") FRAME("m", "000a", "0123456789")
                      FRAME("m", "0001", "x"),
                  "[dropped][x]");
}

static void what_only_looks_like_a_frame_is_output(void **state)
{
    (void)state;
    assert_parsed("\x1e\x1eno", "\x1e\x1eno");
    assert_parsed(FRAME("x", "0001", "y"), FRAME("x", "0001", "y"));
    assert_parsed(FRAME("m", "ffff", "y"), FRAME("m", "ffff", "y"));
    assert_parsed(FRAME("m", "00zz", "y"), FRAME("m", "00zz", "y"));
    assert_parsed("\x1e"
                  "0123456789abcdef0123456789abcdeX"
                  "m0001\ny",
                  "\x1e"
                  "0123456789abcdef0123456789abcdeX"
                  "m0001\ny");
}

static void an_unfinished_frame_at_the_end_is_output(void **state)
{
    (void)state;
    assert_parsed(FRAME("m", "0005", "xy"), FRAME("m", "0005", "xy"));
    assert_parsed("a\x1e" TOKEN, "a\x1e" TOKEN);
}

static void a_frame_inside_of_a_false_one_is_found(void **state)
{
    (void)state;
    assert_parsed("\x1e" TOKEN FRAME("m", "0001", "x"), "\x1e" TOKEN "[x]");
}

static void another_token_begins_with_the_next_run(void **state)
{
    struct driver_parser parser;
    char out[256] = "";

    (void)state;
    driver_parser_init(&parser, TOKEN, 64);
    driver_parser_set_token(&parser, "ffffffffffffffffffffffffffffffff");
    driver_parser_feed(&parser,
                       "\x1e"
                       "ffffffffffffffffffffffffffffffff"
                       "m0002\nok",
                       41);
    collect(&parser, out, sizeof(out));
    assert_string_equal(out, "[ok]");
    driver_parser_fini(&parser);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bytes_without_a_frame_are_output),
        cmocka_unit_test(frames_are_found_between_output_however_it_is_cut),
        cmocka_unit_test(parts_are_put_together),
        cmocka_unit_test(a_message_that_is_too_large_is_dropped_and_the_next_one_told),
        cmocka_unit_test(what_only_looks_like_a_frame_is_output),
        cmocka_unit_test(an_unfinished_frame_at_the_end_is_output),
        cmocka_unit_test(a_frame_inside_of_a_false_one_is_found),
        cmocka_unit_test(another_token_begins_with_the_next_run),
    };

    return cmocka_run_group_tests_name("driver", tests, NULL, NULL);
}
