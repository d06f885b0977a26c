/* SPDX-License-Identifier: Apache-2.0 */
/* Messages between the agent and the relay, with channels instead of descriptors. */

#include "bridge/bridge_private.h"

#include "base/log.h"

#include <errno.h>
#include <fcntl.h>
#include <stdalign.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>

enum { MESSAGES_PER_TURN = 16, HELD_US = 100 * 1000 };

/* The loop has one thread. */
static alignas(8) uint8_t scratch[RELAY_MAX_MESSAGE];

/* --- from the relay ---------------------------------------------------------------------------- */

/* The agent's ends and our ends of pipes and sockets. */
struct pairs {
    int agent[PROTOCOL_MAX_FDS];
    int ours[PROTOCOL_MAX_FDS];
    unsigned count;
};

static void scoped_pairs_close(struct pairs *pairs)
{
    for (unsigned i = 0; i < pairs->count; i++) {
        fd_close(pairs->agent[i]);
        fd_close(pairs->ours[i]);
    }
}

static int make_pair(enum relay_kind kind, int *out_agent, int *out_ours)
{
    int ends[2];
    int result = kind == RELAY_BOTH
                     ? socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends)
                     : pipe2(ends, O_CLOEXEC | O_NONBLOCK);

    if (result < 0)
        return -1;
    *out_agent = ends[kind == RELAY_INPUT];
    *out_ours = ends[kind != RELAY_INPUT];
    return 0;
}

static int make_pairs(const struct relay_message_view *message, struct pairs *pairs)
{
    for (unsigned i = 0; i < message->count; i++) {
        if (make_pair((enum relay_kind)message->descriptors[i].kind, &pairs->agent[i],
                      &pairs->ours[i]) < 0)
            return -1;
        pairs->count++;
    }
    return 0;
}

/* NULL, or the fault of the channels that the relay names. */
static const char *check_channels(struct bridge *bridge, const struct relay_message_view *message)
{
    for (unsigned i = 0; i < message->count; i++) {
        uint16_t number = message->descriptors[i].channel;

        if (channel_find(bridge, number))
            return "a MESSAGE with a channel that is in use";
        for (unsigned j = 0; j < i; j++)
            if (message->descriptors[j].channel == number)
                return "a MESSAGE with a channel twice";
    }
    if (bridge->channel_count + message->count > BRIDGE_MAX_CHANNELS)
        return "too many channels";
    return NULL;
}

static int give_to_agent(struct bridge *bridge, const void *packet, size_t length, const int *fds,
                         unsigned count)
{
    union {
        struct cmsghdr header;
        char room[CMSG_SPACE(PROTOCOL_MAX_FDS * sizeof(int))];
    } control = { .room = { 0 } };
    struct iovec part = { (void *)(uintptr_t)packet, length };
    struct msghdr message = { .msg_iov = &part, .msg_iovlen = 1 };

    if (count) {
        control.header = (struct cmsghdr){
            .cmsg_len = CMSG_LEN(count * sizeof(int)),
            .cmsg_level = SOL_SOCKET,
            .cmsg_type = SCM_RIGHTS,
        };
        memcpy(CMSG_DATA(&control.header), fds, count * sizeof(int));
        message.msg_control = &control;
        message.msg_controllen = CMSG_SPACE(count * sizeof(int));
    }
    return sendmsg(bridge->agent.fd, &message, MSG_DONTWAIT | MSG_NOSIGNAL) < 0 ? -1 : 0;
}

static bool is_full(int error)
{
    return error == EAGAIN || error == ENOBUFS || error == ETOOMANYREFS || error == EINTR;
}

/* The process whose streams come with a message; 0 when they are of something else. */
static uint64_t owner_of(const void *packet, size_t length)
{
    struct protocol_header header;

    if (length < sizeof(header))
        return 0;
    memcpy(&header, packet, sizeof(header));
    if (header.type == PROTOCOL_STARTED || header.type == PROTOCOL_RAN ||
        header.type == PROTOCOL_PROCESS)
        return header.process;
    return 0;
}

