/* SPDX-License-Identifier: Apache-2.0 */
#include "core/output/spool.h"

#include "base/buffer.h"
#include "loop/flow.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <termios.h>
#include <unistd.h>

#include <cmocka.h>

enum { CAP = 256 * 1024, CHUNK = 32 * 1024, SECOND_US = 1000 * 1000 };

struct fixture {
    struct simulated_clock clock;
    struct loop *loop;
    struct flows *flows; /* NULL without */
    char path[64];
    int directory;
    int writer; /* the program's end of the pipe */
    struct spool *spool;
    unsigned changes;
};

static void on_change(void *context)
{
    ((struct fixture *)context)->changes++;
}

static struct spool *open_output(struct fixture *fixture)
{
    struct spool_options options = {
        .loop = fixture->loop,
        .flows = fixture->flows,
        .flow = "ses_test",
        .directory = fixture->directory,
        .name = "output/exe_test.out",
        .cap_bytes = CAP,
        .stall_timeout_us = 10 * SECOND_US,
        .on_change = on_change,
        .context = fixture,
    };

    return spool_new(&options);
}

/* A new pipe into the output. */
static void attach_pipe(struct fixture *fixture)
{
    int ends[2];

    assert_int_equal(pipe2(ends, O_CLOEXEC), 0);
    fixture->writer = ends[1];
    assert_return_code(fcntl(ends[1], F_SETFL, O_NONBLOCK), errno);
    spool_attach(fixture->spool, ends[0]);
}

static int setup(void **state)
{
    struct fixture *fixture = calloc(1, sizeof(*fixture));

    signal(SIGPIPE, SIG_IGN);
    simulated_clock_init(&fixture->clock, SECOND_US, SECOND_US);
    fixture->loop = loop_new(&fixture->clock.clock);
    snprintf(fixture->path, sizeof(fixture->path), "/tmp/test-output-XXXXXX");
    assert_non_null(mkdtemp(fixture->path));
    fixture->directory = open(fixture->path, O_DIRECTORY | O_CLOEXEC);
    fixture->spool = open_output(fixture);
    attach_pipe(fixture);
    *state = fixture;
    return 0;
}

static int teardown(void **state)
{
    struct fixture *fixture = *state;

    spool_free(fixture->spool);
    flows_free(fixture->flows);
    fd_close(fixture->writer);
    (void)unlinkat(fixture->directory, "output/exe_test.out", 0);
    (void)unlinkat(fixture->directory, "output", AT_REMOVEDIR);
    assert_int_equal(rmdir(fixture->path), 0);
    fd_close(fixture->directory);
    loop_free(fixture->loop);
    free(fixture);
    return 0;
}

static void turn(struct fixture *fixture, unsigned times)
{
    for (unsigned i = 0; i < times; i++)
        loop_turn(fixture->loop, 0);
}

static void close_writer(struct fixture *fixture)
{
    fd_close(fixture->writer);
    fixture->writer = -1;
    turn(fixture, 2);
}

/* The byte that belongs to an offset, so that every place in the stream is recognisable. */
static uint8_t byte_at(uint64_t offset)
{
    return (uint8_t)(1 + (offset * 7 + offset / 251) % 254);
}

/* Writes what the pipe takes, up to `length` bytes from stream position `offset`. */
static size_t program_writes(struct fixture *fixture, uint64_t offset, size_t length)
{
    static uint8_t bytes[CHUNK];
    size_t done = 0;

    while (done < length) {
        size_t count = MIN(length - done, sizeof(bytes));
        ssize_t written;

        for (size_t i = 0; i < count; i++)
            bytes[i] = byte_at(offset + done + i);
        written = write(fixture->writer, bytes, count);
        if (written < 0)
            break;
        done += (size_t)written;
    }
    return done;
}

/* Writes all of it while the loop runs; stops early when nothing moves any more. */
static uint64_t program_streams(struct fixture *fixture, uint64_t offset, uint64_t length)
{
    uint64_t done = 0;
    unsigned stuck = 0;

    while (done < length && stuck < 3) {
        size_t count = program_writes(fixture, offset + done, (size_t)MIN(length - done, 1u << 20));

        stuck = count ? 0 : stuck + 1;
        done += count;
        turn(fixture, 2);
    }
    return done;
}

