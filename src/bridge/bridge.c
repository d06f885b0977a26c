/* SPDX-License-Identifier: Apache-2.0 */
#include "bridge/bridge.h"

#include "base/alloc.h"
#include "base/backoff.h"
#include "bridge/bridge_private.h"

#include <assert.h>
#include <errno.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>

enum { OPEN_MS = 15000, HURRY_US = 100 * 1000, NOISY_FAILURES = 3 };

static const struct backoff reconnect_ms = { .first = 50, .most = 5000 };

#define TO(state) (1U << BRIDGE_##state)

static const struct {
    const char *name;
    unsigned next; /* states that may follow, besides CLOSED */
} states[BRIDGE_STATES] = {
    [BRIDGE_IDLE] = { "idle", TO(WAITING) | TO(OVER) },
    [BRIDGE_WAITING] = { "waiting", TO(OPENING) | TO(IDLE) },
    [BRIDGE_OPENING] = { "opening", TO(GREETING) | TO(WAITING) | TO(IDLE) },
    [BRIDGE_GREETING] = { "greeting", TO(LOGIN) | TO(WAITING) | TO(IDLE) },
    [BRIDGE_LOGIN] = { "login", TO(UP) | TO(WAITING) | TO(IDLE) },
    [BRIDGE_UP] = { "up", TO(WAITING) | TO(IDLE) },
    [BRIDGE_OVER] = { "over", 0 },
    [BRIDGE_CLOSED] = { "closed", 0 },
};

void bridge_set_state(struct bridge *bridge, enum bridge_state state)
{
    assert(state == BRIDGE_CLOSED || states[bridge->state].next & 1U << state);
    log_debug("bridge", kv("sandbox", bridge->name), kv("from", states[bridge->state].name),
              kv("to", states[state].name));
    bridge->state = state;
}

bool bridge_is_up(const struct bridge *bridge)
{
    return bridge->state == BRIDGE_UP;
}

bool bridge_has_link(const struct bridge *bridge)
{
    return bridge->link.socket.fd >= 0;
}

void *bridge_user(const struct bridge *bridge)
{
    return bridge->user;
}

static void fill_random(void *bytes, size_t length)
{
    ssize_t count = getrandom(bytes, length, 0);

    assert(count == (ssize_t)length);
}

/* --- events for the owner ------------------------------------------------------------------ */

static void on_news(struct deferred *deferred)
{
    struct bridge *bridge = container_of(deferred, struct bridge, news);
    static const struct bridge_handler nobody;
    const struct bridge_handler *handler = bridge->handler ? bridge->handler : &nobody;
    typeof(bridge->report) report = bridge->report;

    memset(&bridge->report, 0, sizeof(bridge->report));
    if (report.down && handler->on_down)
        handler->on_down(bridge, &report.err);
    if (report.up && bridge->state == BRIDGE_UP && handler->on_up)
        handler->on_up(bridge, report.boot);
    if (report.other && bridge->state == BRIDGE_OVER && handler->on_other)
        handler->on_other(bridge, report.boot);
    if (report.version && bridge->state == BRIDGE_OVER && handler->on_version)
        handler->on_version(bridge, report.oldest, report.newest);
    if (report.usage && handler->on_usage)
        handler->on_usage(bridge, &bridge->usage);
}

static void tell(struct bridge *bridge)
{
    loop_defer(bridge->loop, &bridge->news, on_news);
}

void bridge_tell_usage(struct bridge *bridge)
{
    bridge->report.usage = true;
    tell(bridge);
}

/* --- the next connection --------------------------------------------------------------------- */

static void on_opened(struct carrier_attempt *attempt)
{
    struct bridge *bridge = container_of(attempt, struct bridge, attempt);

    if (attempt->fd < 0 && attempt->err.code == ERR_GONE) {
        bridge_end_session(bridge, "the relay is gone");
        return;
    }
    if (attempt->fd < 0) {
        bridge_down(bridge, &attempt->err);
        return;
    }
    bridge_set_state(bridge, BRIDGE_GREETING);
    link_start(bridge, steal_fd(&attempt->fd));
    if (!bridge->is_frozen)
        timer_arm_in(&bridge->step, RELAY_HANDSHAKE_MS * 1000LL);
}