/* The answer to START. */
static bool answers_held(const struct bridge *bridge, const void *packet, size_t length)
{
    struct protocol_header header;

    if (!bridge->held.is_held || length < sizeof(header))
        return false;
    memcpy(&header, packet, sizeof(header));
    return header.request == bridge->held.request &&
           (header.type == PROTOCOL_STARTED || header.type == PROTOCOL_RAN ||
            header.type == PROTOCOL_FAILED);
}

/* The message is not lost: the relay sends it again on the next connection. */
static enum message_result fail_for_now(struct bridge *bridge, const char *what)
{
    struct error err;

    error_sys(&err, "%s", what);
    bridge->link.has_progress = false;
    bridge_down(bridge, &err);
    return MESSAGE_FAILED;
}

static enum message_result give(struct bridge *bridge, const struct relay_message_view *message,
                                struct pairs *pairs)
{
    uint64_t process = owner_of(message->packet, message->length);
    struct channel *last = NULL;

    if (give_to_agent(bridge, message->packet, message->length, pairs->agent, pairs->count) < 0) {
        if (is_full(errno))
            return MESSAGE_WAITS;
        if (errno == EPIPE || errno == ECONNRESET)
            bridge_end_session(bridge, "the agent has closed its socket");
        else
            (void)bridge_violation(bridge, "a message that cannot be passed on");
        return MESSAGE_FAILED;
    }
    for (unsigned i = 0; i < message->count; i++) {
        struct channel *channel =
            channel_new(bridge, &message->descriptors[i], process, steal_fd(&pairs->ours[i]));

        if (process && last && channel->kind == RELAY_OUTPUT && last->kind == RELAY_OUTPUT)
            channel_set_siblings(channel, last);
        last = channel;
    }
    if (answers_held(bridge, message->packet, message->length))
        message_release_held(bridge);
    return MESSAGE_GIVEN;
}

enum message_result message_from_relay(struct bridge *bridge, const void *payload, size_t length)
{
    scoped(pairs_close) struct pairs pairs = { .count = 0 };
    struct relay_message_view message;
    const char *wrong;

    if (relay_message_decode(payload, length, RELAY_OF_RELAY, &message) < 0) {
        (void)bridge_violation(bridge, "a MESSAGE that is not well formed");
        return MESSAGE_FAILED;
    }
    wrong = check_channels(bridge, &message);
    if (wrong) {
        (void)bridge_violation(bridge, wrong);
        return MESSAGE_FAILED;
    }
    if (make_pairs(&message, &pairs) < 0)
        return fail_for_now(bridge, "make a pipe for the sandbox");
    return give(bridge, &message, &pairs);
}

/* --- TAKEN ------------------------------------------------------------------------------------- */

static bool send_taken(struct bridge *bridge, struct channel *channel)
{
    struct protocol_taken taken = {
        .header = protocol_header(PROTOCOL_TAKEN, sizeof(taken), channel->process, 0),
        .total = channel->out.acked,
    };

    if (give_to_agent(bridge, &taken, sizeof(taken), NULL, 0) < 0 && is_full(errno))
        return false;
    channel_taken(channel);
    return true;
}

void message_tell_taken(struct channel *channel)
{
    struct bridge *bridge = channel->bridge;

    if (!bridge->owes_taken && channel->out.taken != channel->out.acked)
        bridge->owes_taken = !send_taken(bridge, channel);
}

void message_send_taken(struct bridge *bridge)
{
    struct channel *channel, *next;

    if (!bridge->owes_taken)
        return;
    list_for_each_safe (channel, next, &bridge->all, node) {
        if (channel->kind == RELAY_INPUT && channel->process &&
            channel->out.taken != channel->out.acked && !send_taken(bridge, channel))
            return;
    }
    bridge->owes_taken = false;
}

/* --- from the agent ---------------------------------------------------------------------------- */

