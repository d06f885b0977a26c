/* SPDX-License-Identifier: Apache-2.0 */
#include "core/output/combined_output.h"

#include "base/buffer.h"

#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

enum { CAP = 256 * 1024, CHUNK = 32 * 1024, SECOND_US = 1000 * 1000 };

struct fixture {
    struct simulated_clock clock;
    struct loop *loop;
    char path[64];
    int directory;
    int writers[STREAM_COUNT]; /* the program's ends of the pipes */
    struct combined_output both;
};

static void open_stream(struct fixture *fixture, unsigned stream)
{
    struct spool_options options = {
        .loop = fixture->loop,
        .directory = fixture->directory,
        .cap_bytes = CAP,
        .stall_timeout_us = 10 * SECOND_US,
    };
    int ends[2];

    spool_file_name(options.name, "exe_1", stream ? SPOOL_STDERR : SPOOL_STDOUT);
    fixture->both.streams[stream] = spool_new(&options);
    spool_set_stream_order(fixture->both.streams[stream], fixture->both.order, stream);
    assert_int_equal(pipe2(ends, O_CLOEXEC), 0);
    fixture->writers[stream] = ends[1];
    spool_attach(fixture->both.streams[stream], ends[0]);
}

static int setup(void **state)
{
    static const uint64_t nothing[STREAM_COUNT];
    struct fixture *fixture = calloc(1, sizeof(*fixture));
    char name[SPOOL_NAME_SIZE];

    simulated_clock_init(&fixture->clock, SECOND_US, SECOND_US);
    fixture->loop = loop_new(&fixture->clock.clock);
    snprintf(fixture->path, sizeof(fixture->path), "/tmp/test-combined-XXXXXX");
    assert_non_null(mkdtemp(fixture->path));
    fixture->directory = open(fixture->path, O_DIRECTORY | O_CLOEXEC);
    assert_int_equal(mkdirat(fixture->directory, SPOOL_DIRECTORY, 0700), 0);
    spool_file_name(name, "exe_1", SPOOL_ORDER);
    fixture->both.order = stream_order_new(fixture->directory, name, nothing);
    for (unsigned i = 0; i < STREAM_COUNT; i++)
        open_stream(fixture, i);
    *state = fixture;
    return 0;
}

static int teardown(void **state)
{
    struct fixture *fixture = *state;

    for (unsigned i = 0; i < STREAM_COUNT; i++) {
        spool_free(fixture->both.streams[i]);
        close(fixture->writers[i]);
    }
    stream_order_free(fixture->both.order);
    spool_files_unlink(fixture->directory, "exe_1");
    assert_int_equal(unlinkat(fixture->directory, SPOOL_DIRECTORY, AT_REMOVEDIR), 0);
    assert_int_equal(rmdir(fixture->path), 0);
    close(fixture->directory);
    loop_free(fixture->loop);
    free(fixture);
    return 0;
}

/* The program writes, and the spool takes it before the next write. */
static void program_writes(struct fixture *fixture, unsigned stream, const char *text)
{
    size_t length = strlen(text);

    assert_int_equal(write(fixture->writers[stream], text, length), length);
    loop_turn(fixture->loop, 0);
    loop_turn(fixture->loop, 0);
}

static void program_floods(struct fixture *fixture, unsigned stream, size_t bytes)
{
    static char chunk[CHUNK + 1];

    memset(chunk, stream ? 'e' : 'o', CHUNK);
    for (size_t done = 0; done < bytes; done += CHUNK)
        program_writes(fixture, stream, chunk);
}

static struct combined_output alone(const struct fixture *fixture, unsigned stream)
{
    return (struct combined_output){ .streams = { fixture->both.streams[stream] } };
}

/* Everything that can be read, piece by piece; "~" stands where a piece does not begin at the end
 * of the one before. */
static void read_all(const struct combined_output *merged, struct buffer *text)
{
    struct combined_output_piece piece;
    uint64_t offset = 0;

    while (combined_output_find(merged, offset, &piece)) {
        char bytes[64];

        assert_true(piece.start >= offset && piece.end > piece.start);
        assert_true(piece.end - piece.start <= sizeof(bytes));
        if (piece.start > offset)
            buffer_append_byte(text, '~');
        assert_int_equal(spool_read(piece.spool, piece.place, bytes, piece.end - piece.start),
                         piece.end - piece.start);
        buffer_append(text, bytes, piece.end - piece.start);
        offset = piece.end;
    }
}

static void assert_reads(const struct combined_output *merged, const char *expected)
{
    scoped(buffer_fini) struct buffer text = BUFFER_INIT(1024);

    read_all(merged, &text);
    assert_string_equal(buffer_text(&text), expected);
    assert_int_equal(combined_output_length(merged), strlen(expected));
}

static void assert_positions(const struct combined_output *merged, uint64_t offset, uint64_t out,
                             uint64_t err)
{
    uint64_t positions[STREAM_COUNT];

    combined_output_positions(merged, offset, positions);
    assert_int_equal(positions[0], out);
    assert_int_equal(positions[1], err);
}