static void assert_stored(struct spool *spool, uint64_t start, uint64_t end)
{
    static uint8_t bytes[CHUNK];

    while (start < end) {
        size_t count = (size_t)MIN(end - start, (uint64_t)sizeof(bytes));

        assert_int_equal(pread(spool_fd(spool), bytes, count, (off_t)start), count);
        for (size_t i = 0; i < count; i++)
            assert_int_equal(bytes[i], byte_at(start + i));
        start += count;
    }
}

static void a_program_without_output_leaves_no_file(void **state)
{
    struct fixture *fixture = *state;

    close_writer(fixture);
    assert_true(spool_is_closed(fixture->spool));
    assert_int_equal(spool_length(fixture->spool), 0);
    assert_int_equal(spool_fd(fixture->spool), -1);
    assert_int_equal(faccessat(fixture->directory, "output", F_OK, 0), -1);
}

static void bytes_reach_the_spool_in_order(void **state)
{
    struct fixture *fixture = *state;

    assert_int_equal(program_streams(fixture, 0, 100000), 100000);
    close_writer(fixture);
    assert_int_equal(spool_length(fixture->spool), 100000);
    assert_stored(fixture->spool, 0, 100000);
    assert_true(fixture->changes > 0);
    assert_true(spool_is_closed(fixture->spool));
    assert_false(spool_is_finished(fixture->spool));
}

static void finishing_takes_what_is_in_the_pipe_at_once(void **state)
{
    struct fixture *fixture = *state;

    assert_int_equal(program_writes(fixture, 0, 5000), 5000);
    spool_finish(fixture->spool);
    assert_true(spool_is_finished(fixture->spool));
    assert_int_equal(spool_length(fixture->spool), 5000);
}

static void what_has_ended_already_is_taken_when_it_finishes(void **state)
{
    struct fixture *fixture = *state;
    int ends[2];

    close_writer(fixture);
    assert_int_equal(pipe2(ends, O_CLOEXEC), 0);
    assert_int_equal(write(ends[1], "bytes", 5), 5);
    spool_take(fixture->spool, ends[0], false);
    turn(fixture, 2);
    assert_int_equal(spool_length(fixture->spool), 0);
    close(ends[1]);
    spool_finish(fixture->spool);
    assert_true(spool_is_finished(fixture->spool));
    assert_true(spool_is_closed(fixture->spool));
    assert_int_equal(spool_length(fixture->spool), 5);
}

static void a_background_child_does_not_hold_up_the_end_and_is_still_heard(void **state)
{
    struct fixture *fixture = *state;

    spool_finish(fixture->spool);
    assert_true(spool_is_finished(fixture->spool));
    assert_false(spool_is_closed(fixture->spool));

    program_writes(fixture, 0, 10);
    turn(fixture, 2);
    assert_int_equal(spool_length(fixture->spool), 10);
    close_writer(fixture);
    assert_true(spool_is_closed(fixture->spool));
}

static void over_the_cap_head_and_tail_stay_and_the_middle_leaves_the_disk(void **state)
{
    struct fixture *fixture = *state;
    uint64_t total = 8 * CAP, start, end;
    struct stat status;

    assert_int_equal(program_streams(fixture, 0, total), total);
    close_writer(fixture);

    assert_int_equal(spool_length(fixture->spool), total);
    assert_true(spool_has_hole(fixture->spool, &start, &end));
    assert_true(start <= CAP / 2 && start > CAP / 4);
    assert_true(end <= total - CAP / 2 + 4096 && end >= total - CAP);
    assert_stored(fixture->spool, 0, start);
    assert_stored(fixture->spool, end, total);
    assert_int_equal(fstat(spool_fd(fixture->spool), &status), 0);
    assert_int_equal(status.st_size, total);
    assert_true((uint64_t)status.st_blocks * 512 <= 2 * CAP);
}

