/* SPDX-License-Identifier: Apache-2.0 */
/* Bytes through a bridge: windows, acknowledgements, ends, cuts. */

#include "fake_relay.h"

#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

static uint8_t bytes[RELAY_MAX_WINDOW];

static void close_all(int *fds, unsigned count)
{
    for (unsigned i = 0; i < count; i++)
        fd_close(steal_fd(&fds[i]));
}

/* A process without input: its output on channel 1, its errors on channel 2. */
static void start(struct stage *stage, int fds[PROTOCOL_MAX_FDS])
{
    stage_init(stage);
    relay_up(stage);
    relay_start_process(stage, 5, 1, false);
    assert_int_equal(agent_take_started(stage, fds), 2);
}

/* With input on 1, output on 2, errors on 3. */
static void start_with_input(struct stage *stage, int fds[PROTOCOL_MAX_FDS])
{
    stage_init(stage);
    relay_up(stage);
    relay_start_process(stage, 5, 1, true);
    assert_int_equal(agent_take_started(stage, fds), 3);
}

/* Says bytes of a stream from `offset` on, in frames. */
static void say_stream(struct stage *stage, uint16_t channel, uint64_t offset, size_t length)
{
    while (length) {
        size_t piece = MIN(length, (size_t)RELAY_MAX_DATA);

        fill(bytes, offset, piece);
        relay_say_data(stage, channel, offset, bytes, piece);
        offset += piece;
        length -= piece;
    }
    turns(stage);
}

/* Reads `length` bytes of a stream, which has them at `offset`. */
static void read_stream(struct stage *stage, int fd, uint64_t offset, size_t length)
{
    while (length) {
        ssize_t count = read(fd, bytes, MIN(length, sizeof(bytes)));

        if (count < 0) {
            assert_int_equal(errno, EAGAIN);
            turns(stage);
            count = read(fd, bytes, MIN(length, sizeof(bytes)));
        }
        assert_true(count > 0);
        for (ssize_t i = 0; i < count; i++)
            assert_int_equal(bytes[i], byte_at(offset + (uint64_t)i));
        offset += (uint64_t)count;
        length -= (size_t)count;
        turns(stage);
    }
}

/* --- output ------------------------------------------------------------------------------------ */

static void output_is_acknowledged_when_it_has_left_the_pipe(void **state UNUSED)
{
    struct stage stage;
    int fds[PROTOCOL_MAX_FDS];

    start(&stage, fds);
    say_stream(&stage, 1, 0, 1000);
    relay_expect_nothing(&stage);
    read_stream(&stage, fds[0], 0, 1000);
    relay_expect(&stage, RELAY_ACK, 1);
    assert_int_equal(stage.frame.offset, 1000);
    assert_int_equal(stage.frame.flags, 0);

    say_stream(&stage, 1, 1000, 200000);
    read_stream(&stage, fds[0], 1000, 100000);
    relay_expect(&stage, RELAY_ACK, 1);
    assert_true(stage.frame.offset > 1000 && stage.frame.offset <= 101000);
    close_all(fds, 2);
    stage_fini(&stage);
}

static void output_that_nobody_reads_for_long_is_acknowledged_soon_after(void **state UNUSED)
{
    struct stage stage;
    int fds[PROTOCOL_MAX_FDS];

    start(&stage, fds);
    say_stream(&stage, 1, 0, 1000);
    for (unsigned i = 0; i < 100; i++)
        turns(&stage);
    relay_expect_nothing(&stage);
    read_stream(&stage, fds[0], 0, 1000);
    loop_advance(stage.loop, &stage.clock, 100 * 1000);
    relay_expect(&stage, RELAY_ACK, 1);
    assert_int_equal(stage.frame.offset, 1000);
    close_all(fds, 2);
    stage_fini(&stage);
}

