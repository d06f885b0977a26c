/* SPDX-License-Identifier: Apache-2.0 */
/* One connection to a relay: the handshake, frames in both directions, heartbeats. */

#include "bridge/bridge_private.h"

#include <assert.h>
#include <errno.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>

enum {
    READ_BYTES = 256 * 1024,
    TURN_BYTES = 1024 * 1024, /* from one relay in a turn of the loop */
    TURN_FRAMES = 1024,
    ORDER_BYTES = 16 * 1024, /* when more has come, the order of streams is not looked after */
    ORDER_WAITS = 3,
};

/* Frames are read here: the loop has one thread, and the rest of a frame that has not come whole is
 * copied. */
static uint8_t inbox[RELAY_MAX_FRAME + 2 * READ_BYTES];

static void on_link_ready(struct io_watch *watch, unsigned events);

static void fail(struct bridge *bridge, const char *why)
{
    struct error err;

    error_set(&err, ERR_BACKEND, "%s", why);
    bridge_down(bridge, &err);
}

/* --- out --------------------------------------------------------------------------------------- */

void link_add(struct bridge *bridge, const struct relay_frame *frame, const void *payload)
{
    assert(relay_is_sequenced(frame));
    resend_add(&bridge->resend, frame, sizeof(*frame));
    resend_add(&bridge->resend, payload, frame->length);
}

static void add_control(struct link *link, enum relay_type type, uint64_t offset,
                        const void *payload, uint32_t length)
{
    struct relay_frame frame = { .length = length, .type = type, .offset = offset };

    assert(link->control_length + sizeof(frame) + length <= sizeof(link->control));
    memcpy(link->control + link->control_length, &frame, sizeof(frame));
    link->control_length += sizeof(frame);
    if (length)
        memcpy(link->control + link->control_length, payload, length);
    link->control_length += length;
}

static bool owes_received(const struct bridge *bridge)
{
    return bridge->state == BRIDGE_UP &&
           bridge->received - bridge->link.received_told >= RELAY_RECEIVED_EVERY / 2;
}

static bool owes_measure(const struct bridge *bridge)
{
    return bridge->state == BRIDGE_UP && bridge->wants_usage && bridge->link.tells_usage &&
           !bridge->link.has_measured;
}

static bool owes_control(const struct bridge *bridge)
{
    return bridge->link.owes_ping || bridge->link.owes_pong || owes_received(bridge) ||
           owes_measure(bridge);
}

static void build_control(struct bridge *bridge)
{
    struct link *link = &bridge->link;

    link->control_length = link->control_sent = 0;
    if (owes_received(bridge)) {
        add_control(link, RELAY_RECEIVED, bridge->received, NULL, 0);
        link->received_told = bridge->received;
    }
    if (link->owes_ping) {
        link->ping_number++;
        add_control(link, RELAY_PING, 0, &link->ping_number, sizeof(link->ping_number));
    }
    if (link->owes_pong)
        add_control(link, RELAY_PONG, 0, link->pong, sizeof(link->pong));
    if (owes_measure(bridge)) {
        add_control(link, RELAY_MEASURE, 0, NULL, 0);
        link->has_measured = true;
    }
    link->owes_ping = link->owes_pong = false;
}

/* Bytes sent; 0 when the socket takes no more, now or for ever. */
static ssize_t send_pieces(struct bridge *bridge, struct iovec *pieces, unsigned count)
{
    struct msghdr message = { .msg_iov = pieces, .msg_iovlen = count };
    ssize_t sent = sendmsg(bridge->link.socket.fd, &message, MSG_DONTWAIT | MSG_NOSIGNAL);

    if (sent > 0)
        return sent;
    if (sent < 0 && (errno == EAGAIN || errno == EINTR || errno == ENOBUFS))
        return 0;
    bridge->link.is_ending =
        true; /* the reading side finds the end, behind the relay's last bytes */
    bridge->link.was_reset |= errno == ECONNRESET;
    return 0;
}

static ssize_t send_control(struct bridge *bridge)
{
    struct link *link = &bridge->link;
    struct iovec piece = { link->control + link->control_sent,
                           link->control_length - link->control_sent };
    ssize_t sent = send_pieces(bridge, &piece, 1);

    if (sent > 0) {
        link->control_sent += (size_t)sent;
        link->has_spoken = true;
    }
    return sent;
}