static void extents_lead_around_the_hole(void **state)
{
    struct fixture *fixture = *state;
    uint64_t total = 4 * CAP, hole_start, hole_end, start, end;

    program_streams(fixture, 0, total);
    assert_true(spool_has_hole(fixture->spool, &hole_start, &hole_end));

    assert_true(spool_extent(fixture->spool, 10, &start, &end));
    assert_int_equal(start, 10);
    assert_int_equal(end, hole_start);
    assert_true(spool_extent(fixture->spool, hole_start, &start, &end));
    assert_int_equal(start, hole_end);
    assert_int_equal(end, total);
    assert_false(spool_extent(fixture->spool, total, &start, &end));
}

static void a_new_daemon_continues_at_the_size_of_the_file_and_finds_the_hole(void **state)
{
    struct fixture *fixture = *state;
    uint64_t total = 4 * CAP, start, end, again_start, again_end;

    program_streams(fixture, 0, total);
    assert_true(spool_has_hole(fixture->spool, &start, &end));
    spool_free(fixture->spool);
    fd_close(fixture->writer);

    fixture->spool = open_output(fixture);
    assert_int_equal(spool_length(fixture->spool), total);
    assert_true(spool_has_hole(fixture->spool, &again_start, &again_end));
    assert_int_equal(start, again_start);
    assert_int_equal(end, again_end);

    attach_pipe(fixture);
    assert_int_equal(program_streams(fixture, total, 1000), 1000);
    assert_int_equal(spool_length(fixture->spool), total + 1000);
    assert_stored(fixture->spool, end, total + 1000);
}

static void a_follower_that_reads_gets_every_byte(void **state)
{
    struct fixture *fixture = *state;
    struct spool_follower follower = { 0 };
    uint64_t total = 16 * CAP, written = 0, read_to = 0;

    spool_follow(fixture->spool, &follower, 0);
    while (read_to < total) {
        uint64_t start, end;

        written += program_writes(fixture, written, (size_t)MIN(total - written, 1u << 20));
        turn(fixture, 3);
        assert_true(spool_length(fixture->spool) <= read_to + CAP);
        assert_true(spool_extent(fixture->spool, read_to, &start, &end));
        assert_int_equal(start, read_to);
        end = MIN(end, start + 3 * CHUNK);
        assert_stored(fixture->spool, start, end);
        read_to = end;
        spool_follower_moved(fixture->spool, &follower, read_to);
    }
    assert_int_equal(written, total);
    spool_unfollow(fixture->spool, &follower);
}

static unsigned stalls;

static void on_stalled(struct spool_follower *follower)
{
    assert_false(list_is_linked(&follower->node));
    stalls++;
}

static void a_stalled_follower_is_given_up_and_stops_nobody(void **state)
{
    struct fixture *fixture = *state;
    struct spool_follower follower = { .on_stalled = on_stalled };
    uint64_t written;

    stalls = 0;
    spool_follow(fixture->spool, &follower, 0);
    written = program_streams(fixture, 0, 16 * CAP);
    assert_true(written < 8 * CAP); /* what the pipe holds */
    assert_int_equal(spool_length(fixture->spool), CAP);
    loop_advance(fixture->loop, &fixture->clock, 9 * SECOND_US);
    assert_int_equal(spool_length(fixture->spool), CAP);
    assert_int_equal(stalls, 0);

    loop_advance(fixture->loop, &fixture->clock, 2 * SECOND_US);
    assert_int_equal(stalls, 1);
    written += program_streams(fixture, written, 16 * CAP - written);
    assert_int_equal(spool_length(fixture->spool), 16 * CAP);
    spool_unfollow(fixture->spool, &follower);
}

static void silence_of_the_program_is_no_stall_of_the_reader(void **state)
{
    struct fixture *fixture = *state;
    struct spool_follower follower = { .on_stalled = on_stalled };

    stalls = 0;
    spool_follow(fixture->spool, &follower, 0);
    loop_advance(fixture->loop, &fixture->clock, 60 * SECOND_US);
    program_streams(fixture, 0, 4 * CAP);
    loop_advance(fixture->loop, &fixture->clock, 5 * SECOND_US);
    assert_int_equal(stalls, 0);
    spool_unfollow(fixture->spool, &follower);
}

