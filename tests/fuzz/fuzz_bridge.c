/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A bridge whose relay says anything after a proper login: it never crashes, and what it says itself
 * keeps the rules. The input is a list of steps of a few bytes: frames of the relay with fields from
 * the input, raw bytes, cuts, and what the agent's side does with its descriptors meanwhile.
 */

#include "base/buffer.h"
#include "base/log.h"
#include "base/macros.h"
#include "bridge/bridge.h"
#include "bridge/carrier.h"
#include "loop/loop.h"

#include <assert.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { MAX_FDS = 64, MAX_STEPS = 256, CHANNELS = 16 };

/* As the relay knows it. */
struct known {
    unsigned kind;            /* 0: free */
    bool has_ended, is_ended; /* END was said, and heard */
    uint64_t said, limit;     /* bytes of DATA, and up to where they may go */
    uint64_t heard, acked;
};

struct play {
    const uint8_t *data;
    size_t size;
    struct simulated_clock clock;
    struct loop *loop;
    struct bridge *bridge;
    int relay; /* the relay's end of the stream */
    int agent;
    int fds[MAX_FDS]; /* that the agent was given */
    unsigned fd_count;
    struct buffer in; /* from the bridge */
    struct known channels[CHANNELS];
    uint64_t received; /* from the bridge, in whole frames */
};

static const uint8_t key[RELAY_KEY_SIZE] = { 1, 2, 3 };

static unsigned take(struct play *play)
{
    if (!play->size)
        return 0;
    play->size--;
    return *play->data++;
}

static void close_fd(int *fd)
{
    fd_close(*fd);
    *fd = -1;
}

/* --- the relay ---------------------------------------------------------------------------------- */

static void on_open(struct carrier *carrier, void *context)
{
    struct play *play = context;
    int ends[2];

    assert(!socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends));
    fd_close(play->relay);
    play->relay = ends[1];
    buffer_clear(&play->in);
    carrier_finish(carrier, ends[0], NULL);
}

static const struct carrier_stream stream = { .open = on_open };

static void say(struct play *play, const void *bytes, size_t length)
{
    if (play->relay >= 0)
        (void)send(play->relay, bytes, length, MSG_DONTWAIT | MSG_NOSIGNAL);
}

static void say_frame(struct play *play, const struct relay_frame *frame, const void *payload)
{
    say(play, frame, sizeof(*frame));
    if (frame->length)
        say(play, payload, frame->length);
}

/* What the bridge says about a channel has to fit. */
static void note(struct play *play, const struct relay_frame *frame, const uint8_t *payload)
{
    struct known *known = &play->channels[frame->channel % CHANNELS];
    struct relay_ack ack;

    if (frame->channel >= CHANNELS || !known->kind)
        return;
    if (frame->type == RELAY_DATA) {
        assert(known->kind != RELAY_OUTPUT && frame->offset == known->heard && !known->is_ended);
        known->heard += frame->length;
    } else if (frame->type == RELAY_END) {
        assert(known->kind != RELAY_OUTPUT && frame->offset == known->heard && !known->is_ended);
        known->is_ended = true;
    } else if (frame->type == RELAY_ACK) {
        memcpy(&ack, payload, sizeof(ack));
        assert(known->kind != RELAY_INPUT && frame->offset <= known->said);
        known->limit = frame->offset + ack.window;
        if (frame->flags & RELAY_ACK_END) {
            assert(known->has_ended && frame->offset == known->said);
            if (known->kind == RELAY_OUTPUT)
                *known = (struct known){ 0 };
        }
    }
}

/* Reads what the bridge says, which has to be right; the last frame of the type, if there is one. */
static bool hear(struct play *play, enum relay_type wanted, void *payload, size_t length)
{
    static uint8_t bytes[256 * 1024];
    bool is_found = false;
    struct relay_frame frame;
    ssize_t count;

    while (play->relay >= 0 && (count = recv(play->relay, bytes, sizeof(bytes), MSG_DONTWAIT)) > 0)
        assert(!buffer_append(&play->in, bytes, (size_t)count));
    while (play->in.length >= sizeof(frame)) {
        memcpy(&frame, play->in.data, sizeof(frame));
        assert(!relay_check(&frame, RELAY_OF_BRIDGE));
        if (play->in.length < sizeof(frame) + frame.length)
            break;
        if (frame.type == wanted && frame.length == length) {
            memcpy(payload, play->in.data + sizeof(frame), length);
            is_found = true;
        }
        if (relay_is_sequenced(&frame)) {
            note(play, &frame, play->in.data + sizeof(frame));
            play->received += sizeof(frame) + frame.length;
        }
        buffer_consume(&play->in, sizeof(frame) + frame.length);
    }
    return is_found;
}