/* A frame without a sequence may come between two frames of the session, not inside one. */
static ssize_t send_session(struct bridge *bridge)
{
    struct link *link = &bridge->link;
    uint64_t end = owes_control(bridge) ? link->frame_end : bridge->resend.end;
    struct iovec pieces[2];
    unsigned count = resend_pieces(&bridge->resend, link->written, end, pieces);
    ssize_t sent = send_pieces(bridge, pieces, count);

    if (sent <= 0)
        return sent;
    link->written += (uint64_t)sent;
    link->has_spoken = false;
    while (link->frame_end < link->written)
        link->frame_end = resend_frame_end(&bridge->resend, link->frame_end);
    return sent;
}

/* 0: nothing is left. */
static ssize_t send_some(struct bridge *bridge, bool *out_is_empty)
{
    struct link *link = &bridge->link;

    if (link->is_ending) {
        *out_is_empty = true;
        return 0;
    }
    if (link->control_sent == link->control_length && link->written == link->frame_end &&
        owes_control(bridge))
        build_control(bridge);
    if (link->control_sent < link->control_length)
        return send_control(bridge);
    if (bridge->state == BRIDGE_UP && link->written < bridge->resend.end)
        return send_session(bridge);
    *out_is_empty = true;
    return 0;
}

static void watch_link(struct bridge *bridge, bool has_more)
{
    struct link *link = &bridge->link;
    unsigned events = (link->pause ? 0U : IO_READ) | (has_more ? IO_WRITE : 0U);

    if (events)
        io_watch_start(&link->socket, bridge->loop, link->socket.fd, events, on_link_ready);
    else
        io_watch_stop(&link->socket);
}

void link_flush(struct bridge *bridge)
{
    bool is_empty = false;
    ssize_t sent;

    do
        sent = send_some(bridge, &is_empty);
    while (sent > 0);
    watch_link(bridge, !is_empty && !bridge->link.is_ending);
}

/* --- the handshake ----------------------------------------------------------------------------- */

static void send_login(struct bridge *bridge)
{
    struct link *link = &bridge->link;
    struct relay_login login = {
        .version = RELAY_VERSION,
        .flags = bridge->is_begun ? 0 : RELAY_LOGIN_NEW,
        .received = bridge->received,
    };
    ssize_t count = getrandom(login.nonce, sizeof(login.nonce), 0);

    assert(count == (ssize_t)sizeof(login.nonce));
    memcpy(login.session, bridge->session, sizeof(login.session));
    relay_sign_login(bridge->key, link->greeting, link->greeting_length, &login);
    link->login = login;
    link->received_told = bridge->received;
    add_control(link, RELAY_LOGIN, 0, &login, sizeof(login));
    bridge_set_state(bridge, BRIDGE_LOGIN);
    bridge_wake(bridge);
}

static int take_greeting(struct bridge *bridge, const struct relay_frame *frame,
                         const uint8_t *payload)
{
    struct link *link = &bridge->link;
    struct relay_greeting greeting;

    memcpy(&greeting, payload, sizeof(greeting));
    if (memcmp(greeting.magic, RELAY_MAGIC, sizeof(greeting.magic)) != 0) {
        fail(bridge, "the peer is not a relay");
        return -1;
    }
    if (greeting.oldest > RELAY_VERSION || greeting.newest < RELAY_VERSION) {
        bridge_refuse_version(bridge, &greeting);
        return -1;
    }
    assert(frame->length <= sizeof(link->greeting));
    memcpy(link->greeting, payload, frame->length);
    link->greeting_length = frame->length;
    link->tells_usage = greeting.features & RELAY_HAS_USAGE;
    if (greeting.features & RELAY_UNBOUND) {
        if (!bridge->may_bind) {
            bridge_refuse_other(bridge, &greeting);
            return -1;
        }
        add_control(link, RELAY_BIND, 0, bridge->key, sizeof(bridge->key));
    }
    send_login(bridge);
    return 0;
}

/* Only now the relay has proved that it is the sandbox's, and that the boot id is true. */
static int take_welcome(struct bridge *bridge, const uint8_t *payload)
{
    struct link *link = &bridge->link;
    struct relay_greeting greeting;
    struct relay_welcome welcome;

    memcpy(&welcome, payload, sizeof(welcome));
    if (!relay_verify_welcome(bridge->key, link->greeting, link->greeting_length, &link->login,
                              &welcome)) {
        fail(bridge, "the relay does not know the key of the sandbox");
        return -1;
    }
    memcpy(&greeting, link->greeting, sizeof(greeting));
    bridge_welcomed(bridge, &greeting, &welcome);
    return bridge->state == BRIDGE_UP ? 0 : -1;
}

