/* SPDX-License-Identifier: Apache-2.0 */
#include "loop/loop.h"

#include "base/macros.h"

#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

enum { DEADLINE_MS = 60000 };

/* What happened, as one letter for each event. */
static char trace[64];

static void note(char letter)
{
    size_t length = strlen(trace);

    assert_true(length + 1 < sizeof(trace));
    trace[length] = letter;
    trace[length + 1] = '\0';
}

static int clear_trace(void **state)
{
    (void)state;
    trace[0] = '\0';
    return 0;
}

struct reader {
    struct io_watch watch;
    struct loop *loop;
    struct deferred after;
    int pipe[2];
};

static void on_after_read(struct deferred *deferred UNUSED)
{
    note('d');
}

static void on_readable(struct io_watch *watch, unsigned events)
{
    struct reader *reader = container_of(watch, struct reader, watch);
    char byte;

    assert_int_equal(events, IO_READ);
    assert_int_equal(read(watch->fd, &byte, 1), 1);
    loop_defer(reader->loop, &reader->after, on_after_read);
    note(byte);
}

static void reader_init(struct reader *reader, struct loop *loop)
{
    *reader = (struct reader){ .loop = loop };
    assert_int_equal(pipe(reader->pipe), 0);
    io_watch_start(&reader->watch, loop, reader->pipe[0], IO_READ, on_readable);
}

static void reader_fini(struct reader *reader)
{
    io_watch_stop(&reader->watch);
    close(reader->pipe[0]);
    close(reader->pipe[1]);
}

static void a_readable_descriptor_is_reported_until_it_is_drained(void **state UNUSED)
{
    scoped(loop_free) struct loop *loop = loop_new(&clock_system);
    struct reader reader;

    reader_init(&reader, loop);
    loop_turn(loop, 0);
    assert_string_equal(trace, "");
    assert_int_equal(write(reader.pipe[1], "ab", 2), 2);
    loop_turn(loop, DEADLINE_MS);
    loop_turn(loop, DEADLINE_MS);
    loop_turn(loop, 0);
    assert_string_equal(trace, "adbd");
    reader_fini(&reader);
}

static void deferred_calls_run_between_two_callbacks_of_one_turn(void **state UNUSED)
{
    scoped(loop_free) struct loop *loop = loop_new(&clock_system);
    struct reader first;
    struct reader second;

    reader_init(&first, loop);
    reader_init(&second, loop);
    assert_int_equal(write(first.pipe[1], "x", 1), 1);
    assert_int_equal(write(second.pipe[1], "x", 1), 1);
    loop_turn(loop, DEADLINE_MS);
    assert_string_equal(trace, "xdxd");
    reader_fini(&first);
    reader_fini(&second);
}

static void a_stopped_watch_is_silent_and_stopping_it_again_is_fine(void **state UNUSED)
{
    scoped(loop_free) struct loop *loop = loop_new(&clock_system);
    struct io_watch never_started = { 0 };
    struct reader reader;

    reader_init(&reader, loop);
    assert_int_equal(write(reader.pipe[1], "x", 1), 1);
    io_watch_stop(&reader.watch);
    io_watch_stop(&reader.watch);
    io_watch_stop(&never_started);
    loop_turn(loop, 0);
    assert_string_equal(trace, "");
    reader_fini(&reader);
}

static void on_writable(struct io_watch *watch, unsigned events)
{
    assert_int_equal(events, IO_WRITE);
    note('w');
    io_watch_stop(watch);
}

static void a_watch_may_change_its_events_and_stop_in_its_own_callback(void **state UNUSED)
{
    scoped(loop_free) struct loop *loop = loop_new(&clock_system);
    struct io_watch watch = { 0 };
    int ends[2];

    assert_int_equal(pipe(ends), 0);
    io_watch_start(&watch, loop, ends[0], IO_READ, on_writable);
    io_watch_start(&watch, loop, ends[1], IO_WRITE, on_writable);
    loop_turn(loop, DEADLINE_MS);
    loop_turn(loop, 0);
    assert_string_equal(trace, "w");
    assert_int_equal(watch.events, 0);
    close(ends[0]);
    close(ends[1]);
}

/* Of two watches that are ready at once, the first to be called frees the other. */
static struct reader *victim;

static void on_ready_free_the_other(struct io_watch *watch, unsigned events UNUSED)
{
    note('k');
    io_watch_stop(watch);
    reader_fini(victim);
    free(victim);
}

static void a_watch_freed_by_another_of_the_same_turn_is_not_called(void **state UNUSED)
{
    scoped(loop_free) struct loop *loop = loop_new(&clock_system);
    struct io_watch killer = { 0 };
    struct reader *reader = calloc(1, sizeof(*reader));
    int ends[2];

    assert_int_equal(pipe(ends), 0);
    assert_int_equal(write(ends[1], "x", 1), 1);
    io_watch_start(&killer, loop, ends[0], IO_READ, on_ready_free_the_other);
    reader_init(reader, loop);
    assert_int_equal(write(reader->pipe[1], "x", 1), 1);
    victim = reader;
    loop_turn(loop, DEADLINE_MS);
    assert_string_equal(trace, "k");
    close(ends[0]);
    close(ends[1]);
}

