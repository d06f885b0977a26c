/* SPDX-License-Identifier: Apache-2.0 */
/* A relay that breaks the rules, as root inside a sandbox may make it. */

#include "fake_relay.h"

#include <errno.h>
#include <malloc.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cmocka.h>

static uint8_t bytes[RELAY_MAX_MESSAGE + 64];

/* --- one frame that is wrong ------------------------------------------------------------------- */

/* Said when process 5 has its input on 1, its output on 2 and 3, and a socket is on 8. */
struct bad {
    const char *what;
    void (*say)(struct stage *stage);
};

static void say_frame(struct stage *stage, struct relay_frame frame)
{
    relay_say_bytes(stage, &frame, sizeof(frame));
    relay_say_bytes(stage, bytes, MIN(frame.length, (uint32_t)sizeof(bytes)));
}

#define SAY(name, ...)                                         \
    static void name(struct stage *stage)                      \
    {                                                          \
        say_frame(stage, (struct relay_frame){ __VA_ARGS__ }); \
    }                                                          \
    static void name(struct stage *stage)

SAY(unknown_type, .type = 77, .length = 4);
SAY(unknown_control_type, .type = 9, .length = 4);
SAY(ignored_but_long, .type = 77, .flags = RELAY_MAY_IGNORE, .length = RELAY_MAX_DATA + 1);
SAY(huge_length, .type = RELAY_DATA, .channel = 2, .length = UINT32_MAX);
SAY(login, .type = RELAY_LOGIN, .length = sizeof(struct relay_login));
SAY(second_greeting, .type = RELAY_GREETING, .length = sizeof(struct relay_greeting));
SAY(second_welcome, .type = RELAY_WELCOME, .length = sizeof(struct relay_welcome));
SAY(empty_data, .type = RELAY_DATA, .channel = 2);
SAY(data_of_no_channel, .type = RELAY_DATA, .length = 10);
SAY(data_of_unknown_channel, .type = RELAY_DATA, .channel = 7, .length = 10);
SAY(data_of_channel_beyond_all, .type = RELAY_DATA, .channel = 65535, .length = 10);
SAY(data_of_script, .type = RELAY_DATA, .channel = RELAY_BRIDGE_CHANNEL, .length = 10);
SAY(data_of_input, .type = RELAY_DATA, .channel = 1, .length = 10);
SAY(data_ahead, .type = RELAY_DATA, .channel = 2, .offset = 1, .length = 10);
SAY(data_at_the_end_of_numbers, .type = RELAY_DATA, .channel = 2, .offset = INT64_MAX,
    .length = 10);
SAY(data_beyond_numbers, .type = RELAY_DATA, .channel = 2, .offset = UINT64_MAX - 4, .length = 10);
SAY(end_ahead, .type = RELAY_END, .channel = 2, .offset = 5, .length = sizeof(struct relay_end));
SAY(end_of_input, .type = RELAY_END, .channel = 1, .length = sizeof(struct relay_end));
SAY(end_of_unknown, .type = RELAY_END, .channel = 7, .length = sizeof(struct relay_end));
SAY(ack_of_output, .type = RELAY_ACK, .channel = 2, .length = sizeof(struct relay_ack));
SAY(ack_of_unknown, .type = RELAY_ACK, .channel = 7, .length = sizeof(struct relay_ack));
SAY(ack_ahead, .type = RELAY_ACK, .channel = 1, .offset = 1, .length = sizeof(struct relay_ack));
SAY(ack_end_too_early, .type = RELAY_ACK, .channel = 1, .flags = RELAY_ACK_END,
    .length = sizeof(struct relay_ack));