static void open_now(struct bridge *bridge)
{
    bridge_set_state(bridge, BRIDGE_OPENING);
    timer_arm_in(&bridge->step, OPEN_MS * 1000LL);
    carrier_open(bridge->carrier, &bridge->attempt, on_opened);
}

/* Between half of the delay and all of it, so that many bridges do not come back at one time. */
static int64_t delay_us(const struct bridge *bridge)
{
    int64_t delay = backoff_delay(&reconnect_ms, bridge->failures) * 1000;
    uint32_t random = 0;

    fill_random(&random, sizeof(random));
    return delay / 2 + (int64_t)((uint64_t)delay / 2 * random >> 32);
}

static void arm_next(struct bridge *bridge)
{
    if (bridge->is_frozen)
        return;
    timer_arm_in(&bridge->step, delay_us(bridge));
    if (!timer_is_armed(&bridge->patience))
        timer_arm_in(&bridge->patience, bridge->patience_us);
}

static void wait_for_next(struct bridge *bridge)
{
    bridge_set_state(bridge, BRIDGE_WAITING);
    arm_next(bridge);
}

static void on_step(struct timer *timer)
{
    struct bridge *bridge = container_of(timer, struct bridge, step);
    struct error err;

    switch (bridge->state) {
    case BRIDGE_WAITING:
        open_now(bridge);
        return;
    case BRIDGE_OPENING:
    case BRIDGE_GREETING:
    case BRIDGE_LOGIN:
        error_set(&err, ERR_TIMEOUT, "the relay does not answer");
        bridge_down(bridge, &err);
        return;
    case BRIDGE_UP:
        link_heartbeat(bridge);
        return;
    case BRIDGE_IDLE:
    case BRIDGE_OVER:
    case BRIDGE_CLOSED:
    case BRIDGE_STATES:
        return;
    }
}

/* A cut is no news, and a sandbox that is destroyed begins with one. */
static void log_failure(struct bridge *bridge, const struct error *err)
{
    uint64_t left_out;

    if (bridge->failures != NOISY_FAILURES)
        log_debug("relay not connected", kv("sandbox", bridge->name), kv("reason", err->message),
                  kv("failures", bridge->failures));
    else if (log_repeat_is_due(&bridge->failure_log, loop_now_us(bridge->loop), &left_out))
        log_warn("relay not connected", kv("sandbox", bridge->name), kv("reason", err->message),
                 kv("remedy", err->hint), kv("left_out", left_out));
}

static void drop_connection(struct bridge *bridge)
{
    carrier_cancel(&bridge->attempt);
    link_stop(bridge);
    timer_stop(&bridge->step);
}

/* A connection that has worked is made again at once, but not again and again. */
static unsigned failures_after(struct bridge *bridge)
{
    int64_t now_us = loop_now_us(bridge->loop);

    if (!bridge->link.has_progress)
        return bridge->failures + 1;
    if (now_us - bridge->hurried_us < HURRY_US)
        return 1;
    bridge->hurried_us = now_us;
    return 0;
}

void bridge_down(struct bridge *bridge, const struct error *err)
{
    if (bridge->state == BRIDGE_UP) {
        bridge->report.down = true;
        bridge->report.up = false;
        bridge->report.err = *err;
        tell(bridge);
    }
    bridge->failures = failures_after(bridge);
    drop_connection(bridge);
    log_failure(bridge, err);
    wait_for_next(bridge);
    bridge_watch_agent(bridge);
}

/* --- the session ----------------------------------------------------------------------------- */

