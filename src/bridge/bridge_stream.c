/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The channels of a bridge: pipes and sockets whose other ends the agent's users have.
 *
 * From the relay: bytes go into the pipe as they come; the rest waits here, and is never more than
 * the window that the relay was given. Output of processes counts as kept when it has left the
 * pipe, which is looked at after each turn of the loop; anything else when it is in the pipe.
 *
 * To the relay: bytes are taken from the pipe as far as the relay's window and the resend buffer
 * have room, channels in rotation.
 */

#include "bridge/bridge_private.h"

#include "base/alloc.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

enum {
    PAGE_CHANNELS = 64,
    BUSY_PIPE_BYTES = 256 * 1024, /* of a pipe that was full */
    STILL_LOOKS = 64,             /* looks in a row that found nothing before they become rare */
    LOOK_US = 20 * 1000,
    LATER_US = 5 * 1000,
};

static uint8_t scratch[RELAY_MAX_DATA]; /* one loop, one thread */

/* --- the other end is closed --------------------------------------------------------------------- */

static void on_closings_ready(struct io_watch *watch, unsigned events UNUSED)
{
    struct bridge *bridge = container_of(watch, struct bridge, closings);
    struct epoll_event event;

    /* One event at a time: the callback may stop other watches that are ready too. */
    while (bridge->closings.fd >= 0 && epoll_wait(bridge->closings.fd, &event, 1, 0) == 1) {
        struct closing *closing = event.data.ptr;

        closing_stop(bridge, closing);
        closing->on_closed(closing);
    }
}

/* Errors and the hang-up are reported without being asked for. */
void closing_watch(struct bridge *bridge, struct closing *closing, int fd,
                   void (*on_closed)(struct closing *closing))
{
    struct epoll_event event = { .data.ptr = closing };

    *closing = (struct closing){ .on_closed = on_closed, .fd = fd };
    if (epoll_ctl(bridge->closings.fd, EPOLL_CTL_ADD, fd, &event) < 0 && errno == ENOMEM)
        out_of_memory();
}

void closing_stop(struct bridge *bridge, struct closing *closing)
{
    if (closing->fd < 0)
        return;
    (void)epoll_ctl(bridge->closings.fd, EPOLL_CTL_DEL, closing->fd, NULL);
    closing->fd = -1;
}

/* --- the table ----------------------------------------------------------------------------------- */

struct channel *channel_find(struct bridge *bridge, uint16_t number)
{
    struct channel **page = number < RELAY_CHANNELS ? bridge->channels[number / PAGE_CHANNELS]
                                                    : NULL;

    return page ? page[number % PAGE_CHANNELS] : NULL;
}

static void table_set(struct bridge *bridge, uint16_t number, struct channel *channel)
{
    struct channel ***page = &bridge->channels[number / PAGE_CHANNELS];

    assert(number < RELAY_CHANNELS);
    if (!*page)
        *page = xcalloc(PAGE_CHANNELS, sizeof(**page));
    (*page)[number % PAGE_CHANNELS] = channel;
}

static bool is_output(const struct channel *channel)
{
    return channel->process && channel->kind == RELAY_OUTPUT;
}

/* Whether the channel is input that TAKEN acknowledges to the agent. */
static bool is_input(const struct channel *channel)
{
    return channel->process && channel->kind == RELAY_INPUT;
}

static void owe(struct channel *channel)
{
    list_remove(&channel->owing);
    list_append(&channel->bridge->owing, &channel->owing);
    bridge_wake(channel->bridge);
}

/* A window is far from used up: many small pieces are acknowledged together. */
static void owe_later(struct channel *channel)
{
    struct bridge *bridge = channel->bridge;

    if (list_is_linked(&channel->owing))
        return;
    list_append(&bridge->owing_later, &channel->owing);
    if (!timer_is_armed(&bridge->later))
        timer_arm_in(&bridge->later, LATER_US);
}

static void on_later(struct timer *timer)
{
    struct bridge *bridge = container_of(timer, struct bridge, later);

    list_move_all(&bridge->owing_later, &bridge->owing);
    bridge_wake(bridge);
}

