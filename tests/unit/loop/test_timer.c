/* SPDX-License-Identifier: Apache-2.0 */
#include "loop/loop.h"
#include "loop/timer_heap.h"

#include "base/macros.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { SECOND_US = 1000 * 1000 };

struct alarm {
    struct timer timer;
    char letter;
    int64_t rung_us;
    int64_t again_us; /* arms itself again after this long; 0: does not */
    unsigned count;
};

static char trace[64];

static void on_ring(struct timer *timer)
{
    struct alarm *alarm = container_of(timer, struct alarm, timer);
    size_t length = strlen(trace);

    alarm->count++;
    alarm->rung_us = loop_now_us(timer->loop);
    if (length + 1 < sizeof(trace)) {
        trace[length] = alarm->letter;
        trace[length + 1] = '\0';
    }
    if (alarm->again_us)
        timer_arm_in(timer, alarm->again_us);
}

static void alarm_init(struct alarm *alarm, struct loop *loop, char letter)
{
    *alarm = (struct alarm){ .letter = letter };
    timer_init(&alarm->timer, loop, on_ring);
}

struct world {
    struct simulated_clock clock;
    struct loop *loop;
    struct alarm a;
    struct alarm b;
    struct alarm c;
};

static int world_setup(void **state)
{
    struct world *world = calloc(1, sizeof(*world));

    trace[0] = '\0';
    simulated_clock_init(&world->clock, 100 * (int64_t)SECOND_US, 0);
    world->loop = loop_new(&world->clock.clock);
    alarm_init(&world->a, world->loop, 'a');
    alarm_init(&world->b, world->loop, 'b');
    alarm_init(&world->c, world->loop, 'c');
    *state = world;
    return 0;
}

static int world_teardown(void **state)
{
    struct world *world = *state;

    loop_free(world->loop);
    free(world);
    return 0;
}

static void advancing_runs_timers_in_order_at_their_own_time(void **state)
{
    struct world *world = *state;
    int64_t start_us = loop_now_us(world->loop);

    timer_arm_in(&world->a.timer, 3 * SECOND_US);
    timer_arm_in(&world->b.timer, 1 * SECOND_US);
    timer_arm_in(&world->c.timer, 9 * SECOND_US);
    loop_advance(world->loop, &world->clock, 5 * SECOND_US);
    assert_string_equal(trace, "ba");
    assert_int_equal(world->b.rung_us - start_us, 1 * SECOND_US);
    assert_int_equal(world->a.rung_us - start_us, 3 * SECOND_US);
    assert_int_equal(loop_now_us(world->loop) - start_us, 5 * SECOND_US);
    assert_true(timer_is_armed(&world->c.timer));
    timer_stop(&world->c.timer);
}

static void timers_with_one_deadline_ring_in_the_order_they_were_armed(void **state)
{
    struct world *world = *state;

    timer_arm_in(&world->c.timer, SECOND_US);
    timer_arm_in(&world->a.timer, SECOND_US);
    timer_arm_in(&world->b.timer, SECOND_US);
    timer_arm_in(&world->c.timer, SECOND_US);
    loop_advance(world->loop, &world->clock, SECOND_US);
    assert_string_equal(trace, "abc");
}

static void arming_again_moves_a_timer_either_way(void **state)
{
    struct world *world = *state;

    timer_arm_in(&world->a.timer, 1 * SECOND_US);
    timer_arm_in(&world->b.timer, 2 * SECOND_US);
    timer_arm_in(&world->c.timer, 3 * SECOND_US);
    timer_arm_in(&world->a.timer, 4 * SECOND_US);
    timer_arm_in(&world->c.timer, 0);
    loop_advance(world->loop, &world->clock, 4 * SECOND_US);
    assert_string_equal(trace, "cba");
}

static void a_stopped_timer_never_rings_and_may_be_stopped_twice(void **state)
{
    struct world *world = *state;
    struct timer zeroed = { 0 };

    timer_arm_in(&world->a.timer, SECOND_US);
    timer_stop(&world->a.timer);
    timer_stop(&world->a.timer);
    timer_stop(&zeroed);
    loop_advance(world->loop, &world->clock, 2 * SECOND_US);
    assert_string_equal(trace, "");
}

