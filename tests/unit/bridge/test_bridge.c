/* SPDX-License-Identifier: Apache-2.0 */
/* The life of a bridge: handshake, messages, back-off, silence, freezing. */

#include "fake_relay.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

/* --- the handshake ----------------------------------------------------------------------------- */

static void a_new_session_begins_with_a_login_that_proves_the_key(void **state UNUSED)
{
    struct stage stage;

    stage_init(&stage);
    relay_up(&stage);
    assert_int_equal(stage.ups, 1);
    assert_memory_equal(stage.told_boot, stage.boot, sizeof(stage.boot));
    stage_fini(&stage);
}

static void a_relay_without_the_key_is_not_believed(void **state UNUSED)
{
    struct stage stage;

    stage_init(&stage);
    turns(&stage);
    relay_greet(&stage);
    relay_take_login(&stage);
    stage.breaks_mac = true;
    relay_welcome(&stage, true, 0);
    assert_false(bridge_is_up(stage.bridge));
    assert_int_equal(stage.ups, 0);
    assert_false(agent_is_closed(&stage)); /* it is tried again */
    stage.breaks_mac = false;
    stage_wait_for_attempt(&stage);
    relay_up(&stage);
    stage_fini(&stage);
}

/* The key goes to a relay that has none, before the login, and never again. */
static void a_new_sandbox_is_given_its_key_once(void **state UNUSED)
{
    struct stage stage;

    stage_init_binding(&stage);
    stage_wait_for_attempt(&stage);
    stage.features = RELAY_UNBOUND;
    relay_greet(&stage);
    relay_expect(&stage, RELAY_BIND, 0);
    assert_memory_equal(stage.payload, stage.key, sizeof(stage.key));
    relay_take_login(&stage);
    relay_cut(&stage); /* nothing says whether the relay has taken it */

    stage_wait_for_attempt(&stage);
    stage.features = 0;
    relay_greet(&stage);
    relay_take_login(&stage);
    relay_welcome(&stage, true, 0);
    assert_int_equal(stage.ups, 1);
    relay_cut(&stage);

    stage_wait_for_attempt(&stage);
    stage.features = RELAY_UNBOUND;
    relay_greet(&stage);
    turns(&stage);
    assert_false(relay_hear(&stage));
    assert_int_equal(stage.others, 1);
    stage_fini(&stage);
}

static void a_relay_without_a_key_is_another_sandbox(void **state UNUSED)
{
    struct stage stage;

    stage_init(&stage);
    stage_wait_for_attempt(&stage);
    stage.features = RELAY_UNBOUND;
    relay_greet(&stage);
    turns(&stage);
    assert_false(relay_hear(&stage));
    assert_int_equal(stage.others, 1);
    assert_true(agent_is_closed(&stage));
    stage_fini(&stage);
}

static void another_boot_id_is_told_only_when_the_relay_knows_the_key(void **state UNUSED)
{
    struct stage stage;
    struct error err;

    stage_init(&stage);
    relay_up(&stage);
    relay_cut(&stage);
    memset(stage.boot, 33, sizeof(stage.boot));
    stage_wait_for_attempt(&stage);
    relay_greet(&stage);
    relay_take_login(&stage);
    stage.breaks_mac = true;
    relay_welcome(&stage, false, 0);
    assert_int_equal(stage.others, 0);

    stage.breaks_mac = false;
    stage_wait_for_attempt(&stage);
    relay_greet(&stage);
    relay_take_login(&stage);
    relay_welcome(&stage, false, 0);
    assert_int_equal(stage.others, 1);
    assert_memory_equal(stage.told_boot, stage.boot, sizeof(stage.boot));
    assert_true(agent_is_closed(&stage));
    assert_int_equal(bridge_connect(stage.bridge, &err), -1);
    assert_int_equal(err.code, ERR_GONE);
    stage_fini(&stage);
}

static void a_relay_of_another_version_is_told(void **state UNUSED)
{
    struct stage stage;
    struct error err = { 0 };

    stage_init(&stage);
    stage.oldest = RELAY_VERSION + 1;
    stage.newest = RELAY_VERSION + 2;
    turns(&stage);
    relay_greet(&stage);
    turns(&stage);
    assert_int_equal(stage.versions, 1);
    assert_true(agent_is_closed(&stage));
    assert_int_equal(bridge_connect(stage.bridge, &err), -1);
    assert_int_equal(err.code, ERR_BACKEND); /* it lives */
    assert_string_equal(err.name, "sandbox_version");
    loop_advance(stage.loop, &stage.clock, 100 * 1000 * 1000);
    assert_int_equal(stage.opened, 1);
    stage_fini(&stage);
}

