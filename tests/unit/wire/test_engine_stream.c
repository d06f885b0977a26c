/* SPDX-License-Identifier: Apache-2.0 */
#include "base/buffer.h"
#include "base/macros.h"
#include "wire/engine_stream.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static void put_frame(struct buffer *out, uint8_t stream, const char *text)
{
    size_t length = strlen(text);
    uint8_t header[8] = { stream, 0, 0, 0, 0, 0, (uint8_t)(length >> 8), (uint8_t)length };

    buffer_append(out, header, sizeof(header));
    buffer_append(out, text, length);
}

/* Feeds `length` bytes at once; appends what is output. */
static enum engine_stream_event feed(struct engine_stream *stream, const uint8_t *data,
                                     size_t length, struct buffer *output)
{
    for (;;) {
        const uint8_t *run;
        size_t run_length, used;
        enum engine_stream_event event =
            engine_stream_next(stream, data, length, &used, &run, &run_length);

        assert_true(used <= length);
        data += used;
        length -= used;
        if (event != ENGINE_STREAM_OUTPUT) {
            assert_true(event == ENGINE_STREAM_BAD || !length);
            return event;
        }
        assert_true(run_length > 0);
        buffer_append(output, run, run_length);
    }
}

static void the_output_is_the_same_for_every_split(void **state UNUSED)
{
    static const char *const expected = "onetwothree";
    struct buffer input = BUFFER_INIT(4096);
    struct buffer output = BUFFER_INIT(4096);

    put_frame(&input, 1, "one");
    put_frame(&input, 2, "dropped");
    put_frame(&input, 1, "");
    put_frame(&input, 1, "two");
    put_frame(&input, 3, "dropped too");
    put_frame(&input, 0, "three");
    for (size_t a = 0; a <= input.length; a++) {
        for (size_t b = a; b <= input.length; b++) {
            struct engine_stream stream = { 0 };

            buffer_clear(&output);
            feed(&stream, input.data, a, &output);
            feed(&stream, input.data + a, b - a, &output);
            feed(&stream, input.data + b, input.length - b, &output);
            assert_string_equal(buffer_text(&output), expected);
            assert_true(engine_stream_is_whole(&stream));
        }
    }
    buffer_fini(&input);
    buffer_fini(&output);
}

static void a_run_points_into_the_input(void **state UNUSED)
{
    struct buffer input = BUFFER_INIT(4096);
    struct engine_stream stream = { 0 };
    const uint8_t *run;
    size_t length, used;

    put_frame(&input, 1, "abc");
    assert_int_equal(engine_stream_next(&stream, input.data, input.length, &used, &run, &length),
                     ENGINE_STREAM_OUTPUT);
    assert_ptr_equal(run, input.data + 8);
    assert_int_equal(length, 3);
    assert_int_equal(used, input.length);
    buffer_fini(&input);
}

static void a_frame_may_be_larger_than_any_read(void **state UNUSED)
{
    static const uint8_t header[8] = { 1, 0, 0, 0, 0xff, 0xff, 0xff, 0xff };
    static uint8_t block[65536];
    struct engine_stream stream = { 0 };
    uint64_t total = 0;
    const uint8_t *run;
    size_t length, used;

    assert_int_equal(engine_stream_next(&stream, header, 8, &used, &run, &length),
                     ENGINE_STREAM_NEED_MORE);
    while (total < UINT32_MAX) {
        assert_int_equal(engine_stream_next(&stream, block, sizeof(block), &used, &run, &length),
                         ENGINE_STREAM_OUTPUT);
        total += length;
    }
    assert_int_equal(total, UINT32_MAX);
    assert_int_equal(used, sizeof(block) - 1);
    assert_true(engine_stream_is_whole(&stream));
}

static void what_is_no_header_is_refused(void **state UNUSED)
{
    static const uint8_t bad[][8] = {
        { 4, 0, 0, 0, 0, 0, 0, 1 },
        { 1, 1, 0, 0, 0, 0, 0, 1 },
        { 1, 0, 1, 0, 0, 0, 0, 1 },
        { 1, 0, 0, 1, 0, 0, 0, 1 },
        { 'H', 'T', 'T', 'P', '/', '1', '.', '1' },
    };
    struct buffer output = BUFFER_INIT(64);

    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        struct engine_stream stream = { 0 };

        assert_int_equal(feed(&stream, bad[i], 8, &output), ENGINE_STREAM_BAD);
        assert_int_equal(output.length, 0);
    }
    buffer_fini(&output);
}

static void an_end_inside_of_a_frame_is_seen(void **state UNUSED)
{
    static const uint8_t frame[] = { 1, 0, 0, 0, 0, 0, 0, 3, 'a', 'b' };
    struct buffer output = BUFFER_INIT(64);

    for (size_t length = 0; length <= sizeof(frame); length++) {
        struct engine_stream stream = { 0 };

        feed(&stream, frame, length, &output);
        assert_int_equal(engine_stream_is_whole(&stream), length == 0);
    }
    buffer_fini(&output);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_output_is_the_same_for_every_split),
        cmocka_unit_test(a_run_points_into_the_input),
        cmocka_unit_test(a_frame_may_be_larger_than_any_read),
        cmocka_unit_test(what_is_no_header_is_refused),
        cmocka_unit_test(an_end_inside_of_a_frame_is_seen),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