static void the_end_of_output_comes_after_its_last_byte(void **state UNUSED)
{
    struct stage stage;
    int fds[PROTOCOL_MAX_FDS];
    char byte;

    start(&stage, fds);
    say_stream(&stage, 1, 0, 200000);
    relay_say_end(&stage, 1, 200000);
    relay_say_end(&stage, 2, 0);
    relay_expect(&stage, RELAY_ACK, 2); /* there was nothing in it */
    assert_int_equal(stage.frame.flags, RELAY_ACK_END);
    read_stream(&stage, fds[0], 0, 199999);
    while (relay_hear(&stage))
        assert_false(stage.frame.type == RELAY_ACK && stage.frame.flags & RELAY_ACK_END);
    read_stream(&stage, fds[0], 199999, 1);
    relay_expect(&stage, RELAY_ACK, 1);
    assert_int_equal(stage.frame.offset, 200000);
    assert_int_equal(stage.frame.flags, RELAY_ACK_END);
    assert_int_equal(read(fds[0], &byte, 1), 0);
    assert_int_equal(read(fds[1], &byte, 1), 0);
    close_all(fds, 2);

    relay_start_process(&stage, 6, 1, false); /* the numbers are free again */
    assert_int_equal(agent_take_started(&stage, fds), 2);
    close_all(fds, 2);
    stage_fini(&stage);
}

static void a_window_fits_though_the_pipe_is_small(void **state UNUSED)
{
    struct stage stage;
    int fds[PROTOCOL_MAX_FDS];
    uint64_t acked = 0;

    start(&stage, fds);
    say_stream(&stage, 1, 0, RELAY_WINDOW);
    assert_true(bridge_is_up(stage.bridge));
    for (uint64_t at = 0; at < 8 * RELAY_WINDOW; at += 4096) {
        read_stream(&stage, fds[0], at, 4096);
        while (relay_hear(&stage)) {
            if (stage.frame.type != RELAY_ACK)
                continue;
            assert_true(stage.frame.offset > acked);
            say_stream(&stage, 1, acked + RELAY_WINDOW, stage.frame.offset - acked);
            acked = stage.frame.offset;
        }
    }
    assert_true(bridge_is_up(stage.bridge));
    close_all(fds, 2);
    stage_fini(&stage);
}

static void forget(struct stage *stage)
{
    struct protocol_forget_many message = {
        .header = protocol_header(PROTOCOL_FORGET_MANY, sizeof(message), 0, 0),
        .count = 2,
        .processes = { 99, 5 },
    };

    agent_say(stage, &message, sizeof(message), -1);
    relay_expect(stage, RELAY_MESSAGE, 0);
}

/* A daemon that stops closes the pipes of programs that go on: the next one gets the bytes. */
static void output_that_was_left_in_the_pipe_is_not_acknowledged(void **state UNUSED)
{
    struct stage stage;
    int fds[PROTOCOL_MAX_FDS];

    start(&stage, fds);
    say_stream(&stage, 1, 0, 1000);
    assert_int_equal(read(fds[0], bytes, 300), 300);
    fd_close(steal_fd(&fds[0]));
    relay_expect(&stage, RELAY_CLOSE, 1);
    relay_expect(&stage, RELAY_ACK, 1);
    assert_int_equal(stage.frame.offset, 300);
    assert_int_equal(stage.frame.flags, 0);
    say_stream(&stage, 1, 1000, 100); /* it was under way */
    relay_say_end(&stage, 1, 1100);
    relay_expect_nothing(&stage);

    forget(&stage);
    relay_expect(&stage, RELAY_ACK, 1);
    assert_int_equal(stage.frame.flags, RELAY_ACK_END);
    assert_int_equal(stage.frame.offset, 1100);
    assert_true(bridge_is_up(stage.bridge));
    close_all(fds, 2);
    stage_fini(&stage);
}

