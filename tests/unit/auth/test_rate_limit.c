/* SPDX-License-Identifier: Apache-2.0 */
#include "auth/rate_limit.h"

#include "base/clock.h"
#include "base/macros.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>

#include <cmocka.h>

enum { SECOND_US = 1000 * 1000 };

static void a_burst_is_taken_and_then_refused(void **state UNUSED)
{
    struct simulated_clock clock;
    int64_t wait_ms = 0;

    simulated_clock_init(&clock, SECOND_US, 0);
    scoped(rate_limit_free) struct rate_limit *limit = rate_limit_new(&clock.clock, 2, 3, 10);

    for (int i = 0; i < 3; i++)
        assert_true(rate_limit_take(limit, "a", &wait_ms));
    assert_false(rate_limit_take(limit, "a", &wait_ms));
    assert_int_equal(wait_ms, 500);
    assert_true(rate_limit_take(limit, "b", &wait_ms));
}

static void tokens_come_back_with_time_but_never_more_than_the_burst(void **state UNUSED)
{
    struct simulated_clock clock;
    int64_t wait_ms = 0;

    simulated_clock_init(&clock, SECOND_US, 0);
    scoped(rate_limit_free) struct rate_limit *limit = rate_limit_new(&clock.clock, 2, 3, 10);

    for (int i = 0; i < 3; i++)
        assert_true(rate_limit_take(limit, "a", &wait_ms));
    simulated_clock_advance(&clock, SECOND_US / 2);
    assert_true(rate_limit_take(limit, "a", &wait_ms));
    assert_false(rate_limit_take(limit, "a", &wait_ms));
    simulated_clock_advance(&clock, 1000LL * SECOND_US);
    for (int i = 0; i < 3; i++)
        assert_true(rate_limit_take(limit, "a", &wait_ms));
    assert_false(rate_limit_take(limit, "a", &wait_ms));
}

static void looking_takes_nothing(void **state UNUSED)
{
    struct simulated_clock clock;
    int64_t wait_ms = 0;

    simulated_clock_init(&clock, SECOND_US, 0);
    scoped(rate_limit_free) struct rate_limit *limit = rate_limit_new(&clock.clock, 1, 1, 10);

    for (int i = 0; i < 10; i++)
        assert_true(rate_limit_allows(limit, "a", &wait_ms));
    assert_true(rate_limit_take(limit, "a", &wait_ms));
    assert_false(rate_limit_allows(limit, "a", &wait_ms));
}

static void a_rate_of_zero_limits_nothing(void **state UNUSED)
{
    int64_t wait_ms = 0;
    scoped(rate_limit_free) struct rate_limit *limit = rate_limit_new(&clock_system, 0, 0, 10);

    for (int i = 0; i < 1000; i++)
        assert_true(rate_limit_take(limit, "a", &wait_ms));
}

static void the_bucket_touched_longest_ago_is_forgotten(void **state UNUSED)
{
    struct simulated_clock clock;
    int64_t wait_ms = 0;
    char name[16];

    simulated_clock_init(&clock, SECOND_US, 0);
    scoped(rate_limit_free) struct rate_limit *limit = rate_limit_new(&clock.clock, 1, 1, 10);

    assert_true(rate_limit_take(limit, "kept", &wait_ms));
    assert_true(rate_limit_take(limit, "old", &wait_ms));
    for (int i = 0; i < 9; i++) {
        snprintf(name, sizeof(name), "n%d", i);
        assert_true(rate_limit_take(limit, name, &wait_ms));
        assert_false(rate_limit_take(limit, "kept", &wait_ms));
    }
    assert_true(rate_limit_take(limit, "old", &wait_ms));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_burst_is_taken_and_then_refused),
        cmocka_unit_test(tokens_come_back_with_time_but_never_more_than_the_burst),
        cmocka_unit_test(looking_takes_nothing),
        cmocka_unit_test(a_rate_of_zero_limits_nothing),
        cmocka_unit_test(the_bucket_touched_longest_ago_is_forgotten),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