void channel_set_ready(struct channel *channel)
{
    if (!list_is_linked(&channel->ready))
        list_append(&channel->bridge->ready, &channel->ready);
    bridge_wake(channel->bridge);
}

static void on_channel_ready(struct io_watch *watch, unsigned events);

/* Readiness for reading is reported once: then the channel is in the list `ready`. */
static void watch_channel(struct channel *channel)
{
    unsigned events = 0;

    if (channel->watch.fd < 0 || channel->kind == RELAY_CONTENT)
        return;
    if (channel->out.state == SEND_OPEN && !list_is_linked(&channel->ready) &&
        channel->out.sent < channel->out.limit)
        events |= IO_READ;
    if (channel->in.waiting.length)
        events |= IO_WRITE;
    if (events)
        io_watch_start(&channel->watch, channel->bridge->loop, channel->watch.fd, events,
                       on_channel_ready);
    else
        io_watch_stop(&channel->watch);
}

static void close_fd(struct channel *channel)
{
    closing_stop(channel->bridge, &channel->closing);
    io_watch_stop(&channel->watch);
    fd_close(steal_fd(&channel->watch.fd));
}

static void drop_waiting(struct channel *channel)
{
    channel->bridge->waiting_bytes -= channel->in.waiting.length;
    buffer_fini(&channel->in.waiting);
}

void channel_free(struct channel *channel)
{
    struct bridge *bridge = channel->bridge;

    close_fd(channel);
    drop_waiting(channel);
    list_remove(&channel->node);
    list_remove(&channel->ready);
    list_remove(&channel->owing);
    list_remove(&channel->outside);
    if (channel->number)
        table_set(bridge, channel->number, NULL);
    if (channel->sibling)
        channel->sibling->sibling = NULL;
    bridge->channel_count--;
    free(channel);
}

/* Frees the channel when no frame about it can follow. */
static void channel_settle(struct channel *channel)
{
    bool has_received = channel->in.state == RECEIVE_NONE || channel->in.state == RECEIVE_DONE;
    bool has_sent = channel->out.state == SEND_NONE || channel->out.state == SEND_DONE;

    if (has_received && has_sent && channel->bridge->content != channel)
        channel_free(channel);
}

/* --- from the relay ------------------------------------------------------------------------------ */

/* No more bytes for the reader. */
static void stop_giving(struct channel *channel)
{
    drop_waiting(channel);
    list_remove(&channel->outside);
    closing_stop(channel->bridge, &channel->closing);
    if (channel->kind == RELAY_OUTPUT)
        close_fd(channel);
    else
        (void)shutdown(channel->watch.fd, SHUT_WR);
    watch_channel(channel);
}

/* Bytes that the reader has taken, or that count as taken. */
static uint64_t kept_of(const struct channel *channel)
{
    int unread = 0;

    if (!is_output(channel) || channel->watch.fd < 0)
        return is_output(channel) ? channel->in.kept : channel->in.given;
    if (ioctl(channel->watch.fd, FIONREAD, &unread) < 0)
        return channel->in.kept; /* nothing is acknowledged that may be unread */
    return channel->in.given - (uint64_t)unread;
}

/*
 * The reader is gone: drops the rest of the bytes. The output of a process is not acknowledged
 * until FORGET: the daemon may be about to stop, and the next one asks for it.
 */
static void drop_rest(struct channel *channel)
{
    channel->in.kept = kept_of(channel);
    if (!is_output(channel) || channel->in.is_forgotten)
        channel->in.given = channel->in.kept = channel->in.got;
    channel->in.owes_ack = channel->in.kept > channel->in.acked;
}

static void on_reader_closed(struct closing *closing)
{
    struct channel *channel = container_of(closing, struct channel, closing);

    if (channel->in.state == RECEIVE_OPEN) {
        channel->in.state = RECEIVE_CLOSED;
        channel->in.owes_close = true;
    } else if (channel->in.state != RECEIVE_ENDED) {
        return;
    }
    drop_rest(channel);
    stop_giving(channel);
    owe(channel);
}