static void a_reader_that_has_taken_all_and_closes_is_done(void **state UNUSED)
{
    struct stage stage;
    int fds[PROTOCOL_MAX_FDS];

    start(&stage, fds);
    say_stream(&stage, 1, 0, 100);
    assert_int_equal(read(fds[0], bytes, 100), 100);
    fd_close(steal_fd(&fds[0]));
    relay_expect(&stage, RELAY_CLOSE, 1);
    relay_expect(&stage, RELAY_ACK, 1);
    assert_int_equal(stage.frame.offset, 100);
    relay_say_end(&stage, 1, 100);
    relay_expect(&stage, RELAY_ACK, 1);
    assert_int_equal(stage.frame.flags, RELAY_ACK_END);
    close_all(fds, 2);
    stage_fini(&stage);
}

static void output_that_is_forgotten_ends_with_its_reader(void **state UNUSED)
{
    struct stage stage;
    int fds[PROTOCOL_MAX_FDS];

    start(&stage, fds);
    say_stream(&stage, 1, 0, 100);
    relay_say_end(&stage, 1, 100);
    relay_expect_nothing(&stage);
    forget(&stage);
    relay_expect_nothing(&stage); /* its reader may still want it */
    fd_close(steal_fd(&fds[0]));
    relay_expect(&stage, RELAY_ACK, 1);
    assert_int_equal(stage.frame.flags, RELAY_ACK_END);
    assert_int_equal(stage.frame.offset, 100);
    relay_expect_nothing(&stage);
    close_all(fds, 2);
    stage_fini(&stage);
}

/* The relay says them in the order in which the program wrote them. */
static void bytes_of_both_streams_are_given_in_their_order(void **state UNUSED)
{
    struct stage stage;
    int fds[PROTOCOL_MAX_FDS];
    char order[100] = "";
    size_t length = 0;

    start(&stage, fds);
    for (uint64_t i = 0; i < 40; i++)
        relay_say_data(&stage, (uint16_t)(1 + i % 2), i / 2, &(uint8_t){ 0 }, 1);
    for (unsigned turn = 0; turn < 400 && length < 40; turn++) {
        loop_turn(stage.loop, 0);
        for (unsigned k = 2; k-- > 0;) { /* the later one first: it must not have any yet */
            ssize_t count = read(fds[k], bytes, sizeof(bytes));

            for (; count > 0; count--)
                order[length++] = (char)('0' + k);
        }
    }
    assert_string_equal(order, "0101010101010101010101010101010101010101");
    close_all(fds, 2);
    stage_fini(&stage);
}

static void a_stream_that_nobody_reads_does_not_hold_up_the_other(void **state UNUSED)
{
    struct stage stage;
    int fds[PROTOCOL_MAX_FDS];

    start(&stage, fds);
    say_stream(&stage, 1, 0, 10);
    say_stream(&stage, 2, 0, 10);
    turns(&stage);
    read_stream(&stage, fds[1], 0, 10);
    close_all(fds, 2);
    stage_fini(&stage);
}

static void offsets_go_on_at_the_base(void **state UNUSED)
{
    struct stage stage;
    struct protocol_process process = {
        .header = protocol_header(PROTOCOL_PROCESS, sizeof(process), 5, 0),
    };
    const struct relay_descriptor descriptors[] = {
        { .channel = 9, .kind = RELAY_INPUT, .base = 70 },
        { .channel = 3, .kind = RELAY_OUTPUT, .base = 5000 },
        { .channel = 4, .kind = RELAY_OUTPUT, .base = 0 },
    };
    int fds[PROTOCOL_MAX_FDS];
    unsigned count;

    stage_init(&stage);
    relay_up(&stage);
    relay_say_message(&stage, descriptors, 3, &process, sizeof(process));
    assert_int_equal(agent_take(&stage, bytes, sizeof(bytes), fds, &count), sizeof(process));
    assert_int_equal(count, 3);
    say_stream(&stage, 3, 5000, 10);
    read_stream(&stage, fds[1], 5000, 10);
    relay_expect(&stage, RELAY_ACK, 3);
    assert_int_equal(stage.frame.offset, 5010);
    relay_say_ack(&stage, 9, 70, 1000, 0);
    assert_int_equal(write(fds[0], "hello", 5), 5);
    relay_expect(&stage, RELAY_DATA, 9);
    assert_int_equal(stage.frame.offset, 70);
    close_all(fds, 3);
    stage_fini(&stage);
}