static void a_vanished_follower_finds_its_place_when_it_comes_back_in_time(void **state)
{
    struct fixture *fixture = *state;
    struct spool_follower follower = { 0 };
    uint64_t written, start, end;

    spool_follow(fixture->spool, &follower, 0);
    written = program_streams(fixture, 0, 1000);
    spool_follower_moved(fixture->spool, &follower, 1000);
    spool_follower_vanished(fixture->spool, &follower);
    written += program_streams(fixture, written, 16 * CAP);
    assert_true(spool_length(fixture->spool) <= CAP + 1000);
    assert_true(spool_extent(fixture->spool, 1000, &start, &end));
    assert_int_equal(start, 1000);

    spool_follow(fixture->spool, &follower, 1000);
    spool_follower_moved(fixture->spool, &follower, CAP);
    written += program_streams(fixture, written, 1);
    assert_true(spool_length(fixture->spool) > CAP + 1000);
    spool_unfollow(fixture->spool, &follower);
}

static void a_follower_that_came_back_before_it_was_missed_leaves_no_place(void **state)
{
    struct fixture *fixture = *state;
    struct spool_follower old = { 0 }, new = { 0 };
    uint64_t written;

    spool_follow(fixture->spool, &old, 0);
    written = program_streams(fixture, 0, 1000);
    spool_follower_moved(fixture->spool, &old, 900);
    spool_follow(fixture->spool, &new, 1000);
    spool_follower_vanished(fixture->spool, &old);
    spool_follower_moved(fixture->spool, &new, CAP / 2);
    written += program_streams(fixture, written, 2 * CAP);
    assert_true(spool_length(fixture->spool) > CAP + 1000);
    spool_unfollow(fixture->spool, &new);
}

static void a_place_is_not_kept_for_longer_than_the_stall_timeout(void **state)
{
    struct fixture *fixture = *state;
    struct spool_follower follower = { 0 };
    uint64_t written;

    spool_follow(fixture->spool, &follower, 0);
    spool_follower_vanished(fixture->spool, &follower);
    written = program_streams(fixture, 0, 16 * CAP);
    assert_true(spool_length(fixture->spool) <= CAP);
    loop_advance(fixture->loop, &fixture->clock, 11 * SECOND_US);
    written += program_streams(fixture, written, 16 * CAP - written);
    assert_int_equal(spool_length(fixture->spool), 16 * CAP);
}

static void a_reader_of_the_last_daemon_finds_its_place_in_the_next(void **state)
{
    struct fixture *fixture = *state;
    struct spool_follower follower = { 0 };
    uint64_t start, end;

    spool_follow(fixture->spool, &follower, 0);
    program_streams(fixture, 0, CAP / 2);
    spool_free(fixture->spool);
    fd_close(fixture->writer);

    fixture->spool = open_output(fixture);
    attach_pipe(fixture);
    program_streams(fixture, CAP / 2, 16 * CAP);
    assert_true(spool_length(fixture->spool) <= CAP);
    assert_true(spool_extent(fixture->spool, 1000, &start, &end));
    assert_int_equal(start, 1000);
    loop_advance(fixture->loop, &fixture->clock, 11 * SECOND_US);
    assert_true(spool_length(fixture->spool) > CAP);
}

static void a_reader_that_leaves_before_the_next_daemon_has_the_pipe_finds_its_place(void **state)
{
    struct fixture *fixture = *state;
    struct spool_follower follower = { 0 };
    uint64_t start, end;

    spool_follow(fixture->spool, &follower, 0);
    program_streams(fixture, 0, CAP / 2);
    spool_free(fixture->spool);
    fd_close(fixture->writer);

    fixture->spool = open_output(fixture);
    spool_follow(fixture->spool, &follower, 1000);
    spool_follower_vanished(fixture->spool, &follower);
    attach_pipe(fixture);
    program_streams(fixture, CAP / 2, 16 * CAP);
    assert_true(spool_length(fixture->spool) <= CAP + 1000);
    assert_true(spool_extent(fixture->spool, 1000, &start, &end));
    assert_int_equal(start, 1000);
    loop_advance(fixture->loop, &fixture->clock, 11 * SECOND_US);
    assert_true(spool_length(fixture->spool) > CAP + 1000);
}

