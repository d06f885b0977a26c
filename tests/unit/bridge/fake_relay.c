/* SPDX-License-Identifier: Apache-2.0 */
#include "fake_relay.h"

#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

enum { STREAM_BYTES = 4 * 1024 * 1024 };

/* --- the carrier ------------------------------------------------------------------------------- */

static void on_open(struct carrier *carrier, void *context)
{
    struct stage *stage = context;
    struct error err;
    int ends[2];
    int size = STREAM_BYTES;

    stage->opened++;
    if (stage->holds)
        return;
    if (stage->refuses) {
        error_set(&err, stage->is_gone ? ERR_GONE : ERR_BACKEND, "refused by the test");
        carrier_finish(carrier, -1, &err);
        return;
    }
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends), 0);
    (void)setsockopt(ends[0], SOL_SOCKET, SO_SNDBUF, &size, sizeof(size));
    (void)setsockopt(ends[1], SOL_SOCKET, SO_SNDBUF, &size, sizeof(size));
    fd_close(stage->relay);
    stage->relay = ends[1];
    buffer_clear(&stage->in);
    carrier_finish(carrier, ends[0], NULL);
}

static const struct carrier_stream stream = { .open = on_open };

/* --- what the owner hears ---------------------------------------------------------------------- */

static void on_up(struct bridge *bridge, const uint8_t boot[RELAY_BOOT_SIZE])
{
    struct stage *stage = bridge_user(bridge);

    stage->ups++;
    memcpy(stage->told_boot, boot, RELAY_BOOT_SIZE);
}

static void on_down(struct bridge *bridge, const struct error *err)
{
    struct stage *stage = bridge_user(bridge);

    assert_true(err->code && err->message[0]);
    stage->downs++;
}

static void on_other(struct bridge *bridge, const uint8_t boot[RELAY_BOOT_SIZE])
{
    struct stage *stage = bridge_user(bridge);

    stage->others++;
    memcpy(stage->told_boot, boot, RELAY_BOOT_SIZE);
}

static void on_version(struct bridge *bridge, unsigned oldest, unsigned newest)
{
    struct stage *stage = bridge_user(bridge);

    assert_int_equal(oldest, stage->oldest);
    assert_int_equal(newest, stage->newest);
    stage->versions++;
}

static void on_usage(struct bridge *bridge, const struct relay_usage *usage)
{
    struct stage *stage = bridge_user(bridge);

    stage->usage = *usage;
    stage->usages++;
}

static const struct bridge_handler handler = {
    .on_up = on_up,
    .on_down = on_down,
    .on_other = on_other,
    .on_version = on_version,
    .on_usage = on_usage,
};

/* --- the stage --------------------------------------------------------------------------------- */

static void init(struct stage *stage, bool may_bind)
{
    struct bridge_options options = {
        .name = "sbx_test", .handler = &handler, .user = stage, .may_bind = may_bind
    };

    signal(SIGPIPE, SIG_IGN);
    *stage = (struct stage){
        .agent = -1, .relay = -1, .oldest = 1, .newest = 1, .features = RELAY_HAS_USAGE
    };
    simulated_clock_init(&stage->clock, 1000 * 1000, 0);
    stage->loop = loop_new(&stage->clock.clock);
    stage->in = BUFFER_INIT(64 * 1024 * 1024);
    stage->sent = BUFFER_INIT(256 * 1024 * 1024);
    memset(stage->key, 7, sizeof(stage->key));
    memset(stage->boot, 9, sizeof(stage->boot));
    memcpy(options.key, stage->key, sizeof(options.key));
    options.loop = stage->loop;
    options.carrier = stage->carrier = carrier_stream_new(stage->loop, &stream, stage);
    stage->bridge = bridge_new(&options);
    stage_connect(stage);
}

void stage_init(struct stage *stage)
{
    init(stage, false);
}

void stage_init_binding(struct stage *stage)
{
    init(stage, true);
}