/* --- input ------------------------------------------------------------------------------------- */

static uint64_t taken_of(struct stage *stage)
{
    struct protocol_taken taken;
    int fds[PROTOCOL_MAX_FDS];
    unsigned count;

    assert_int_equal(agent_take(stage, &taken, sizeof(taken), fds, &count), sizeof(taken));
    assert_int_equal(taken.header.type, PROTOCOL_TAKEN);
    assert_int_equal(taken.header.process, 5);
    assert_non_null(protocol_taken_decode(&taken, sizeof(taken)));
    return taken.total;
}

static void input_goes_as_far_as_the_window(void **state UNUSED)
{
    struct stage stage;
    int fds[PROTOCOL_MAX_FDS];

    start_with_input(&stage, fds);
    fill(bytes, 0, 10000);
    assert_int_equal(write(fds[0], bytes, 10000), 10000);
    relay_expect_nothing(&stage); /* before the first ACK there is no window */
    relay_say_ack(&stage, 1, 0, 4000, 0);
    relay_expect(&stage, RELAY_DATA, 1);
    assert_int_equal(stage.frame.length, 4000);
    relay_expect_nothing(&stage);
    relay_say_ack(&stage, 1, 1000, 4000, 0);
    relay_expect(&stage, RELAY_DATA, 1);
    assert_int_equal(stage.frame.offset, 4000);
    assert_int_equal(stage.frame.length, 1000);
    assert_memory_equal(stage.payload, (uint8_t[]){ byte_at(4000) }, 1);
    assert_int_equal(taken_of(&stage), 1000);
    relay_say_ack(&stage, 1, 5000, 100000, 0);
    relay_expect(&stage, RELAY_DATA, 1);
    assert_int_equal(stage.frame.length, 5000);
    assert_int_equal(taken_of(&stage), 5000);
    assert_int_equal(write(fds[0], bytes, 10), 10);
    relay_expect(&stage, RELAY_DATA, 1);
    close_all(fds, 3);
    stage_fini(&stage);
}

static void expect_close_stdin(struct stage *stage)
{
    struct protocol_plain plain;

    relay_expect(stage, RELAY_MESSAGE, 0);
    memcpy(&plain, stage->payload + sizeof(struct relay_message), sizeof(plain));
    assert_int_equal(plain.header.type, PROTOCOL_CLOSE_STDIN);
    assert_int_equal(plain.header.process, 5);
}

static void close_stdin_comes_after_the_input_before_it(void **state UNUSED)
{
    struct stage stage;
    struct protocol_plain close_stdin = {
        protocol_header(PROTOCOL_CLOSE_STDIN, sizeof(close_stdin), 5, 0),
    };
    int fds[PROTOCOL_MAX_FDS];

    start_with_input(&stage, fds);
    assert_int_equal(write(fds[0], bytes, 10000), 10000);
    agent_say(&stage, &close_stdin, sizeof(close_stdin), -1);
    fd_close(steal_fd(&fds[0]));
    relay_expect_nothing(&stage);
    relay_say_ack(&stage, 1, 0, 6000, 0);
    relay_expect(&stage, RELAY_DATA, 1);
    relay_expect_nothing(&stage);
    relay_say_ack(&stage, 1, 6000, 6000, 0);
    relay_expect(&stage, RELAY_DATA, 1);
    relay_expect(&stage, RELAY_END, 1);
    assert_int_equal(stage.frame.offset, 10000);
    expect_close_stdin(&stage);
    relay_say_ack(&stage, 1, 10000, 0, RELAY_ACK_END);
    assert_int_equal(taken_of(&stage), 6000);
    assert_int_equal(taken_of(&stage), 10000);
    agent_say(&stage, &close_stdin, sizeof(close_stdin), -1); /* of no channel: as it is */
    expect_close_stdin(&stage);
    close_all(fds, 3);
    stage_fini(&stage);
}

