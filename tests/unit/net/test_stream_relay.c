/* SPDX-License-Identifier: Apache-2.0 */
/* Bytes between two sockets: in order, each direction for itself, with a bound. */

#include "net/stream_relay.h"

#include "base/clock.h"
#include "base/macros.h"
#include "base/scoped.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

enum { BIG_BYTES = 20 * 1000 * 1000 };

static struct loop *loop;
static struct stream_relay relay;
static int near_end, far_end; /* what the test holds of the two */
static unsigned ends;

static void on_end(struct stream_relay *over)
{
    assert_ptr_equal(over, &relay);
    ends++;
}

static int setup(void **state)
{
    int first[2], second[2];

    (void)state;
    loop = loop_new(&clock_system);
    ends = 0;
    assert_return_code(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, first), errno);
    assert_return_code(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, second), errno);
    near_end = first[0];
    far_end = second[0];
    stream_relay_start(&relay, loop, first[1], second[1], on_end);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    stream_relay_stop(&relay);
    stream_relay_stop(&relay); /* once more does no harm */
    fd_close(near_end);
    fd_close(far_end);
    loop_free(loop);
    return 0;
}

/* What comes next at this end, at most `length` bytes; 0 at its end. */
static ssize_t take(int fd, void *bytes, size_t length)
{
    ssize_t count;

    for (int turn = 0; turn < 1000; turn++) {
        count = recv(fd, bytes, length, MSG_DONTWAIT);
        if (count >= 0 || errno != EAGAIN)
            return count;
        loop_turn(loop, 5);
    }
    fail_msg("nothing comes");
    return -1;
}

static void expect(int fd, const char *text)
{
    char bytes[64] = "";

    assert_int_equal(take(fd, bytes, sizeof(bytes) - 1), strlen(text));
    assert_string_equal(bytes, text);
}

static void bytes_pass_both_ways_and_what_was_read_before_comes_first(void **state)
{
    (void)state;
    stream_relay_put(&relay, 0, "before", 6);
    expect(near_end, "before");
    assert_int_equal(send(near_end, "question", 8, 0), 8);
    expect(far_end, "question");
    assert_int_equal(send(far_end, "answer", 6, 0), 6);
    expect(near_end, "answer");
    assert_int_equal(ends, 0);
}

static void each_direction_ends_by_itself(void **state)
{
    char byte;

    (void)state;
    assert_int_equal(send(near_end, "last", 4, 0), 4);
    shutdown(near_end, SHUT_WR);
    expect(far_end, "last");
    assert_int_equal(take(far_end, &byte, 1), 0);
    assert_int_equal(send(far_end, "still", 5, 0), 5);
    expect(near_end, "still");
    assert_int_equal(ends, 0);
    shutdown(far_end, SHUT_WR);
    assert_int_equal(take(near_end, &byte, 1), 0);
    for (int turn = 0; turn < 100 && !ends; turn++)
        loop_turn(loop, 5);
    assert_int_equal(ends, 1);
    assert_false(relay.has_failed);
}

static void a_side_that_is_gone_ends_the_relay(void **state)
{
    (void)state;
    fd_close(steal_fd(&far_end));
    assert_int_equal(send(near_end, "to nobody", 9, 0), 9);
    for (int turn = 0; turn < 100 && !ends; turn++)
        loop_turn(loop, 5);
    assert_int_equal(ends, 1);
    assert_true(relay.has_failed);
}

static uint8_t pattern(size_t at)
{
    return (uint8_t)(at * 7 + (at >> 9));
}

/* Writes what fits, reads slowly: everything arrives, and never much waits in between. */
static void a_slow_reader_holds_the_writer_back(void **state)
{
    static uint8_t bytes[100000];
    size_t sent = 0, received = 0;

    (void)state;
    while (received < BIG_BYTES) {
        ssize_t count;

        for (size_t i = 0; i < sizeof(bytes); i++)
            bytes[i] = pattern(sent + i);
        count = send(near_end, bytes, MIN(sizeof(bytes), BIG_BYTES - sent), MSG_DONTWAIT);
        sent += count > 0 ? (size_t)count : 0;
        loop_turn(loop, 0);
        assert_true(relay.ends[1].queue.pending <= 512 * 1024);
        if (count > 0)
            continue; /* until the writer is held back */
        count = take(far_end, bytes, 30011);
        for (ssize_t i = 0; i < count; i++)
            assert_int_equal(bytes[i], pattern(received + (size_t)i));
        received += (size_t)count;
    }
    assert_int_equal(sent, received);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(bytes_pass_both_ways_and_what_was_read_before_comes_first,
                                        setup, teardown),
        cmocka_unit_test_setup_teardown(each_direction_ends_by_itself, setup, teardown),
        cmocka_unit_test_setup_teardown(a_side_that_is_gone_ends_the_relay, setup, teardown),
        cmocka_unit_test_setup_teardown(a_slow_reader_holds_the_writer_back, setup, teardown),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
