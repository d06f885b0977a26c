/* SPDX-License-Identifier: Apache-2.0 */
#include "init/relay.h"

#include "init/relay_content.h"
#include "init/relay_link.h"
#include "init/relay_message.h"
#include "init/relay_pool.h"
#include "init/relay_stream.h"
#include "init/sys.h"

#include <errno.h>
#include <stdbool.h>
#include <string.h>
#include <sys/epoll.h>

enum {
    MAX_PEERS = 4,
    CROWDED_MS = 1000, /* patience with a peer when all slots are taken */
    MAX_EVENTS = 64,
    IDLE_MS = 5000,
    MEMORY_SHARE = 16, /* of the sandbox's memory, at most, for bytes on their way */
    LEAST_BULK = 256 * 1024,
};

enum tag { TAG_LISTEN, TAG_INIT, TAG_CONNECTION, TAG_LINK, TAG_PEERS, TAG_STREAMS = 16 };

/* A connection before its login. */
struct peer {
    int fd; /* owned; -1: free */
    int64_t since_ms;
    size_t length;
    struct {
        struct relay_frame frame;
        struct relay_login login;
    } answer;
    struct relay_greeting greeting;
};

static struct {
    struct relay_setup *setup; /* borrowed */
    int epoll_fd;
    bool is_listening; /* in the poll */
    bool is_attached;  /* a session has begun */
    uint8_t boot[RELAY_BOOT_SIZE];
    struct peer peers[MAX_PEERS];
    int64_t now_ms; /* of a clock that stands still while the sandbox is frozen */
    int64_t woke_us;
    int64_t trimmed_ms;
} relay;

/* --- preparing ------------------------------------------------------------------------------ */

/* 0 when the file does not exist or has no limit. */
static uint64_t read_number(const char *path)
{
    char text[32];
    uint64_t value = 0;
    int fd = (int)sys(open, path, O_RDONLY | O_CLOEXEC, 0);
    long length = fd < 0 ? 0 : sys(read, fd, text, sizeof text);

    sys_close(fd);
    for (long i = 0; i < length && text[i] >= '0' && text[i] <= '9'; i++)
        value = value * 10 + (uint64_t)(text[i] - '0');
    return value;
}

static size_t bulk_bytes(void)
{
    size_t most = (size_t)POOL_BULK * POOL_BLOCK;
    uint64_t limit = read_number("/sys/fs/cgroup/memory.max");

    if (!limit)
        limit = read_number("/sys/fs/cgroup/memory/memory.limit_in_bytes");
    limit /= MEMORY_SHARE;
    if (!limit || limit > most)
        return most;
    return limit < LEAST_BULK ? LEAST_BULK : (size_t)limit;
}

static bool fill_random(void *bytes, size_t length)
{
    return sys(getrandom, bytes, length, 0) == (long)length;
}

static int watch(int fd, uint32_t tag, uint32_t events)
{
    struct epoll_event event = { .events = events, .data.u32 = tag };

    return (int)sys(epoll_ctl, relay.epoll_fd, EPOLL_CTL_ADD, fd, &event);
}

static int prepare(struct relay_setup *setup)
{
    relay.setup = setup;
    for (unsigned i = 0; i < MAX_PEERS; i++)
        relay.peers[i].fd = -1;
    relay.epoll_fd = (int)sys(epoll_create1, O_CLOEXEC);
    if (relay.epoll_fd < 0 || link_prepare() < 0 || pool_prepare(bulk_bytes()) < 0 ||
        !fill_random(relay.boot, sizeof relay.boot))
        return -1;
    stream_prepare(relay.epoll_fd, TAG_STREAMS);
    relay.is_listening = true;
    relay.woke_us = sys_now_us();
    return watch(setup->listen_fd, TAG_LISTEN, EPOLLIN) < 0 ||
                   watch(setup->init_fd, TAG_INIT, EPOLLIN) < 0
               ? -1
               : 0;
}

/* --- sessions ------------------------------------------------------------------------------- */

static void end_session(void)
{
    link_end_session();
    message_disconnect();
    channel_detach_all();
    relay.is_attached = false;
}

static int begin_session(const struct relay_login *login)
{
    end_session();
    if (message_connect(relay.setup->init_fd, relay.epoll_fd, TAG_CONNECTION) < 0)
        return -1;
    link_begin_session(login->session);
    relay.is_attached = true;
    return 0;
}

static bool is_current(const struct relay_login *login)
{
    return relay_link.has_session &&
           !memcmp(relay_link.session, login->session, sizeof login->session);
}

/* Whether the login begins a new session or can resume its own. A login that claims an impossible
 * position cannot. */
static bool take_up_session(const struct relay_login *login)
{
    if (login->flags & RELAY_LOGIN_NEW)
        return begin_session(login) == 0;
    return is_current(login) && link_can_resume(login->received);
}