static void close_stdin_does_not_wait_for_the_pipe_to_be_closed(void **state UNUSED)
{
    struct stage stage;
    struct protocol_plain close_stdin = {
        protocol_header(PROTOCOL_CLOSE_STDIN, sizeof(close_stdin), 5, 0),
    };
    int fds[PROTOCOL_MAX_FDS];

    start_with_input(&stage, fds);
    relay_say_ack(&stage, 1, 0, 6000, 0);
    assert_int_equal(write(fds[0], bytes, 10), 10);
    agent_say(&stage, &close_stdin, sizeof(close_stdin), -1);
    relay_expect(&stage, RELAY_DATA, 1);
    relay_expect(&stage, RELAY_END, 1);
    expect_close_stdin(&stage);
    close_all(fds, 3);
    stage_fini(&stage);
}

static void input_that_the_sandbox_does_not_want_breaks_the_pipe(void **state UNUSED)
{
    struct stage stage;
    int fds[PROTOCOL_MAX_FDS];

    start_with_input(&stage, fds);
    relay_say_ack(&stage, 1, 0, 100, 0);
    assert_int_equal(write(fds[0], bytes, 200), 200);
    relay_expect(&stage, RELAY_DATA, 1);
    relay_say(&stage, RELAY_CLOSE, 0, 1, 0, NULL, 0);
    relay_expect(&stage, RELAY_END, 1);
    assert_int_equal(stage.frame.offset, 100);
    assert_int_equal(write(fds[0], bytes, 1), -1);
    assert_int_equal(errno, EPIPE);
    relay_say(&stage, RELAY_CLOSE, 0, 1, 0, NULL, 0); /* it may cross the END */
    relay_say_ack(&stage, 1, 100, 0, RELAY_ACK_END);
    assert_int_equal(taken_of(&stage), 100);
    assert_true(bridge_is_up(stage.bridge));
    close_all(fds, 3);
    stage_fini(&stage);
}

/* The agent does not read: the last TAKEN waits, and the number of the channel is free even so. */
static void taken_waits_for_room_and_the_last_one_counts(void **state UNUSED)
{
    struct stage stage;
    int fds[PROTOCOL_MAX_FDS];
    int others[PROTOCOL_MAX_FDS];
    struct protocol_taken taken = { .total = 0 };
    struct relay_descriptor descriptor = { .channel = 1, .kind = RELAY_BOTH };
    struct protocol_plain storage = {
        protocol_header(PROTOCOL_STORAGE, sizeof(storage), 5, 0),
    };
    unsigned count = 0;

    start_with_input(&stage, fds);
    relay_say_ack(&stage, 1, 0, 4000, 0);
    assert_int_equal(write(fds[0], bytes, 3000), 3000);
    fd_close(steal_fd(&fds[0]));
    relay_expect(&stage, RELAY_DATA, 1);
    relay_expect(&stage, RELAY_END, 1);
    for (uint64_t at = 1; at < 3000; at++)
        relay_say_ack(&stage, 1, at, 0, 0);
    relay_say_ack(&stage, 1, 3000, 0, RELAY_ACK_END);
    relay_say_message(&stage, &descriptor, 1, &storage, sizeof(storage));
    while (taken.total < 3000 && count == 0) {
        assert_int_equal(agent_take(&stage, bytes, sizeof(bytes), others, &count),
                         count ? sizeof(storage) : sizeof(taken));
        if (!count)
            memcpy(&taken, bytes, sizeof(taken));
    }
    assert_int_equal(taken.total, 3000);
    assert_int_equal(agent_take(&stage, bytes, sizeof(bytes), others, &count), sizeof(storage));
    assert_int_equal(count, 1);
    assert_true(bridge_is_up(stage.bridge));
    fd_close(others[0]);
    close_all(fds, 3);
    stage_fini(&stage);
}

