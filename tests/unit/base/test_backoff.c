/* SPDX-License-Identifier: Apache-2.0 */
#include "base/backoff.h"
#include "base/macros.h"

#include <limits.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

static void without_a_failure_there_is_no_delay(void **state UNUSED)
{
    const struct backoff backoff = { .first = 100, .most = 1000 };

    assert_int_equal(backoff_delay(&backoff, 0), 0);
}

static void each_failure_doubles_the_delay_up_to_the_maximum(void **state UNUSED)
{
    const struct backoff backoff = { .first = 100, .most = 1000 };
    const int64_t delays[] = { 100, 200, 400, 800, 1000, 1000 };

    for (unsigned i = 0; i < ARRAY_LENGTH(delays); i++)
        assert_int_equal(backoff_delay(&backoff, i + 1), delays[i]);
}

static void a_maximum_that_is_a_doubling_is_reached_exactly(void **state UNUSED)
{
    const struct backoff backoff = { .first = 100, .most = 400 };

    assert_int_equal(backoff_delay(&backoff, 3), 400);
    assert_int_equal(backoff_delay(&backoff, 4), 400);
}

static void a_first_delay_that_is_the_maximum_stays(void **state UNUSED)
{
    const struct backoff backoff = { .first = 400, .most = 400 };

    assert_int_equal(backoff_delay(&backoff, 1), 400);
    assert_int_equal(backoff_delay(&backoff, 2), 400);
}

static void no_number_of_failures_overflows(void **state UNUSED)
{
    const struct backoff small = { .first = 1, .most = 30 };
    const struct backoff wide = { .first = 3, .most = INT64_MAX };

    for (unsigned failures = 6; failures < 200; failures++)
        assert_int_equal(backoff_delay(&small, failures), 30);
    assert_int_equal(backoff_delay(&small, UINT_MAX), 30);
    assert_int_equal(backoff_delay(&wide, 62), (int64_t)3 << 61);
    assert_int_equal(backoff_delay(&wide, 63), INT64_MAX);
    assert_int_equal(backoff_delay(&wide, 64), INT64_MAX);
    assert_int_equal(backoff_delay(&wide, UINT_MAX), INT64_MAX);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(without_a_failure_there_is_no_delay),
        cmocka_unit_test(each_failure_doubles_the_delay_up_to_the_maximum),
        cmocka_unit_test(a_maximum_that_is_a_doubling_is_reached_exactly),
        cmocka_unit_test(a_first_delay_that_is_the_maximum_stays),
        cmocka_unit_test(no_number_of_failures_overflows),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