static void an_unwritable_spool_drops_and_counts_without_stopping_the_program(void **state)
{
    struct fixture *fixture = *state;
    uint64_t start, end;

    assert_int_equal(mkdirat(fixture->directory, "output", 0700), 0);
    assert_int_equal(mkdirat(fixture->directory, "output/exe_test.out", 0700), 0);
    assert_int_equal(program_streams(fixture, 0, 300000), 300000);
    assert_int_equal(spool_length(fixture->spool), 300000);
    assert_non_null(spool_error(fixture->spool));
    assert_false(spool_extent(fixture->spool, 0, &start, &end));
    assert_int_equal(unlinkat(fixture->directory, "output/exe_test.out", AT_REMOVEDIR), 0);
}

static void a_full_disk_keeps_what_was_written_and_drops_the_rest(void **state)
{
    struct fixture *fixture = *state;
    scoped(buffer_fini) struct buffer text = BUFFER_INIT(CAP);
    uint64_t start, end;
    bool truncated;

    program_streams(fixture, 0, 1000);
    /* Any write to a descriptor of /dev/full fails with ENOSPC, as on a full disk. */
    {
        scoped(fd_close) int full = open("/dev/full", O_RDWR | O_CLOEXEC);
        int saved = dup(spool_fd(fixture->spool));

        assert_true(full >= 0 && dup2(full, spool_fd(fixture->spool)) >= 0);
        assert_int_equal(program_streams(fixture, 1000, 200000), 200000);
        assert_true(dup2(saved, spool_fd(fixture->spool)) >= 0);
        fd_close(saved);
    }
    assert_int_equal(spool_length(fixture->spool), 201000);
    assert_non_null(spool_error(fixture->spool));
    assert_int_equal(spool_error(fixture->spool)->sys_errno, ENOSPC);
    assert_true(spool_extent(fixture->spool, 0, &start, &end));
    assert_int_equal(end, 1000);
    assert_int_equal(spool_capture(fixture->spool, 4096, &text, &truncated), 0);
    assert_true(truncated);
    assert_non_null(strstr(buffer_text(&text), "[… 200000 bytes left out …]"));
}

static void a_terminal_is_read_although_it_cannot_be_spliced(void **state)
{
    struct fixture *fixture = *state;
    scoped(fd_close) int slave = -1;
    int master = posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC);
    char text[6] = { 0 };

    assert_true(master >= 0 && grantpt(master) == 0 && unlockpt(master) == 0);
    slave = open(ptsname(master), O_RDWR | O_NOCTTY | O_CLOEXEC);
    assert_true(slave >= 0);
    close_writer(fixture);
    spool_attach(fixture->spool, master);

    assert_int_equal(write(slave, "hello", 5), 5);
    spool_finish(fixture->spool);
    assert_true(spool_is_finished(fixture->spool));
    assert_int_equal(pread(spool_fd(fixture->spool), text, 5, 0), 5);
    assert_string_equal(text, "hello");
    fd_close(steal_fd(&slave));
    turn(fixture, 2);
    assert_true(spool_is_closed(fixture->spool));
}

static int open_terminal(int *out_slave)
{
    struct termios raw;
    int master = posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC);

    assert_true(master >= 0 && grantpt(master) == 0 && unlockpt(master) == 0);
    *out_slave = open(ptsname(master), O_RDWR | O_NOCTTY | O_CLOEXEC);
    assert_true(*out_slave >= 0 && tcgetattr(*out_slave, &raw) == 0);
    cfmakeraw(&raw);
    assert_int_equal(tcsetattr(*out_slave, TCSANOW, &raw), 0);
    return master;
}

/* A daemon that reads until it is killed. */
static pid_t fork_reader(struct fixture *fixture, int master)
{
    pid_t child = fork();

    if (child)
        return child;
    fixture->loop = loop_new(&clock_system);
    fixture->spool = open_output(fixture);
    spool_attach(fixture->spool, master);
    loop_run(fixture->loop);
    _exit(0);
}

