/* SPDX-License-Identifier: Apache-2.0 */
#include "wire/http/sse.h"

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
    assert_string_equal(buffer_text(&text), "data: \n\n");
}

static void an_event_that_does_not_fit_leaves_the_buffer_as_it_was(void **state UNUSED)
{
    scoped(buffer_fini) struct buffer text = BUFFER_INIT(20);

    assert_int_equal(sse_write(&text, NULL, NULL, "abc", 3), 0);
    assert_int_equal(sse_write(&text, NULL, NULL, "0123456789", 10), -1);
    assert_string_equal(buffer_text(&text), "data: abc\n\n");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_event_is_written_with_a_field_for_each_line),
        cmocka_unit_test(an_event_without_id_name_or_data_is_one_empty_line_of_data),
        cmocka_unit_test(an_event_that_does_not_fit_leaves_the_buffer_as_it_was),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
