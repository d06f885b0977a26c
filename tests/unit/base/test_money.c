/* SPDX-License-Identifier: Apache-2.0 */
#include "base/macros.h"
#include "base/money.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

static const int64_t HOUR_US = (int64_t)3600 * 1000 * 1000;

static void an_hour_costs_its_price(void **state UNUSED)
{
    assert_int_equal(money_cost(1250000, HOUR_US), 1250000);
    assert_int_equal(money_cost(1250000, HOUR_US / 2), 625000);
    assert_int_equal(money_cost(0, HOUR_US), 0);
}

static void a_time_that_went_backwards_costs_nothing(void **state UNUSED)
{
    assert_int_equal(money_cost(1250000, -HOUR_US), 0);
    assert_int_equal(money_cost(1250000, 0), 0);
}

static void the_dearest_price_for_a_hundred_years_does_not_overflow(void **state UNUSED)
{
    int64_t century_us = HOUR_US * 24 * 366 * 100;

    assert_int_equal(money_cost((int64_t)1000000 * MONEY_DOLLAR, century_us),
                     (int64_t)1000000 * MONEY_DOLLAR * 24 * 366 * 100);
}

static void costs_are_rounded_to_the_nearest_micro_dollar(void **state UNUSED)
{
    /* A dollar an hour is 277.8 micro-dollars a second. */
    assert_int_equal(money_cost(MONEY_DOLLAR, 1000 * 1000), 278);
    assert_int_equal(money_cost(MONEY_DOLLAR, 1799), 0);
    assert_int_equal(money_cost(MONEY_DOLLAR, 1800), 1);
}

static void the_time_of_an_amount_is_the_first_that_costs_it(void **state UNUSED)
{
    static const int64_t prices[] = { 1, 7, 50000, 600000, 80000000, 999999999 };
    static const int64_t amounts[] = { 1, 3, 49999, 1000000, 5000000 };

    for (size_t i = 0; i < ARRAY_LENGTH(prices); i++) {
        for (size_t k = 0; k < ARRAY_LENGTH(amounts); k++) {
            int64_t time_us = money_time_us(prices[i], amounts[k]);

            assert_true(money_cost(prices[i], time_us) >= amounts[k]);
            assert_true(money_cost(prices[i], time_us - 1) < amounts[k]);
        }
    }
    assert_true(money_time_us(0, 1) == INT64_MAX);
    assert_int_equal(money_time_us(1, 0), 0);
}

static void amounts_are_shown_with_two_to_six_decimals(void **state UNUSED)
{
    char text[MONEY_TEXT_SIZE];

    assert_string_equal(money_text(0, text), "0.00");
    assert_string_equal(money_text(5000000, text), "5.00");
    assert_string_equal(money_text(50000, text), "0.05");
    assert_string_equal(money_text(125, text), "0.000125");
    assert_string_equal(money_text(12345600, text), "12.3456");
    assert_string_equal(money_text(-1500000, text), "-1.50");
    assert_string_equal(money_text(100 * (int64_t)MONEY_DOLLAR, text), "100.00");
}

static void dollars_become_the_nearest_amount(void **state UNUSED)
{
    assert_int_equal(money_from_usd(0.1), 100000);
    assert_int_equal(money_from_usd(5.0), 5000000);
    assert_int_equal(money_from_usd(MONEY_MAXIMUM_USD), (int64_t)1e15);
}

#define TEST(name) cmocka_unit_test(name)

int main(void)
{
    static const struct CMUnitTest tests[] = {
        TEST(an_hour_costs_its_price),
        TEST(a_time_that_went_backwards_costs_nothing),
        TEST(the_dearest_price_for_a_hundred_years_does_not_overflow),
        TEST(costs_are_rounded_to_the_nearest_micro_dollar),
        TEST(the_time_of_an_amount_is_the_first_that_costs_it),
        TEST(amounts_are_shown_with_two_to_six_decimals),
        TEST(dollars_become_the_nearest_amount),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