/* --- peers ---------------------------------------------------------------------------------- */

static void drop_peer(struct peer *peer)
{
    sys_drop(&peer->fd);
}

static struct peer *find_free_peer(void)
{
    for (unsigned i = 0; i < MAX_PEERS; i++)
        if (relay.peers[i].fd < 0)
            return &relay.peers[i];
    return NULL;
}

static int greet(struct peer *peer)
{
    struct {
        struct relay_frame frame;
        struct relay_greeting greeting;
    } hello = {
        .frame = { .length = sizeof hello.greeting, .type = RELAY_GREETING },
        .greeting = { .magic = RELAY_MAGIC,
                      .oldest = RELAY_VERSION,
                      .newest = RELAY_VERSION,
                      .features = RELAY_HAS_USAGE | (relay.setup->has_key ? 0 : RELAY_UNBOUND) },
    };

    memcpy(hello.greeting.boot, relay.boot, sizeof relay.boot);
    if (!fill_random(hello.greeting.nonce, sizeof hello.greeting.nonce))
        return -1;
    peer->greeting = hello.greeting;
    return sys(write, peer->fd, &hello, sizeof hello) == sizeof hello ? 0 : -1;
}

static void accept_peer(void)
{
    struct peer *peer = find_free_peer();
    int fd;

    if (!peer)
        return;
    fd = (int)sys(accept4, relay.setup->listen_fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (fd < 0)
        return;
    *peer = (struct peer){ .fd = fd, .since_ms = relay.now_ms };
    if (greet(peer) < 0 || watch(fd, TAG_PEERS + (uint32_t)(peer - relay.peers), EPOLLIN) < 0)
        drop_peer(peer);
}

/* The peer is the bridge: it gets the link, and the connection before it is closed. */
static void welcome(struct peer *peer)
{
    const struct relay_login *login = &peer->answer.login;
    struct relay_welcome welcome = { .is_resumed = take_up_session(login) };
    struct epoll_event event = {
        .events = EPOLLET | EPOLLIN | EPOLLOUT | EPOLLRDHUP,
        .data.u32 = TAG_LINK,
    };
    struct relay_frame frame = { .length = sizeof welcome, .type = RELAY_WELCOME };

    welcome.received = welcome.is_resumed ? link_received() : 0;
    relay_sign_welcome(relay.setup->key, &peer->greeting, sizeof peer->greeting, login, &welcome);
    if (welcome.is_resumed &&
        sys(epoll_ctl, relay.epoll_fd, EPOLL_CTL_MOD, peer->fd, &event) >= 0) {
        link_connect(peer->fd, login->flags & RELAY_LOGIN_NEW ? 0 : login->received, &welcome);
        peer->fd = -1;
        return;
    }
    if (sys(write, peer->fd, &frame, sizeof frame) == sizeof frame)
        (void)sys(write, peer->fd, &welcome, sizeof welcome);
    drop_peer(peer);
}

/* Takes the key of the sandbox, once. The bytes behind it begin with the login. */
static void take_key(struct peer *peer)
{
    enum { END = sizeof peer->answer.frame + RELAY_KEY_SIZE };
    uint8_t *bytes = (uint8_t *)&peer->answer;

    memcpy(relay.setup->key, bytes + sizeof peer->answer.frame, RELAY_KEY_SIZE);
    relay.setup->has_key = true;
    peer->length -= END;
    memmove(bytes, bytes + END, peer->length);
    explicit_bzero(bytes + peer->length, END);
}

/* Whether the peer's first frame is allowed: LOGIN, or BIND while there is no key. */
static bool is_allowed(const struct peer *peer)
{
    const struct relay_frame *frame = &peer->answer.frame;

    if (peer->length < sizeof *frame)
        return true;
    return !relay_check(frame, RELAY_OF_BRIDGE) &&
           frame->type == (relay.setup->has_key ? RELAY_LOGIN : RELAY_BIND);
}

static void judge_login(struct peer *peer)
{
    if (peer->answer.login.version == RELAY_VERSION &&
        relay_verify_login(relay.setup->key, &peer->greeting, sizeof peer->greeting,
                           &peer->answer.login))
        welcome(peer);
    else
        drop_peer(peer);
}

/* Reads no further than the login: the bytes behind it belong to the link. */
static void hear_peer(struct peer *peer)
{
    long length = sys(read, peer->fd, (char *)&peer->answer + peer->length,
                      sizeof peer->answer - peer->length);

    if (length == -EAGAIN || length == -EINTR)
        return;
    if (length <= 0) {
        drop_peer(peer);
        return;
    }
    peer->length += (size_t)length;
    if (is_allowed(peer) && !relay.setup->has_key &&
        peer->length >= sizeof peer->answer.frame + RELAY_KEY_SIZE)
        take_key(peer);
    if (!is_allowed(peer))
        drop_peer(peer);
    else if (peer->length == sizeof peer->answer)
        judge_login(peer);
}

/* Drops peers that take too long to log in; stops accepting while all slots are taken. Returns the
 * milliseconds until the next peer is late, -1 without peers. */
static int tick_peers(void)
{
    bool is_crowded = !find_free_peer();
    int64_t patience_ms = is_crowded ? CROWDED_MS : RELAY_HANDSHAKE_MS;
    int64_t next_ms = -1;

    for (unsigned i = 0; i < MAX_PEERS; i++) {
        int64_t left_ms = relay.peers[i].since_ms + patience_ms - relay.now_ms;

        if (relay.peers[i].fd < 0)
            continue;
        if (left_ms <= 0)
            drop_peer(&relay.peers[i]);
        else if (next_ms < 0 || left_ms < next_ms)
            next_ms = left_ms;
    }
    is_crowded = !find_free_peer();
    if (is_crowded && relay.is_listening)
        (void)sys(epoll_ctl, relay.epoll_fd, EPOLL_CTL_DEL, relay.setup->listen_fd, NULL);
    if (!is_crowded && !relay.is_listening)
        (void)watch(relay.setup->listen_fd, TAG_LISTEN, EPOLLIN);
    relay.is_listening = !is_crowded;
    return (int)next_ms;
}

/* --- the loop ------------------------------------------------------------------------------- */

static enum link_result take_frame(const struct relay_frame *frame, const uint8_t *payload)
{
    if (frame->type == RELAY_MESSAGE)
        return message_take(frame, payload);
    if (frame->channel >= RELAY_BRIDGE_CHANNEL)
        return content_take(frame, payload);
    return stream_take(frame, payload);
}

/* Init has ended: relay its last messages and exit. */
static __attribute__((noreturn)) void finish(void)
{
    while (message_work() > 0 && link_flush())
        ;
    (void)link_flush();
    sys_exit(0);
}

static void handle(const struct epoll_event *event)
{
    uint32_t tag = event->data.u32;

    if (tag == TAG_LISTEN) {
        accept_peer();
    } else if (tag == TAG_INIT) {
        finish();
    } else if (tag == TAG_CONNECTION) {
        message_wake(event->events);
    } else if (tag == TAG_LINK) {
        relay_link.is_readable |= !!(event->events & ~(uint32_t)EPOLLOUT);
        relay_link.is_writable |= !!(event->events & EPOLLOUT);
    } else if (tag >= TAG_STREAMS) {
        stream_wake(tag - TAG_STREAMS, event->events);
    } else if (relay.peers[tag - TAG_PEERS].fd >= 0) {
        hear_peer(&relay.peers[tag - TAG_PEERS]);
    }
}

static int sooner(int one_ms, int other_ms)
{
    return one_ms < 0 || (other_ms >= 0 && other_ms < one_ms) ? other_ms : one_ms;
}

/* Waits for events and dispatches them. The clock advances by no more than the timeout: a sandbox
 * that was frozen has not been silent. */
static void wait_for_events(bool is_busy)
{
    struct epoll_event events[MAX_EVENTS];
    int timeout_ms = sooner(sooner(link_tick(relay.now_ms), tick_peers()), IDLE_MS);
    uint64_t no_signal = ~0ull;
    int64_t passed_us;
    long count = sys(epoll_pwait, relay.epoll_fd, events, MAX_EVENTS, is_busy ? 0 : timeout_ms,
                     &no_signal, SIGNAL_SET_SIZE);

    passed_us = sys_now_us() - relay.woke_us;
    if (passed_us > (timeout_ms + 1000) * 1000LL)
        passed_us = (timeout_ms + 1000) * 1000LL;
    relay.now_ms += passed_us / 1000;
    relay.woke_us = sys_now_us() - passed_us % 1000;
    (void)link_tick(relay.now_ms);
    for (long i = 0; i < count; i++)
        handle(&events[i]);
    if (!is_busy && relay.now_ms - relay.trimmed_ms >= IDLE_MS) {
        relay.trimmed_ms = relay.now_ms;
        pool_trim();
        link_trim();
    }
}

/* One step of the link, messages and streams; true when there is more to do at once. */
static bool work(void)
{
    bool is_busy = link_receive(take_frame);
    int said = message_work();

    if (said < 0 || (relay.is_attached && !relay_link.has_session))
        end_session();
    is_busy |= said > 0;
    is_busy |= stream_work();
    is_busy |= stream_send();
    is_busy |= link_flush();
    return is_busy;
}

void relay_run(struct relay_setup *setup)
{
    bool is_busy = false;

    if (prepare(setup) < 0)
        sys_exit(RELAY_EXIT_CODE);
    for (;;) {
        wait_for_events(is_busy);
        is_busy = work();
    }
}