static void a_relay_that_speaks_our_version_among_others_is_taken(void **state UNUSED)
{
    struct stage stage;

    stage_init(&stage);
    stage.oldest = 0;
    stage.newest = 90;
    relay_up(&stage);
    assert_int_equal(stage.login.version, RELAY_VERSION);
    stage_fini(&stage);
}

static void a_session_that_was_replaced_ends(void **state UNUSED)
{
    struct stage stage;
    uint8_t former[RELAY_SESSION_SIZE];

    stage_init(&stage);
    relay_up(&stage);
    memcpy(former, stage.login.session, sizeof(former));
    relay_cut(&stage);
    stage_wait_for_attempt(&stage);
    relay_greet(&stage);
    relay_take_login(&stage);
    assert_memory_equal(stage.login.session, former, sizeof(former));
    relay_welcome(&stage, false, 0);
    assert_true(agent_is_closed(&stage));
    assert_int_equal(stage.others, 0);

    stage_connect(&stage);
    relay_up(&stage);
    assert_memory_not_equal(stage.login.session, former, sizeof(former));
    stage_fini(&stage);
}

static void something_else_than_a_relay_is_left_alone(void **state UNUSED)
{
    static const char *const greetings[] = {
        "SSH-2.0-OpenSSH_9.2p1 Debian-2+deb12u3\r\n",
        "HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n",
        "\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0",
    };
    struct stage stage;

    stage_init(&stage);
    turns(&stage);
    for (unsigned i = 0; i < ARRAY_LENGTH(greetings); i++) {
        unsigned before = stage.opened;

        relay_say_bytes(&stage, greetings[i], 16);
        turns(&stage);
        assert_false(bridge_is_up(stage.bridge));
        loop_advance(stage.loop, &stage.clock, 400 * 1000);
        assert_true(stage.opened > before);
    }
    stage_fini(&stage);
}

static void a_handshake_has_a_limit_of_bytes(void **state UNUSED)
{
    struct stage stage;
    uint8_t filler[1000] = { 0 };
    unsigned before;

    stage_init(&stage);
    turns(&stage);
    before = stage.opened;
    for (unsigned i = 0; i < 5; i++)
        relay_say(&stage, (enum relay_type)14, RELAY_MAY_IGNORE, 0, 0, filler, sizeof(filler));
    loop_advance(stage.loop, &stage.clock, 100 * 1000);
    assert_int_equal(stage.opened, before + 1);
    stage_fini(&stage);
}

/* --- messages ---------------------------------------------------------------------------------- */

static void messages_go_both_ways_as_they_are(void **state UNUSED)
{
    struct stage stage;
    struct protocol_plain list = { protocol_header(PROTOCOL_LIST, sizeof(list), 0, 5) };
    struct protocol_done done = { protocol_header(PROTOCOL_DONE, sizeof(done), 0, 5), 0, 0 };
    struct relay_message_view view;
    char packet[256];
    int fds[PROTOCOL_MAX_FDS];
    unsigned count;

    stage_init(&stage);
    agent_say(&stage, &list, sizeof(list), -1); /* it waits until the relay is there */
    relay_up(&stage);
    relay_expect(&stage, RELAY_MESSAGE, 0);
    assert_int_equal(
        relay_message_decode(stage.payload, stage.frame.length, RELAY_OF_BRIDGE, &view), 0);
    assert_int_equal(view.length, sizeof(list));
    assert_memory_equal(view.packet, &list, sizeof(list));

    relay_say_message(&stage, NULL, 0, &done, sizeof(done));
    assert_int_equal(agent_take(&stage, packet, sizeof(packet), fds, &count), sizeof(done));
    assert_memory_equal(packet, &done, sizeof(done));
    assert_int_equal(count, 0);
    stage_fini(&stage);
}

