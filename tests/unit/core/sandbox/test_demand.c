/* SPDX-License-Identifier: Apache-2.0 */
#include "core/sandbox/demand.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#define MS ((int64_t)1000)
#define MINUTES (60 * 1000 * MS)

static void ask(struct demand *demand, unsigned count, int64_t now_us)
{
    for (unsigned i = 0; i < count; i++)
        demand_note(demand, now_us);
}

static void a_few_at_once_are_no_crowd(void **state)
{
    struct demand demand;

    (void)state;
    demand_init(&demand, 2);
    ask(&demand, 16, 0);
    assert_int_equal(demand_peak(&demand, 0), 0);
    assert_int_equal(demand_busy_us(&demand, 0), 0);
}

static void those_that_come_one_after_the_other_are_no_crowd(void **state)
{
    struct demand demand;

    (void)state;
    demand_init(&demand, 2);
    for (int64_t i = 0; i < 1000; i++)
        ask(&demand, 1, i * 4 * MS);
    assert_int_equal(demand_peak(&demand, 4000 * MS), 0);
}

static void the_most_that_came_at_once_is_remembered_and_forgotten_by_half(void **state)
{
    struct demand demand;

    (void)state;
    demand_init(&demand, 2);
    ask(&demand, 100, 0);
    ask(&demand, 20, 1 * MINUTES);
    assert_int_equal(demand_peak(&demand, 4 * MINUTES), 100);
    assert_int_equal(demand_peak(&demand, 6 * MINUTES), 50);
    assert_int_equal(demand_peak(&demand, 11 * MINUTES), 25);
    assert_int_equal(demand_peak(&demand, 365 * 24 * 60 * MINUTES), 0);
}

static void a_crowd_that_comes_again_is_not_forgotten(void **state)
{
    struct demand demand;

    (void)state;
    demand_init(&demand, 2);
    ask(&demand, 100, 0);
    ask(&demand, 60, 6 * MINUTES);
    assert_int_equal(demand_peak(&demand, 10 * MINUTES), 60);
}

static void more_than_can_be_done_at_once_keeps_the_machine_busy(void **state)
{
    struct demand demand;

    (void)state;
    demand_init(&demand, 2);
    ask(&demand, 100, 1000 * MS);
    assert_int_equal(demand_busy_us(&demand, 1000 * MS), 300 * MS);
    ask(&demand, 1, 1100 * MS);
    assert_int_equal(demand_busy_us(&demand, 1100 * MS), 200 * MS);
    assert_int_equal(demand_busy_us(&demand, 1400 * MS), 0);
}

static void more_processors_are_not_busy_with_it(void **state)
{
    struct demand demand;

    (void)state;
    demand_init(&demand, 64);
    ask(&demand, 100, 0);
    assert_int_equal(demand_busy_us(&demand, 0), 0);
    assert_int_equal(demand_peak(&demand, 0), 100);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_few_at_once_are_no_crowd),
        cmocka_unit_test(those_that_come_one_after_the_other_are_no_crowd),
        cmocka_unit_test(the_most_that_came_at_once_is_remembered_and_forgotten_by_half),
        cmocka_unit_test(a_crowd_that_comes_again_is_not_forgotten),
        cmocka_unit_test(more_than_can_be_done_at_once_keeps_the_machine_busy),
        cmocka_unit_test(more_processors_are_not_busy_with_it),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