static void send_message(struct bridge *bridge, const struct relay_descriptor *descriptor,
                         const void *packet, size_t length)
{
    uint8_t prefix[sizeof(struct relay_message) + sizeof(*descriptor)];
    size_t prefix_length = relay_message_prefix(prefix, descriptor, descriptor ? 1 : 0);
    struct relay_frame frame = { .length = (uint32_t)(prefix_length + length),
                                 .type = RELAY_MESSAGE };

    resend_add(&bridge->resend, &frame, sizeof(frame));
    resend_add(&bridge->resend, prefix, prefix_length);
    resend_add(&bridge->resend, packet, length);
}

/* --- the START that stays in the agent's socket --- */

static void on_held_limit(struct timer *timer)
{
    message_release_held(container_of(timer, struct bridge, held.limit));
}

void message_init_held(struct bridge *bridge)
{
    timer_init(&bridge->held.limit, bridge->loop, on_held_limit);
}

static void hold(struct bridge *bridge, uint64_t request)
{
    bridge->held.is_held = true;
    bridge->held.is_unread = false;
    bridge->held.request = request;
    bridge->held.end = 0;
}

static void note_start_sent(struct bridge *bridge)
{
    bridge->held.end = bridge->resend.end;
    if (bridge->held.is_held)
        timer_arm_in(&bridge->held.limit, HELD_US);
}

/* Removes the START, which was only peeked at, from the agent's socket. */
void message_release_held(struct bridge *bridge)
{
    struct msghdr message = { 0 };

    if (!bridge->held.is_held)
        return;
    bridge->held.is_held = false;
    timer_stop(&bridge->held.limit);
    (void)recvmsg(bridge->agent.fd, &message, MSG_DONTWAIT); /* its descriptor is dropped with it */
    bridge_wake(bridge);
}

void message_note_received(struct bridge *bridge, uint64_t received)
{
    bridge->held.is_unread = false;
    if (!bridge->held.is_held)
        return;
    if (bridge->held.end && received >= bridge->held.end)
        message_release_held(bridge);
    else if (bridge->held.end && !timer_is_armed(&bridge->held.limit))
        timer_arm_in(&bridge->held.limit, HELD_US);
}

/* Unread bytes are the last ones: with nothing sent behind it the START is among them. */
void message_note_loss(struct bridge *bridge)
{
    struct held *held = &bridge->held;
    const struct link *link = &bridge->link;

    if (!held->is_held || bridge->state != BRIDGE_UP)
        return;
    timer_stop(&held->limit);
    held->is_unread = !held->end || link->written < held->end ||
                      (link->was_reset && link->written == held->end && !link->has_spoken);
}

static uint16_t free_content_number(struct bridge *bridge)
{
    for (unsigned i = 0; i < RELAY_MAX_CONTENTS; i++)
        if (!channel_find(bridge, (uint16_t)(RELAY_BRIDGE_CHANNEL + i)))
            return (uint16_t)(RELAY_BRIDGE_CHANNEL + i);
    return 0;
}

/* The message waits for its script, and so do the agent's later messages. */
static void hold_start(struct bridge *bridge, const void *packet, size_t length, int script)
{
    struct relay_descriptor descriptor = { .channel = free_content_number(bridge),
                                           .kind = RELAY_CONTENT };
    struct stat status;

    if (fstat(script, &status) == 0)
        descriptor.base = (uint64_t)MIN(status.st_size, (off_t)PROTOCOL_MAX_SCRIPT_BYTES);
    bridge->start = BUFFER_INIT(PROTOCOL_MAX_MESSAGE);
    (void)buffer_append(&bridge->start, packet, length);
    bridge->content = channel_new(bridge, &descriptor, 0, script);
    channel_set_ready(bridge->content);
}