/* Content, then the message that names it. */
static void expect_script(struct stage *stage, const uint8_t *script, size_t length)
{
    struct relay_message_view view;
    uint64_t got = 0;

    while (got < length) {
        relay_expect(stage, RELAY_DATA, RELAY_BRIDGE_CHANNEL);
        assert_int_equal(stage->frame.offset, got);
        assert_memory_equal(stage->payload, script + got, stage->frame.length);
        got += stage->frame.length;
        relay_say_ack(stage, RELAY_BRIDGE_CHANNEL, got, RELAY_WINDOW, 0);
    }
    relay_expect(stage, RELAY_MESSAGE, 0);
    assert_int_equal(
        relay_message_decode(stage->payload, stage->frame.length, RELAY_OF_BRIDGE, &view), 0);
    assert_int_equal(view.count, 1);
    assert_int_equal(view.descriptors[0].channel, RELAY_BRIDGE_CHANNEL);
    assert_int_equal(view.descriptors[0].kind, RELAY_CONTENT);
    assert_int_equal(view.descriptors[0].base, length);
    relay_say_ack(stage, RELAY_BRIDGE_CHANNEL, length, 0, RELAY_ACK_END);
}

static void a_script_goes_before_its_start_and_later_messages_wait(void **state UNUSED)
{
    enum { LENGTH = 3 * 1024 * 1024 + 17 };
    struct stage stage;
    struct protocol_plain start = { protocol_header(PROTOCOL_START, sizeof(start), 1, 5) };
    struct protocol_plain list = { protocol_header(PROTOCOL_LIST, sizeof(list), 0, 6) };
    struct protocol_failed failed = {
        .header = protocol_header(PROTOCOL_FAILED, sizeof(failed), 1, 5),
        .stage = STAGE_EXEC,
        .error = ENOENT,
    };
    static uint8_t script[LENGTH];
    const size_t lengths[] = { LENGTH, 0, 100 };

    stage_init(&stage);
    relay_up(&stage);
    fill(script, 0, sizeof(script));
    for (unsigned i = 0; i < ARRAY_LENGTH(lengths); i++) {
        scoped(fd_close) int fd = memfd_create("script", MFD_CLOEXEC);

        assert_int_equal(write(fd, script, lengths[i]), lengths[i]);
        agent_say(&stage, &start, sizeof(start), fd);
        agent_say(&stage, &list, sizeof(list), -1);
        expect_script(&stage, script, lengths[i]);
        relay_expect_nothing(&stage);
        relay_say_message(&stage, NULL, 0, &failed, sizeof(failed));
        relay_expect(&stage, RELAY_MESSAGE, 0); /* the list */
        assert_int_equal(stage.frame.length, sizeof(struct relay_message) + sizeof(list));
    }
    relay_expect_nothing(&stage);
    stage_fini(&stage);
}

/* The agent tells by the unread message whether the program can have started. */
static void a_start_is_left_unread_only_if_the_relay_has_not_read_it(void **state UNUSED)
{
    for (unsigned i = 0; i < 3; i++) {
        bool is_read = i > 0;
        struct stage stage;
        struct protocol_plain start = { protocol_header(PROTOCOL_START, sizeof(start), 1, 5) };
        char byte;

        stage_init(&stage);
        relay_up(&stage);
        agent_say(&stage, &start, sizeof(start), -1);
        turns(&stage);
        if (is_read)
            relay_expect(&stage, RELAY_MESSAGE, 0);
        if (i == 2) { /* it was resumed in between, which says the same */
            relay_cut(&stage);
            relay_resume(&stage);
        }
        stage.refuses = stage.is_gone = true;
        relay_cut(&stage);
        loop_advance(stage.loop, &stage.clock, 200 * 1000);
        assert_int_equal(recv(stage.agent, &byte, 1, MSG_DONTWAIT), is_read ? 0 : -1);
        if (!is_read)
            assert_int_equal(errno, ECONNRESET);
        stage_fini(&stage);
    }
}

static void messages_behind_a_start_do_not_wait_for_long(void **state UNUSED)
{
    struct stage stage;
    struct protocol_plain start = { protocol_header(PROTOCOL_START, sizeof(start), 1, 5) };

    stage_init(&stage);
    relay_up(&stage);
    agent_say(&stage, &start, sizeof(start), -1);
    agent_say(&stage, &start, sizeof(start), -1);
    relay_expect(&stage, RELAY_MESSAGE, 0);
    relay_expect_nothing(&stage);
    loop_advance(stage.loop, &stage.clock, 100 * 1000);
    relay_expect(&stage, RELAY_MESSAGE, 0);
    stage_fini(&stage);
}