static void turn(struct play *play, unsigned count)
{
    while (count--)
        loop_turn(play->loop, 0);
}

/* A relay that is not right says that it has received more than was sent. */
static void log_in(struct play *play, bool is_right)
{
    struct relay_greeting greeting = {
        .magic = RELAY_MAGIC, .oldest = 1, .newest = 1, .features = RELAY_HAS_USAGE
    };
    struct relay_frame frame = { .length = sizeof(greeting), .type = RELAY_GREETING };
    struct relay_welcome welcome = { .is_resumed = 1 };
    struct relay_login login;

    loop_advance(play->loop, &play->clock, 5100 * 1000);
    turn(play, 2);
    greeting.boot[0] = 1;
    say_frame(play, &frame, &greeting);
    turn(play, 3);
    if (!hear(play, RELAY_LOGIN, &login, sizeof(login)))
        return;
    if (login.flags & RELAY_LOGIN_NEW) {
        play->received = 0;
        memset(play->channels, 0, sizeof(play->channels));
    }
    welcome.received = play->received + (is_right ? 0 : 1 + take(play));
    relay_sign_welcome(key, &greeting, sizeof(greeting), &login, &welcome);
    frame = (struct relay_frame){ .length = sizeof(welcome), .type = RELAY_WELCOME };
    say_frame(play, &frame, &welcome);
    turn(play, 3);
}

/* Now and then a rule is broken. */
static bool is_bad(struct play *play)
{
    return take(play) > 250;
}

/* A channel of such a kind from some number on; 0 when there is none. */
static uint16_t find(struct play *play, unsigned kind, unsigned other)
{
    unsigned start = take(play);

    if (is_bad(play))
        return (uint16_t)(start % CHANNELS);
    for (unsigned i = 0; i < CHANNELS; i++) {
        unsigned number = (start + i) % CHANNELS;
        unsigned found = play->channels[number].kind;

        if (number && (found == kind || found == other))
            return (uint16_t)number;
    }
    return 0;
}

static void say_message(struct play *play)
{
    static const uint16_t types[] = { PROTOCOL_STARTED, PROTOCOL_PROCESS, PROTOCOL_STORAGE,
                                      PROTOCOL_DONE };
    struct relay_descriptor descriptors[PROTOCOL_MAX_FDS] = { { 0 } };
    uint8_t payload[512] = { 0 };
    unsigned count = 0;
    struct protocol_header header = { .length = 64, .type = types[take(play) % 4], .version = 1 };
    struct relay_frame frame = { .type = RELAY_MESSAGE };

    header.process = take(play) % 4;
    for (unsigned wanted = take(play) % 4; count < wanted; count++) {
        uint16_t number = find(play, 0, 0);

        if (!number)
            break;
        descriptors[count].channel = number;
        descriptors[count].kind = (uint16_t)(1 + take(play) % 3);
        if (!play->channels[number].kind)
            play->channels[number] =
                (struct known){ .kind = descriptors[count].kind, .limit = RELAY_WINDOW };
    }
    frame.length = (uint32_t)(relay_message_prefix(payload, descriptors, count) + 64);
    memcpy(payload + frame.length - 64, &header, sizeof(header));
    say_frame(play, &frame, payload);
}

