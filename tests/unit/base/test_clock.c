/* SPDX-License-Identifier: Apache-2.0 */
#include "base/clock.h"

#include "base/macros.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

static void the_system_clock_moves_forward(void **state UNUSED)
{
    int64_t before_us = clock_now_us(&clock_system);

    assert_true(before_us > 0);
    assert_true(clock_now_us(&clock_system) >= before_us);
    assert_true(clock_wall_us(&clock_system) > 1700000000LL * 1000000);
}

static void a_simulated_clock_stands_still_until_it_is_moved(void **state UNUSED)
{
    struct simulated_clock clock;

    simulated_clock_init(&clock, 5, 1000);
    assert_int_equal(clock_now_us(&clock.clock), 5);
    assert_int_equal(clock_now_us(&clock.clock), 5);
    simulated_clock_advance(&clock, 10);
    assert_int_equal(clock_now_us(&clock.clock), 15);
    assert_int_equal(clock_wall_us(&clock.clock), 1010);
}

static void times_are_written_as_rfc_3339_and_read_back(void **state UNUSED)
{
    static const int64_t times[] = { 0, 1000, 1772366400123000, 4102444799999000 };
    char text[CLOCK_TEXT_SIZE];
    int64_t back;

    clock_format(1772366400123456, text);
    assert_string_equal(text, "2026-03-01T12:00:00.123Z");
    for (size_t i = 0; i < ARRAY_LENGTH(times); i++) {
        clock_format(times[i], text);
        assert_int_equal(clock_parse(text, &back), 0);
        assert_int_equal(back, times[i]);
    }
}

/* Steps of about nine days and a bit, over all years, against the C library. */
static void every_date_is_the_one_of_the_c_library(void **state UNUSED)
{
    for (int64_t seconds = 0; seconds < 253402300800; seconds += 777777) {
        char expected[CLOCK_TEXT_SIZE];
        char text[CLOCK_TEXT_SIZE];
        time_t time = (time_t)seconds;
        struct tm utc;

        gmtime_r(&time, &utc);
        strftime(expected, sizeof(expected), "%Y-%m-%dT%H:%M:%S.000Z", &utc);
        clock_format(seconds * 1000000, text);
        assert_string_equal(text, expected);
    }
}

static void a_time_out_of_range_is_the_nearest_one(void **state UNUSED)
{
    char text[CLOCK_TEXT_SIZE];

    clock_format(INT64_MIN, text);
    assert_string_equal(text, "1970-01-01T00:00:00.000Z");
    clock_format(INT64_MAX, text);
    assert_string_equal(text, "9999-12-31T23:59:59.999Z");
}

static void a_duration_is_over_at_a_whole_second_and_never_early(void **state UNUSED)
{
    struct simulated_clock clock;

    simulated_clock_init(&clock, 0, 5 * 1000000);
    assert_int_equal(clock_wall_s_after(&clock.clock, 1000), 6);
    simulated_clock_advance(&clock, 1);
    assert_int_equal(clock_wall_s_after(&clock.clock, 1000), 7);
    simulated_clock_advance(&clock, 949999);
    assert_int_equal(clock_wall_s_after(&clock.clock, 50), 6);
    assert_int_equal(clock_wall_s_after(&clock.clock, 51), 7);
}

static void assert_parsed(const char *text, int64_t expected)
{
    int64_t wall_us;

    assert_int_equal(clock_parse(text, &wall_us), 0);
    assert_int_equal(wall_us, expected);
}

static void a_fraction_counts_by_its_digits(void **state UNUSED)
{
    assert_parsed("1970-01-01T00:00:01Z", 1000000);
    assert_parsed("1970-01-01T00:00:01.5Z", 1500000);
    assert_parsed("1970-01-01T00:00:01.05Z", 1050000);
    assert_parsed("1970-01-01T00:00:01.123456Z", 1123456);
    assert_parsed("1970-01-01T00:00:01.123456789Z", 1123456);
}

static void what_is_not_a_time_in_utc_is_refused(void **state UNUSED)
{
    static const char *const wrong[] = {
        "",
        "now",
        "2026-03-01",
        "2026-03-01T12:00:00",
        "2026-03-01T12:00:00.Z",
        "2026-03-01T12:00:00. 1Z",
        "2026-03-01T12:00:00.1",
        "2026-03-01T12:00:00Z ",
        "2026-13-01T12:00:00Z",
    };
    int64_t wall_us = 42;

    for (size_t i = 0; i < ARRAY_LENGTH(wrong); i++)
        if (clock_parse(wrong[i], &wall_us) == 0)
            fail_msg("accepted: %s", wrong[i]);
    assert_int_equal(wall_us, 42);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_system_clock_moves_forward),
        cmocka_unit_test(a_simulated_clock_stands_still_until_it_is_moved),
        cmocka_unit_test(times_are_written_as_rfc_3339_and_read_back),
        cmocka_unit_test(every_date_is_the_one_of_the_c_library),
        cmocka_unit_test(a_time_out_of_range_is_the_nearest_one),
        cmocka_unit_test(a_duration_is_over_at_a_whole_second_and_never_early),
        cmocka_unit_test(a_fraction_counts_by_its_digits),
        cmocka_unit_test(what_is_not_a_time_in_utc_is_refused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