static void without_output_there_is_nothing_to_find(void **state)
{
    struct fixture *fixture = *state;
    struct combined_output_piece piece;
    uint64_t start, end;

    assert_int_equal(combined_output_length(&fixture->both), 0);
    assert_false(combined_output_find(&fixture->both, 0, &piece));
    assert_false(combined_output_has_gap(&fixture->both, &start, &end));
    assert_positions(&fixture->both, 0, 0, 0);
}

static void both_streams_are_read_in_the_order_they_came(void **state)
{
    struct fixture *fixture = *state;
    struct combined_output out = alone(fixture, 0), err = alone(fixture, 1);

    program_writes(fixture, 0, "one ");
    program_writes(fixture, 1, "TWO ");
    program_writes(fixture, 1, "THREE ");
    program_writes(fixture, 0, "four");
    assert_reads(&fixture->both, "one TWO THREE four");
    assert_reads(&out, "one four");
    assert_reads(&err, "TWO THREE ");
}

static void a_piece_ends_where_the_other_stream_goes_on(void **state)
{
    struct fixture *fixture = *state;
    struct combined_output_piece piece;

    program_writes(fixture, 0, "abc");
    program_writes(fixture, 1, "DE");
    program_writes(fixture, 0, "fg");
    assert_true(combined_output_find(&fixture->both, 1, &piece));
    assert_int_equal(piece.start, 1);
    assert_int_equal(piece.end, 3);
    assert_ptr_equal(piece.spool, fixture->both.streams[0]);
    assert_int_equal(piece.place, 1);
    assert_true(combined_output_find(&fixture->both, 4, &piece));
    assert_int_equal(piece.end, 5);
    assert_ptr_equal(piece.spool, fixture->both.streams[1]);
    assert_int_equal(piece.place, 1);
    assert_true(combined_output_find(&fixture->both, 6, &piece));
    assert_int_equal(piece.place, 4);
    assert_false(combined_output_find(&fixture->both, 7, &piece));
}

static void positions_say_how_far_each_stream_was_read(void **state)
{
    struct fixture *fixture = *state;
    struct combined_output out = alone(fixture, 0);

    program_writes(fixture, 0, "abc");
    program_writes(fixture, 1, "DE");
    program_writes(fixture, 0, "fg");
    assert_positions(&fixture->both, 0, 0, 0);
    assert_positions(&fixture->both, 2, 2, 0);
    assert_positions(&fixture->both, 4, 3, 1);
    assert_positions(&fixture->both, 6, 4, 2);
    assert_positions(&fixture->both, 7, 5, 2);
    assert_positions(&out, 4, 4, 0);
}

/* The dropped middle of one stream, with the bytes of the other that came between, is one gap. */
static void the_gap_spans_the_dropped_middle_and_all_between(void **state)
{
    struct fixture *fixture = *state;
    uint64_t hole_start, hole_end, start, end;
    struct combined_output_piece piece;

    program_writes(fixture, 1, "head");
    program_floods(fixture, 0, 4 * CAP);
    program_writes(fixture, 1, "tail");
    assert_true(spool_has_hole(fixture->both.streams[0], &hole_start, &hole_end));
    assert_true(combined_output_has_gap(&fixture->both, &start, &end));
    assert_int_equal(start, hole_start + 4);
    assert_int_equal(end, hole_end + 4);
    assert_int_equal(combined_output_length(&fixture->both), 4 * CAP + 8);

    assert_true(combined_output_find(&fixture->both, 4, &piece));
    assert_int_equal(piece.end, start);
    assert_true(combined_output_find(&fixture->both, start, &piece));
    assert_int_equal(piece.start, end);
    assert_int_equal(piece.place, hole_end);
    assert_ptr_equal(piece.spool, fixture->both.streams[0]);
    assert_true(combined_output_find(&fixture->both, 4 * CAP + 4, &piece));
    assert_ptr_equal(piece.spool, fixture->both.streams[1]);
    assert_int_equal(piece.place, 4);
    assert_int_equal(piece.end, 4 * CAP + 8);
}

static void one_stream_alone_has_the_gap_of_its_spool(void **state)
{
    struct fixture *fixture = *state;
    struct combined_output out = alone(fixture, 0), err = alone(fixture, 1);
    uint64_t hole_start, hole_end, start, end;
    struct combined_output_piece piece;

    program_writes(fixture, 1, "short");
    program_floods(fixture, 0, 4 * CAP);
    assert_true(spool_has_hole(fixture->both.streams[0], &hole_start, &hole_end));
    assert_true(combined_output_has_gap(&out, &start, &end));
    assert_int_equal(start, hole_start);
    assert_int_equal(end, hole_end);
    assert_true(combined_output_find(&out, hole_start, &piece));
    assert_int_equal(piece.start, hole_end);
    assert_int_equal(piece.place, hole_end);
    assert_false(combined_output_has_gap(&err, &start, &end));
    assert_reads(&err, "short");
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(without_output_there_is_nothing_to_find),
        TEST(both_streams_are_read_in_the_order_they_came),
        TEST(a_piece_ends_where_the_other_stream_goes_on),
        TEST(positions_say_how_far_each_stream_was_read),
        TEST(the_gap_spans_the_dropped_middle_and_all_between),
        TEST(one_stream_alone_has_the_gap_of_its_spool),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