/* --- both directions --------------------------------------------------------------------------- */

static int open_socket(struct stage *stage, uint16_t channel)
{
    struct protocol_plain storage = {
        protocol_header(PROTOCOL_STORAGE, sizeof(storage), 5, 0),
    };
    struct relay_descriptor descriptor = { .channel = channel, .kind = RELAY_BOTH };
    int fds[PROTOCOL_MAX_FDS];
    unsigned count;

    relay_say_message(stage, &descriptor, 1, &storage, sizeof(storage));
    assert_int_equal(agent_take(stage, bytes, sizeof(bytes), fds, &count), sizeof(storage));
    assert_int_equal(count, 1);
    return fds[0];
}

static void a_socket_carries_both_directions_and_their_ends(void **state UNUSED)
{
    struct stage stage;
    int fd;

    stage_init(&stage);
    relay_up(&stage);
    fd = open_socket(&stage, 8);
    relay_say_ack(&stage, 8, 0, 1000, 0);
    assert_int_equal(write(fd, "to it", 5), 5);
    relay_expect(&stage, RELAY_DATA, 8);
    say_stream(&stage, 8, 0, 100);
    relay_expect(&stage, RELAY_ACK, 8); /* given to the reader is enough */
    assert_int_equal(stage.frame.offset, 100);
    read_stream(&stage, fd, 0, 100);

    relay_say_end(&stage, 8, 100);
    relay_expect(&stage, RELAY_ACK, 8);
    assert_int_equal(stage.frame.flags, RELAY_ACK_END);
    assert_int_equal(read(fd, bytes, 1), 0);
    assert_int_equal(write(fd, "more", 4), 4);
    relay_expect(&stage, RELAY_DATA, 8);
    assert_int_equal(stage.frame.offset, 5);
    assert_int_equal(shutdown(fd, SHUT_WR), 0);
    relay_expect(&stage, RELAY_END, 8);
    assert_int_equal(stage.frame.offset, 9);
    relay_say_ack(&stage, 8, 9, 0, RELAY_ACK_END);
    turns(&stage);
    fd_close(fd);
    fd = open_socket(&stage, 8);
    fd_close(fd);
    stage_fini(&stage);
}

/* Only TAKEN of a process's input waits for the agent: a socket has nothing to tell it. */
static void a_socket_goes_on_while_the_agent_does_not_read(void **state UNUSED)
{
    struct stage stage;
    int fds[PROTOCOL_MAX_FDS];
    int socket;

    start_with_input(&stage, fds);
    socket = open_socket(&stage, 8);
    relay_say_ack(&stage, 8, 0, 1000, 0);
    assert_int_equal(write(socket, "to it", 5), 5);
    assert_int_equal(shutdown(socket, SHUT_WR), 0);
    relay_expect(&stage, RELAY_DATA, 8);
    relay_expect(&stage, RELAY_END, 8);
    relay_say_ack(&stage, 1, 0, 4000, 0);
    assert_int_equal(write(fds[0], bytes, 3000), 3000);
    relay_expect(&stage, RELAY_DATA, 1);
    for (uint64_t at = 1; at < 3000; at++)
        relay_say_ack(&stage, 1, at, 4000, 0);
    relay_say_ack(&stage, 8, 5, 0, RELAY_ACK_END);
    say_stream(&stage, 8, 0, 100);
    assert_true(bridge_is_up(stage.bridge));
    read_stream(&stage, socket, 0, 100);
    relay_say_end(&stage, 8, 100);
    turns(&stage);
    assert_int_equal(read(socket, bytes, 1), 0);
    assert_true(bridge_is_up(stage.bridge));
    fd_close(socket);
    close_all(fds, 3);
    stage_fini(&stage);
}

