/* SPDX-License-Identifier: Apache-2.0 */
#include "service/cursor.h"

#include "base/fd.h"
#include "base/log.h"
#include "harness/fake_programs.h"
#include "harness/world.h"

#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

enum { SPOOL_BYTES = 64 * 1024, STALL_MS = 10000 };

static struct world world;
static char state_path[64];

static int setup(void **state)
{
    (void)state;
    signal(SIGPIPE, SIG_IGN);
    snprintf(state_path, sizeof(state_path), "/tmp/test-cursor-XXXXXX");
    assert_non_null(mkdtemp(state_path));
    world_init(&world);
    world.state_dir = open(state_path, O_DIRECTORY | O_CLOEXEC);
    world.config.exec.stall_timeout_ms = STALL_MS;
    world.config.exec.output_spool_bytes = SPOOL_BYTES;
    world_start(&world);
    return 0;
}

static int teardown(void **state)
{
    char command[128];

    (void)state;
    world_fini(&world);
    fake_programs_clear();
    fd_close(world.state_dir);
    snprintf(command, sizeof(command), "rm -rf %s", state_path);
    return system(command);
}

/* --- a writer that collects ------------------------------------------------------------------ */

struct writer {
    struct cursor cursor;
    unsigned changes, stalls;
    uint64_t taken; /* what its client says */
    char text[256];
};

static void on_change(struct cursor *cursor)
{
    container_of(cursor, struct writer, cursor)->changes++;
}

static void on_stalled(struct cursor *cursor)
{
    container_of(cursor, struct writer, cursor)->stalls++;
}

static uint64_t taken(const struct cursor *cursor)
{
    return container_of(cursor, struct writer, cursor)->taken;
}

static void open_cursor(struct writer *writer, struct execution *execution,
                        enum cursor_streams streams)
{
    *writer = (struct writer){ 0 };
    writer->cursor.on_change = on_change;
    writer->cursor.on_stalled = on_stalled;
    writer->cursor.taken = taken;
    cursor_open(&writer->cursor, &(struct found_execution){ .core = world.core, .live = execution },
                streams);
    cursor_follow(&writer->cursor);
}

/* Reads what there is into the writer's text. */
static void read_all(struct writer *writer)
{
    struct cursor *cursor = &writer->cursor;
    struct combined_output_piece piece;
    bool is_lost;

    while (cursor_read(cursor, &piece, &is_lost)) {
        size_t length = (size_t)(piece.end - piece.start), at = strlen(writer->text);

        assert_false(is_lost);
        assert_true(at + length < sizeof(writer->text));
        assert_int_equal(spool_read(piece.spool, piece.place, writer->text + at, length), length);
        cursor->offset += length;
    }
}

static struct execution *start(void)
{
    static const char *const argv[] = { "/bin/true", NULL };
    struct session *session = world_open_simple(&world, "ann", NULL);
    bool is_repeated = true;
    struct error err = { 0 };
    struct execution *execution = start_execution(
        world.core, session_id(session),
        &(struct execution_request){ .argv = argv, .timeout_ms = -1 }, &is_repeated, &err);

    assert_non_null(execution);
    assert_false(is_repeated);
    execution_ref(execution);
    world_settle(&world);
    return execution;
}

static void write_errors(const char *text)
{
    assert_int_equal(write(fake_programs_last()->errors, text, strlen(text)), strlen(text));
    world_settle(&world);
}

static void write_output(const char *text)
{
    fake_program_write(fake_programs_last(), text);
    world_settle(&world);
}

/* --- tests ----------------------------------------------------------------------------------- */

static void a_cursor_reads_one_stream_while_it_grows(void **state)
{
    struct execution *execution = start();
    struct writer writer;

    (void)state;
    open_cursor(&writer, execution, CURSOR_STDOUT);
    read_all(&writer);
    assert_string_equal(writer.text, "");
    write_output("one ");
    write_errors("not this ");
    assert_true(writer.changes > 0);
    read_all(&writer);
    write_output("two");
    read_all(&writer);
    assert_string_equal(writer.text, "one two");
    assert_true(cursor_is_live(&writer.cursor));
    fake_program_exit(fake_programs_last(), 0);
    world_settle(&world);
    assert_false(cursor_is_live(&writer.cursor));
    assert_false(cursor_is_short(&writer.cursor));
    cursor_close(&writer.cursor, false);
    execution_unref(execution);
}