static int take_handshake(struct bridge *bridge, const struct relay_frame *frame,
                          const uint8_t *payload)
{
    bridge->link.handshake_bytes += sizeof(*frame) + frame->length;
    if (bridge->state == BRIDGE_GREETING && frame->type == RELAY_GREETING)
        return take_greeting(bridge, frame, payload);
    if (bridge->state == BRIDGE_LOGIN && frame->type == RELAY_WELCOME)
        return take_welcome(bridge, payload);
    if (frame->type <= RELAY_CLOSE) {
        fail(bridge, "the relay does not begin with its greeting");
        return -1;
    }
    return 0;
}

bool link_resume(struct bridge *bridge, uint64_t received)
{
    if (!resend_drop(&bridge->resend, received))
        return false;
    bridge->link.written = bridge->link.frame_end = received;
    message_note_received(bridge, received);
    return true;
}

/* --- in ---------------------------------------------------------------------------------------- */

static int take_received(struct bridge *bridge, const struct relay_frame *frame)
{
    if (frame->offset > bridge->link.written || !resend_drop(&bridge->resend, frame->offset))
        return bridge_violation(bridge, "RECEIVED of bytes that were not sent");
    bridge->link.has_progress = true;
    message_note_received(bridge, frame->offset);
    return 0;
}

/* After a cut in the middle of a DATA frame the same frame comes again. */
static int check_torn(struct bridge *bridge, const struct relay_frame *frame)
{
    if (!bridge->torn.is_torn)
        return 0;
    if (memcmp(frame, &bridge->torn.frame, sizeof(*frame)) != 0)
        return bridge_violation(bridge, "another frame than before the cut");
    bridge->torn.is_torn = false;
    return 0;
}

static void count_received(struct bridge *bridge, const struct relay_frame *frame)
{
    bridge->received += sizeof(*frame) + frame->length;
    bridge->link.has_progress = true;
}

enum taken { TAKEN_WHOLE, TAKEN_NOT_NOW, TAKEN_OVER };

static enum taken take_message(struct bridge *bridge, const struct relay_frame *frame,
                               const uint8_t *payload)
{
    switch (message_from_relay(bridge, payload, frame->length)) {
    case MESSAGE_GIVEN:
        return TAKEN_WHOLE;
    case MESSAGE_WAITS:
        bridge->link.pause = PAUSE_AGENT;
        return TAKEN_NOT_NOW;
    case MESSAGE_FAILED:
        break;
    }
    return TAKEN_OVER;
}

static int take_usage(struct bridge *bridge, const uint8_t *payload)
{
    if (!bridge->link.has_measured)
        return bridge_violation(bridge, "USAGE that was not asked for");
    bridge->link.has_measured = false;
    bridge->wants_usage = false;
    memcpy(&bridge->usage, payload, sizeof(bridge->usage));
    for (size_t i = 0; i < RELAY_PROCESSES; i++)
        bridge->usage.processes[i].name[sizeof(bridge->usage.processes[i].name) - 1] = '\0';
    bridge_tell_usage(bridge);
    return 0;
}

static int take_plain(struct bridge *bridge, const struct relay_frame *frame,
                      const uint8_t *payload)
{
    struct link *link = &bridge->link;

    switch (frame->type) {
    case RELAY_RECEIVED:
        return take_received(bridge, frame);
    case RELAY_PING:
        memcpy(link->pong, payload, sizeof(link->pong));
        link->owes_pong = true;
        return 0;
    case RELAY_PONG:
        return 0;
    case RELAY_USAGE:
        return take_usage(bridge, payload);
    case RELAY_ACK:
        return stream_ack(bridge, frame, payload);
    case RELAY_END:
        return stream_end(bridge, frame, payload);
    case RELAY_CLOSE:
        return stream_close(bridge, frame, payload);
    case RELAY_GREETING:
    case RELAY_WELCOME:
        return bridge_violation(bridge, "a handshake after the handshake");
    default: /* it may be ignored, says relay_check() */
        return 0;
    }
}

