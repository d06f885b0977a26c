/* SPDX-License-Identifier: Apache-2.0 */
/* Streams of a sandbox that is elsewhere: the pipe may be another one each time, it says at which
 * offset it begins, and the total says how many bytes are to come. */

#include "core/output/spool.h"

#include "base/buffer.h"

#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

#include <cmocka.h>

enum { CAP = 256 * 1024 };

struct fixture {
    struct loop *loop;
    char path[64];
    int directory;
    int writer; /* the bridge's end of the pipe; -1 without */
    struct spool *spool;
    unsigned changes;
};

static void on_change(void *context)
{
    ((struct fixture *)context)->changes++;
}

/* As a daemon does that begins: the file of an earlier one is found. */
static void open_spool(struct fixture *fixture)
{
    struct spool_options options = {
        .loop = fixture->loop,
        .directory = fixture->directory,
        .name = "output/exe_test.out",
        .cap_bytes = CAP,
        .stall_timeout_us = 10 * 1000 * 1000,
        .on_change = on_change,
        .context = fixture,
    };

    fixture->spool = spool_new(&options);
}

static int setup(void **state)
{
    struct fixture *fixture = calloc(1, sizeof(*fixture));

    signal(SIGPIPE, SIG_IGN);
    fixture->loop = loop_new(&clock_system);
    fixture->writer = -1;
    snprintf(fixture->path, sizeof(fixture->path), "/tmp/test-offsets-XXXXXX");
    assert_non_null(mkdtemp(fixture->path));
    fixture->directory = open(fixture->path, O_DIRECTORY | O_CLOEXEC);
    open_spool(fixture);
    *state = fixture;
    return 0;
}

static int teardown(void **state)
{
    struct fixture *fixture = *state;

    spool_free(fixture->spool);
    fd_close(fixture->writer);
    (void)unlinkat(fixture->directory, "output/exe_test.out", 0);
    (void)unlinkat(fixture->directory, "output", AT_REMOVEDIR);
    assert_int_equal(rmdir(fixture->path), 0);
    fd_close(fixture->directory);
    loop_free(fixture->loop);
    free(fixture);
    return 0;
}

static void turn(struct fixture *fixture)
{
    for (int i = 0; i < 4; i++)
        loop_turn(fixture->loop, 0);
}

static void attach_at(struct fixture *fixture, uint64_t base)
{
    int ends[2];

    assert_int_equal(pipe2(ends, O_CLOEXEC | O_NONBLOCK), 0);
    fd_close(fixture->writer);
    fixture->writer = ends[1];
    spool_attach_at(fixture->spool, ends[0], base);
}

static uint8_t byte_at(uint64_t offset)
{
    return (uint8_t)(1 + (offset * 7 + offset / 251) % 254);
}

/* The bridge passes the bytes between two offsets, as fast as the spool takes them. */
static void pass(struct fixture *fixture, uint64_t start, uint64_t end)
{
    while (start < end) {
        uint8_t bytes[4096];
        size_t count = (size_t)MIN(end - start, (uint64_t)sizeof(bytes));
        ssize_t written;

        for (size_t i = 0; i < count; i++)
            bytes[i] = byte_at(start + i);
        written = write(fixture->writer, bytes, count);
        if (written > 0)
            start += (uint64_t)written;
        else
            turn(fixture);
    }
    turn(fixture);
}

static void end_pipe(struct fixture *fixture)
{
    fd_close(steal_fd(&fixture->writer));
    turn(fixture);
}

/* The daemon is killed, and the next one begins. */
static void restart(struct fixture *fixture)
{
    spool_free(fixture->spool);
    fd_close(steal_fd(&fixture->writer));
    open_spool(fixture);
}

static void assert_bytes(struct fixture *fixture, uint64_t from, uint64_t to)
{
    uint64_t start, end;
    uint8_t bytes[4096];

    assert_true(spool_extent(fixture->spool, from, &start, &end));
    assert_int_equal(start, from);
    assert_int_equal(end, to);
    for (uint64_t at = from; at < to;) {
        ssize_t count =
            spool_read(fixture->spool, at, bytes, (size_t)MIN(to - at, (uint64_t)sizeof(bytes)));

        assert_true(count > 0);
        for (ssize_t i = 0; i < count; i++, at++)
            assert_int_equal(bytes[i], byte_at(at));
    }
}

static void assert_lost(struct fixture *fixture, uint64_t from, uint64_t to)
{
    const struct error *err = spool_error(fixture->spool);
    uint64_t start, end;
    char expected[64];

    snprintf(expected, sizeof(expected), "%llu bytes from offset %llu on are lost",
             (unsigned long long)(to - from), (unsigned long long)from);
    assert_non_null(err);
    assert_string_equal(err->name, "output_lost");
    assert_non_null(strstr(err->message, expected));
    assert_true(spool_has_hole(fixture->spool, &start, &end));
    assert_int_equal(start, from);
    assert_int_equal(end, to);
}

