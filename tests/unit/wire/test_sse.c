#include "wire/sse.h"

#include "base/macros.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static void an_event_is_written_with_a_field_for_each_line(void **state UNUSED)
{
    scoped(buffer_fini) struct buffer text = BUFFER_INIT(1024);

    assert_int_equal(sse_write(&text, "7", "output", "one\ntwo\r\n\rlast", 14), 0);
    assert_string_equal(buffer_text(&text), "id: 7\nevent: output\ndata: one\ndata: two\ndata: \n"
                                            "data: last\n\n");
}

static void an_event_without_id_name_or_data_is_one_empty_line_of_data(void **state UNUSED)
{
    scoped(buffer_fini) struct buffer text = BUFFER_INIT(1024);

    assert_int_equal(sse_write(&text, NULL, NULL, NULL, 0), 0);
    assert_int_equal(sse_write_comment(&text, "still here"), 0);
    assert_string_equal(buffer_text(&text), "data: \n\n: still here\n\n");
}

static void an_event_that_does_not_fit_leaves_the_buffer_as_it_was(void **state UNUSED)
{
    scoped(buffer_fini) struct buffer text = BUFFER_INIT(20);

    assert_int_equal(sse_write(&text, NULL, NULL, "abc", 3), 0);
    assert_int_equal(sse_write(&text, NULL, NULL, "0123456789", 10), -1);
    assert_string_equal(buffer_text(&text), "data: abc\n\n");
}

/* All events as "id|event|data;", whatever the pieces are. */
static char *read_events(const char *text, size_t length, size_t step)
{
    struct buffer events = BUFFER_INIT(4096);
    struct sse_parser parser;

    sse_parser_init(&parser, 1024);
    for (size_t at = 0; at < length;) {
        size_t piece = MIN(step, length - at);
        struct sse_event event;
        size_t used;
        int result = sse_parser_feed(&parser, text + at, piece, &used, &event);

        assert_true(result >= 0);
        assert_true(result == 1 || used == piece);
        at += used;
        if (result)
            buffer_appendf(&events, "%s|%s|%s;", event.id, event.event, event.data);
    }
    sse_parser_fini(&parser);
    return buffer_steal_text(&events);
}

static void assert_events(const char *text, const char *expected)
{
    for (size_t step = 1; step <= strlen(text); step++) {
        scoped(free) char *events = read_events(text, strlen(text), step);

        assert_string_equal(events, expected);
    }
}

static void events_are_read_however_the_text_is_cut(void **state UNUSED)
{
    assert_events("data: a\n\n", "|message|a;");
    assert_events("id: 1\nevent: x\ndata: a\ndata: b\n\ndata:c\n\n", "1|x|a\nb;1|message|c;");
    assert_events("\xef\xbb\xbf"
                  "data: a\n\n",
                  "|message|a;");
    assert_events(": comment\n\ndata\n\n", "|message|;");
    assert_events("data: a\n", "");
}

static void all_three_line_ends_are_understood(void **state UNUSED)
{
    assert_events("data: a\r\ndata: b\r\n\r\ndata: c\r\rdata: d\n\n",
                  "|message|a\nb;|message|c;|message|d;");
}

static void an_event_without_data_is_dropped_with_its_name(void **state UNUSED)
{
    assert_events("event: x\nid: 4\n\ndata: a\n\n", "4|message|a;");
}

static void what_is_written_is_read_back(void **state UNUSED)
{
    scoped(buffer_fini) struct buffer text = BUFFER_INIT(1024);

    sse_write(&text, "1", "e", "x\n\ny: z\n", 8);
    sse_write_comment(&text, "ping");
    sse_write(&text, "2", NULL, " lead", 5);
    assert_events(buffer_text(&text), "1|e|x\n\ny: z\n;2|message| lead;");
}

static void an_endless_line_or_event_is_refused(void **state UNUSED)
{
    struct sse_parser parser;
    struct sse_event event;
    size_t used;
    int result = 0;

    sse_parser_init(&parser, 16);
    assert_int_equal(sse_parser_feed(&parser, "data: 0123456789abcdef", 22, &used, &event), -1);
    sse_parser_fini(&parser);

    sse_parser_init(&parser, 16);
    for (int i = 0; i < 5 && result == 0; i++)
        result = sse_parser_feed(&parser, "data: 0123\n", 11, &used, &event);
    assert_int_equal(result, -1);
    sse_parser_fini(&parser);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_event_is_written_with_a_field_for_each_line),
        cmocka_unit_test(an_event_without_id_name_or_data_is_one_empty_line_of_data),
        cmocka_unit_test(an_event_that_does_not_fit_leaves_the_buffer_as_it_was),
        cmocka_unit_test(events_are_read_however_the_text_is_cut),
        cmocka_unit_test(all_three_line_ends_are_understood),
        cmocka_unit_test(an_event_without_data_is_dropped_with_its_name),
        cmocka_unit_test(what_is_written_is_read_back),
        cmocka_unit_test(an_endless_line_or_event_is_refused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
