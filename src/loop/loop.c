/* SPDX-License-Identifier: Apache-2.0 */
#include "loop/loop.h"

#include "base/alloc.h"
#include "loop/timer_heap.h"

#include <assert.h>
#include <errno.h>
#include <event2/event.h>
#include <stdlib.h>

/*
 * Our clock counts through a suspend and libevent's does not, so a wait that began before the
 * suspend would end too late. No wait for a timer is longer than this.
 */
enum { LONGEST_WAIT_US = 30 * 1000 * 1000 };

struct queue {
    struct deferred *first;
    struct deferred *last;
};

struct loop {
    const struct clock *clock; /* borrowed */
    struct event_base *base;   /* owned */
    struct timer_heap timers;
    uint64_t armed; /* how many times any timer was armed */
    uint64_t turns;
    struct event wake;        /* ends a wait when the first timer or wait_ms is due */
    int64_t wake_us;          /* when that is; 0 when it is not pending */
    struct queue soon;        /* deferred calls, all borrowed */
    struct queue late;        /* calls for when the turn has nothing else to do */
    struct queue last;        /* calls behind these */
    struct list turn_watches; /* borrowed */
    bool stopping;
};

static void on_wake(evutil_socket_t fd UNUSED, short what UNUSED, void *context)
{
    struct loop *loop = context;

    loop->wake_us = 0;
}

/* An event that is not added for want of memory would never come. Regular files cannot be watched
 * and are always ready: their error is ignored. */
static void add_event(struct event *event, const struct timeval *timeout)
{
    int before = errno;

    errno = 0;
    if (event_add(event, timeout) < 0 && errno == ENOMEM)
        out_of_memory();
    errno = before;
}

struct loop *loop_new(const struct clock *clock)
{
    struct loop *loop = xnew(struct loop);
    struct event_config *config = event_config_new();

    assert(config);
    event_config_set_flag(config, EVENT_BASE_FLAG_NOLOCK | EVENT_BASE_FLAG_IGNORE_ENV);
    loop->clock = clock;
    list_init(&loop->turn_watches);
    loop->base = event_base_new_with_config(config);
    event_config_free(config);
    assert(loop->base);
    event_assign(&loop->wake, loop->base, -1, 0, on_wake, loop);
    return loop;
}

static void run_first(struct queue *queue)
{
    struct deferred *deferred = queue->first;

    queue->first = deferred->next;
    if (!queue->first)
        queue->last = NULL;
    deferred->queued = false;
    deferred->call(deferred);
}

/* Whether there was anything to run. Calls that are queued meanwhile run too. */
static bool run_deferred(struct loop *loop)
{
    bool any = loop->soon.first != NULL;

    while (loop->soon.first)
        run_first(&loop->soon);
    return any;
}

static bool run_all_deferred(struct loop *loop)
{
    bool any = run_deferred(loop);

    while (loop->late.first || loop->last.first) {
        any = true;
        run_first(loop->late.first ? &loop->late : &loop->last);
        run_deferred(loop);
    }
    return any;
}

void loop_free(struct loop *loop)
{
    if (!loop)
        return;
    run_all_deferred(loop);
    event_del(&loop->wake);
    event_base_free(loop->base);
    timer_heap_fini(&loop->timers);
    free(loop);
}

/* A timer that is armed while this runs waits for the next turn, so that no timer starves the rest
 * by arming itself for now. */
static void run_timers(struct loop *loop)
{
    uint64_t newest = loop->armed;
    struct timer *timer = timer_heap_first(&loop->timers);
    int64_t now_us = timer ? loop_now_us(loop) : 0;

    while (timer && timer->deadline_us <= now_us && timer->order <= newest) {
        timer_heap_remove(&loop->timers, timer);
        timer->on_expire(timer);
        run_deferred(loop);
        timer = timer_heap_first(&loop->timers);
    }
}