static bool keeps_notes(const struct fixture *fixture)
{
    return fsetxattr(fixture->directory, "user.test", "x", 1, 0) == 0;
}

/* --- where it begins -------------------------------------------------------------------------- */

static void bytes_that_are_in_the_file_are_skipped(void **state)
{
    struct fixture *fixture = *state;

    attach_at(fixture, 0);
    pass(fixture, 0, 1000);
    restart(fixture);
    attach_at(fixture, 600);
    assert_int_equal(spool_length(fixture->spool), 1000);
    pass(fixture, 600, 900);
    assert_int_equal(spool_length(fixture->spool), 1000);
    pass(fixture, 900, 2000);
    assert_bytes(fixture, 0, 2000);
    assert_null(spool_error(fixture->spool));
}

static void more_is_skipped_than_fits_into_a_pipe(void **state)
{
    struct fixture *fixture = *state;

    attach_at(fixture, 0);
    pass(fixture, 0, 200 * 1024);
    restart(fixture);
    attach_at(fixture, 0);
    pass(fixture, 0, 200 * 1024 + 7);
    assert_bytes(fixture, 0, 200 * 1024 + 7);
}

static void a_stream_that_continues_exactly_where_the_file_ends_has_nothing_to_skip(void **state)
{
    struct fixture *fixture = *state;

    attach_at(fixture, 0);
    pass(fixture, 0, 10);
    restart(fixture);
    attach_at(fixture, 10);
    pass(fixture, 10, 20);
    assert_bytes(fixture, 0, 20);
}

static void a_new_pipe_takes_the_place_of_one_with_bytes_in_it(void **state)
{
    struct fixture *fixture = *state;
    char bytes[10] = { 0 };

    attach_at(fixture, 0);
    pass(fixture, 0, 100);
    assert_int_equal(write(fixture->writer, bytes, sizeof(bytes)), sizeof(bytes)); /* not taken */
    attach_at(fixture, 50);
    pass(fixture, 50, 200);
    assert_bytes(fixture, 0, 200);
}

static void bytes_that_never_come_are_a_gap_with_its_reason(void **state)
{
    struct fixture *fixture = *state;
    scoped(buffer_fini) struct buffer text = BUFFER_INIT(1024);
    bool is_truncated;

    attach_at(fixture, 0);
    pass(fixture, 0, 100);
    restart(fixture);
    attach_at(fixture, 150);
    assert_int_equal(spool_length(fixture->spool), 150);
    pass(fixture, 150, 300);
    assert_int_equal(spool_length(fixture->spool), 300);
    assert_bytes(fixture, 0, 100);
    assert_bytes(fixture, 150, 300);
    assert_lost(fixture, 100, 150);
    assert_int_equal(spool_capture(fixture->spool, 1000, &text, &is_truncated), 0);
    assert_true(is_truncated);
    assert_non_null(strstr(buffer_text(&text), "50 bytes left out"));
}

static void a_later_daemon_finds_the_gap(void **state)
{
    struct fixture *fixture = *state;

    if (!keeps_notes(fixture))
        skip();
    attach_at(fixture, 0);
    pass(fixture, 0, 100);
    restart(fixture);
    attach_at(fixture, 20000);
    pass(fixture, 20000, 20010);
    restart(fixture);
    assert_int_equal(spool_length(fixture->spool), 20010);
    assert_lost(fixture, 100, 20000);
    attach_at(fixture, 20010);
    pass(fixture, 20010, 20020);
    assert_bytes(fixture, 0, 100);
    assert_bytes(fixture, 20000, 20020);
}

static void a_file_that_is_gone_is_a_gap_from_the_beginning(void **state)
{
    struct fixture *fixture = *state;

    attach_at(fixture, 5000);
    pass(fixture, 5000, 5010);
    assert_bytes(fixture, 5000, 5010);
    assert_lost(fixture, 0, 5000);
}

/* There is one gap: what lies between two is not read any more, and does not count as kept. */
static void a_second_gap_leaves_nothing_on_the_disk(void **state)
{
    struct fixture *fixture = *state;
    struct stat status;

    attach_at(fixture, 5000);
    pass(fixture, 5000, 105000);
    attach_at(fixture, 105010);
    pass(fixture, 105010, 105020);
    assert_lost(fixture, 0, 105010);
    assert_bytes(fixture, 105010, 105020);
    assert_int_equal(fstatat(fixture->directory, "output/exe_test.out", &status, 0), 0);
    assert_int_equal(status.st_size, 105020);
    assert_true(status.st_blocks * 512 < 50000);
}

static void a_gap_and_a_dropped_middle_are_both_left_out(void **state)
{
    struct fixture *fixture = *state;
    uint64_t start, end;

    attach_at(fixture, 0);
    pass(fixture, 0, 1000);
    restart(fixture);
    attach_at(fixture, 2000);
    pass(fixture, 2000, 2 * CAP);
    assert_int_equal(spool_length(fixture->spool), 2 * CAP);
    assert_bytes(fixture, 0, 1000);
    assert_true(spool_extent(fixture->spool, 1000, &start, &end));
    assert_int_equal(start, 2000);
    assert_true(end < CAP);
    assert_true(spool_extent(fixture->spool, end, &start, &end));
    assert_true(start > CAP / 2);
    assert_bytes(fixture, start, 2 * CAP);
    if (!keeps_notes(fixture))
        return;
    restart(fixture);
    assert_bytes(fixture, 0, 1000);
    assert_bytes(fixture, start, 2 * CAP);
}