void bridge_end_session(struct bridge *bridge, const char *why)
{
    if (bridge->state == BRIDGE_IDLE)
        return;
    log_debug("relay session over", kv("sandbox", bridge->name), kv("reason", why));
    drop_connection(bridge);
    timer_stop(&bridge->patience);
    if (!bridge->held.is_unread)
        message_release_held(bridge);
    bridge->held.is_held = bridge->held.is_unread = false;
    timer_stop(&bridge->held.limit);
    closing_stop(bridge, &bridge->agent_closing);
    io_watch_stop(&bridge->agent);
    fd_close(steal_fd(&bridge->agent.fd));
    channels_drop(bridge);
    resend_clear(&bridge->resend);
    buffer_fini(&bridge->start);
    bridge->torn.is_torn = false;
    bridge->is_begun = false;
    bridge->received = 0;
    bridge->owes_taken = false;
    bridge->wants_usage = false;
    bridge->failures = 0;
    bridge_set_state(bridge, BRIDGE_IDLE);
}

int bridge_violation(struct bridge *bridge, const char *what)
{
    unsigned failures = bridge->failures + 1;
    uint64_t left_out;

    if (log_repeat_is_due(&bridge->violation_log, loop_now_us(bridge->loop), &left_out))
        log_warn("relay breaks the rules", kv("sandbox", bridge->name), kv("what", what),
                 kv("left_out", left_out));
    bridge_end_session(bridge, what);
    bridge->failures = failures; /* the next session waits */
    return -1;
}

static void on_patience(struct timer *timer)
{
    struct bridge *bridge = container_of(timer, struct bridge, patience);

    log_warn("relay out of reach", kv("sandbox", bridge->name), kv("failures", bridge->failures));
    bridge_end_session(bridge, "the relay cannot be reached");
}

static bool is_expected(const struct bridge *bridge, const uint8_t boot[RELAY_BOOT_SIZE])
{
    static const uint8_t any[RELAY_BOOT_SIZE];

    return memcmp(bridge->boot, any, sizeof(any)) == 0 ||
           memcmp(bridge->boot, boot, sizeof(any)) == 0;
}

static void end_for_ever(struct bridge *bridge, const struct relay_greeting *greeting,
                         const char *why)
{
    memcpy(bridge->report.boot, greeting->boot, sizeof(greeting->boot));
    bridge->report.oldest = greeting->oldest;
    bridge->report.newest = greeting->newest;
    tell(bridge);
    bridge_end_session(bridge, why);
    bridge_set_state(bridge, BRIDGE_OVER);
}

/* A sandbox with another version lives, and its owner leaves it alone; see core/sandbox. */
static void note_version(struct bridge *bridge, const struct relay_greeting *greeting)
{
    struct error err;

    error_named(&err, ERR_BACKEND, "sandbox_version",
                "the sandbox's relay speaks versions %u to %u of the protocol, this daemon %d",
                (unsigned)greeting->oldest, (unsigned)greeting->newest, RELAY_VERSION);
    error_hint(&err, "end the session, or use it with the release that made its sandbox");
    error_keep(&bridge->refusal, &err);
}

void bridge_refuse_version(struct bridge *bridge, const struct relay_greeting *greeting)
{
    log_warn("relay speaks another version", kv("sandbox", bridge->name),
             kv("oldest", (unsigned)greeting->oldest), kv("newest", (unsigned)greeting->newest));
    bridge->report.version = true;
    note_version(bridge, greeting);
    end_for_ever(bridge, greeting, "the relay speaks no version that the daemon does");
}

void bridge_refuse_other(struct bridge *bridge, const struct relay_greeting *greeting)
{
    log_warn("another sandbox answers", kv("sandbox", bridge->name));
    bridge->report.other = true;
    end_for_ever(bridge, greeting, "another sandbox answers");
}

static void enter_up(struct bridge *bridge)
{
    bridge_set_state(bridge, BRIDGE_UP);
    timer_stop(&bridge->patience);
    timer_stop(&bridge->step);
    if (!bridge->is_frozen)
        timer_arm_in(&bridge->step, RELAY_PING_MS * 1000LL);
    memcpy(bridge->report.boot, bridge->boot, sizeof(bridge->boot));
    bridge->report.up = true;
    tell(bridge);
    bridge_wake(bridge);
}