static void a_socket_that_is_closed_ends_both_directions(void **state UNUSED)
{
    struct stage stage;
    bool has_close = false, has_end = false;
    int fd;

    stage_init(&stage);
    relay_up(&stage);
    fd = open_socket(&stage, 8);
    relay_say_ack(&stage, 8, 0, 1000, 0);
    turns(&stage);
    assert_int_equal(write(fd, "last", 4), 4);
    fd_close(fd);
    turns(&stage);
    while (relay_hear(&stage)) {
        has_close |= stage.frame.type == RELAY_CLOSE;
        has_end |= stage.frame.type == RELAY_END && stage.frame.offset == 4;
    }
    assert_true(has_close);
    assert_true(has_end);
    relay_say_ack(&stage, 8, 4, 0, RELAY_ACK_END);
    relay_say_end(&stage, 8, 0);
    relay_expect(&stage, RELAY_ACK, 8);
    fd = open_socket(&stage, 8);
    fd_close(fd);
    stage_fini(&stage);
}

static void a_download_waits_for_its_reader(void **state UNUSED)
{
    struct stage stage;
    int fd;

    stage_init(&stage);
    relay_up(&stage);
    fd = open_socket(&stage, 8);
    say_stream(&stage, 8, 0, RELAY_WINDOW);
    while (relay_hear(&stage))
        assert_true(stage.frame.type != RELAY_ACK || stage.frame.offset <= RELAY_WINDOW);
    relay_say_end(&stage, 8, RELAY_WINDOW);
    read_stream(&stage, fd, 0, RELAY_WINDOW);
    turns(&stage);
    assert_int_equal(read(fd, bytes, 1), 0);
    fd_close(fd);
    stage_fini(&stage);
}

/* --- cuts -------------------------------------------------------------------------------------- */

/* Everything that the relay has to say in a session, with a cut after every byte of it. */
static void say_script(struct stage *stage)
{
    relay_start_process(stage, 5, 1, true);
    relay_say_ack(stage, 1, 0, 50, 0);
    fill(bytes, 0, 300);
    relay_say_data(stage, 2, 0, bytes, 70);
    relay_say_data(stage, 3, 0, bytes, 3);
    relay_say_data(stage, 2, 70, bytes + 70, 130);
    relay_say_end(stage, 3, 3);
    relay_say_end(stage, 2, 200);
    relay_say(stage, RELAY_CLOSE, 0, 1, 0, NULL, 0);
}

static void cut_after(size_t at)
{
    struct stage stage;
    int fds[PROTOCOL_MAX_FDS];
    size_t rest;

    stage_init(&stage);
    relay_up(&stage);
    {
        int connected = steal_fd(&stage.relay);

        say_script(&stage); /* remembered, not sent */
        stage.relay = connected;
    }
    rest = stage.sent.length - at;
    relay_say_bytes(&stage, stage.sent.data, at);
    turns(&stage);
    relay_cut(&stage);
    relay_resume(&stage);
    assert_true(rest || stage.login.received == stage.sent.length);
    assert_int_equal(agent_take_started(&stage, fds), 3);
    turns(&stage);
    turns(&stage);
    read_stream(&stage, fds[1], 0, 200);
    read_stream(&stage, fds[2], 0, 3);
    assert_int_equal(read(fds[1], bytes, 1), 0);
    assert_int_equal(read(fds[2], bytes, 1), 0);
    assert_int_equal(write(fds[0], bytes, 1), -1);
    assert_int_equal(recv(stage.agent, bytes, sizeof(bytes), MSG_DONTWAIT), -1); /* once */
    assert_true(bridge_is_up(stage.bridge));
    close_all(fds, 3);
    stage_fini(&stage);
}

static void a_cut_after_any_byte_loses_and_doubles_nothing(void **state UNUSED)
{
    struct stage stage;
    size_t length;

    stage_init(&stage);
    say_script(&stage);
    length = stage.sent.length;
    stage_fini(&stage);
    for (size_t at = 0; at <= length; at++)
        cut_after(at);
}