struct chain {
    struct loop *loop;
    struct deferred self;
    struct deferred following;
    char letter;
};

static void on_following(struct deferred *deferred UNUSED)
{
    note('z');
}

static void on_chain(struct deferred *deferred)
{
    struct chain *chain = container_of(deferred, struct chain, self);

    note(chain->letter);
    loop_defer(chain->loop, &chain->following, on_following);
}

static void deferred_calls_keep_their_order_and_include_new_ones(void **state UNUSED)
{
    scoped(loop_free) struct loop *loop = loop_new(&clock_system);
    struct chain a = { .loop = loop, .letter = 'a' };
    struct chain b = { .loop = loop, .letter = 'b' };

    loop_defer(loop, &a.self, on_chain);
    loop_defer(loop, &b.self, on_chain);
    loop_defer(loop, &a.self, on_chain);
    assert_string_equal(trace, "");
    loop_turn(loop, DEADLINE_MS);
    assert_string_equal(trace, "abzz");
}

struct stage {
    struct loop *loop;
    struct deferred soon, late, last;
};

static void on_soon(struct deferred *deferred UNUSED)
{
    note('s');
}

static void on_late(struct deferred *deferred)
{
    struct stage *stage = container_of(deferred, struct stage, late);

    note('l');
    loop_defer(stage->loop, &stage->soon, on_soon);
}

static void on_last(struct deferred *deferred)
{
    struct stage *stage = container_of(deferred, struct stage, last);

    note('L');
    loop_defer_late(stage->loop, &stage->late, on_late);
}

static void late_calls_come_behind_all_others_and_the_last_behind_them(void **state UNUSED)
{
    scoped(loop_free) struct loop *loop = loop_new(&clock_system);
    struct stage stage = { .loop = loop };

    loop_defer_last(loop, &stage.last, on_last);
    loop_defer_late(loop, &stage.late, on_late);
    loop_defer_late(loop, &stage.late, on_late);
    loop_defer(loop, &stage.soon, on_soon);
    loop_turn(loop, 0);
    assert_string_equal(trace, "slsLls");
    loop_defer_last(loop, &stage.last, on_last);
    loop_defer_late(loop, &stage.late, on_late);
    loop_undefer(loop, &stage.last);
    loop_undefer(loop, &stage.late);
    loop_turn(loop, 0);
    assert_string_equal(trace, "slsLls");
}

static void a_deferred_call_can_be_taken_back_from_any_place(void **state UNUSED)
{
    scoped(loop_free) struct loop *loop = loop_new(&clock_system);
    struct chain chains[4] = { 0 };

    for (int i = 0; i < 4; i++) {
        chains[i] = (struct chain){ .loop = loop, .letter = (char)('a' + i) };
        loop_defer(loop, &chains[i].self, on_following);
    }
    loop_undefer(loop, &chains[0].self);
    loop_undefer(loop, &chains[3].self);
    loop_undefer(loop, &chains[3].self);
    loop_defer(loop, &chains[3].self, on_chain);
    loop_turn(loop, 0);
    assert_string_equal(trace, "zzdz");
}

static void freeing_the_loop_runs_what_is_deferred(void **state UNUSED)
{
    struct loop *loop = loop_new(&clock_system);
    struct deferred deferred = { 0 };

    loop_defer(loop, &deferred, on_following);
    loop_free(loop);
    loop_free(NULL);
    assert_string_equal(trace, "z");
}

struct stopper {
    struct signal_watch watch;
    struct loop *loop;
};

static void on_signal_stop(struct signal_watch *watch, int signal_number)
{
    struct stopper *stopper = container_of(watch, struct stopper, watch);

    assert_int_equal(signal_number, SIGUSR1);
    note('s');
    loop_stop(stopper->loop);
}

static void a_signal_ends_the_run(void **state UNUSED)
{
    scoped(loop_free) struct loop *loop = loop_new(&clock_system);
    struct stopper stopper = { .loop = loop };

    signal_watch_start(&stopper.watch, loop, SIGUSR1, on_signal_stop);
    kill(getpid(), SIGUSR1);
    loop_run(loop);
    assert_string_equal(trace, "s");
    signal_watch_stop(&stopper.watch);
    signal_watch_stop(&stopper.watch);
}

/* Never drained: always ready. */
static void on_always_ready(struct io_watch *watch UNUSED, unsigned events UNUSED)
{
    if (strlen(trace) < 8)
        note('r');
}

static void on_due(struct timer *timer UNUSED)
{
    note('t');
}