static void a_daemon_killed_while_it_reads_a_terminal_loses_no_byte(void **state)
{
    struct fixture *fixture = *state;
    scoped(fd_close) int slave = -1;
    int master = open_terminal(&slave);
    uint64_t written = 0;

    close_writer(fixture);
    spool_free(steal_ptr(&fixture->spool));
    assert_return_code(fcntl(slave, F_SETFL, O_NONBLOCK), errno);
    for (unsigned round = 0; round < 40; round++) {
        pid_t reader = fork_reader(fixture, master);
        uint64_t target = written + 20000 + round * 977;

        while (written < target) {
            uint8_t bytes[700];
            ssize_t count;

            for (size_t i = 0; i < sizeof(bytes); i++)
                bytes[i] = byte_at(written + i);
            count = write(slave, bytes, sizeof(bytes));
            written += count > 0 ? (uint64_t)count : 0;
        }
        kill(reader, SIGKILL);
        assert_int_equal(waitpid(reader, NULL, 0), reader);
    }
    fixture->spool = open_output(fixture);
    spool_attach(fixture->spool, master);
    fd_close(steal_fd(&slave));
    /* The kernel brings the rest to the other end when it has the time. */
    for (unsigned i = 0; i < 6000 && !spool_is_closed(fixture->spool); i++)
        loop_turn(fixture->loop, 10);
    assert_int_equal(spool_length(fixture->spool), written);
    assert_stored(fixture->spool, 0, MIN(written, (uint64_t)CAP / 2));
    assert_stored(fixture->spool, written - CAP / 4, written);
}

static void what_could_not_be_kept_at_the_end_is_a_hole(void **state)
{
    struct fixture *fixture = *state;
    scoped(fd_close) int full = open("/dev/full", O_RDWR | O_CLOEXEC);
    uint64_t start, end;

    program_streams(fixture, 0, 1000);
    assert_false(spool_has_hole(fixture->spool, &start, &end));
    assert_true(dup2(full, spool_fd(fixture->spool)) >= 0);
    program_streams(fixture, 1000, 500);
    assert_true(spool_has_hole(fixture->spool, &start, &end));
    assert_int_equal(start, 1000);
    assert_int_equal(end, 1500);
}

static void a_record_knows_of_bytes_that_the_file_does_not_have(void **state)
{
    struct fixture *fixture = *state;
    scoped(buffer_fini) struct buffer text = BUFFER_INIT(CAP);
    struct spool_options options = {
        .loop = fixture->loop,
        .directory = fixture->directory,
        .name = "output/exe_test.out",
        .cap_bytes = CAP,
        .recorded_bytes = 4321,
    };
    scoped(spool_free) struct spool *spool = spool_new(&options);
    uint64_t start, end;
    bool truncated = false;

    assert_int_equal(spool_length(spool), 4321);
    assert_non_null(spool_error(spool));
    assert_true(spool_has_hole(spool, &start, &end));
    assert_int_equal(start, 0);
    assert_int_equal(end, 4321);
    assert_int_equal(spool_capture(spool, 1000, &text, &truncated), 0);
    assert_true(truncated);
    assert_non_null(strstr(buffer_text(&text), "4321 bytes left out"));
}

static void a_spool_that_cannot_be_read_says_so(void **state)
{
    struct fixture *fixture = *state;
    scoped(buffer_fini) struct buffer text = BUFFER_INIT(CAP);
    scoped(fd_close) int unreadable = open(".", O_PATH | O_DIRECTORY | O_CLOEXEC);
    bool truncated = false;

    program_streams(fixture, 0, 1000);
    assert_null(spool_error(fixture->spool));
    assert_true(dup2(unreadable, spool_fd(fixture->spool)) >= 0);
    assert_int_equal(spool_capture(fixture->spool, 4096, &text, &truncated), -1);
    assert_true(truncated);
    assert_non_null(spool_error(fixture->spool));
}