SAY(close_of_output, .type = RELAY_CLOSE, .channel = 2);
SAY(close_of_unknown, .type = RELAY_CLOSE, .channel = 7);
SAY(received_ahead, .type = RELAY_RECEIVED, .offset = 1);
SAY(usage_unasked, .type = RELAY_USAGE, .length = sizeof(struct relay_usage));
SAY(short_usage, .type = RELAY_USAGE, .length = 8);
SAY(measure, .type = RELAY_MEASURE);
SAY(short_ping, .type = RELAY_PING, .length = 4);
SAY(short_message, .type = RELAY_MESSAGE, .length = sizeof(struct relay_message));
SAY(long_message, .type = RELAY_MESSAGE, .length = RELAY_MAX_MESSAGE + 1);

static void window_too_large(struct stage *stage)
{
    relay_say_ack(stage, 1, 0, RELAY_MAX_WINDOW + 1, 0);
}

static void data_beyond_the_window(struct stage *stage)
{
    for (uint64_t at = 0; at <= RELAY_WINDOW; at += 65536 - 1024)
        relay_say_data(stage, 2, at, bytes, 65536 - 1024);
}

static void end_twice(struct stage *stage)
{
    relay_say_data(stage, 2, 0, bytes, 5);
    relay_say_end(stage, 2, 5);
    relay_say_end(stage, 2, 5);
}

static void data_after_end(struct stage *stage)
{
    relay_say_data(stage, 2, 0, bytes, 5);
    relay_say_end(stage, 2, 5);
    relay_say_data(stage, 2, 5, bytes, 5);
}

static void doubled_data(struct stage *stage)
{
    relay_say_data(stage, 2, 0, bytes, 5);
    relay_say_data(stage, 2, 0, bytes, 5);
}

static void say_descriptors(struct stage *stage, const struct relay_descriptor *descriptors,
                            unsigned count)
{
    struct protocol_done done = { protocol_header(PROTOCOL_DONE, sizeof(done), 0, 0), 0, 0 };

    relay_say_message(stage, descriptors, count, &done, sizeof(done));
}

#define DESCRIBE(name, count, ...)                                     \
    static void name(struct stage *stage)                              \
    {                                                                  \
        const struct relay_descriptor descriptors[] = { __VA_ARGS__ }; \
                                                                       \
        say_descriptors(stage, descriptors, count);                    \
    }                                                                  \
    static void name(struct stage *stage)

DESCRIBE(channel_in_use, 1, { .channel = 2, .kind = RELAY_OUTPUT });
DESCRIBE(channel_twice, 2, { .channel = 20, .kind = RELAY_OUTPUT },
         { .channel = 20, .kind = RELAY_OUTPUT });
DESCRIBE(channel_of_the_bridge, 1, { .channel = RELAY_BRIDGE_CHANNEL, .kind = RELAY_OUTPUT });
DESCRIBE(script_from_the_relay, 1, { .channel = RELAY_BRIDGE_CHANNEL, .kind = RELAY_CONTENT });
DESCRIBE(unknown_kind, 1, { .channel = 20, .kind = RELAY_KINDS });
DESCRIBE(base_beyond_numbers, 1, { .channel = 20, .kind = RELAY_OUTPUT, .base = UINT64_MAX });

static void too_many_descriptors(struct stage *stage)
{
    struct relay_message message = { .count = UINT32_MAX };

    memset(bytes, 0, 200);
    memcpy(bytes, &message, sizeof(message));
    relay_say(stage, RELAY_MESSAGE, 0, 0, 0, bytes, 200);
    memset(bytes, 0, sizeof(bytes));
}

static void too_many_channels(struct stage *stage)
{
    for (uint16_t i = 100; i < 200 + BRIDGE_MAX_CHANNELS; i++) {
        struct relay_descriptor descriptor = { .channel = i, .kind = RELAY_OUTPUT };
        char packet[64];
        int fds[PROTOCOL_MAX_FDS];
        unsigned count;

        say_descriptors(stage, &descriptor, 1);
        if (agent_take(stage, packet, sizeof(packet), fds, &count) <= 0)
            return;
        for (unsigned k = 0; k < count; k++)
            fd_close(fds[k]);
        relay_hear(stage);
    }
}

