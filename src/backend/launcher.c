/* SPDX-License-Identifier: Apache-2.0 */
#include "backend/launcher.h"

#include "backend/keeper.h"
#include "backend/launcher_process.h"
#include "base/alloc.h"
#include "base/backoff.h"
#include "base/log.h"

#include <assert.h>
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>

enum {
    FIRST_TIMEOUT_MS = 60 * 1000,
    FIRST_TRIES = 100,
    FIRST_PAUSE_MS = 10,
    STABLE_US = 10 * 1000 * 1000,   /* a launcher that lived this long is replaced at once */
    PATIENCE_US = 30 * 1000 * 1000, /* of requests while there is no launcher */
};

/* Callers wait for a launcher that is killed again and again: not long, because a start takes
 * milliseconds. */
static const struct backoff start_backoff_us = { .first = 100 * 1000, .most = 1000 * 1000 };

enum launcher_state {
    LAUNCHER_UP,
    LAUNCHER_STARTING, /* the keeper was asked for one */
    LAUNCHER_BACKOFF,  /* it is asked again when the timer says so */
    LAUNCHER_LOST,     /* the keeper is gone, too: only another daemon can help */
    LAUNCHER_STOPPED,
};

struct launcher {
    struct loop *loop; /* borrowed */
    enum launcher_state state;
    struct keeper keeper;
    struct io_watch keeper_watch;
    int socket; /* owned; -1 unless it is up */
    pid_t pid;
    struct io_watch watch;
    struct list sent;    /* calls that wait for an answer */
    struct list waiting; /* calls that the socket has not taken yet */
    uint64_t next_tag;
    struct launch_host host;
    struct deferred lose;
    struct timer retry;
    struct timer patience;
    unsigned failures; /* in a row */
    int64_t up_since_us;
    int64_t down_since_us;
    struct error trouble; /* of the last start; ERR_NONE while it is up */
};

/* --- answers ------------------------------------------------------------------------------- */

static struct launcher_call *find_call(struct launcher *launcher, uint64_t tag)
{
    struct launcher_call *call;

    list_for_each (call, &launcher->sent, link) {
        if (call->tag == tag)
            return call;
    }
    return NULL;
}

static void fail_all(struct list *calls)
{
    struct list failed = LIST_INIT(failed);
    struct launcher_call *call;

    list_move_all(calls, &failed);
    while ((call = list_first(&failed, struct launcher_call, link))) {
        list_remove(&call->link);
        call->done(call, NULL, -1);
    }
}

static void answer(struct launcher *launcher, const struct launch_reply *reply, int pidfd)
{
    struct launcher_call *call = find_call(launcher, reply->header.tag);

    if (!reply->header.tag)
        log_warn("sandboxes are not prepared in advance; trying again", kv("step", reply->step),
                 kv("error", strerror(reply->error)));
    if (!call) {
        fd_close(pidfd);
        return;
    }
    if (reply->header.type != LAUNCH_LIST || !reply->body.list.more)
        list_remove(&call->link);
    call->done(call, reply, pidfd);
}

/* --- its loss ------------------------------------------------------------------------------ */

static bool may_be_repeated(const struct launcher_call *call)
{
    /* A half-made sandbox must be removed first, and a part of a list was delivered already. */
    return call->type != LAUNCH_CREATE && call->type != LAUNCH_CREATE_BOUND &&
           call->type != LAUNCH_LIST;
}

/* Requests to the lost launcher are sent again, in the same order, before those that wait. */
static void sort_out(struct launcher *launcher)
{
    struct list failed = LIST_INIT(failed);
    struct list again = LIST_INIT(again);
    struct launcher_call *call;

    while ((call = list_first(&launcher->sent, struct launcher_call, link))) {
        list_remove(&call->link);
        list_append(may_be_repeated(call) ? &again : &failed, &call->link);
    }
    list_move_all(&launcher->waiting, &again);
    list_move_all(&again, &launcher->waiting);
    fail_all(&failed);
}

static void give_up(struct launcher *launcher)
{
    launcher->state = LAUNCHER_LOST;
    io_watch_stop(&launcher->keeper_watch);
    log_error("the launcher cannot be replaced: its keeper has died, too. Restart the daemon; "
              "until then no sandbox can be created or removed");
}

static void ask_later(struct launcher *launcher)
{
    launcher->failures++;
    launcher->state = LAUNCHER_BACKOFF;
    timer_arm_in(&launcher->retry, backoff_delay(&start_backoff_us, launcher->failures));
}

static bool will_pass(int number)
{
    return number == EAGAIN || number == EINTR || number == ENOBUFS || number == ENOMEM;
}

static void ask_keeper(struct launcher *launcher)
{
    launcher->state = LAUNCHER_STARTING;
    if (keeper_ask(&launcher->keeper) == 0)
        return;
    if (will_pass(errno))
        ask_later(launcher);
    else
        give_up(launcher);
}