static void a_periodic_timer_rings_once_for_each_period(void **state)
{
    struct world *world = *state;

    world->a.again_us = SECOND_US;
    timer_arm_in(&world->a.timer, SECOND_US);
    loop_advance(world->loop, &world->clock, 10 * SECOND_US);
    assert_int_equal(world->a.count, 10);
    timer_stop(&world->a.timer);
}

static void on_ring_now(struct timer *timer)
{
    on_ring(timer);
    timer_arm_at(timer, 0);
}

static void a_timer_that_arms_itself_for_now_leaves_room_for_others(void **state)
{
    struct world *world = *state;

    world->a.timer.on_expire = on_ring_now;
    timer_arm_at(&world->a.timer, 0);
    timer_arm_in(&world->b.timer, 0);
    loop_turn(world->loop, 0);
    assert_int_equal(world->a.count, 1);
    loop_turn(world->loop, 0);
    loop_turn(world->loop, 0);
    assert_int_equal(world->a.count, 3);
    timer_stop(&world->a.timer);
    loop_turn(world->loop, 0);
    assert_int_equal(world->b.count, 1);
}

static void the_system_clock_wakes_the_loop_when_a_timer_is_due(void **state UNUSED)
{
    scoped(loop_free) struct loop *loop = loop_new(&clock_system);
    int64_t start_us = loop_now_us(loop);
    struct alarm late;
    struct alarm soon;

    trace[0] = '\0';
    alarm_init(&late, loop, 'l');
    alarm_init(&soon, loop, 's');
    timer_arm_in(&late.timer, 3600 * (int64_t)SECOND_US);
    timer_arm_in(&soon.timer, 20 * 1000);
    while (!soon.count && loop_now_us(loop) < start_us + 60 * SECOND_US)
        loop_turn(loop, -1);
    assert_string_equal(trace, "s");
    assert_true(soon.rung_us - start_us >= 20 * 1000);
    timer_stop(&late.timer);
}

static void a_turn_waits_no_longer_than_it_was_told(void **state UNUSED)
{
    scoped(loop_free) struct loop *loop = loop_new(&clock_system);
    int64_t start_us = loop_now_us(loop);
    struct alarm late;

    alarm_init(&late, loop, 'l');
    timer_arm_in(&late.timer, 3600 * (int64_t)SECOND_US);
    loop_turn(loop, 10);
    assert_true(loop_now_us(loop) - start_us < 60 * SECOND_US);
    assert_int_equal(late.count, 0);
    timer_stop(&late.timer);
}

/* Random arming, moving and stopping against the one rule: the top is the earliest. */
static void the_heap_always_has_the_earliest_timer_on_top(void **state UNUSED)
{
    struct timer timers[200] = { 0 };
    struct timer_heap heap = { 0 };
    uint64_t random = 88172645463325252U;

    for (unsigned step = 0; step < 20000; step++) {
        struct timer *timer;
        const struct timer *earliest = NULL;

        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        timer = &timers[random % 200];
        if (timer->place && random >> 8 & 1) {
            timer_heap_remove(&heap, timer);
        } else {
            timer->deadline_us = (int64_t)(random >> 16 & 0xff);
            timer->order = step;
            timer_heap_place(&heap, timer);
        }
        for (size_t i = 0; i < ARRAY_LENGTH(timers); i++) {
            const struct timer *other = &timers[i];

            if (other->place &&
                (!earliest || other->deadline_us < earliest->deadline_us ||
                 (other->deadline_us == earliest->deadline_us && other->order < earliest->order)))
                earliest = other;
        }
        assert_ptr_equal(timer_heap_first(&heap), earliest);
    }
    timer_heap_fini(&heap);
}

#define WORLD_TEST(name) cmocka_unit_test_setup_teardown(name, world_setup, world_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        WORLD_TEST(advancing_runs_timers_in_order_at_their_own_time),
        WORLD_TEST(timers_with_one_deadline_ring_in_the_order_they_were_armed),
        WORLD_TEST(arming_again_moves_a_timer_either_way),
        WORLD_TEST(a_stopped_timer_never_rings_and_may_be_stopped_twice),
        WORLD_TEST(a_periodic_timer_rings_once_for_each_period),
        WORLD_TEST(a_timer_that_arms_itself_for_now_leaves_room_for_others),
        cmocka_unit_test(the_system_clock_wakes_the_loop_when_a_timer_is_due),
        cmocka_unit_test(a_turn_waits_no_longer_than_it_was_told),
        cmocka_unit_test(the_heap_always_has_the_earliest_timer_on_top),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