static void what_a_relay_says_before_it_dies_is_heard(void **state UNUSED)
{
    struct stage stage;
    struct protocol_done done = { protocol_header(PROTOCOL_DONE, sizeof(done), 0, 5), 0, 0 };
    struct protocol_plain list = { protocol_header(PROTOCOL_LIST, sizeof(list), 0, 5) };
    int fds[PROTOCOL_MAX_FDS];
    char packet[64];
    unsigned count;

    stage_init(&stage);
    relay_up(&stage);
    agent_say(&stage, &list, sizeof(list), -1);
    turns(&stage);
    relay_say_message(&stage, NULL, 0, &done, sizeof(done)); /* with the question unread */
    fd_close(steal_fd(&stage.relay));
    agent_say(&stage, &list, sizeof(list), -1);
    assert_int_equal(agent_take(&stage, packet, sizeof(packet), fds, &count), sizeof(done));
    stage_fini(&stage);
}

static void a_message_that_the_agent_has_no_room_for_waits(void **state UNUSED)
{
    struct stage stage;
    struct protocol_done done = { protocol_header(PROTOCOL_DONE, sizeof(done), 0, 0), 0, 0 };
    char packet[256];
    int fds[PROTOCOL_MAX_FDS];
    unsigned count;

    stage_init(&stage);
    relay_up(&stage);
    for (unsigned i = 0; i < 5000; i++) {
        done.value = i;
        relay_say_message(&stage, NULL, 0, &done, sizeof(done));
    }
    for (unsigned i = 0; i < 5000; i++) {
        assert_int_equal(agent_take(&stage, packet, sizeof(packet), fds, &count), sizeof(done));
        memcpy(&done, packet, sizeof(done));
        assert_int_equal(done.value, i);
    }
    assert_true(bridge_is_up(stage.bridge));
    stage_fini(&stage);
}

static void messages_that_were_not_received_are_sent_again(void **state UNUSED)
{
    struct stage stage;
    struct protocol_plain list = { protocol_header(PROTOCOL_LIST, sizeof(list), 0, 0) };
    uint64_t first;

    stage_init(&stage);
    relay_up(&stage);
    for (unsigned i = 1; i <= 3; i++) {
        list.header.request = i;
        agent_say(&stage, &list, sizeof(list), -1);
    }
    relay_expect(&stage, RELAY_MESSAGE, 0);
    first = stage.received;
    relay_expect(&stage, RELAY_MESSAGE, 0);
    stage.received = first; /* the second is lost with the connection, as the third is */
    relay_cut(&stage);
    assert_int_equal(stage.downs, 1);
    relay_resume(&stage);
    for (unsigned i = 2; i <= 3; i++) {
        relay_expect(&stage, RELAY_MESSAGE, 0);
        memcpy(&list, stage.payload + sizeof(struct relay_message), sizeof(list));
        assert_int_equal(list.header.request, i);
    }
    relay_expect_nothing(&stage);
    assert_int_equal(stage.ups, 2);
    stage_fini(&stage);
}

static void received_is_told_before_much_has_come(void **state UNUSED)
{
    struct stage stage;
    struct protocol_done done = { protocol_header(PROTOCOL_DONE, sizeof(done), 0, 0), 0, 0 };
    char packet[256];
    int fds[PROTOCOL_MAX_FDS];
    unsigned count;
    bool has_told = false;

    stage_init(&stage);
    relay_up(&stage);
    while (stage.sent.length < RELAY_RECEIVED_EVERY) {
        relay_say_message(&stage, NULL, 0, &done, sizeof(done));
        assert_true(agent_take(&stage, packet, sizeof(packet), fds, &count) > 0);
        while (relay_hear(&stage))
            has_told |= stage.frame.type == RELAY_RECEIVED && stage.frame.offset > 0 &&
                        stage.frame.offset <= stage.sent.length;
    }
    assert_true(has_told);
    stage_fini(&stage);
}

/* --- the agent --------------------------------------------------------------------------------- */

