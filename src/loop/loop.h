/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * The event loop, on libevent. Single-threaded: everything here is called from the loop's own
 * thread, except where it says otherwise, and state changes between two callbacks are atomic.
 *
 * Watches, timers and deferred calls are embedded in the object they serve; callbacks find it with
 * container_of. All of them may be stopped at any time, also from their own callback; stopping an
 * inactive one does nothing, so teardown needs no cases.
 *
 * Time comes from a `struct clock`. With a simulated clock the loop does not wait: loop_advance()
 * moves the clock from deadline to deadline and runs the timers that are due.
 */

#include "base/clock.h"
#include "base/error.h"
#include "base/list.h"
#include "base/scoped.h"

#include <event2/event_struct.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct event_base;
struct loop;

/* The clock is borrowed. */
struct loop *loop_new(const struct clock *clock);
void loop_free(struct loop *loop); /* NULL is fine; runs pending deferred calls */
SCOPED_DEFINE(loop_free, struct loop);

void loop_run(struct loop *loop); /* until loop_stop() */
void loop_stop(struct loop *loop);

/*
 * One turn: runs deferred calls, waits at most `wait_ms` for events (0: not at all, negative: for
 * ever), then handles all events, each descriptor once, even if it has more. It does not wait when
 * a call was deferred. Turns do not nest: callbacks never call this, nor loop_run() or
 * loop_advance().
 */
void loop_turn(struct loop *loop, int64_t wait_ms);
uint64_t loop_turns(const struct loop *loop); /* how many have begun */

/* Simulated clock only: moves on by `us`, running timers in order and turns in between. */
void loop_advance(struct loop *loop, struct simulated_clock *clock, int64_t us);

/* Runs deferred calls and nothing else: for teardown when the loop has stopped. True when there
 * were any. */
bool loop_run_deferred(struct loop *loop);

int64_t loop_now_us(const struct loop *loop);
const struct clock *loop_clock(const struct loop *loop);

/* --- readiness of a descriptor ------------------------------------------------------------ */

enum { IO_READ = 1, IO_WRITE = 2 };

struct io_watch;
typedef void io_ready_fn(struct io_watch *watch, unsigned events);

struct io_watch {
    int fd;            /* borrowed; the owner closes it after io_watch_stop() */
    struct loop *loop; /* borrowed */
    io_ready_fn *on_ready;
    struct event event;
    unsigned events; /* events that are watched now; 0 when stopped */
};

/* Level-triggered. Starting again replaces the watched events. */
void io_watch_start(struct io_watch *watch, struct loop *loop, int fd, unsigned events,
                    io_ready_fn *on_ready);
void io_watch_stop(struct io_watch *watch);

/* --- timers -------------------------------------------------------------------------------- */

struct timer;
typedef void timer_fn(struct timer *timer);

struct timer {
    int64_t deadline_us; /* by the loop's clock */
    uint64_t order;      /* timers with the same deadline expire in the order they were armed */
    size_t place;        /* in the loop's heap, counted from 1; 0 when not armed */
    struct loop *loop;   /* borrowed */
    timer_fn *on_expire;
};

void timer_init(struct timer *timer, struct loop *loop, timer_fn *on_expire);
void timer_arm_at(struct timer *timer, int64_t deadline_us); /* re-arming moves it */
void timer_arm_in(struct timer *timer, int64_t delay_us);
void timer_stop(struct timer *timer);

static inline bool timer_is_armed(const struct timer *timer)
{
    return timer->place != 0;
}

/* --- at the end of the turn ---------------------------------------------------------------- */

struct deferred;
typedef void deferred_fn(struct deferred *deferred);

struct deferred {
    struct deferred *next;
    deferred_fn *call;
    bool queued;
};

/* Calls `call` once, after the current callback has returned and before the loop waits again; in
 * the order of queueing. Queueing a queued one does nothing. */
void loop_defer(struct loop *loop, struct deferred *deferred, deferred_fn *call);

/* The same, but after all other work of this turn: for work in batches. The last calls come behind
 * the late ones. */
void loop_defer_late(struct loop *loop, struct deferred *deferred, deferred_fn *call);
void loop_defer_last(struct loop *loop, struct deferred *deferred, deferred_fn *call);
void loop_undefer(struct loop *loop, struct deferred *deferred);

/* --- after each turn ----------------------------------------------------------------------- */

struct turn_watch;
typedef void turn_fn(struct turn_watch *watch);

struct turn_watch {
    struct loop *loop; /* borrowed; NULL when stopped */
    turn_fn *on_turn;
    struct list node; /* linked while it is started */
};

/* Calls `on_turn` when a turn has done everything, before the loop waits again: for a condition that
 * many things change, and that has no counter. Calls that it defers run in the same turn. A watch
 * that is started meanwhile waits for the next turn. */
void turn_watch_start(struct turn_watch *watch, struct loop *loop, turn_fn *on_turn);
void turn_watch_stop(struct turn_watch *watch);

/* --- signals ------------------------------------------------------------------------------- */

struct signal_watch;
typedef void signal_fn(struct signal_watch *watch, int signal_number);

struct signal_watch {
    struct loop *loop; /* borrowed */
    signal_fn *on_signal;
    struct event event;
    bool active;
};

void signal_watch_start(struct signal_watch *watch, struct loop *loop, int signal_number,
                        signal_fn *on_signal);
void signal_watch_stop(struct signal_watch *watch);