static void on_retry(struct timer *timer)
{
    ask_keeper(container_of(timer, struct launcher, retry));
}

static void on_patience(struct timer *timer)
{
    struct launcher *launcher = container_of(timer, struct launcher, patience);

    if (launcher->state == LAUNCHER_UP)
        return;
    timer_arm_in(timer, PATIENCE_US);
    fail_all(&launcher->waiting);
}

static void close_socket(struct launcher *launcher)
{
    if (launcher->socket < 0)
        return;
    io_watch_stop(&launcher->watch);
    fd_close(launcher->socket);
    launcher->socket = -1;
}

/* A launcher does not exit by itself: it was killed, perhaps for want of memory. */
static void lose(struct launcher *launcher)
{
    int64_t now_us = loop_now_us(launcher->loop);

    if (launcher->state != LAUNCHER_UP)
        return;
    log_error("the launcher has died; starting another", kv("pid", launcher->pid));
    close_socket(launcher);
    launcher->down_since_us = now_us;
    timer_arm_in(&launcher->patience, PATIENCE_US);
    if (now_us - launcher->up_since_us > STABLE_US)
        launcher->failures = 0;
    if (launcher->failures == 0) {
        launcher->failures = 1;
        ask_keeper(launcher);
    } else {
        ask_later(launcher);
    }
    sort_out(launcher);
}

static void on_lost(struct deferred *deferred)
{
    lose(container_of(deferred, struct launcher, lose));
}

/* --- requests ------------------------------------------------------------------------------ */

static void flush(struct launcher *launcher);

static void on_ready(struct io_watch *watch, unsigned events)
{
    struct launcher *launcher = container_of(watch, struct launcher, watch);
    struct launch_reply reply;
    int pidfd = -1;
    int result;

    if (events & IO_WRITE)
        flush(launcher);
    while (launcher->state == LAUNCHER_UP) {
        result = launcher_receive(launcher->socket, &reply, &pidfd);
        if (result < 0)
            lose(launcher);
        if (result <= 0)
            return;
        answer(launcher, &reply, pidfd);
    }
}

static void watch_socket(struct launcher *launcher)
{
    unsigned events = list_is_empty(&launcher->waiting) ? IO_READ : IO_READ | IO_WRITE;

    io_watch_start(&launcher->watch, launcher->loop, launcher->socket, events, on_ready);
}

/* False when the socket is full and the call has to wait. */
static bool try_send(struct launcher *launcher, struct launcher_call *call)
{
    if (launcher->state != LAUNCHER_UP)
        return false;
    if (send(launcher->socket, call->message, call->length, MSG_NOSIGNAL | MSG_DONTWAIT) >= 0)
        return true;
    if (!will_pass(errno))
        loop_defer(launcher->loop, &launcher->lose, on_lost);
    return false;
}

static void flush(struct launcher *launcher)
{
    struct launcher_call *call;

    while ((call = list_first(&launcher->waiting, struct launcher_call, link))) {
        if (!try_send(launcher, call))
            break;
        list_remove(&call->link);
        list_append(&launcher->sent, &call->link);
    }
    if (launcher->state == LAUNCHER_UP)
        watch_socket(launcher);
}

void launcher_send(struct launcher *launcher, struct launcher_call *call, enum launch_type type,
                   void *message, size_t length, launcher_done_fn *done)
{
    struct launch_header *header = message;

    assert(length <= sizeof(call->message));
    *header = (struct launch_header){ .length = (uint32_t)length,
                                      .type = (uint16_t)type,
                                      .version = LAUNCH_VERSION,
                                      .tag = ++launcher->next_tag };
    call->tag = header->tag;
    call->type = type;
    call->done = done;
    call->length = length;
    memcpy(call->message, message, length);
    list_init(&call->link);
    if (list_is_empty(&launcher->waiting) && try_send(launcher, call)) {
        list_append(&launcher->sent, &call->link);
        return;
    }
    list_append(&launcher->waiting, &call->link);
    if (launcher->state == LAUNCHER_UP)
        watch_socket(launcher);
}

void launcher_cancel(struct launcher *launcher, struct launcher_call *call)
{
    (void)launcher;
    list_remove(&call->link);
}

/* Whether the error is a shortage that may pass. */
static bool may_pass(int number)
{
    return number == EAGAIN || number == EBUSY || number == EMFILE || number == ENFILE ||
           number == ENOMEM;
}

int launcher_error(const struct launch_reply *reply, const char *what, struct error *err)
{
    if (!reply) {
        error_named(err, ERR_UNAVAILABLE, "launcher_unavailable",
                    "%s: the launcher has died and is being replaced", what);
        if (err)
            err->retryable = true;
        return -1;
    }
    errno = reply->error;
    error_sys(err, "%s: %s", what, reply->step);
    if (err) {
        err->code = reply->error == EAGAIN   ? ERR_LIMIT
                    : reply->error == ENOENT ? ERR_NOT_FOUND
                    : reply->error == ESRCH  ? ERR_GONE
                                             : ERR_BACKEND;
        err->retryable = may_pass(reply->error);
        err->name[0] = '\0';
        snprintf(err->name, sizeof(err->name), "%s", error_code_name(err->code));
        if (reply->error == EROFS)
            error_hint(err, "have that directory on a file system that can be written to, for "
                            "example a tmpfs at /run");
    }
    return -1;
}