static void the_session_ends_with_the_agent(void **state UNUSED)
{
    struct stage stage;

    stage_init(&stage);
    relay_up(&stage);
    fd_close(steal_fd(&stage.agent));
    turns(&stage);
    assert_false(bridge_is_up(stage.bridge));
    loop_advance(stage.loop, &stage.clock, 100 * 1000 * 1000);
    assert_int_equal(stage.opened, 1); /* nothing is to be connected */
    stage_connect(&stage);
    relay_up(&stage);
    stage_fini(&stage);
}

static void an_agent_that_goes_away_while_there_is_no_connection_is_noticed(void **state UNUSED)
{
    struct stage stage;
    struct protocol_plain list = { protocol_header(PROTOCOL_LIST, sizeof(list), 0, 0) };

    stage_init(&stage);
    stage.refuses = true;
    turns(&stage);
    agent_say(&stage, &list, sizeof(list), -1);
    fd_close(steal_fd(&stage.agent));
    turns(&stage);
    stage.opened = 0;
    loop_advance(stage.loop, &stage.clock, 100 * 1000 * 1000);
    assert_int_equal(stage.opened, 0);
    stage_fini(&stage);
}

static void the_next_session_closes_the_agent_of_the_former(void **state UNUSED)
{
    struct stage stage;
    int former;

    stage_init(&stage);
    relay_up(&stage);
    former = steal_fd(&stage.agent);
    stage_connect(&stage);
    turns(&stage);
    assert_int_equal(read(former, &(char){ 0 }, 1), 0);
    fd_close(former);
    relay_up(&stage);
    stage_fini(&stage);
}

/* --- time -------------------------------------------------------------------------------------- */

static void attempts_come_with_growing_delays(void **state UNUSED)
{
    static const int64_t longest_ms[] = { 50, 100, 200, 400, 800, 1600, 3200, 5000, 5000 };
    struct stage stage;

    stage_init(&stage);
    stage.refuses = true;
    turns(&stage);
    assert_int_equal(stage.opened, 1);
    for (unsigned i = 0; i < ARRAY_LENGTH(longest_ms); i++) {
        /* At least half of it, less a step of stage_wait_for_attempt(). */
        loop_advance(stage.loop, &stage.clock, longest_ms[i] * 500 - 10 * 1000);
        assert_int_equal(stage.opened, i + 1);
        stage_wait_for_attempt(&stage);
    }
    stage_fini(&stage);
}

static void a_relay_that_is_gone_ends_the_session_at_once(void **state UNUSED)
{
    struct stage stage;

    stage_init(&stage);
    relay_up(&stage);
    stage.refuses = stage.is_gone = true;
    relay_cut(&stage);
    loop_advance(stage.loop, &stage.clock, 60 * 1000);
    assert_true(agent_is_closed(&stage));
    stage_fini(&stage);
}

static void a_connection_that_has_worked_is_made_again_at_once(void **state UNUSED)
{
    struct stage stage;

    stage_init(&stage);
    relay_up(&stage);
    relay_start_process(&stage, 5, 1, false);
    turns(&stage);
    relay_cut(&stage);
    turns(&stage);
    assert_int_equal(stage.opened, 2);
    stage_fini(&stage);
}

static void after_its_patience_the_agent_is_closed(void **state UNUSED)
{
    struct stage stage;
    unsigned tried;

    stage_init(&stage);
    relay_up(&stage);
    stage.refuses = true;
    relay_cut(&stage);
    loop_advance(stage.loop, &stage.clock, 59 * 1000 * 1000LL);
    assert_false(agent_is_closed(&stage));
    loop_advance(stage.loop, &stage.clock, 2 * 1000 * 1000LL);
    assert_true(agent_is_closed(&stage));
    tried = stage.opened;
    loop_advance(stage.loop, &stage.clock, 60 * 1000 * 1000LL);
    assert_int_equal(stage.opened, tried);
    assert_int_equal(stage.downs, 1);
    stage_fini(&stage);
}

static void a_relay_that_does_not_greet_is_left(void **state UNUSED)
{
    struct stage stage;

    stage_init(&stage);
    turns(&stage);
    loop_advance(stage.loop, &stage.clock, (RELAY_HANDSHAKE_MS - 1) * 1000LL);
    assert_int_equal(stage.opened, 1);
    loop_advance(stage.loop, &stage.clock, 100 * 1000LL);
    assert_int_equal(stage.opened, 2);
    stage_fini(&stage);
}