void channels_forget(struct bridge *bridge, uint64_t process)
{
    struct channel *channel;

    list_for_each (channel, &bridge->all, node) {
        if (channel->process != process || channel->kind != RELAY_OUTPUT)
            continue;
        channel->in.is_forgotten = true;
        if (channel->watch.fd < 0 &&
            (channel->in.state == RECEIVE_CLOSED || channel->in.state == RECEIVE_ENDED)) {
            drop_rest(channel);
            owe(channel);
        }
    }
}

/* So much has left the pipe. */
static void set_kept(struct channel *channel, uint64_t kept)
{
    channel->in.kept = kept;
    if (channel->in.state == RECEIVE_ENDED && kept == channel->in.got) {
        stop_giving(channel);
        owe(channel);
    } else if (kept > channel->in.acked) {
        channel->in.owes_ack = true;
        if (kept - channel->in.acked >= channel->in.window / 4)
            owe(channel);
        else
            owe_later(channel);
    }
}

static void look_at(struct channel *channel)
{
    uint64_t kept = kept_of(channel);

    if (kept == channel->in.given)
        list_remove(&channel->outside);
    if (kept > channel->in.kept || channel->in.state == RECEIVE_ENDED)
        set_kept(channel, kept);
}

static void streams_look(struct bridge *bridge)
{
    struct channel *channel, *next;
    bool has_moved = false;

    list_for_each_safe (channel, next, &bridge->outside, outside) {
        uint64_t before = channel->in.kept;

        look_at(channel);
        has_moved |= channel->in.kept != before;
    }
    bridge->still_looks = has_moved ? 0 : bridge->still_looks + 1;
}

/* After STILL_LOOKS turns without a change some pipe has no active reader: the timer looks then,
 * instead of each turn. */
static void on_turn(struct turn_watch *watch)
{
    struct bridge *bridge = container_of(watch, struct bridge, turns);

    streams_look(bridge);
    if (!list_is_empty(&bridge->outside) && bridge->still_looks < STILL_LOOKS)
        return;
    turn_watch_stop(&bridge->turns);
    if (!list_is_empty(&bridge->outside))
        timer_arm_in(&bridge->look, LOOK_US);
}

static void look_after_turns(struct bridge *bridge)
{
    bridge->still_looks = 0;
    timer_stop(&bridge->look);
    if (!bridge->turns.loop)
        turn_watch_start(&bridge->turns, bridge->loop, on_turn);
}

static void on_look(struct timer *timer)
{
    struct bridge *bridge = container_of(timer, struct bridge, look);

    streams_look(bridge);
    if (list_is_empty(&bridge->outside))
        return;
    if (bridge->still_looks == 0)
        look_after_turns(bridge);
    else
        timer_arm_in(&bridge->look, LOOK_US);
}

/* Output of processes is looked at later, when its reader had its turn. */
static void note_given(struct channel *channel)
{
    if (!is_output(channel)) {
        set_kept(channel, channel->in.given);
        return;
    }
    if (!list_is_linked(&channel->outside))
        list_append(&channel->bridge->outside, &channel->outside);
    look_after_turns(channel->bridge);
}

/* Bytes that the reader's end takes now; -1 when the reader is gone. */
static ssize_t give_now(struct channel *channel, const uint8_t *bytes, size_t length)
{
    ssize_t count;

    if (channel->kind == RELAY_BOTH)
        count = send(channel->watch.fd, bytes, length, MSG_DONTWAIT | MSG_NOSIGNAL);
    else
        count = write(channel->watch.fd, bytes, length);
    if (count < 0)
        return errno == EAGAIN || errno == EINTR || errno == ENOBUFS ? 0 : -1;
    channel->in.given += (uint64_t)count;
    return count;
}

/* Once: a pipe that was full gets larger. Where that is refused, bytes wait here instead. */
static void enlarge(struct channel *channel)
{
    if (channel->kind == RELAY_OUTPUT &&
        fcntl(channel->watch.fd, F_GETPIPE_SZ) < (int)BUSY_PIPE_BYTES)
        (void)fcntl(channel->watch.fd, F_SETPIPE_SZ, BUSY_PIPE_BYTES);
}

/* -1 when the reader is gone. */
static ssize_t give_some(struct channel *channel, const uint8_t *bytes, size_t length)
{
    ssize_t count = give_now(channel, bytes, length);
    ssize_t more = 0;

    if (count < 0 || (size_t)count == length)
        return count;
    enlarge(channel);
    more = give_now(channel, bytes + count, length - (size_t)count);
    return more < 0 ? -1 : count + more;
}