/* The same in the other direction: the relay has received any number of whole frames. */
static void frames_to_the_relay_survive_cuts(void **state UNUSED)
{
    struct stage stage;
    int fds[PROTOCOL_MAX_FDS];
    uint64_t got = 0;

    start_with_input(&stage, fds);
    relay_say_ack(&stage, 1, 0, RELAY_MAX_WINDOW, 0);
    for (unsigned i = 0; i < 40; i++) {
        uint64_t before;

        fill(bytes, i * 1000, 1000);
        assert_int_equal(write(fds[0], bytes, 1000), 1000);
        turns(&stage);
        before = stage.received;
        if (i % 6 == 0) { /* heard, and forgotten with the connection */
            while (relay_hear(&stage))
                continue;
            stage.received = before;
        }
        if (i % 2 == 0) {
            relay_cut(&stage);
            relay_resume(&stage);
        }
        while (relay_hear(&stage)) {
            if (stage.frame.type != RELAY_DATA)
                continue;
            assert_int_equal(stage.frame.offset, got);
            for (uint32_t k = 0; k < stage.frame.length; k++)
                assert_int_equal(stage.payload[k], byte_at(got + k));
            got += stage.frame.length;
        }
    }
    assert_int_equal(got, 40000);
    close_all(fds, 3);
    stage_fini(&stage);
}

static void streams_of_a_process_stay_open_when_the_session_ends(void **state UNUSED)
{
    struct stage stage;
    int fds[PROTOCOL_MAX_FDS];
    int socket;

    start_with_input(&stage, fds);
    socket = open_socket(&stage, 8);
    say_stream(&stage, 2, 0, 100);
    fd_close(steal_fd(&stage.agent));
    turns(&stage);
    read_stream(&stage, fds[1], 0, 100);
    assert_int_equal(read(fds[1], bytes, 1), -1);
    assert_int_equal(errno, EAGAIN); /* its end was not told */
    assert_int_equal(write(fds[0], bytes, 1), 1);
    assert_int_equal(read(socket, bytes, 1), 0); /* nobody goes on with this one */
    fd_close(socket);
    close_all(fds, 3);
    turns(&stage);
    stage_fini(&stage);
}

#define TEST(name) cmocka_unit_test(name)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(output_is_acknowledged_when_it_has_left_the_pipe),
        TEST(output_that_nobody_reads_for_long_is_acknowledged_soon_after),
        TEST(the_end_of_output_comes_after_its_last_byte),
        TEST(a_window_fits_though_the_pipe_is_small),
        TEST(output_that_was_left_in_the_pipe_is_not_acknowledged),
        TEST(a_reader_that_has_taken_all_and_closes_is_done),
        TEST(output_that_is_forgotten_ends_with_its_reader),
        TEST(bytes_of_both_streams_are_given_in_their_order),
        TEST(a_stream_that_nobody_reads_does_not_hold_up_the_other),
        TEST(offsets_go_on_at_the_base),
        TEST(input_goes_as_far_as_the_window),
        TEST(close_stdin_comes_after_the_input_before_it),
        TEST(close_stdin_does_not_wait_for_the_pipe_to_be_closed),
        TEST(input_that_the_sandbox_does_not_want_breaks_the_pipe),
        TEST(taken_waits_for_room_and_the_last_one_counts),
        TEST(a_socket_carries_both_directions_and_their_ends),
        TEST(a_socket_goes_on_while_the_agent_does_not_read),
        TEST(a_socket_that_is_closed_ends_both_directions),
        TEST(a_download_waits_for_its_reader),
        TEST(a_cut_after_any_byte_loses_and_doubles_nothing),
        TEST(frames_to_the_relay_survive_cuts),
        TEST(streams_of_a_process_stay_open_when_the_session_ends),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