static void a_descriptor_that_is_always_ready_has_one_callback_in_a_turn(void **state UNUSED)
{
    scoped(loop_free) struct loop *loop = loop_new(&clock_system);
    struct reader reader = { .loop = loop };
    struct timer timer;

    assert_int_equal(pipe(reader.pipe), 0);
    assert_int_equal(write(reader.pipe[1], "x", 1), 1);
    io_watch_start(&reader.watch, loop, reader.pipe[0], IO_READ, on_always_ready);
    timer_init(&timer, loop, on_due);
    alarm(DEADLINE_MS / 1000); /* a loop that starves its timers does not come back */
    for (unsigned i = 0; i < 3; i++) {
        timer_arm_in(&timer, 0);
        loop_turn(loop, -1);
    }
    alarm(0);
    assert_string_equal(trace, "rtrtrt");
    reader_fini(&reader);
}

struct turns {
    struct turn_watch watch;
    struct deferred deferred;
};

static void on_turn(struct turn_watch *watch)
{
    struct turns *turns = container_of(watch, struct turns, watch);

    note('t');
    loop_defer(watch->loop, &turns->deferred, on_after_read);
}

static void
a_watch_of_turns_comes_behind_everything_and_what_it_defers_runs_at_once(void **state UNUSED)
{
    scoped(loop_free) struct loop *loop = loop_new(&clock_system);
    struct turns turns = { 0 };
    struct reader reader;

    reader_init(&reader, loop);
    assert_int_equal(write(reader.pipe[1], "r", 1), 1);
    turn_watch_start(&turns.watch, loop, on_turn);
    loop_turn(loop, DEADLINE_MS);
    assert_string_equal(trace, "rdtd");
    loop_turn(loop, 0);
    assert_string_equal(trace, "rdtdtd");
    turn_watch_stop(&turns.watch);
    turn_watch_stop(&turns.watch);
    loop_turn(loop, 0);
    assert_string_equal(trace, "rdtdtd");
    reader_fini(&reader);
}

struct pair {
    struct loop *loop;
    struct turn_watch first;
    struct turn_watch second;
};

static void on_second_turn(struct turn_watch *watch UNUSED)
{
    note('2');
}

static void on_first_turn(struct turn_watch *watch)
{
    struct pair *pair = container_of(watch, struct pair, first);

    note('1');
    turn_watch_stop(&pair->second);
    turn_watch_stop(&pair->first);
    turn_watch_start(&pair->second, pair->loop, on_second_turn);
}

static void a_watch_of_turns_may_stop_and_start_others(void **state UNUSED)
{
    scoped(loop_free) struct loop *loop = loop_new(&clock_system);
    struct pair pair = { .loop = loop };

    turn_watch_start(&pair.first, loop, on_first_turn);
    turn_watch_start(&pair.second, loop, on_second_turn);
    loop_turn(loop, 0);
    assert_string_equal(trace, "1");
    loop_turn(loop, 0);
    assert_string_equal(trace, "12");
    turn_watch_stop(&pair.second);
}

static void stopping_before_the_run_makes_it_return_at_once(void **state UNUSED)
{
    scoped(loop_free) struct loop *loop = loop_new(&clock_system);

    loop_stop(loop);
    loop_run(loop);
    loop_stop(loop);
    loop_run(loop);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(a_readable_descriptor_is_reported_until_it_is_drained, clear_trace),
        cmocka_unit_test_setup(deferred_calls_run_between_two_callbacks_of_one_turn, clear_trace),
        cmocka_unit_test_setup(a_stopped_watch_is_silent_and_stopping_it_again_is_fine,
                               clear_trace),
        cmocka_unit_test_setup(a_watch_may_change_its_events_and_stop_in_its_own_callback,
                               clear_trace),
        cmocka_unit_test_setup(a_watch_freed_by_another_of_the_same_turn_is_not_called,
                               clear_trace),
        cmocka_unit_test_setup(deferred_calls_keep_their_order_and_include_new_ones, clear_trace),
        cmocka_unit_test_setup(late_calls_come_behind_all_others_and_the_last_behind_them,
                               clear_trace),
        cmocka_unit_test_setup(a_deferred_call_can_be_taken_back_from_any_place, clear_trace),
        cmocka_unit_test_setup(freeing_the_loop_runs_what_is_deferred, clear_trace),
        cmocka_unit_test_setup(a_signal_ends_the_run, clear_trace),
        cmocka_unit_test_setup(a_descriptor_that_is_always_ready_has_one_callback_in_a_turn,
                               clear_trace),
        cmocka_unit_test_setup(
            a_watch_of_turns_comes_behind_everything_and_what_it_defers_runs_at_once, clear_trace),
        cmocka_unit_test_setup(a_watch_of_turns_may_stop_and_start_others, clear_trace),
        cmocka_unit_test_setup(stopping_before_the_run_makes_it_return_at_once, clear_trace),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