static const struct bad bads[] = {
    { "a frame of an unknown type", unknown_type },
    { "a frame of an unknown type without a sequence", unknown_control_type },
    { "a frame that may be ignored and is long", ignored_but_long },
    { "a frame of 4 GiB", huge_length },
    { "LOGIN", login },
    { "a second GREETING", second_greeting },
    { "a second WELCOME", second_welcome },
    { "DATA without a byte", empty_data },
    { "DATA of channel 0", data_of_no_channel },
    { "DATA of an unknown channel", data_of_unknown_channel },
    { "DATA of a channel beyond all", data_of_channel_beyond_all },
    { "DATA of a script", data_of_script },
    { "DATA of an input", data_of_input },
    { "DATA that leaves bytes out", data_ahead },
    { "DATA at the largest offset", data_at_the_end_of_numbers },
    { "DATA at an offset that cannot be", data_beyond_numbers },
    { "DATA beyond the window", data_beyond_the_window },
    { "DATA twice", doubled_data },
    { "DATA after END", data_after_end },
    { "END that leaves bytes out", end_ahead },
    { "END of an input", end_of_input },
    { "END of an unknown channel", end_of_unknown },
    { "END twice", end_twice },
    { "ACK of an output", ack_of_output },
    { "ACK of an unknown channel", ack_of_unknown },
    { "ACK of bytes that were not sent", ack_ahead },
    { "ACK of an end that was not sent", ack_end_too_early },
    { "a window that is too large", window_too_large },
    { "CLOSE of an output", close_of_output },
    { "CLOSE of an unknown channel", close_of_unknown },
    { "RECEIVED of bytes that were not sent", received_ahead },
    { "a PING of four bytes", short_ping },
    { "USAGE that was not asked for", usage_unasked },
    { "USAGE of eight bytes", short_usage },
    { "MEASURE", measure },
    { "a MESSAGE without a packet", short_message },
    { "a MESSAGE that is too long", long_message },
    { "a MESSAGE with four billion channels", too_many_descriptors },
    { "a MESSAGE with a channel in use", channel_in_use },
    { "a MESSAGE with a channel twice", channel_twice },
    { "a MESSAGE with a channel of the bridge", channel_of_the_bridge },
    { "a MESSAGE with a script", script_from_the_relay },
    { "a MESSAGE with an unknown kind", unknown_kind },
    { "a MESSAGE with a base that cannot be", base_beyond_numbers },
    { "channels without end", too_many_channels },
};

static void begin(struct stage *stage, int fds[PROTOCOL_MAX_FDS])
{
    struct relay_descriptor descriptor = { .channel = 8, .kind = RELAY_BOTH };
    struct protocol_plain storage = {
        protocol_header(PROTOCOL_STORAGE, sizeof(storage), 5, 0),
    };
    int socket[PROTOCOL_MAX_FDS];
    unsigned count;

    stage_init(stage);
    relay_up(stage);
    relay_start_process(stage, 5, 1, true);
    assert_int_equal(agent_take_started(stage, fds), 3);
    relay_say_message(stage, &descriptor, 1, &storage, sizeof(storage));
    assert_true(agent_take(stage, bytes, sizeof(bytes), socket, &count) > 0);
    fds[3] = socket[0];
    memset(bytes, 0, sizeof(bytes));
}

static void every_broken_rule_ends_the_session(void **state UNUSED)
{
    for (unsigned i = 0; i < ARRAY_LENGTH(bads); i++) {
        struct stage stage;
        int fds[PROTOCOL_MAX_FDS];

        begin(&stage, fds);
        bads[i].say(&stage);
        turns(&stage);
        if (bridge_is_up(stage.bridge) || !agent_is_closed(&stage))
            fail_msg("%s is accepted", bads[i].what);
        stage_connect(&stage); /* the next session works */
        stage_wait_for_attempt(&stage);
        relay_up(&stage);
        for (unsigned k = 0; k < 4; k++)
            fd_close(fds[k]);
        stage_fini(&stage);
    }
}