static void a_carrier_that_does_not_answer_is_asked_again(void **state UNUSED)
{
    struct stage stage;

    stage_init(&stage);
    stage.holds = true;
    turns(&stage);
    assert_int_equal(stage.opened, 1);
    loop_advance(stage.loop, &stage.clock, 16 * 1000 * 1000LL);
    assert_int_equal(stage.opened, 2);
    stage_fini(&stage);
}

static void a_quiet_relay_is_pinged_and_a_silent_one_is_left(void **state UNUSED)
{
    struct stage stage;

    stage_init(&stage);
    relay_up(&stage);
    loop_advance(stage.loop, &stage.clock, (RELAY_PING_MS + 1) * 1000LL);
    relay_expect(&stage, RELAY_PING, 0);
    relay_say(&stage, RELAY_PONG, 0, 0, 0, stage.payload, 8);
    turns(&stage);
    loop_advance(stage.loop, &stage.clock, 11 * 1000 * 1000LL);
    assert_true(bridge_is_up(stage.bridge));
    relay_expect(&stage, RELAY_PING, 0);
    loop_advance(stage.loop, &stage.clock, 5 * 1000 * 1000LL);
    assert_false(bridge_is_up(stage.bridge));
    assert_int_equal(stage.downs, 1);
    stage_fini(&stage);
}

static void a_ping_is_answered_with_its_bytes(void **state UNUSED)
{
    struct stage stage;

    stage_init(&stage);
    relay_up(&stage);
    relay_say(&stage, RELAY_PING, 0, 0, 0, "abcdefgh", 8);
    relay_expect(&stage, RELAY_PONG, 0);
    assert_memory_equal(stage.payload, "abcdefgh", 8);
    stage_fini(&stage);
}

static void a_frozen_sandbox_is_neither_pinged_nor_left_nor_connected(void **state UNUSED)
{
    struct stage stage;

    stage_init(&stage);
    relay_up(&stage);
    bridge_set_frozen(stage.bridge, true);
    loop_advance(stage.loop, &stage.clock, 1000 * 1000 * 1000LL);
    assert_true(bridge_is_up(stage.bridge));
    turns(&stage);
    assert_false(relay_hear(&stage));

    relay_cut(&stage);
    loop_advance(stage.loop, &stage.clock, 1000 * 1000 * 1000LL);
    assert_int_equal(stage.opened, 1);
    assert_false(agent_is_closed(&stage));

    bridge_set_frozen(stage.bridge, false);
    relay_resume(&stage);
    assert_true(bridge_is_up(stage.bridge));
    bridge_set_frozen(stage.bridge, true);
    bridge_set_frozen(stage.bridge, false);
    loop_advance(stage.loop, &stage.clock, (RELAY_PING_MS + 1) * 1000LL);
    relay_expect(&stage, RELAY_PING, 0);
    stage_fini(&stage);
}

/* --- usage ------------------------------------------------------------------------------------- */

static void say_usage(struct stage *stage, uint64_t cpu_us)
{
    struct relay_usage usage = { .cpu_us = cpu_us, .pids = 3 };

    memset(usage.processes[0].name, 'x', sizeof(usage.processes[0].name));
    relay_say(stage, RELAY_USAGE, 0, 0, 0, &usage, sizeof(usage));
    turns(stage);
}

static void usage_is_asked_for_once_and_told(void **state UNUSED)
{
    struct stage stage;
    struct error err;

    stage_init(&stage);
    relay_up(&stage);
    assert_int_equal(bridge_measure(stage.bridge, &err), 0);
    assert_int_equal(bridge_measure(stage.bridge, &err), 0);
    relay_expect(&stage, RELAY_MEASURE, 0);
    relay_expect_nothing(&stage);
    say_usage(&stage, 70);
    assert_int_equal(stage.usages, 1);
    assert_int_equal(stage.usage.cpu_us, 70);
    assert_int_equal(strlen(stage.usage.processes[0].name), 19); /* it ends, whatever was sent */
    relay_expect_nothing(&stage);
    stage_fini(&stage);
}