static int keep_waiting(struct channel *channel, const uint8_t *bytes, size_t length)
{
    struct bridge *bridge = channel->bridge;

    if (bridge->waiting_bytes + length > BRIDGE_WAITING_BYTES)
        return bridge_violation(bridge, "too much output on all channels together");
    if (buffer_append(&channel->in.waiting, bytes, length) < 0)
        return bridge_violation(bridge, "DATA beyond the window");
    bridge->waiting_bytes += length;
    watch_channel(channel);
    return 0;
}

int stream_data_begin(struct bridge *bridge, const struct relay_frame *frame, bool is_again)
{
    struct channel *channel = channel_find(bridge, frame->channel);

    if (!channel || (channel->in.state != RECEIVE_OPEN && channel->in.state != RECEIVE_CLOSED))
        return bridge_violation(bridge, "DATA of a channel that is not open");
    if (frame->offset > channel->in.got || (!is_again && frame->offset != channel->in.got) ||
        channel->in.got - frame->offset > frame->length)
        return bridge_violation(bridge, "DATA at the wrong offset");
    if (frame->offset + frame->length > channel->in.limit)
        return bridge_violation(bridge, "DATA beyond the window");
    return 0;
}

void channel_set_siblings(struct channel *one, struct channel *other)
{
    if (one->sibling || other->sibling)
        return;
    one->sibling = other;
    other->sibling = one;
}

bool stream_is_early(struct bridge *bridge, uint16_t number)
{
    const struct channel *channel = channel_find(bridge, number);
    const struct channel *sibling = channel ? channel->sibling : NULL;

    return sibling && sibling->in.state == RECEIVE_OPEN && !sibling->in.waiting.length &&
           kept_of(sibling) < sibling->in.given;
}

int stream_data(struct channel *channel, const uint8_t *bytes, size_t length)
{
    ssize_t count = 0;

    channel->in.got += length;
    if (channel->in.state == RECEIVE_CLOSED) {
        drop_rest(channel);
        return 0;
    }
    if (!channel->in.waiting.length)
        count = give_some(channel, bytes, length);
    if (count < 0) {
        on_reader_closed(&channel->closing);
        return 0;
    }
    if (count > 0)
        note_given(channel);
    return (size_t)count == length ? 0
                                   : keep_waiting(channel, bytes + count, length - (size_t)count);
}

static void give_waiting(struct channel *channel)
{
    struct buffer *waiting = &channel->in.waiting;
    ssize_t count = give_now(channel, waiting->data, waiting->length);

    if (count < 0) {
        on_reader_closed(&channel->closing);
        return;
    }
    buffer_consume(waiting, (size_t)count);
    channel->bridge->waiting_bytes -= (size_t)count;
    if (!waiting->length) {
        buffer_fini(waiting);
        *waiting = BUFFER_INIT(RELAY_MAX_WINDOW);
    }
    if (count > 0)
        note_given(channel);
}

int stream_end(struct bridge *bridge, const struct relay_frame *frame, const void *payload UNUSED)
{
    struct channel *channel = channel_find(bridge, frame->channel);

    if (!channel || (channel->in.state != RECEIVE_OPEN && channel->in.state != RECEIVE_CLOSED))
        return bridge_violation(bridge, "END of a channel that is not open");
    if (frame->offset != channel->in.got)
        return bridge_violation(bridge, "END at the wrong offset");
    if (channel->in.state == RECEIVE_CLOSED)
        channel->in.owes_close = false;
    channel->in.state = RECEIVE_ENDED;
    if (channel->in.kept == channel->in.got)
        set_kept(channel, channel->in.kept);
    return 0;
}

/* --- to the relay -------------------------------------------------------------------------------- */

/* No bytes are lost: they are read from the pipe only when they can be sent. */
static void stop_taking(struct channel *channel, int error)
{
    channel->out.state = SEND_ENDING;
    channel->out.error = error;
    list_remove(&channel->ready);
    if (channel->kind == RELAY_INPUT)
        close_fd(channel);
    else if (channel->watch.fd >= 0)
        watch_channel(channel);
    owe(channel);
}