static void frames_that_may_be_ignored_are_ignored(void **state UNUSED)
{
    struct stage stage;
    int fds[PROTOCOL_MAX_FDS];

    begin(&stage, fds);
    relay_say(&stage, (enum relay_type)77, RELAY_MAY_IGNORE, 0, 0, bytes, 100);
    relay_say(&stage, (enum relay_type)15, RELAY_MAY_IGNORE, 0, 0, bytes, 100);
    turns(&stage);
    assert_true(bridge_is_up(stage.bridge));
    relay_cut(&stage);
    relay_resume(&stage); /* the one with a sequence has been counted */
    assert_int_equal(stage.login.received, stage.sent.length);
    for (unsigned k = 0; k < 4; k++)
        fd_close(fds[k]);
    stage_fini(&stage);
}

static void
a_relay_that_breaks_rules_again_and_again_is_asked_more_and_more_rarely(void **state UNUSED)
{
    struct stage stage;
    int64_t before_us;

    stage_init(&stage);
    relay_up(&stage);
    for (unsigned i = 0; i < 8; i++) {
        unknown_type(&stage);
        turns(&stage);
        assert_true(agent_is_closed(&stage));
        before_us = stage.clock.boot_us;
        stage_connect(&stage);
        stage_wait_for_attempt(&stage);
        relay_up(&stage);
    }
    assert_true(stage.clock.boot_us - before_us >= 2 * 1000 * 1000);
    stage_fini(&stage);
}

static void a_resumed_session_has_to_fit(void **state UNUSED)
{
    const uint64_t wrong[] = { 1, 17, 1000 * 1000, UINT64_MAX };

    for (unsigned i = 0; i < ARRAY_LENGTH(wrong); i++) {
        struct stage stage;

        stage_init(&stage);
        relay_up(&stage);
        relay_cut(&stage);
        stage_wait_for_attempt(&stage);
        relay_greet(&stage);
        relay_take_login(&stage);
        relay_welcome(&stage, true, wrong[i]);
        assert_false(bridge_is_up(stage.bridge));
        assert_true(agent_is_closed(&stage));
        stage_fini(&stage);
    }
}

static void another_frame_than_the_torn_one_ends_the_session(void **state UNUSED)
{
    struct stage stage;
    int fds[PROTOCOL_MAX_FDS];
    struct relay_frame frame = { .type = RELAY_DATA, .channel = 2, .length = 100 };
    int connected;

    begin(&stage, fds);
    relay_say_bytes(&stage, &frame, sizeof(frame));
    relay_say_bytes(&stage, bytes, 40);
    turns(&stage);
    relay_cut(&stage);
    connected = steal_fd(&stage.relay);
    relay_say(&stage, RELAY_DATA, 0, 2, 0, bytes, 90); /* when it is asked for it again */
    stage.relay = connected;
    relay_resume(&stage);
    assert_true(agent_is_closed(&stage));
    for (unsigned k = 0; k < 4; k++)
        fd_close(fds[k]);
    stage_fini(&stage);
}

/* --- what it makes us hold --------------------------------------------------------------------- */

static void what_nobody_reads_is_bounded_by_the_windows(void **state UNUSED)
{
    enum { PROCESSES = 100 };
    struct stage stage;
    int fds[PROCESSES][PROTOCOL_MAX_FDS];
    size_t before;

    stage_init(&stage);
    relay_up(&stage);
    before = mallinfo2().uordblks;
    for (uint16_t i = 0; i < PROCESSES; i++) {
        relay_start_process(&stage, i + 1U, (uint16_t)(1 + 2 * i), false);
        assert_int_equal(agent_take_started(&stage, fds[i]), 2);
        for (uint64_t at = 0; at < RELAY_WINDOW; at += 32768)
            relay_say_data(&stage, (uint16_t)(1 + 2 * i), at, bytes, 32768);
        buffer_clear(&stage.sent);
        relay_hear(&stage);
    }
    turns(&stage);
    assert_true(bridge_is_up(stage.bridge));
#ifndef __SANITIZE_ADDRESS__ /* which counts for itself */
    assert_true(mallinfo2().uordblks < before + PROCESSES * (RELAY_WINDOW + 8192));
#else
    (void)before;
#endif
    for (unsigned i = 0; i < PROCESSES; i++)
        for (unsigned k = 0; k < 2; k++)
            fd_close(fds[i][k]);
    stage_fini(&stage);
}