static void usage_is_asked_for_again_after_a_cut(void **state UNUSED)
{
    struct stage stage;
    struct error err;

    stage_init(&stage);
    relay_up(&stage);
    assert_int_equal(bridge_measure(stage.bridge, &err), 0);
    relay_expect(&stage, RELAY_MEASURE, 0);
    relay_cut(&stage);
    stage_wait_for_attempt(&stage);
    relay_resume(&stage);
    relay_expect(&stage, RELAY_MEASURE, 0);
    say_usage(&stage, 71);
    assert_int_equal(stage.usages, 1);
    stage_fini(&stage);
}

static void a_relay_that_cannot_tell_usage_is_not_asked(void **state UNUSED)
{
    struct stage stage;
    struct error err;

    stage_init(&stage);
    stage.features = 0;
    assert_int_equal(bridge_measure(stage.bridge, &err), 0); /* not known yet */
    relay_up(&stage);
    relay_expect_nothing(&stage);
    assert_int_equal(bridge_measure(stage.bridge, &err), -1);
    assert_int_equal(stage.usages, 0);
    stage_fini(&stage);
}

static void without_a_session_usage_is_refused(void **state UNUSED)
{
    struct stage stage;
    struct error err;

    stage_init(&stage);
    relay_up(&stage);
    close(stage.agent);
    stage.agent = -1;
    turns(&stage);
    assert_int_equal(bridge_measure(stage.bridge, &err), -1);
    assert_int_equal(err.code, ERR_UNAVAILABLE);
    stage_fini(&stage);
}

static void a_bridge_can_be_freed_in_every_state(void **state UNUSED)
{
    for (unsigned step = 0; step < 6; step++) {
        struct stage stage;

        stage_init(&stage);
        if (step >= 1)
            turns(&stage);
        if (step >= 2)
            relay_greet(&stage);
        if (step >= 3)
            relay_take_login(&stage);
        if (step >= 4)
            relay_welcome(&stage, true, 0);
        if (step >= 5)
            relay_cut(&stage);
        bridge_free(steal_ptr(&stage.bridge));
        turns(&stage);
        assert_true(agent_is_closed(&stage));
        stage_fini(&stage);
    }
}

#define TEST(name) cmocka_unit_test(name)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(a_new_session_begins_with_a_login_that_proves_the_key),
        TEST(a_relay_without_the_key_is_not_believed),
        TEST(a_new_sandbox_is_given_its_key_once),
        TEST(a_relay_without_a_key_is_another_sandbox),
        TEST(another_boot_id_is_told_only_when_the_relay_knows_the_key),
        TEST(a_relay_of_another_version_is_told),
        TEST(a_relay_that_speaks_our_version_among_others_is_taken),
        TEST(a_session_that_was_replaced_ends),
        TEST(something_else_than_a_relay_is_left_alone),
        TEST(a_handshake_has_a_limit_of_bytes),
        TEST(messages_go_both_ways_as_they_are),
        TEST(a_script_goes_before_its_start_and_later_messages_wait),
        TEST(a_start_is_left_unread_only_if_the_relay_has_not_read_it),
        TEST(messages_behind_a_start_do_not_wait_for_long),
        TEST(what_a_relay_says_before_it_dies_is_heard),
        TEST(a_message_that_the_agent_has_no_room_for_waits),
        TEST(messages_that_were_not_received_are_sent_again),
        TEST(received_is_told_before_much_has_come),
        TEST(the_session_ends_with_the_agent),
        TEST(an_agent_that_goes_away_while_there_is_no_connection_is_noticed),
        TEST(the_next_session_closes_the_agent_of_the_former),
        TEST(attempts_come_with_growing_delays),
        TEST(a_relay_that_is_gone_ends_the_session_at_once),
        TEST(a_connection_that_has_worked_is_made_again_at_once),
        TEST(after_its_patience_the_agent_is_closed),
        TEST(a_relay_that_does_not_greet_is_left),
        TEST(a_carrier_that_does_not_answer_is_asked_again),
        TEST(a_quiet_relay_is_pinged_and_a_silent_one_is_left),
        TEST(a_ping_is_answered_with_its_bytes),
        TEST(a_frozen_sandbox_is_neither_pinged_nor_left_nor_connected),
        TEST(usage_is_asked_for_once_and_told),
        TEST(usage_is_asked_for_again_after_a_cut),
        TEST(a_relay_that_cannot_tell_usage_is_not_asked),
        TEST(without_a_session_usage_is_refused),
        TEST(a_bridge_can_be_freed_in_every_state),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