int stream_close(struct bridge *bridge, const struct relay_frame *frame, const void *payload UNUSED)
{
    struct channel *channel = channel_find(bridge, frame->channel);

    if (!channel || channel->out.state == SEND_NONE || channel->out.state == SEND_DONE)
        return bridge_violation(bridge, "CLOSE of a channel that is not open");
    if (channel->out.state != SEND_OPEN)
        return 0;
    if (channel->kind == RELAY_CONTENT)
        return bridge_violation(bridge, "CLOSE of a script");
    if (channel->kind == RELAY_BOTH)
        (void)shutdown(channel->watch.fd, SHUT_RD);
    stop_taking(channel, 0);
    return 0;
}

/* A channel whose last TAKEN has to wait stays without its number until the agent has it. */
static int finish_sending(struct channel *channel)
{
    struct bridge *bridge = channel->bridge;

    if (channel->out.state != SEND_ENDED || channel->out.acked != channel->out.sent)
        return bridge_violation(bridge, "the end of a channel is acknowledged too early");
    channel->out.state = SEND_DONE;
    if (is_input(channel) && channel->out.taken != channel->out.acked && bridge->owes_taken) {
        table_set(bridge, channel->number, NULL);
        channel->number = 0;
        return 0;
    }
    channel_settle(channel);
    return 0;
}

void channel_taken(struct channel *channel)
{
    channel->out.taken = channel->out.acked;
    if (!channel->number)
        channel_free(channel);
}

int stream_ack(struct bridge *bridge, const struct relay_frame *frame, const void *payload)
{
    struct channel *channel = channel_find(bridge, frame->channel);
    struct relay_ack ack;

    memcpy(&ack, payload, sizeof(ack));
    if (!channel || channel->out.state == SEND_NONE || channel->out.state == SEND_DONE)
        return bridge_violation(bridge, "ACK of a channel that is not open");
    if (frame->offset < channel->out.acked || frame->offset > channel->out.sent)
        return bridge_violation(bridge, "ACK of bytes that were not sent");
    if (ack.window > RELAY_MAX_WINDOW)
        return bridge_violation(bridge, "a window that is too large");
    channel->out.acked = frame->offset;
    channel->out.limit = MAX(channel->out.limit, frame->offset + ack.window);
    if (is_input(channel))
        message_tell_taken(channel);
    if (frame->flags & RELAY_ACK_END)
        return finish_sending(channel);
    if (channel->out.state == SEND_OPEN)
        channel_set_ready(channel);
    return 0;
}

struct channel *channel_input_of(struct bridge *bridge, uint64_t process)
{
    struct channel *channel;

    list_for_each (channel, &bridge->all, node)
        if (channel->kind == RELAY_INPUT && channel->process == process &&
            (channel->out.state == SEND_OPEN || channel->out.state == SEND_ENDING))
            return channel;
    return NULL;
}

void channel_close_stdin(struct channel *channel, uint64_t request)
{
    channel->out.closes_stdin = true;
    channel->out.close_request = request;
    channel_set_ready(channel);
}

static ssize_t read_source(struct channel *channel, size_t room)
{
    if (channel->kind == RELAY_CONTENT)
        return pread(channel->watch.fd, scratch,
                     MIN(room, (size_t)(channel->out.length - channel->out.sent)),
                     (off_t)channel->out.sent);
    return read(channel->watch.fd, scratch, room);
}

static void send_data(struct channel *channel, size_t length)
{
    struct relay_frame frame = { .length = (uint32_t)length,
                                 .type = RELAY_DATA,
                                 .channel = channel->number,
                                 .offset = channel->out.sent };

    link_add(channel->bridge, &frame, scratch);
    channel->out.sent += length;
}

/* The MESSAGE is the end of a script. */
static void end_source(struct channel *channel, int error)
{
    if (channel->kind != RELAY_CONTENT) {
        stop_taking(channel, error);
        return;
    }
    channel->out.state = SEND_ENDED;
    list_remove(&channel->ready);
    close_fd(channel);
    message_send_start(channel->bridge);
}