void bridge_welcomed(struct bridge *bridge, const struct relay_greeting *greeting,
                     const struct relay_welcome *welcome)
{
    bool is_new = !bridge->is_begun;

    if (!is_expected(bridge, greeting->boot)) {
        bridge_refuse_other(bridge, greeting);
        return;
    }
    bridge->may_bind = false;
    memcpy(bridge->boot, greeting->boot, sizeof(bridge->boot));
    if (!welcome->is_resumed && !is_new) {
        bridge_end_session(bridge, "the relay has another session");
        return;
    }
    if (!welcome->is_resumed || (is_new && welcome->received) ||
        !link_resume(bridge, welcome->received)) {
        (void)bridge_violation(bridge, "a WELCOME that does not fit the session");
        return;
    }
    bridge->is_begun = true;
    enter_up(bridge);
}

/* --- the agent's socket ---------------------------------------------------------------------- */

static void on_agent_ready(struct io_watch *watch, unsigned events)
{
    struct bridge *bridge = container_of(watch, struct bridge, agent);

    if (events & IO_WRITE) {
        message_send_taken(bridge);
        link_unpause(bridge, PAUSE_AGENT);
    }
    if (events & IO_READ && bridge->state == BRIDGE_UP && !message_from_agent(bridge)) {
        bridge_end_session(bridge, "the agent has closed its socket");
        return;
    }
    if (bridge->state == BRIDGE_UP)
        bridge_wake(bridge);
}

void bridge_watch_agent(struct bridge *bridge)
{
    unsigned events = 0;

    if (bridge->agent.fd < 0)
        return;
    if (message_has_room(bridge))
        events |= IO_READ;
    if (bridge->link.pause == PAUSE_AGENT || bridge->owes_taken)
        events |= IO_WRITE;
    if (events)
        io_watch_start(&bridge->agent, bridge->loop, bridge->agent.fd, events, on_agent_ready);
    else
        io_watch_stop(&bridge->agent);
}

/* Earlier messages of the agent are sent if the connection takes them now. */
static void on_agent_closed(struct closing *closing)
{
    struct bridge *bridge = container_of(closing, struct bridge, agent_closing);

    if (bridge->state == BRIDGE_UP) {
        (void)message_from_agent(bridge);
        link_flush(bridge);
    }
    bridge_end_session(bridge, "the agent has closed its socket");
}

static void on_next_turn(struct timer *timer)
{
    link_unpause(container_of(timer, struct bridge, next_turn), PAUSE_TURN);
}

static void on_pump(struct deferred *deferred)
{
    struct bridge *bridge = container_of(deferred, struct bridge, pump);

    if (bridge->state == BRIDGE_UP)
        streams_send(bridge);
    if (bridge_has_link(bridge))
        link_flush(bridge);
    bridge_watch_agent(bridge);
}

void bridge_wake(struct bridge *bridge)
{
    loop_defer(bridge->loop, &bridge->pump, on_pump);
}

/* --- public ---------------------------------------------------------------------------------- */

struct bridge *bridge_new(const struct bridge_options *options)
{
    struct bridge *bridge = xnew(struct bridge);
    int64_t patience_ms = options->patience_ms ? options->patience_ms : BRIDGE_PATIENCE_MS;

    bridge->loop = options->loop;
    bridge->handler = options->handler;
    bridge->user = options->user;
    bridge->name = xstrdup(options->name);
    bridge->carrier = options->carrier;
    memcpy(bridge->key, options->key, sizeof(bridge->key));
    memcpy(bridge->boot, options->boot, sizeof(bridge->boot));
    bridge->may_bind = options->may_bind;
    bridge->patience_us = patience_ms * 1000;
    bridge->agent.fd = bridge->link.socket.fd = bridge->agent_closing.fd = -1;
    timer_init(&bridge->step, bridge->loop, on_step);
    timer_init(&bridge->patience, bridge->loop, on_patience);
    timer_init(&bridge->next_turn, bridge->loop, on_next_turn);
    message_init_held(bridge);
    streams_init(bridge);
    return bridge;
}