void stage_connect(struct stage *stage)
{
    struct error err;

    fd_close(stage->agent);
    stage->agent = bridge_connect(stage->bridge, &err);
    assert_true(stage->agent >= 0);
    buffer_clear(&stage->sent);
    stage->received = stage->received_told = 0;
}

void stage_fini(struct stage *stage)
{
    bridge_free(stage->bridge);
    turns(stage);
    loop_free(stage->loop);
    fd_close(stage->agent);
    fd_close(stage->relay);
    buffer_fini(&stage->in);
    buffer_fini(&stage->sent);
}

void turns(struct stage *stage)
{
    for (unsigned i = 0; i < 4; i++)
        loop_turn(stage->loop, 0);
}

/* --- frames ------------------------------------------------------------------------------------ */

void relay_say_bytes(struct stage *stage, const void *bytes, size_t length)
{
    const uint8_t *at = bytes;

    for (unsigned tries = 0; length; tries++) {
        ssize_t count = send(stage->relay, at, length, MSG_NOSIGNAL | MSG_DONTWAIT);

        assert_true(tries < 100000);
        if (count < 0) {
            assert_int_equal(errno, EAGAIN);
            loop_turn(stage->loop, 0);
            continue;
        }
        at += count;
        length -= (size_t)count;
    }
}

void relay_say(struct stage *stage, enum relay_type type, uint8_t flags, uint16_t channel,
               uint64_t offset, const void *payload, size_t length)
{
    struct relay_frame frame = { .length = (uint32_t)length,
                                 .type = (uint8_t)type,
                                 .flags = flags,
                                 .channel = channel,
                                 .offset = offset };

    if (relay_is_sequenced(&frame)) {
        assert_int_equal(buffer_append(&stage->sent, &frame, sizeof(frame)), 0);
        assert_int_equal(buffer_append(&stage->sent, payload, length), 0);
    }
    if (stage->relay < 0)
        return;
    relay_say_bytes(stage, &frame, sizeof(frame));
    relay_say_bytes(stage, payload, length);
}

void relay_say_data(struct stage *stage, uint16_t channel, uint64_t offset, const void *bytes,
                    size_t length)
{
    relay_say(stage, RELAY_DATA, 0, channel, offset, bytes, length);
}

void relay_say_ack(struct stage *stage, uint16_t channel, uint64_t offset, uint32_t window,
                   uint8_t flags)
{
    struct relay_ack ack = { .window = window };

    relay_say(stage, RELAY_ACK, flags, channel, offset, &ack, sizeof(ack));
}

void relay_say_end(struct stage *stage, uint16_t channel, uint64_t offset)
{
    struct relay_end end = { 0 };

    relay_say(stage, RELAY_END, 0, channel, offset, &end, sizeof(end));
}

void relay_say_message(struct stage *stage, const struct relay_descriptor *descriptors,
                       unsigned count, const void *packet, size_t length)
{
    static uint8_t payload[RELAY_MAX_MESSAGE];
    size_t prefix = relay_message_prefix(payload, descriptors, count);

    memcpy(payload + prefix, packet, length);
    relay_say(stage, RELAY_MESSAGE, 0, 0, 0, payload, prefix + length);
}

bool relay_hear(struct stage *stage)
{
    uint8_t bytes[65536];
    ssize_t count;

    while ((count = recv(stage->relay, bytes, sizeof(bytes), MSG_DONTWAIT)) > 0)
        assert_int_equal(buffer_append(&stage->in, bytes, (size_t)count), 0);
    if (stage->in.length < sizeof(stage->frame))
        return false;
    memcpy(&stage->frame, stage->in.data, sizeof(stage->frame));
    assert_null(relay_check(&stage->frame, RELAY_OF_BRIDGE));
    if (stage->in.length < sizeof(stage->frame) + stage->frame.length)
        return false;
    memcpy(stage->payload, stage->in.data + sizeof(stage->frame), stage->frame.length);
    buffer_consume(&stage->in, sizeof(stage->frame) + stage->frame.length);
    if (relay_is_sequenced(&stage->frame))
        stage->received += sizeof(stage->frame) + stage->frame.length;
    if (stage->received - stage->received_told >= RELAY_RECEIVED_EVERY / 2) {
        stage->received_told = stage->received;
        relay_say(stage, RELAY_RECEIVED, 0, 0, stage->received, NULL, 0);
    }
    return true;
}