static void a_short_output_is_captured_whole(void **state)
{
    struct fixture *fixture = *state;
    scoped(buffer_fini) struct buffer text = BUFFER_INIT(CAP);
    bool truncated = true;

    assert_int_equal(write(fixture->writer, "grüße", 7), 7);
    turn(fixture, 2);
    assert_int_equal(spool_capture(fixture->spool, 7, &text, &truncated), 0);
    assert_false(truncated);
    assert_string_equal(buffer_text(&text), "grüße");
}

static off_t file_bytes(struct fixture *fixture)
{
    struct stat status;

    assert_return_code(fstat(spool_fd(fixture->spool), &status), errno);
    return status.st_size;
}

/* An output that shares the turns of the loop, and reads a terminal. */
static int attach_shared_terminal(struct fixture *fixture, int *out_slave)
{
    int master = open_terminal(out_slave);

    close_writer(fixture);
    spool_free(fixture->spool);
    fixture->flows = flows_new(fixture->loop);
    fixture->spool = open_output(fixture);
    spool_attach(fixture->spool, master);
    return master; /* borrowed */
}

/* Returns when the kernel has brought it to the other end. */
static void write_through(int master, int slave, const char *text)
{
    struct pollfd ready = { .fd = master, .events = POLLIN };

    assert_int_equal(write(slave, text, strlen(text)), strlen(text));
    assert_int_equal(poll(&ready, 1, 60000), 1);
}

static void a_terminal_that_has_written_is_left_alone_for_a_pause(void **state)
{
    struct fixture *fixture = *state;
    scoped(fd_close) int slave = -1;
    int master = attach_shared_terminal(fixture, &slave);

    write_through(master, slave, "one");
    turn(fixture, 2);
    assert_int_equal(spool_length(fixture->spool), 3);
    write_through(master, slave, "two");
    turn(fixture, 20);
    assert_int_equal(spool_length(fixture->spool), 3);
    loop_advance(fixture->loop, &fixture->clock, FLOWS_PAUSE_US);
    assert_int_equal(spool_length(fixture->spool), 6);

    /* The end of the program does not wait for a pause. */
    write_through(master, slave, "three");
    spool_finish(fixture->spool);
    assert_true(spool_is_finished(fixture->spool));
    assert_int_equal(spool_length(fixture->spool), 11);
}

static void a_terminal_that_writes_has_room_until_it_is_quiet(void **state)
{
    struct fixture *fixture = *state;
    scoped(fd_close) int slave = -1;
    int master = attach_shared_terminal(fixture, &slave);
    off_t ahead;

    write_through(master, slave, "one");
    turn(fixture, 2);
    ahead = file_bytes(fixture);
    assert_true(ahead >= 64 * 1024);
    for (unsigned i = 0; i < 40; i++) {
        write_through(master, slave, ", one more");
        loop_advance(fixture->loop, &fixture->clock, FLOWS_PAUSE_US);
        assert_int_equal(spool_length(fixture->spool), 3 + (i + 1) * 10);
        assert_int_equal(file_bytes(fixture), ahead);
    }
    loop_advance(fixture->loop, &fixture->clock, SECOND_US);
    assert_int_equal(file_bytes(fixture), spool_length(fixture->spool));
    write_through(master, slave, ", and it is watched again");
    turn(fixture, 2);
    assert_int_equal(spool_length(fixture->spool), 3 + 40 * 10 + 25);
    fd_close(steal_fd(&slave));
    loop_advance(fixture->loop, &fixture->clock, SECOND_US);
    assert_true(spool_is_closed(fixture->spool));
    assert_int_equal(file_bytes(fixture), spool_length(fixture->spool));
}

static void a_capture_of_nothing_is_empty(void **state)
{
    struct fixture *fixture = *state;
    scoped(buffer_fini) struct buffer text = BUFFER_INIT(CAP);
    bool truncated = true;

    assert_int_equal(spool_capture(fixture->spool, 100, &text, &truncated), 0);
    assert_false(truncated);
    assert_int_equal(text.length, 0);
}