static enum taken take_frame(struct bridge *bridge, const struct relay_frame *frame,
                             const uint8_t *payload)
{
    enum taken taken;

    if (bridge->state != BRIDGE_UP)
        return take_handshake(bridge, frame, payload) < 0 ? TAKEN_OVER : TAKEN_WHOLE;
    if (relay_is_sequenced(frame) && check_torn(bridge, frame) < 0)
        return TAKEN_OVER;
    if (frame->type == RELAY_MESSAGE)
        taken = take_message(bridge, frame, payload);
    else
        taken = take_plain(bridge, frame, payload) < 0 ? TAKEN_OVER : TAKEN_WHOLE;
    if (taken == TAKEN_WHOLE && relay_is_sequenced(frame))
        count_received(bridge, frame);
    return taken;
}

static void pause_for_turn(struct bridge *bridge)
{
    bridge->link.pause = PAUSE_TURN;
    timer_arm_in(&bridge->next_turn, 0);
}

/* --- DATA: passed on in pieces, before the frame is complete ------------------------------- */

static int begin_data(struct bridge *bridge, const struct relay_frame *frame)
{
    struct link *link = &bridge->link;
    bool is_again = bridge->torn.is_torn;
    struct channel *channel;

    if (check_torn(bridge, frame) < 0 || stream_data_begin(bridge, frame, is_again) < 0)
        return -1;
    channel = channel_find(bridge, frame->channel);
    link->data = channel;
    link->data_frame = *frame;
    link->data_left = frame->length;
    link->data_skip = (uint32_t)(channel->in.got - frame->offset);
    return 0;
}

static long go_on_with_data(struct bridge *bridge, const uint8_t *bytes, size_t length)
{
    struct link *link = &bridge->link;
    uint32_t piece = (uint32_t)MIN(length, (size_t)link->data_left);
    uint32_t skip = MIN(piece, link->data_skip);

    if (piece > skip && stream_data(link->data, bytes + skip, piece - skip) < 0)
        return -1;
    link->data_skip -= skip;
    link->data_left -= piece;
    if (!link->data_left) {
        link->data = NULL;
        count_received(bridge, &link->data_frame);
    }
    return piece;
}

static int check_header(struct bridge *bridge, const struct relay_frame *frame)
{
    const char *wrong = relay_check(frame, RELAY_OF_RELAY);

    if (bridge->state == BRIDGE_UP)
        return wrong ? bridge_violation(bridge, wrong) : 0;
    if (!wrong && bridge->link.handshake_bytes + frame->length > RELAY_MAX_HANDSHAKE)
        wrong = "a handshake that is too long";
    if (!wrong)
        return 0;
    fail(bridge, wrong);
    return -1;
}

/*
 * Readers of both streams of a process keep the order in which they find bytes. So bytes of one
 * stream are given when the reader of the other had its turn, unless much has come.
 */
static bool data_is_early(struct bridge *bridge, const struct relay_frame *frame, size_t length)
{
    struct link *link = &bridge->link;

    if (length > ORDER_BYTES || link->waits == ORDER_WAITS ||
        !stream_is_early(bridge, frame->channel)) {
        link->waits = 0;
        return false;
    }
    link->waits++;
    pause_for_turn(bridge);
    return true;
}

/* The frame at the front: its bytes, 0 when they have not all come or it has to wait, -1 when the
 * connection is over. */
static long take_front(struct bridge *bridge, const uint8_t *bytes, size_t length)
{
    struct relay_frame frame;
    enum taken taken;

    if (bridge->link.data)
        return go_on_with_data(bridge, bytes, length);
    if (length < sizeof(frame))
        return 0;
    memcpy(&frame, bytes, sizeof(frame));
    if (check_header(bridge, &frame) < 0)
        return -1;
    if (frame.type == RELAY_DATA && bridge->state == BRIDGE_UP &&
        data_is_early(bridge, &frame, length))
        return 0;
    if (frame.type == RELAY_DATA && bridge->state == BRIDGE_UP)
        return begin_data(bridge, &frame) < 0 ? -1 : (long)sizeof(frame);
    if (length - sizeof(frame) < frame.length)
        return 0;
    taken = take_frame(bridge, &frame, bytes + sizeof(frame));
    if (taken == TAKEN_OVER)
        return -1;
    return taken == TAKEN_NOT_NOW ? 0 : (long)(sizeof(frame) + frame.length);
}