static void floods_of_pings_are_answered_with_what_the_socket_takes(void **state UNUSED)
{
    struct stage stage;

    stage_init(&stage);
    relay_up(&stage);
    for (uint64_t i = 0; i < 100000; i++)
        relay_say(&stage, RELAY_PING, 0, 0, 0, &i, 8);
    turns(&stage);
    assert_true(bridge_is_up(stage.bridge));
    stage_fini(&stage);
}

/* Frames of one byte of payload: a turn takes some of them, and others have their turn between. */
static void many_small_frames_take_many_turns(void **state UNUSED)
{
    enum { FRAMES = 10000 };
    struct stage stage;
    int fds[PROTOCOL_MAX_FDS];
    uint8_t frames[FRAMES][sizeof(struct relay_frame) + 1];
    int unread;

    begin(&stage, fds);
    for (unsigned i = 0; i < FRAMES; i++) {
        struct relay_frame frame = { .type = RELAY_DATA, .channel = 2, .offset = i, .length = 1 };

        memcpy(frames[i], &frame, sizeof(frame));
        frames[i][sizeof(frame)] = byte_at(i);
    }
    relay_say_bytes(&stage, frames, sizeof(frames));
    loop_turn(stage.loop, 0);
    assert_int_equal(ioctl(fds[1], FIONREAD, &unread), 0);
    assert_in_range(unread, 1, 2000);
    for (unsigned i = 0; i < 30; i++)
        loop_turn(stage.loop, 0);
    assert_int_equal(read(fds[1], bytes, sizeof(bytes)), FRAMES);
    for (unsigned i = 0; i < FRAMES; i++)
        assert_int_equal(bytes[i], byte_at(i));
    memset(bytes, 0, sizeof(bytes));
    for (unsigned k = 0; k < 4; k++)
        fd_close(fds[k]);
    stage_fini(&stage);
}

/* Without a descriptor left the message comes again, later. */
static void a_message_that_finds_no_descriptor_comes_again(void **state UNUSED)
{
    struct stage stage;
    struct rlimit before, none;
    int fds[PROTOCOL_MAX_FDS];

    stage_init(&stage);
    relay_up(&stage);
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &before), 0);
    none = (struct rlimit){ .rlim_cur = 3, .rlim_max = before.rlim_max };
    relay_start_process(&stage, 5, 1, false);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &none), 0);
    turns(&stage);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &before), 0);
    assert_false(bridge_is_up(stage.bridge));
    assert_false(agent_is_closed(&stage));
    fd_close(steal_fd(&stage.relay));
    relay_resume(&stage);
    assert_int_equal(agent_take_started(&stage, fds), 2);
    fd_close(fds[0]);
    fd_close(fds[1]);
    stage_fini(&stage);
}

#define TEST(name) cmocka_unit_test(name)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(every_broken_rule_ends_the_session),
        TEST(frames_that_may_be_ignored_are_ignored),
        TEST(a_relay_that_breaks_rules_again_and_again_is_asked_more_and_more_rarely),
        TEST(a_resumed_session_has_to_fit),
        TEST(another_frame_than_the_torn_one_ends_the_session),
        TEST(what_nobody_reads_is_bounded_by_the_windows),
        TEST(floods_of_pings_are_answered_with_what_the_socket_takes),
        TEST(many_small_frames_take_many_turns),
        TEST(a_message_that_finds_no_descriptor_comes_again),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