/* How long to wait for events, negative for ever. Simulated time does not pass while we wait. */
static int64_t wait_us(const struct loop *loop, int64_t wait_ms, int64_t now_us)
{
    const struct timer *timer = timer_heap_first(&loop->timers);
    int64_t longest_us = wait_ms < 0 ? -1 : wait_ms * 1000;
    int64_t timer_us;

    if (!timer || longest_us == 0)
        return longest_us;
    timer_us = MAX(timer->deadline_us - now_us, (int64_t)0);
    if (timer_us > 0 && loop->clock != &clock_system)
        return longest_us;
    timer_us = MIN(timer_us, (int64_t)LONGEST_WAIT_US);
    return longest_us < 0 ? timer_us : MIN(longest_us, timer_us);
}

/* A wake that comes a bit early does no harm, so a pending one is only ever moved forward: timers
 * that move back, as idle timeouts do with each use, cost nothing here. */
static void arm_wake(struct loop *loop, int64_t now_us, int64_t delay_us)
{
    struct timeval timeout = { .tv_sec = delay_us / 1000000, .tv_usec = delay_us % 1000000 };

    if (loop->wake_us >= now_us && loop->wake_us <= now_us + delay_us && loop->wake_us)
        return;
    loop->wake_us = now_us + delay_us;
    add_event(&loop->wake, &timeout);
}

static void wait_for_events(struct loop *loop, int64_t wait_ms)
{
    int64_t now_us = wait_ms ? clock_now_us(&clock_system) : 0;
    int64_t delay_us =
        wait_us(loop, wait_ms, loop->clock == &clock_system ? now_us : loop_now_us(loop));

    if (delay_us > 0)
        arm_wake(loop, now_us, delay_us);

    /* EVLOOP_NONBLOCK alone does not return while any descriptor is ready. */
    event_base_loop(loop->base,
                    EVLOOP_ONCE | (delay_us == 0 ? EVLOOP_NONBLOCK : EVLOOP_NO_EXIT_ON_EMPTY));
}

/* A watch may stop itself and others, and start others. */
static void run_turn_watches(struct loop *loop)
{
    struct list due;

    list_init(&due);
    list_move_all(&loop->turn_watches, &due);
    while (!list_is_empty(&due)) {
        struct turn_watch *watch = list_first(&due, struct turn_watch, node);

        list_remove(&watch->node);
        list_append(&loop->turn_watches, &watch->node);
        watch->on_turn(watch);
    }
}

void loop_turn(struct loop *loop, int64_t wait_ms)
{
    loop->turns++;
    if (run_all_deferred(loop))
        wait_ms = 0;
    wait_for_events(loop, wait_ms);
    run_deferred(loop);
    run_timers(loop);
    run_all_deferred(loop);
    if (!list_is_empty(&loop->turn_watches)) {
        run_turn_watches(loop);
        run_all_deferred(loop);
    }
}

void turn_watch_start(struct turn_watch *watch, struct loop *loop, turn_fn *on_turn)
{
    turn_watch_stop(watch);
    *watch = (struct turn_watch){ .loop = loop, .on_turn = on_turn };
    list_append(&loop->turn_watches, &watch->node);
}

void turn_watch_stop(struct turn_watch *watch)
{
    if (!watch->loop)
        return;
    list_remove(&watch->node);
    watch->loop = NULL;
}

bool loop_run_deferred(struct loop *loop)
{
    return run_all_deferred(loop);
}

void loop_run(struct loop *loop)
{
    while (!loop->stopping)
        loop_turn(loop, -1);
    loop->stopping = false;
}

void loop_stop(struct loop *loop)
{
    loop->stopping = true;
}

void loop_advance(struct loop *loop, struct simulated_clock *clock, int64_t us)
{
    int64_t target_us = clock->boot_us + us;
    struct timer *timer;

    assert(loop->clock == &clock->clock && us >= 0);
    loop_turn(loop, 0);
    while ((timer = timer_heap_first(&loop->timers)) && timer->deadline_us <= target_us) {
        if (timer->deadline_us > clock->boot_us)
            simulated_clock_advance(clock, timer->deadline_us - clock->boot_us);
        loop_turn(loop, 0);
    }
    simulated_clock_advance(clock, target_us - clock->boot_us);
    loop_turn(loop, 0);
}

int64_t loop_now_us(const struct loop *loop)
{
    return clock_now_us(loop->clock);
}

uint64_t loop_turns(const struct loop *loop)
{
    return loop->turns;
}

const struct clock *loop_clock(const struct loop *loop)
{
    return loop->clock;
}