void message_send_start(struct bridge *bridge)
{
    struct channel *content = steal_ptr(&bridge->content);
    struct relay_descriptor descriptor = { .channel = content->number,
                                           .kind = RELAY_CONTENT,
                                           .base = content->out.sent };

    send_message(bridge, &descriptor, bridge->start.data, bridge->start.length);
    buffer_fini(&bridge->start);
    note_start_sent(bridge);
}

void message_send_close_stdin(struct bridge *bridge, uint64_t process, uint64_t request)
{
    struct protocol_plain plain = {
        protocol_header(PROTOCOL_CLOSE_STDIN, sizeof(plain), process, request),
    };

    send_message(bridge, NULL, &plain, sizeof(plain));
}

static void note_forgets(struct bridge *bridge, size_t length)
{
    const struct protocol_forget_many *many = protocol_forget_many_decode(scratch, length);
    const struct protocol_header *header = (const void *)scratch;

    if (!many) {
        channels_forget(bridge, header->process);
        return;
    }
    for (uint32_t i = 0; i < many->count; i++)
        channels_forget(bridge, many->processes[i]);
}

static void pass_to_relay(struct bridge *bridge, size_t length, int fd)
{
    struct protocol_header header = { 0 };
    struct channel *input = NULL;

    if (length >= sizeof(header))
        memcpy(&header, scratch, sizeof(header));
    if (header.type == PROTOCOL_START && fd >= 0) {
        hold_start(bridge, scratch, length, fd);
        return;
    }
    fd_close(fd);
    if (header.type == PROTOCOL_START) {
        send_message(bridge, NULL, scratch, length);
        note_start_sent(bridge);
        return;
    }
    if (header.type == PROTOCOL_FORGET || header.type == PROTOCOL_FORGET_MANY)
        note_forgets(bridge, length);
    if (header.type == PROTOCOL_CLOSE_STDIN)
        input = channel_input_of(bridge, header.process);
    if (input)
        channel_close_stdin(input, header.request);
    else
        send_message(bridge, NULL, scratch, length);
}

static int take_descriptor(struct msghdr *message)
{
    int found = -1;

    for (struct cmsghdr *part = CMSG_FIRSTHDR(message); part; part = CMSG_NXTHDR(message, part)) {
        if (part->cmsg_level != SOL_SOCKET || part->cmsg_type != SCM_RIGHTS)
            continue;
        fd_close(found);
        memcpy(&found, CMSG_DATA(part), sizeof(found));
    }
    return found;
}

/* 1 with a message, 0 when there is none now, -1 at the end. */
static int receive_message(struct bridge *bridge)
{
    union {
        struct cmsghdr header;
        char room[CMSG_SPACE(sizeof(int))];
    } control;
    struct iovec part = { scratch, PROTOCOL_MAX_MESSAGE };
    struct msghdr message = {
        .msg_iov = &part,
        .msg_iovlen = 1,
        .msg_control = &control,
        .msg_controllen = sizeof(control),
    };
    ssize_t length =
        recvmsg(bridge->agent.fd, &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC | MSG_PEEK);
    const struct protocol_header *header = (const void *)scratch;

    if (length < 0 && (errno == EAGAIN || errno == EINTR))
        return 0;
    if (length <= 0)
        return -1;
    hold(bridge, header->request);
    if ((size_t)length < sizeof(*header) || header->type != PROTOCOL_START)
        message_release_held(bridge);
    pass_to_relay(bridge, (size_t)length, take_descriptor(&message));
    return 1;
}

/* The next message may have a script, which needs a number that the relay is done with. */
bool message_has_room(struct bridge *bridge)
{
    return bridge->state == BRIDGE_UP && !bridge->held.is_held && !bridge->content &&
           free_content_number(bridge) && resend_held(&bridge->resend) < RESEND_MESSAGE_BYTES;
}

bool message_from_agent(struct bridge *bridge)
{
    for (unsigned i = 0; i < MESSAGES_PER_TURN && message_has_room(bridge); i++) {
        int result = receive_message(bridge);

        if (result <= 0)
            return result == 0;
    }
    return true;
}