static void a_capture_has_head_and_tail_and_says_how_much_is_missing(void **state)
{
    struct fixture *fixture = *state;
    scoped(buffer_fini) struct buffer text = BUFFER_INIT(CAP);
    bool truncated = false;

    assert_int_equal(write(fixture->writer, "aaaaabbbbbbbbbbzzzzz", 20), 20);
    turn(fixture, 2);
    assert_int_equal(spool_capture(fixture->spool, 10, &text, &truncated), 0);
    assert_true(truncated);
    assert_string_equal(buffer_text(&text), "aaaaa\n[… 10 bytes left out …]\nzzzzz");
}

static void a_capture_does_not_cut_characters_in_two(void **state)
{
    struct fixture *fixture = *state;
    scoped(buffer_fini) struct buffer text = BUFFER_INIT(CAP);
    bool truncated = false;

    /* Five times "ü", two bytes each: a limit of 6 cuts both ends in the middle of one. */
    assert_int_equal(write(fixture->writer, "üüüüü", 10), 10);
    turn(fixture, 2);
    assert_int_equal(spool_capture(fixture->spool, 6, &text, &truncated), 0);
    assert_string_equal(buffer_text(&text), "ü\n[… 6 bytes left out …]\nü");
}

static void a_capture_of_a_spool_with_a_hole_skips_it(void **state)
{
    struct fixture *fixture = *state;
    scoped(buffer_fini) struct buffer text = BUFFER_INIT(8 * CAP);
    uint64_t start, end;
    bool truncated = false;

    program_streams(fixture, 0, 4 * CAP);
    assert_true(spool_has_hole(fixture->spool, &start, &end));
    assert_int_equal(spool_capture(fixture->spool, 4 * CAP, &text, &truncated), 0);
    assert_true(truncated);
    assert_true(text.length < start + (4 * CAP - end) + 100);
    assert_int_equal(text.data[0], byte_at(0));
    assert_int_equal(text.data[text.length - 1], byte_at(4 * CAP - 1));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
        TEST(a_program_without_output_leaves_no_file),
        TEST(bytes_reach_the_spool_in_order),
        TEST(finishing_takes_what_is_in_the_pipe_at_once),
        TEST(what_has_ended_already_is_taken_when_it_finishes),
        TEST(a_background_child_does_not_hold_up_the_end_and_is_still_heard),
        TEST(over_the_cap_head_and_tail_stay_and_the_middle_leaves_the_disk),
        TEST(extents_lead_around_the_hole),
        TEST(a_new_daemon_continues_at_the_size_of_the_file_and_finds_the_hole),
        TEST(a_follower_that_reads_gets_every_byte),
        TEST(a_stalled_follower_is_given_up_and_stops_nobody),
        TEST(silence_of_the_program_is_no_stall_of_the_reader),
        TEST(a_vanished_follower_finds_its_place_when_it_comes_back_in_time),
        TEST(a_reader_that_leaves_before_the_next_daemon_has_the_pipe_finds_its_place),
        TEST(a_follower_that_came_back_before_it_was_missed_leaves_no_place),
        TEST(a_place_is_not_kept_for_longer_than_the_stall_timeout),
        TEST(a_reader_of_the_last_daemon_finds_its_place_in_the_next),
        TEST(an_unwritable_spool_drops_and_counts_without_stopping_the_program),
        TEST(a_full_disk_keeps_what_was_written_and_drops_the_rest),
        TEST(a_terminal_is_read_although_it_cannot_be_spliced),
        TEST(a_daemon_killed_while_it_reads_a_terminal_loses_no_byte),
        TEST(what_could_not_be_kept_at_the_end_is_a_hole),
        TEST(a_record_knows_of_bytes_that_the_file_does_not_have),
        TEST(a_spool_that_cannot_be_read_says_so),
        TEST(a_short_output_is_captured_whole),
        TEST(a_terminal_that_has_written_is_left_alone_for_a_pause),
        TEST(a_terminal_that_writes_has_room_until_it_is_quiet),
        TEST(a_capture_of_nothing_is_empty),
        TEST(a_capture_has_head_and_tail_and_says_how_much_is_missing),
        TEST(a_capture_does_not_cut_characters_in_two),
        TEST(a_capture_of_a_spool_with_a_hole_skips_it),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