/* Takes the frames that are in the inbox and keeps the rest. False when the connection is over. */
static bool take_inbox(struct bridge *bridge, size_t length)
{
    size_t at = 0;
    long count = 1;

    while (at < length && count > 0 && bridge->link.frames) {
        count = take_front(bridge, inbox + at, length - at);
        if (count < 0)
            return false;
        bridge->link.frames--;
        at += (size_t)count;
    }
    if (at < length && count > 0)
        pause_for_turn(bridge);
    (void)buffer_append(&bridge->link.partial, inbox + at, length - at);
    return true;
}

static size_t move_partial(struct link *link)
{
    size_t length = link->partial.length;

    if (length)
        memcpy(inbox, link->partial.data, length);
    buffer_clear(&link->partial);
    return length;
}

/* Whether there may be more. */
static bool receive_once(struct bridge *bridge, size_t *total)
{
    struct link *link = &bridge->link;
    size_t kept = link->partial.length;
    ssize_t count;

    assert(kept + READ_BYTES <= sizeof(inbox));
    count = recv(link->socket.fd, inbox + kept, READ_BYTES, MSG_DONTWAIT);
    if (count < 0 && (errno == EAGAIN || errno == EINTR))
        return false;
    if (count < 0 && errno == ECONNRESET && !link->was_reset) {
        link->was_reset = true; /* reported once, before the relay's last bytes */
        return true;
    }
    if (count <= 0) {
        fail(bridge, "the relay has closed the connection");
        return false;
    }
    link->heard_us = loop_now_us(bridge->loop);
    (void)move_partial(link);
    *total += (size_t)count;
    return take_inbox(bridge, kept + (size_t)count) && count == READ_BYTES && !link->pause;
}

static void on_link_ready(struct io_watch *watch, unsigned events)
{
    struct bridge *bridge = container_of(watch, struct bridge, link.socket);
    size_t total = 0;

    bridge->link.frames = TURN_FRAMES;
    if (events & IO_READ)
        while (total < TURN_BYTES && receive_once(bridge, &total))
            continue;
    if (bridge_has_link(bridge))
        bridge_wake(bridge);
}

void link_unpause(struct bridge *bridge, enum link_pause reason)
{
    struct link *link = &bridge->link;

    if (link->pause != reason)
        return;
    link->pause = PAUSE_NONE;
    link->frames = TURN_FRAMES;
    link->heard_us = loop_now_us(bridge->loop);
    if (take_inbox(bridge, move_partial(link)))
        bridge_wake(bridge);
}

/* --- its life ---------------------------------------------------------------------------------- */

void link_start(struct bridge *bridge, int fd)
{
    struct link *link = &bridge->link;

    assert(link->socket.fd < 0);
    *link = (struct link){ .heard_us = loop_now_us(bridge->loop) };
    link->partial = BUFFER_INIT(sizeof(inbox));
    link->pinged_us = link->heard_us;
    link->socket.fd = fd;
    watch_link(bridge, false);
}

void link_stop(struct bridge *bridge)
{
    struct link *link = &bridge->link;

    if (link->socket.fd < 0)
        return;
    message_note_loss(bridge);
    if (link->data)
        bridge->torn = (struct torn){ .is_torn = true, .frame = link->data_frame };
    io_watch_stop(&link->socket);
    timer_stop(&bridge->next_turn);
    fd_close(link->socket.fd);
    buffer_fini(&link->partial);
    *link = (struct link){ .socket = { .fd = -1 } };
}

void link_heartbeat(struct bridge *bridge)
{
    struct link *link = &bridge->link;
    int64_t now_us = loop_now_us(bridge->loop);
    int64_t quiet_since_us;

    if (link->pause) /* it may have said something that is not read */
        link->heard_us = now_us;
    if (now_us - link->heard_us >= RELAY_SILENCE_MS * 1000LL) {
        fail(bridge, "the relay is silent");
        return;
    }
    quiet_since_us = MAX(link->heard_us, link->pinged_us);
    if (now_us - quiet_since_us >= RELAY_PING_MS * 1000LL) {
        link->owes_ping = true;
        link->pinged_us = quiet_since_us = now_us;
        bridge_wake(bridge);
    }
    timer_arm_at(&bridge->step, MIN(quiet_since_us + RELAY_PING_MS * 1000LL,
                                    link->heard_us + RELAY_SILENCE_MS * 1000LL));
}