static int begin_session(struct bridge *bridge, int agent, struct error *err)
{
    if (bridge->refusal) {
        *err = *bridge->refusal;
        return -1;
    }
    if (bridge->state == BRIDGE_OVER)
        return error_set(err, ERR_GONE, "another sandbox answers for %s", bridge->name);
    if (streams_prepare(bridge, err) < 0)
        return -1;
    bridge_end_session(bridge, "the next one begins");
    fill_random(bridge->session, sizeof(bridge->session));
    bridge->agent.fd = agent;
    closing_watch(bridge, &bridge->agent_closing, agent, on_agent_closed);
    wait_for_next(bridge);
    return 0;
}

int bridge_connect(struct bridge *bridge, struct error *err)
{
    int ends[2];

    assert(bridge->state != BRIDGE_CLOSED);
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends) < 0)
        return error_sys(err, "create a socket for the sandbox %s", bridge->name);
    if (begin_session(bridge, ends[0], err) < 0) {
        fd_close(ends[0]);
        fd_close(ends[1]);
        return -1;
    }
    return ends[1];
}

int bridge_measure(struct bridge *bridge, struct error *err)
{
    if (bridge->agent.fd < 0)
        return error_set(err, ERR_UNAVAILABLE, "sandbox %s is not connected", bridge->name);
    if (bridge->state == BRIDGE_UP && !bridge->link.tells_usage)
        return error_named(err, ERR_INVALID, "not_supported",
                           "the init of sandbox %s does not tell what it uses", bridge->name);
    bridge->wants_usage = true;
    bridge_wake(bridge);
    return 0;
}

static void thaw(struct bridge *bridge)
{
    switch (bridge->state) {
    case BRIDGE_WAITING:
        bridge->failures = 0;
        arm_next(bridge);
        return;
    case BRIDGE_OPENING:
        timer_arm_in(&bridge->step, OPEN_MS * 1000LL);
        break;
    case BRIDGE_GREETING:
    case BRIDGE_LOGIN:
        timer_arm_in(&bridge->step, RELAY_HANDSHAKE_MS * 1000LL);
        break;
    case BRIDGE_UP:
        bridge->link.heard_us = loop_now_us(bridge->loop);
        timer_arm_in(&bridge->step, RELAY_PING_MS * 1000LL);
        return;
    case BRIDGE_IDLE:
    case BRIDGE_OVER:
    case BRIDGE_CLOSED:
    case BRIDGE_STATES:
        return;
    }
    timer_arm_in(&bridge->patience, bridge->patience_us);
}

void bridge_set_frozen(struct bridge *bridge, bool is_frozen)
{
    if (bridge->is_frozen == is_frozen)
        return;
    bridge->is_frozen = is_frozen;
    if (is_frozen) {
        timer_stop(&bridge->step);
        timer_stop(&bridge->patience);
    } else {
        thaw(bridge);
    }
}

static void on_release(struct deferred *deferred)
{
    struct bridge *bridge = container_of(deferred, struct bridge, release);

    explicit_bzero(bridge->key, sizeof(bridge->key));
    free(bridge->name);
    free(bridge->refusal);
    free(bridge);
}

void bridge_free(struct bridge *bridge)
{
    if (!bridge || bridge->state == BRIDGE_CLOSED)
        return;
    if (bridge->state != BRIDGE_OVER)
        bridge_end_session(bridge, "the sandbox is given up");
    bridge_set_state(bridge, BRIDGE_CLOSED);
    streams_fini(bridge);
    loop_undefer(bridge->loop, &bridge->news);
    loop_undefer(bridge->loop, &bridge->pump);
    carrier_free(steal_ptr(&bridge->carrier));
    loop_defer(bridge->loop, &bridge->release, on_release);
}