static void an_offset_that_no_file_has_loses_the_output_and_nothing_else(void **state)
{
    struct fixture *fixture = *state;

    attach_at(fixture, INT64_MAX);
    pass(fixture, 0, 1000);
    assert_int_equal(spool_length(fixture->spool), (uint64_t)INT64_MAX + 1000);
    assert_non_null(spool_error(fixture->spool));
    spool_finish_at(fixture->spool, 0);
    assert_true(spool_is_finished(fixture->spool));
}

/* --- where it ends ---------------------------------------------------------------------------- */

static void output_is_complete_when_the_total_has_come(void **state)
{
    struct fixture *fixture = *state;

    attach_at(fixture, 0);
    pass(fixture, 0, 100);
    spool_finish_at(fixture->spool, 200);
    turn(fixture);
    assert_false(spool_is_finished(fixture->spool));
    pass(fixture, 100, 199);
    assert_false(spool_is_finished(fixture->spool));
    pass(fixture, 199, 200);
    assert_true(spool_is_finished(fixture->spool));
    assert_false(spool_is_closed(fixture->spool));
}

static void bytes_of_children_follow_those_of_the_program(void **state)
{
    struct fixture *fixture = *state;

    attach_at(fixture, 0);
    pass(fixture, 0, 100);
    spool_finish_at(fixture->spool, 60); /* less than was delivered */
    assert_true(spool_is_finished(fixture->spool));
    pass(fixture, 100, 300);
    end_pipe(fixture);
    assert_true(spool_is_closed(fixture->spool));
    assert_bytes(fixture, 0, 300);
    assert_null(spool_error(fixture->spool));
}

static void a_pipe_that_ends_too_early_is_followed_by_another(void **state)
{
    struct fixture *fixture = *state;

    attach_at(fixture, 0);
    pass(fixture, 0, 100);
    spool_finish_at(fixture->spool, 200);
    end_pipe(fixture);
    assert_true(spool_is_closed(fixture->spool));
    assert_false(spool_is_finished(fixture->spool));
    attach_at(fixture, 80);
    pass(fixture, 80, 200);
    assert_true(spool_is_finished(fixture->spool));
    assert_bytes(fixture, 0, 200);
    assert_null(spool_error(fixture->spool));
}

static void what_no_pipe_brings_any_more_is_lost(void **state)
{
    struct fixture *fixture = *state;
    unsigned changes;

    attach_at(fixture, 0);
    pass(fixture, 0, 100);
    spool_finish_at(fixture->spool, 250);
    end_pipe(fixture);
    changes = fixture->changes;
    spool_end_sources(fixture->spool);
    assert_true(fixture->changes > changes);
    assert_true(spool_is_finished(fixture->spool));
    assert_int_equal(spool_length(fixture->spool), 250);
    assert_bytes(fixture, 0, 100);
    assert_lost(fixture, 100, 250);
}

static void the_last_pipe_is_read_to_its_end_first(void **state)
{
    struct fixture *fixture = *state;

    attach_at(fixture, 0);
    spool_finish_at(fixture->spool, 250);
    spool_end_sources(fixture->spool);
    assert_false(spool_is_finished(fixture->spool));
    pass(fixture, 0, 200);
    end_pipe(fixture);
    assert_true(spool_is_finished(fixture->spool));
    assert_lost(fixture, 200, 250);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(bytes_that_are_in_the_file_are_skipped),
        TEST(more_is_skipped_than_fits_into_a_pipe),
        TEST(a_stream_that_continues_exactly_where_the_file_ends_has_nothing_to_skip),
        TEST(a_new_pipe_takes_the_place_of_one_with_bytes_in_it),
        TEST(bytes_that_never_come_are_a_gap_with_its_reason),
        TEST(a_later_daemon_finds_the_gap),
        TEST(a_file_that_is_gone_is_a_gap_from_the_beginning),
        TEST(a_second_gap_leaves_nothing_on_the_disk),
        TEST(a_gap_and_a_dropped_middle_are_both_left_out),
        TEST(an_offset_that_no_file_has_loses_the_output_and_nothing_else),
        TEST(output_is_complete_when_the_total_has_come),
        TEST(bytes_of_children_follow_those_of_the_program),
        TEST(a_pipe_that_ends_too_early_is_followed_by_another),
        TEST(what_no_pipe_brings_any_more_is_lost),
        TEST(the_last_pipe_is_read_to_its_end_first),
    };

    return cmocka_run_group_tests_name("core/output/spool_offsets", tests, NULL, NULL);
}