/* The watch may be gone when its callback returns. */
static void on_io_event(evutil_socket_t fd UNUSED, short what, void *context)
{
    struct io_watch *watch = context;
    struct loop *loop = watch->loop;

    watch->on_ready(watch, (what & EV_READ ? IO_READ : 0U) | (what & EV_WRITE ? IO_WRITE : 0U));
    run_deferred(loop);
}

void io_watch_start(struct io_watch *watch, struct loop *loop, int fd, unsigned events,
                    io_ready_fn *on_ready)
{
    short what = (short)((events & IO_READ ? EV_READ : 0) | (events & IO_WRITE ? EV_WRITE : 0));

    assert(fd >= 0 && what);
    if (watch->events == events && watch->fd == fd && watch->loop == loop) {
        watch->on_ready = on_ready;
        return;
    }
    io_watch_stop(watch);
    watch->fd = fd;
    watch->loop = loop;
    watch->on_ready = on_ready;
    watch->events = events;
    event_assign(&watch->event, loop->base, fd, (short)(what | EV_PERSIST), on_io_event, watch);
    add_event(&watch->event, NULL);
}

void io_watch_stop(struct io_watch *watch)
{
    if (!watch->events)
        return;
    watch->events = 0;
    event_del(&watch->event);
}

void timer_init(struct timer *timer, struct loop *loop, timer_fn *on_expire)
{
    *timer = (struct timer){ .loop = loop, .on_expire = on_expire };
}

void timer_arm_at(struct timer *timer, int64_t deadline_us)
{
    timer->deadline_us = deadline_us;
    timer->order = ++timer->loop->armed;
    timer_heap_place(&timer->loop->timers, timer);
}

void timer_arm_in(struct timer *timer, int64_t delay_us)
{
    timer_arm_at(timer, loop_now_us(timer->loop) + delay_us);
}

void timer_stop(struct timer *timer)
{
    if (timer->place)
        timer_heap_remove(&timer->loop->timers, timer);
}

static void queue_append(struct queue *queue, struct deferred *deferred, deferred_fn *call)
{
    if (deferred->queued)
        return;
    *deferred = (struct deferred){ .call = call, .queued = true };
    if (queue->last)
        queue->last->next = deferred;
    else
        queue->first = deferred;
    queue->last = deferred;
}

static bool queue_remove(struct queue *queue, struct deferred *deferred)
{
    struct deferred *previous = NULL;
    struct deferred **link = &queue->first;

    while (*link && *link != deferred) {
        previous = *link;
        link = &previous->next;
    }
    if (!*link)
        return false;
    *link = deferred->next;
    if (queue->last == deferred)
        queue->last = previous;
    return true;
}

void loop_defer(struct loop *loop, struct deferred *deferred, deferred_fn *call)
{
    queue_append(&loop->soon, deferred, call);
}

void loop_defer_late(struct loop *loop, struct deferred *deferred, deferred_fn *call)
{
    queue_append(&loop->late, deferred, call);
}

void loop_defer_last(struct loop *loop, struct deferred *deferred, deferred_fn *call)
{
    queue_append(&loop->last, deferred, call);
}

void loop_undefer(struct loop *loop, struct deferred *deferred)
{
    if (!deferred->queued)
        return;
    if (!queue_remove(&loop->soon, deferred) && !queue_remove(&loop->late, deferred))
        (void)queue_remove(&loop->last, deferred);
    deferred->queued = false;
}

static void on_signal_event(evutil_socket_t signal_number, short what UNUSED, void *context)
{
    struct signal_watch *watch = context;
    struct loop *loop = watch->loop;

    watch->on_signal(watch, (int)signal_number);
    run_deferred(loop);
}

void signal_watch_start(struct signal_watch *watch, struct loop *loop, int signal_number,
                        signal_fn *on_signal)
{
    signal_watch_stop(watch);
    watch->loop = loop;
    watch->on_signal = on_signal;
    watch->active = true;
    evsignal_assign(&watch->event, loop->base, signal_number, on_signal_event, watch);
    add_event(&watch->event, NULL);
}

void signal_watch_stop(struct signal_watch *watch)
{
    if (!watch->active)
        return;
    watch->active = false;
    event_del(&watch->event);
}