/* The next bytes of a channel that is ready; it comes behind the others if it has more. */
static void take_turn(struct channel *channel)
{
    size_t room = (size_t)MIN((uint64_t)sizeof(scratch), channel->out.limit - channel->out.sent);
    bool is_whole = channel->kind == RELAY_CONTENT && channel->out.sent == channel->out.length;
    ssize_t count = room && !is_whole ? read_source(channel, room) : 0;

    list_remove(&channel->ready);
    if (count > 0) {
        send_data(channel, (size_t)count);
        channel_set_ready(channel);
    } else if (count < 0 && errno == EINTR) {
        channel_set_ready(channel);
    } else if (count < 0 && errno == EAGAIN && !channel->out.closes_stdin) {
        watch_channel(channel);
    } else if (room || is_whole) {
        end_source(channel, count < 0 && errno != EAGAIN ? errno : 0);
    } /* else the relay's next ACK makes it ready */
}

/* --- frames about channels ----------------------------------------------------------------------- */

static void send_ack(struct channel *channel, uint8_t flags)
{
    struct relay_ack ack = { .window = channel->in.window };
    struct relay_frame frame = { .length = sizeof(ack),
                                 .type = RELAY_ACK,
                                 .flags = flags,
                                 .channel = channel->number,
                                 .offset = channel->in.kept };

    link_add(channel->bridge, &frame, &ack);
    channel->in.acked = channel->in.kept;
    channel->in.limit = MAX(channel->in.limit, channel->in.kept + channel->in.window);
    channel->in.owes_ack = false;
}

static void send_close(struct channel *channel)
{
    struct relay_frame frame = { .type = RELAY_CLOSE, .channel = channel->number };

    link_add(channel->bridge, &frame, NULL);
    channel->in.owes_close = false;
}

static void send_end(struct channel *channel)
{
    struct relay_end end = { .error = channel->out.error };
    struct relay_frame frame = { .length = sizeof(end),
                                 .type = RELAY_END,
                                 .channel = channel->number,
                                 .offset = channel->out.sent };

    link_add(channel->bridge, &frame, &end);
    channel->out.state = SEND_ENDED;
    if (channel->out.closes_stdin)
        message_send_close_stdin(channel->bridge, channel->process, channel->out.close_request);
}

static void pay(struct channel *channel)
{
    list_remove(&channel->owing);
    if (channel->in.owes_close)
        send_close(channel);
    if (channel->out.state == SEND_ENDING)
        send_end(channel);
    if (channel->in.state == RECEIVE_ENDED && channel->in.kept == channel->in.got) {
        send_ack(channel, RELAY_ACK_END);
        channel->in.state = RECEIVE_DONE;
    } else if (channel->in.owes_ack && channel->in.state != RECEIVE_DONE) {
        send_ack(channel, 0);
    }
    channel_settle(channel);
}

void streams_send(struct bridge *bridge)
{
    while (!list_is_empty(&bridge->owing) && resend_held(&bridge->resend) < RESEND_CONTROL_BYTES)
        pay(list_first(&bridge->owing, struct channel, owing));
    while (!list_is_empty(&bridge->ready) && resend_held(&bridge->resend) < RESEND_DATA_BYTES)
        take_turn(list_first(&bridge->ready, struct channel, ready));
    while (!list_is_empty(&bridge->owing) && resend_held(&bridge->resend) < RESEND_CONTROL_BYTES)
        pay(list_first(&bridge->owing, struct channel, owing));
}

/* --- its life ------------------------------------------------------------------------------------ */

static void on_channel_ready(struct io_watch *watch, unsigned events)
{
    struct channel *channel = container_of(watch, struct channel, watch);

    if (events & IO_READ && channel->out.state == SEND_OPEN)
        channel_set_ready(channel);
    if (events & IO_WRITE && channel->in.waiting.length)
        give_waiting(channel);
    watch_channel(channel);
}

