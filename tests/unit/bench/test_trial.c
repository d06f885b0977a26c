/* SPDX-License-Identifier: Apache-2.0 */
#include "bench/flight.h"
#include "bench/trial.h"

#include "base/macros.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

/* --- samples --------------------------------------------------------------------------------- */

static void percentiles_are_values_that_were_measured(void **state UNUSED)
{
    scoped(samples_fini) struct samples samples = { 0 };

    assert_true(samples_at(&samples, 0.5) == 0);
    for (int i = 100; i >= 1; i--)
        samples_add(&samples, i);
    assert_true(samples_at(&samples, 0) == 1);
    assert_true(samples_at(&samples, 0.5) == 50);
    assert_true(samples_at(&samples, 0.99) == 99);
    assert_true(samples_at(&samples, 1) == 100);
    samples_add(&samples, 1000);
    assert_true(samples_at(&samples, 1) == 1000);
}

/* --- trials ---------------------------------------------------------------------------------- */

static double take_a_millisecond(struct trial *trial UNUSED, struct error *err UNUSED)
{
    usleep(1000);
    return 1000;
}

static double take_no_time(struct trial *trial UNUSED, struct error *err UNUSED)
{
    return 1;
}

static double take_ten(struct trial *trial UNUSED, struct error *err UNUSED)
{
    usleep(10000);
    return 10000;
}

static double fail_at_once(struct trial *trial UNUSED, struct error *err)
{
    return error_set(err, ERR_BACKEND, "on purpose");
}

static void the_quick_is_measured_more_often_than_the_slow(void **state UNUSED)
{
    struct trial trials[] = { { .row = "quick", .run = take_no_time },
                              { .row = "slow", .run = take_ten } };
    struct trial_limits limits = { .seconds = 60, .at_least = 2, .at_most = 20 };

    trials_run(trials, 2, &limits);
    assert_int_equal(trials[0].samples.count, 20);
    assert_int_equal(trials[1].samples.count, 20);
    assert_true(trials[1].spent_us > trials[0].spent_us);
    trials_fini(trials, 2);
}

static void each_has_its_rounds_also_when_the_time_is_over(void **state UNUSED)
{
    struct trial trials[] = { { .row = "quick", .run = take_a_millisecond },
                              { .row = "slow", .run = take_ten } };
    struct trial_limits limits = { .seconds = 0, .at_least = 3, .at_most = 20 };

    trials_run(trials, 2, &limits);
    assert_int_equal(trials[0].samples.count, 3);
    assert_int_equal(trials[1].samples.count, 3);
    trials_fini(trials, 2);
}

static void one_that_fails_says_why_and_stops_nobody(void **state UNUSED)
{
    scoped(buffer_fini) struct buffer text = BUFFER_INIT(4096);
    struct json_writer json = JSON_WRITER(&text);
    struct trial trials[] = { { .row = "bad", .subject = "x", .run = fail_at_once },
                              { .row = "good", .subject = "x", .run = take_a_millisecond } };
    struct trial_limits limits = { .seconds = 60, .at_least = 1, .at_most = 5 };

    trials_run(trials, 2, &limits);
    assert_true(trials[0].failed);
    assert_int_equal(trials[1].samples.count, 5);
    trial_write_json(&trials[0], "us", &json);
    assert_string_equal(buffer_text(&text),
                        "{\"row\":\"bad\",\"subject\":\"x\",\"error\":\"on purpose\"}");
    trials_fini(trials, 2);
}

/* --- many at once ---------------------------------------------------------------------------- */

static atomic_int alive;
static atomic_int made;

static int count_make(struct worker *worker UNUSED, struct bench_box *box, struct error *err)
{
    if (atomic_fetch_add(&made, 1) == 7)
        return error_set(err, ERR_LIMIT, "no more than seven");
    atomic_fetch_add(&alive, 1);
    strcpy(box->name, "one");
    return 0;
}

static int count_run(struct worker *worker UNUSED, const struct bench_box *box UNUSED,
                     const char *const *argv UNUSED, struct error *err UNUSED)
{
    return 0;
}

static int count_destroy(struct worker *worker UNUSED, const struct bench_box *box UNUSED,
                         struct error *err UNUSED)
{
    atomic_fetch_sub(&alive, 1);
    return 0;
}

static const struct subject_ops counting_ops = { .make = count_make,
                                                 .run = count_run,
                                                 .destroy = count_destroy };

static void a_burst_that_fails_takes_back_what_it_has_made(void **state UNUSED)
{
    const struct subject subject = { .name = "counting", .ops = &counting_ops };
    scoped(samples_fini) struct samples samples = { 0 };
    struct error err = { 0 };

    atomic_store(&made, 0);
    assert_int_equal(flight_burst(&subject, 12, &samples, &err), -1);
    assert_string_equal(err.message, "no more than seven");
    assert_int_equal(samples.count, 11);
    assert_int_equal(atomic_load(&alive), 0);
}

static void plain_processes_are_a_subject_as_well(void **state UNUSED)
{
    const struct subject subject = { .name = "plain", .ops = &plain_ops };
    struct error err = { 0 };

    assert_true(flight_rate(&subject, 2, 0.01, &err) > 0);
    assert_int_equal(bench_spawn((const char *const[]){ "/bin/false", NULL }, &err), -1);
    assert_int_equal(bench_spawn((const char *const[]){ "/nowhere", NULL }, &err), -1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(percentiles_are_values_that_were_measured),
        cmocka_unit_test(the_quick_is_measured_more_often_than_the_slow),
        cmocka_unit_test(each_has_its_rounds_also_when_the_time_is_over),
        cmocka_unit_test(one_that_fails_says_why_and_stops_nobody),
        cmocka_unit_test(a_burst_that_fails_takes_back_what_it_has_made),
        cmocka_unit_test(plain_processes_are_a_subject_as_well),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