static void both_streams_are_read_in_the_order_they_came(void **state)
{
    struct execution *execution = start();
    struct writer writer;
    unsigned stream;
    uint64_t bytes;

    (void)state;
    open_cursor(&writer, execution, CURSOR_BOTH);
    write_output("a");
    write_errors("bc");
    write_output("d");
    read_all(&writer);
    assert_string_equal(writer.text, "abcd");

    assert_true(cursor_turn(&writer.cursor, &stream, &bytes));
    assert_int_equal(stream, 0);
    assert_int_equal(bytes, 1);
    writer.cursor.offsets[0] = 1;
    assert_true(cursor_turn(&writer.cursor, &stream, &bytes));
    assert_int_equal(stream, 1);
    assert_int_equal(bytes, 2);
    cursor_close(&writer.cursor, false);
    execution_unref(execution);
}

static void a_range_ends_where_it_was_asked_to(void **state)
{
    struct execution *execution = start();
    struct writer writer;

    (void)state;
    write_output("0123456789");
    open_cursor(&writer, execution, CURSOR_STDOUT);
    writer.cursor.offset = 2;
    writer.cursor.end = 5;
    assert_int_equal(cursor_count(&writer.cursor), 3);
    read_all(&writer);
    assert_string_equal(writer.text, "234");
    assert_false(cursor_is_short(&writer.cursor));
    cursor_close(&writer.cursor, false);
    execution_unref(execution);
}

static void an_announced_gap_is_passed_over(void **state)
{
    struct execution *execution = start();
    struct writer writer;

    (void)state;
    write_output("0123456789");
    open_cursor(&writer, execution, CURSOR_BOTH);
    writer.cursor.gap_start = 3;
    writer.cursor.gap_end = 8;
    writer.cursor.end = 10;
    assert_int_equal(cursor_count(&writer.cursor), 5);
    read_all(&writer);
    assert_string_equal(writer.text, "01289");
    cursor_close(&writer.cursor, false);
    execution_unref(execution);
}

/* Fills the spool and its pipe, until the program has to wait for the reader. */
static void fill(void)
{
    static char block[4096];

    memset(block, 'x', sizeof(block));
    assert_int_equal(fcntl(fake_programs_last()->output, F_SETFL, O_NONBLOCK), 0);
    for (int i = 0; i < 64; i++) {
        (void)!write(fake_programs_last()->output, block, sizeof(block));
        world_settle(&world);
    }
}

static void
a_reader_that_takes_something_is_waited_for_and_one_that_does_not_is_given_up(void **state)
{
    struct execution *execution = start();
    struct writer writer;

    (void)state;
    open_cursor(&writer, execution, CURSOR_STDOUT);
    fill();
    writer.taken = 1;
    world_advance(&world, STALL_MS + 1);
    assert_int_equal(writer.stalls, 0);
    world_advance(&world, STALL_MS + 1);
    assert_int_equal(writer.stalls, 1);
    cursor_close(&writer.cursor, false);
    execution_unref(execution);
}

/* --- waiting --------------------------------------------------------------------------------- */

static unsigned ends;

static void on_end(struct execution_wait *wait)
{
    ends++;
    execution_wait_stop(wait);
}

static void a_wait_ends_with_the_execution_or_with_its_time(void **state)
{
    struct execution *execution = start();
    struct execution_wait for_ever, for_a_second;

    (void)state;
    ends = 0;
    execution_wait_start(&for_ever, world.core, execution, -1, on_end);
    execution_wait_start(&for_a_second, world.core, execution, 1000, on_end);
    write_output("still running");
    assert_int_equal(ends, 0);
    world_advance(&world, 1000);
    assert_int_equal(ends, 1);
    fake_program_exit(fake_programs_last(), 0);
    world_settle(&world);
    assert_int_equal(ends, 2);
    execution_unref(execution);
}

static void an_execution_cannot_start_in_a_session_that_has_ended(void **state)
{
    bool is_repeated;
    struct error err = { 0 };

    (void)state;
    assert_null(start_execution(world.core, "ses_00000000000000000000000000",
                                &(struct execution_request){ 0 }, &is_repeated, &err));
    assert_string_equal(err.name, "session_ended");
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(a_cursor_reads_one_stream_while_it_grows),
        TEST(both_streams_are_read_in_the_order_they_came),
        TEST(a_range_ends_where_it_was_asked_to),
        TEST(an_announced_gap_is_passed_over),
        TEST(a_reader_that_takes_something_is_waited_for_and_one_that_does_not_is_given_up),
        TEST(a_wait_ends_with_the_execution_or_with_its_time),
        TEST(an_execution_cannot_start_in_a_session_that_has_ended),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