/* So long that nothing is put off any more, and nothing is given up yet. */
static void settle(struct stage *stage)
{
    turns(stage);
    loop_advance(stage->loop, &stage->clock, 6 * 1000);
    turns(stage);
}

static bool is_told_beside(unsigned type)
{
    return type == RELAY_RECEIVED || type == RELAY_PING || type == RELAY_PONG;
}

void relay_expect(struct stage *stage, enum relay_type type, uint16_t channel)
{
    bool has_one;

    settle(stage);
    do
        has_one = relay_hear(stage);
    while (has_one && is_told_beside(stage->frame.type) && !is_told_beside(type));
    assert_true(has_one);
    assert_int_equal(stage->frame.type, type);
    assert_int_equal(stage->frame.channel, channel);
}

void relay_expect_nothing(struct stage *stage)
{
    bool has_one;

    settle(stage);
    do
        has_one = relay_hear(stage);
    while (has_one && is_told_beside(stage->frame.type));
    assert_false(has_one);
}

/* --- the handshake ------------------------------------------------------------------------------ */

void relay_greet(struct stage *stage)
{
    struct relay_greeting greeting = { .magic = RELAY_MAGIC,
                                       .oldest = stage->oldest,
                                       .newest = stage->newest,
                                       .features = stage->features };

    memcpy(greeting.boot, stage->boot, sizeof(greeting.boot));
    memset(greeting.nonce, (int)stage->opened, sizeof(greeting.nonce));
    memset(stage->greeting, 0x55, sizeof(stage->greeting)); /* bytes of a later version */
    memcpy(stage->greeting, &greeting, sizeof(greeting));
    relay_say(stage, RELAY_GREETING, 0, 0, 0, stage->greeting, sizeof(stage->greeting));
}

void relay_take_login(struct stage *stage)
{
    relay_expect(stage, RELAY_LOGIN, 0);
    memcpy(&stage->login, stage->payload, sizeof(stage->login));
    assert_true(
        relay_verify_login(stage->key, stage->greeting, sizeof(stage->greeting), &stage->login));
}

void relay_welcome(struct stage *stage, bool is_resumed, uint64_t received)
{
    struct relay_welcome welcome = { .is_resumed = is_resumed, .received = received };

    relay_sign_welcome(stage->key, stage->greeting, sizeof(stage->greeting), &stage->login,
                       &welcome);
    if (stage->breaks_mac)
        welcome.mac[5] ^= 1;
    relay_say(stage, RELAY_WELCOME, 0, 0, 0, &welcome, sizeof(welcome));
    turns(stage);
}

void relay_up(struct stage *stage)
{
    turns(stage);
    assert_true(stage->relay >= 0);
    relay_greet(stage);
    relay_take_login(stage);
    assert_int_equal(stage->login.flags, RELAY_LOGIN_NEW);
    assert_int_equal(stage->login.received, 0);
    relay_welcome(stage, true, 0);
    assert_true(bridge_is_up(stage->bridge));
}

void relay_cut(struct stage *stage)
{
    fd_close(steal_fd(&stage->relay));
    turns(stage);
}

void stage_wait_for_attempt(struct stage *stage)
{
    unsigned before = stage->opened;

    for (unsigned i = 0; i < 600 && stage->opened == before; i++)
        loop_advance(stage->loop, &stage->clock, 10 * 1000);
    assert_int_equal(stage->opened, before + 1);
}

void relay_resume(struct stage *stage)
{
    if (stage->relay < 0)
        stage_wait_for_attempt(stage);
    assert_true(stage->relay >= 0);
    relay_greet(stage);
    relay_take_login(stage);
    assert_int_equal(stage->login.flags, 0);
    assert_true(stage->login.received <= stage->sent.length);
    relay_welcome(stage, true, stage->received);
    relay_say_bytes(stage, stage->sent.data + stage->login.received,
                    stage->sent.length - stage->login.received);
    turns(stage);
}