/* --- start and stop ------------------------------------------------------------------------ */

static void take_launcher(struct launcher *launcher, const struct keeper_answer *answer, int socket)
{
    launcher->state = LAUNCHER_UP;
    launcher->socket = socket;
    launcher->pid = answer->pid;
    launcher->host = answer->host;
    launcher->trouble = (struct error){ 0 };
    launcher->up_since_us = loop_now_us(launcher->loop);
    timer_stop(&launcher->patience);
    flush(launcher);
}

static void on_keeper(struct io_watch *watch, unsigned events UNUSED)
{
    struct launcher *launcher = container_of(watch, struct launcher, keeper_watch);
    struct keeper_answer answer;
    int socket = -1;
    int result = keeper_receive(&launcher->keeper, &answer, &socket);

    if (result == 0)
        return;
    if (result < 0 && launcher->state == LAUNCHER_UP) {
        io_watch_stop(watch);
        log_error("the keeper has died: a launcher that dies, too, is not replaced");
    } else if (result < 0) {
        give_up(launcher);
    } else if (answer.err.code != ERR_NONE) {
        launcher->trouble = answer.err;
        log_error("the launcher could not be replaced; trying again",
                  kv("error", answer.err.message));
        ask_later(launcher);
    } else {
        take_launcher(launcher, &answer, socket);
        log_info("the launcher was replaced", kv("pid", launcher->pid),
                 kv("after_ms", (launcher->up_since_us - launcher->down_since_us) / 1000));
    }
}

/* At start there is no loop yet that could wait for us. */
static int await_first(struct launcher *launcher, struct error *err)
{
    struct pollfd watch = { .fd = launcher->keeper.socket, .events = POLLIN };
    struct keeper_answer answer = { 0 };
    int socket = -1;
    int result;

    for (int i = 0; keeper_ask(&launcher->keeper) < 0; i++) {
        if (!will_pass(errno) || i == FIRST_TRIES)
            return error_sys(err, "ask its keeper for it");
        (void)poll(NULL, 0, FIRST_PAUSE_MS);
    }
    do {
        if (poll(&watch, 1, FIRST_TIMEOUT_MS) <= 0)
            return error_set(err, ERR_TIMEOUT, "it does not answer");
        result = keeper_receive(&launcher->keeper, &answer, &socket);
    } while (result == 0);
    if (result < 0)
        return error_set(err, ERR_BACKEND, "its keeper ended at its start");
    if (answer.err.code != ERR_NONE) {
        *err = answer.err;
        return -1;
    }
    take_launcher(launcher, &answer, socket);
    return 0;
}

struct launcher *launcher_start(const struct launcher_options *options, struct error *err)
{
    struct launcher *launcher = xnew(struct launcher);

    launcher->loop = options->loop;
    launcher->socket = launcher->keeper.socket = -1;
    list_init(&launcher->sent);
    list_init(&launcher->waiting);
    timer_init(&launcher->retry, options->loop, on_retry);
    timer_init(&launcher->patience, options->loop, on_patience);
    if (keeper_start(&launcher->keeper, options, err) < 0 || await_first(launcher, err) < 0) {
        error_wrap(err, "start the launcher");
        launcher_stop(launcher);
        return NULL;
    }
    io_watch_start(&launcher->keeper_watch, launcher->loop, launcher->keeper.socket, IO_READ,
                   on_keeper);
    return launcher;
}

void launcher_stop(struct launcher *launcher)
{
    if (!launcher)
        return;
    launcher->state = LAUNCHER_STOPPED;
    loop_undefer(launcher->loop, &launcher->lose);
    timer_stop(&launcher->retry);
    timer_stop(&launcher->patience);
    io_watch_stop(&launcher->keeper_watch);
    close_socket(launcher);
    fail_all(&launcher->sent);
    fail_all(&launcher->waiting);
    keeper_stop(&launcher->keeper);
    free(launcher);
}

const struct launch_host *launcher_host(const struct launcher *launcher)
{
    return &launcher->host;
}

pid_t launcher_pid(const struct launcher *launcher)
{
    return launcher->pid;
}

int launcher_check(const struct launcher *launcher, struct error *err)
{
    if (launcher->state == LAUNCHER_UP)
        return 0;
    return error_named(err, ERR_UNAVAILABLE, "launcher_unavailable", "%s%s%s",
                       launcher->state == LAUNCHER_LOST
                           ? "the launcher has died and cannot be replaced: restart the daemon"
                           : "the launcher has died and is being replaced",
                       launcher->trouble.code ? ": " : "", launcher->trouble.message);
}