static void open_directions(struct channel *channel, const struct relay_descriptor *descriptor)
{
    bool receives = channel->kind == RELAY_OUTPUT || channel->kind == RELAY_BOTH;
    uint64_t base = channel->kind == RELAY_CONTENT ? 0 : descriptor->base;

    if (receives) {
        channel->in.state = RECEIVE_OPEN;
        channel->in.got = channel->in.given = channel->in.kept = channel->in.acked = base;
        channel->in.window = RELAY_WINDOW;
        channel->in.limit = base + RELAY_WINDOW;
        closing_watch(channel->bridge, &channel->closing, channel->watch.fd, on_reader_closed);
    }
    if (channel->kind != RELAY_OUTPUT) {
        channel->out.state = SEND_OPEN;
        channel->out.sent = channel->out.acked = channel->out.taken = base;
        channel->out.limit = base; /* the relay's first ACK gives a window */
    }
    if (channel->kind == RELAY_CONTENT) {
        channel->out.length = descriptor->base;
        channel->out.limit = RELAY_WINDOW;
    }
}

struct channel *channel_new(struct bridge *bridge, const struct relay_descriptor *descriptor,
                            uint64_t process, int fd)
{
    struct channel *channel = xnew(struct channel);

    channel->bridge = bridge;
    channel->number = descriptor->channel;
    channel->kind = descriptor->kind;
    channel->process = process;
    channel->watch.fd = fd;
    channel->closing.fd = -1;
    channel->in.waiting = BUFFER_INIT(RELAY_MAX_WINDOW);
    list_append(&bridge->all, &channel->node);
    table_set(bridge, channel->number, channel);
    bridge->channel_count++;
    open_directions(channel, descriptor);
    return channel;
}

/* A descriptor of a process whose session has ended. */
struct orphan {
    struct bridge *bridge; /* borrowed */
    struct list node;
    struct closing closing;
    int fd; /* owned */
};

static void orphan_free(struct orphan *orphan)
{
    closing_stop(orphan->bridge, &orphan->closing);
    list_remove(&orphan->node);
    fd_close(orphan->fd);
    free(orphan);
}

static void on_orphan_closed(struct closing *closing)
{
    orphan_free(container_of(closing, struct orphan, closing));
}

static void make_orphan(struct channel *channel)
{
    struct bridge *bridge = channel->bridge;
    struct orphan *orphan = xnew(struct orphan);

    closing_stop(bridge, &channel->closing);
    io_watch_stop(&channel->watch);
    orphan->bridge = bridge;
    orphan->fd = steal_fd(&channel->watch.fd);
    list_append(&bridge->orphans, &orphan->node);
    closing_watch(bridge, &orphan->closing, orphan->fd, on_orphan_closed);
}

void channels_drop(struct bridge *bridge)
{
    bridge->content = NULL;
    while (!list_is_empty(&bridge->all)) {
        struct channel *channel = list_first(&bridge->all, struct channel, node);

        if (channel->process && channel->watch.fd >= 0)
            make_orphan(channel);
        channel_free(channel);
    }
    turn_watch_stop(&bridge->turns);
    timer_stop(&bridge->look);
    timer_stop(&bridge->later);
}

void streams_init(struct bridge *bridge)
{
    list_init(&bridge->all);
    list_init(&bridge->ready);
    list_init(&bridge->owing);
    list_init(&bridge->owing_later);
    list_init(&bridge->outside);
    list_init(&bridge->orphans);
    timer_init(&bridge->look, bridge->loop, on_look);
    timer_init(&bridge->later, bridge->loop, on_later);
    bridge->closings.fd = -1;
}

int streams_prepare(struct bridge *bridge, struct error *err)
{
    if (bridge->closings.fd >= 0)
        return 0;
    bridge->closings.fd = epoll_create1(EPOLL_CLOEXEC);
    if (bridge->closings.fd < 0)
        return error_sys(err, "make an epoll for the sandbox %s", bridge->name);
    io_watch_start(&bridge->closings, bridge->loop, bridge->closings.fd, IO_READ,
                   on_closings_ready);
    return 0;
}

void streams_fini(struct bridge *bridge)
{
    while (!list_is_empty(&bridge->orphans))
        orphan_free(list_first(&bridge->orphans, struct orphan, node));
    io_watch_stop(&bridge->closings);
    fd_close(steal_fd(&bridge->closings.fd));
    for (unsigned i = 0; i < ARRAY_LENGTH(bridge->channels); i++)
        free(steal_ptr(&bridge->channels[i]));
}