/* --- the agent's end ---------------------------------------------------------------------------- */

long agent_take(struct stage *stage, void *packet, size_t size, int fds[PROTOCOL_MAX_FDS],
                unsigned *out_count)
{
    union {
        struct cmsghdr header;
        char room[CMSG_SPACE(PROTOCOL_MAX_FDS * sizeof(int))];
    } control;
    struct iovec part = { packet, size };
    struct msghdr message = { .msg_iov = &part,
                              .msg_iovlen = 1,
                              .msg_control = &control,
                              .msg_controllen = sizeof(control) };
    ssize_t length;
    struct cmsghdr *rights;

    *out_count = 0;
    turns(stage);
    length = recvmsg(stage->agent, &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
    if (length < 0)
        return -1;
    rights = CMSG_FIRSTHDR(&message);
    if (rights) {
        *out_count = (unsigned)((rights->cmsg_len - CMSG_LEN(0)) / sizeof(int));
        memcpy(fds, CMSG_DATA(rights), *out_count * sizeof(int));
    }
    return length;
}

void agent_say(struct stage *stage, const void *packet, size_t length, int fd)
{
    union {
        struct cmsghdr header;
        char room[CMSG_SPACE(sizeof(int))];
    } control = { .room = { 0 } };
    struct iovec part = { (void *)(uintptr_t)packet, length };
    struct msghdr message = { .msg_iov = &part, .msg_iovlen = 1 };

    if (fd >= 0) {
        control.header = (struct cmsghdr){ .cmsg_len = CMSG_LEN(sizeof(int)),
                                           .cmsg_level = SOL_SOCKET,
                                           .cmsg_type = SCM_RIGHTS };
        memcpy(CMSG_DATA(&control.header), &fd, sizeof(fd));
        message.msg_control = &control;
        message.msg_controllen = sizeof(control);
    }
    assert_int_equal(sendmsg(stage->agent, &message, MSG_DONTWAIT | MSG_NOSIGNAL), length);
}

bool agent_is_closed(struct stage *stage)
{
    char byte;
    ssize_t count;

    turns(stage);
    do
        count = recv(stage->agent, &byte, 1, MSG_DONTWAIT);
    while (count > 0);
    return count == 0 || errno == ECONNRESET;
}

void relay_start_process(struct stage *stage, uint64_t process, uint16_t first_channel,
                         bool has_input)
{
    struct protocol_started started = {
        .header = protocol_header(PROTOCOL_STARTED, sizeof(started), process, 1),
        .flags = has_input ? START_STDIN : 0,
        .pid = 2,
    };
    struct relay_descriptor descriptors[3];
    unsigned count = 0;

    if (has_input)
        descriptors[count++] = (struct relay_descriptor){ .kind = RELAY_INPUT };
    descriptors[count++] = (struct relay_descriptor){ .kind = RELAY_OUTPUT };
    descriptors[count++] = (struct relay_descriptor){ .kind = RELAY_OUTPUT };
    for (unsigned i = 0; i < count; i++)
        descriptors[i].channel = (uint16_t)(first_channel + i);
    relay_say_message(stage, descriptors, count, &started, sizeof(started));
}

unsigned agent_take_started(struct stage *stage, int fds[PROTOCOL_MAX_FDS])
{
    struct protocol_started started;
    unsigned count;

    assert_int_equal(agent_take(stage, &started, sizeof(started), fds, &count), sizeof(started));
    assert_int_equal(started.header.type, PROTOCOL_STARTED);
    return count;
}

uint8_t byte_at(uint64_t offset)
{
    return (uint8_t)((offset * 2654435761U) >> 13);
}

void fill(uint8_t *bytes, uint64_t offset, size_t length)
{
    for (size_t i = 0; i < length; i++)
        bytes[i] = byte_at(offset + i);
}