/* DATA where it belongs, or nearly, and perhaps with a cut in it. */
static void say_data(struct play *play)
{
    static uint8_t payload[RELAY_MAX_DATA];
    uint16_t channel = find(play, RELAY_OUTPUT, RELAY_BOTH);
    struct known *known = &play->channels[channel];
    struct relay_frame frame = { .type = RELAY_DATA,
                                 .channel = channel,
                                 .offset = known->said,
                                 .length = 1 + take(play) * 255 };

    if (!channel || known->has_ended ||
        (known->said + frame.length > known->limit && !is_bad(play)))
        return;
    known->said += frame.length;
    if (take(play) > 200) {
        say(play, &frame, sizeof(frame));
        say(play, payload, frame.length / 2);
        turn(play, 2);
        (void)hear(play, RELAY_LOGIN, NULL, SIZE_MAX);
        close_fd(&play->relay);
        log_in(play, true);
    }
    say_frame(play, &frame, payload);
}

static void say_end(struct play *play)
{
    uint16_t channel = find(play, RELAY_OUTPUT, RELAY_BOTH);
    struct known *known = &play->channels[channel];
    struct relay_frame frame = { .type = RELAY_END,
                                 .channel = channel,
                                 .length = sizeof(struct relay_end),
                                 .offset = known->said };
    struct relay_end end = { 0 };

    if (!channel || (known->has_ended && !is_bad(play)))
        return;
    known->has_ended = true;
    say_frame(play, &frame, &end);
}

static void say_ack(struct play *play)
{
    uint16_t channel = find(play, RELAY_INPUT, RELAY_BOTH);
    struct known *known = &play->channels[channel];
    struct relay_frame frame = { .type = RELAY_ACK,
                                 .channel = channel,
                                 .length = sizeof(struct relay_ack),
                                 .offset = known->heard };
    struct relay_ack ack = { .window = take(play) * 256 };

    if (!channel)
        return;
    if (take(play) % 2 && known->heard > known->acked)
        frame.offset--;
    if (known->is_ended || is_bad(play)) {
        frame.offset = known->heard;
        frame.flags = RELAY_ACK_END;
        if (known->kind == RELAY_INPUT)
            *known = (struct known){ 0 };
    }
    known->acked = frame.offset;
    say_frame(play, &frame, &ack);
}

static void say_other(struct play *play)
{
    static const uint8_t types[] = { RELAY_PING, RELAY_PONG, RELAY_RECEIVED, 77, RELAY_CLOSE };
    uint8_t payload[8] = { 0 };
    struct relay_frame frame = { .type = types[take(play) % sizeof(types)] };

    if (frame.type == RELAY_CLOSE)
        frame.channel = find(play, RELAY_INPUT, RELAY_BOTH);
    else if (frame.type == RELAY_RECEIVED)
        frame.offset = play->received;
    else
        frame.length = sizeof(payload);
    frame.flags = frame.type == 77;
    if (frame.type == RELAY_CLOSE && !frame.channel)
        return;
    say_frame(play, &frame, payload);
}

/* --- the agent ---------------------------------------------------------------------------------- */

static void take_messages(struct play *play)
{
    union {
        struct cmsghdr header;
        char room[CMSG_SPACE(PROTOCOL_MAX_FDS * sizeof(int))];
    } control;
    char bytes[512];
    struct iovec part = { bytes, sizeof(bytes) };
    struct msghdr message = { .msg_iov = &part, .msg_iovlen = 1 };

    for (unsigned i = 0; i < 8; i++) {
        struct cmsghdr *rights;
        int fds[PROTOCOL_MAX_FDS];
        size_t count;

        message.msg_control = &control;
        message.msg_controllen = sizeof(control);
        if (recvmsg(play->agent, &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC) <= 0)
            return;
        rights = CMSG_FIRSTHDR(&message);
        count = rights ? (rights->cmsg_len - CMSG_LEN(0)) / sizeof(int) : 0;
        if (count)
            memcpy(fds, CMSG_DATA(rights), count * sizeof(int));
        for (size_t k = 0; k < count; k++) {
            if (play->fd_count < MAX_FDS)
                play->fds[play->fd_count++] = fds[k];
            else
                fd_close(fds[k]);
        }
    }
}

static void use_descriptor(struct play *play)
{
    static char bytes[65536];
    unsigned action = take(play) % 4;
    int *fd = play->fd_count ? &play->fds[take(play) % play->fd_count] : NULL;

    if (!fd || *fd < 0)
        return;
    if (action == 0)
        (void)!read(*fd, bytes, sizeof(bytes));
    else if (action == 1)
        (void)!write(*fd, bytes, 1 + take(play) * 64U);
    else if (action == 2)
        close_fd(fd);
    else
        (void)shutdown(*fd, SHUT_WR);
}

