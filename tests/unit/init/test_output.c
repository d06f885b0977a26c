/* SPDX-License-Identifier: Apache-2.0 */
#include "init/files/file_output.h"

#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#define UNUSED __attribute__((unused))

struct fixture {
    int reader;
    char bytes[64];
    struct file_output output;
};

static int open_pipe(void **state)
{
    static struct fixture fixture;
    int ends[2];

    if (pipe2(ends, O_CLOEXEC | O_NONBLOCK) < 0)
        return -1;
    fixture = (struct fixture){ .reader = ends[0] };
    fixture.output = (struct file_output){ .fd = ends[1],
                                           .bytes = fixture.bytes,
                                           .size = sizeof(fixture.bytes) };
    *state = &fixture;
    return 0;
}

static int close_pipe(void **state)
{
    struct fixture *fixture = *state;

    close(fixture->reader);
    close(fixture->output.fd);
    return 0;
}

static ssize_t take(struct fixture *fixture, char *out, size_t size)
{
    return read(fixture->reader, out, size);
}

static void small_pieces_are_gathered_until_they_are_flushed(void **state)
{
    struct fixture *fixture = *state;
    char text[256];

    file_output_put(&fixture->output, "one ", 4);
    file_output_put(&fixture->output, "two", 3);
    assert_int_equal(take(fixture, text, sizeof(text)), -1);
    file_output_flush(&fixture->output);
    assert_int_equal(take(fixture, text, sizeof(text)), 7);
    assert_memory_equal(text, "one two", 7);
}

static void a_piece_that_does_not_fit_keeps_the_order(void **state)
{
    struct fixture *fixture = *state;
    char large[200];
    char text[512];

    memset(large, 'L', sizeof(large));
    file_output_put(&fixture->output, "first", 5);
    file_output_put(&fixture->output, large, sizeof(large)); /* larger than the buffer */
    file_output_put(&fixture->output, "last", 4);
    file_output_flush(&fixture->output);
    assert_int_equal(take(fixture, text, sizeof(text)), 209);
    assert_memory_equal(text, "first", 5);
    assert_memory_equal(text + 5, large, sizeof(large));
    assert_memory_equal(text + 205, "last", 4);
}

static void a_note_can_be_read_back(void **state)
{
    struct fixture *fixture = *state;
    struct protocol_note note = { .kind = 3, .number = 42 };
    struct protocol_note_view view;
    char text[256];
    ssize_t length;

    file_output_note(&fixture->output, &note, "a/path", "some text", 9);
    file_output_note(&fixture->output, &note, NULL, NULL, 0); /* flushes the first */
    file_output_flush(&fixture->output);
    length = take(fixture, text, sizeof(text));
    assert_true(length > 0);
    assert_int_equal(protocol_note_decode(text, (size_t)length, &view), sizeof(note) + 15);
    assert_int_equal(view.fixed.number, 42);
    assert_memory_equal(view.path, "a/path", 6);
    assert_memory_equal(view.text, "some text", 9);
    assert_int_equal((size_t)length, 2 * sizeof(note) + 15);
}

static void a_reader_that_is_gone_ends_the_work(void **state)
{
    struct fixture *fixture = *state;

    signal(SIGPIPE, SIG_IGN);
    assert_true(file_output_is_wanted(&fixture->output));
    close(fixture->reader);
    assert_false(file_output_is_wanted(&fixture->output));
    fixture->output.is_broken = false;
    file_output_put(&fixture->output, "lost", 4);
    file_output_flush(&fixture->output); /* comes back instead of trying for ever */
    assert_true(fixture->output.is_broken);
    fixture->reader = -1;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(small_pieces_are_gathered_until_they_are_flushed, open_pipe,
                                        close_pipe),
        cmocka_unit_test_setup_teardown(a_piece_that_does_not_fit_keeps_the_order, open_pipe,
                                        close_pipe),
        cmocka_unit_test_setup_teardown(a_note_can_be_read_back, open_pipe, close_pipe),
        cmocka_unit_test_setup_teardown(a_reader_that_is_gone_ends_the_work, open_pipe, close_pipe),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