static void ask(struct play *play)
{
    static const uint16_t types[] = { PROTOCOL_LIST, PROTOCOL_CLOSE_STDIN, PROTOCOL_FORGET,
                                      PROTOCOL_START };
    struct protocol_plain plain = { protocol_header((enum protocol_type)types[take(play) % 4],
                                                    sizeof(plain), take(play) % 4, 0) };

    (void)send(play->agent, &plain, sizeof(plain), MSG_DONTWAIT | MSG_NOSIGNAL);
}

/* --- one input ---------------------------------------------------------------------------------- */

static void begin_session(struct play *play)
{
    struct error err;

    fd_close(play->agent);
    play->agent = bridge_connect(play->bridge, &err);
    assert(play->agent >= 0);
    log_in(play, true);
}

static void cut(struct play *play)
{
    close_fd(&play->relay);
    log_in(play, take(play) < 250);
}

static void say_raw(struct play *play)
{
    if (is_bad(play))
        say(play, play->data, MIN(play->size, (size_t)40));
}

static void freeze(struct play *play)
{
    bridge_set_frozen(play->bridge, take(play) % 4 == 0);
}

static void wait_some(struct play *play)
{
    loop_advance(play->loop, &play->clock, take(play) * 1000);
}

/* Appended to the steps, so that inputs of the corpus mean what they did. */
static void measure(struct play *play)
{
    struct relay_frame frame = { .length = sizeof(struct relay_usage), .type = RELAY_USAGE };
    struct relay_usage usage;
    struct error err;

    (void)bridge_measure(play->bridge, &err);
    turn(play, 2);
    memset(&usage, (int)take(play), sizeof(usage));
    if (bridge_is_up(play->bridge) && play->relay >= 0)
        say_frame(play, &frame, &usage);
}

static void renew(struct play *play)
{
    if (is_bad(play))
        begin_session(play);
}

static void say_something(struct play *play)
{
    static void (*const says[])(struct play * play) = {
        say_message, say_message, say_data,  say_data, say_data, say_data,
        say_ack,     say_ack,     say_other, say_end,  say_raw,
    };

    if (bridge_is_up(play->bridge) && play->relay >= 0)
        says[take(play) % ARRAY_LENGTH(says)](play);
}

static void step(struct play *play)
{
    static void (*const steps[])(struct play * play) = {
        say_something, say_something,  say_something,  say_something, cut,       renew,
        ask,           use_descriptor, use_descriptor, freeze,        wait_some, measure,
    };
    char byte;

    steps[take(play) % ARRAY_LENGTH(steps)](play);
    turn(play, 2);
    (void)hear(play, RELAY_LOGIN, NULL, SIZE_MAX);
    take_messages(play);
    if (recv(play->agent, &byte, 1, MSG_DONTWAIT | MSG_PEEK) == 0)
        begin_session(play);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct play play = { .data = data, .size = size, .relay = -1, .agent = -1 };
    struct bridge_options options = { .name = "fuzz" };

    signal(SIGPIPE, SIG_IGN);
    play.in = BUFFER_INIT(16 * 1024 * 1024);
    log_setup(LOG_ERROR, LOG_TEXT, STDERR_FILENO);
    simulated_clock_init(&play.clock, 1000 * 1000, 0);
    options.loop = play.loop = loop_new(&play.clock.clock);
    options.carrier = carrier_stream_new(play.loop, &stream, &play);
    memcpy(options.key, key, sizeof(key));
    play.bridge = bridge_new(&options);
    begin_session(&play);
    for (unsigned i = 0; i < MAX_STEPS && play.size; i++)
        step(&play);
    bridge_free(play.bridge);
    turn(&play, 2);
    loop_free(play.loop);
    buffer_fini(&play.in);
    fd_close(play.relay);
    fd_close(play.agent);
    for (unsigned i = 0; i < play.fd_count; i++)
        fd_close(play.fds[i]);
    return 0;
}
