/* SPDX-License-Identifier: Apache-2.0 */
/* Samples of live sandboxes: in order, bounded, a few at a time, and no use of their sessions. */

#include "core/sandbox/usage_history.h"

#include "harness/world.h"

#include "core/sandbox/sandbox.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

static struct world world;

static int setup(void **state)
{
    (void)state;
    world_init(&world);
    world.config.usage.interval_ms = 10 * 1000;
    world.config.usage.samples = 20;
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    world_fini(&world);
    return 0;
}

static struct session *open_with_sandbox(void)
{
    struct session *session = world_open_simple(&world, "ann", NULL);

    session_preload(session);
    world_settle(&world);
    assert_non_null(session_sandbox(session));
    return session;
}

struct seen {
    size_t count;
    struct usage_sample first, last;
};

static void on_sample(void *user, const struct usage_sample *sample)
{
    struct seen *seen = user;

    if (!seen->count++)
        seen->first = *sample;
    else
        assert_true(sample->wall_us > seen->last.wall_us);
    seen->last = *sample;
}

static struct seen read_since(const struct session *session, int64_t since_us)
{
    struct seen seen = { 0 };
    size_t given = usage_history_read(session_sandbox(session), since_us, on_sample, &seen);

    assert_int_equal(given, seen.count);
    return seen;
}

static void samples_come_soon_and_then_at_the_interval(void **state)
{
    struct session *session;
    struct seen seen;

    (void)state;
    world_start(&world);
    session = open_with_sandbox();
    assert_int_equal(read_since(session, 0).count, 0);
    world_advance(&world, 1500);
    assert_int_equal(read_since(session, 0).count, 1);
    fake_backend_set_cpu(world.backend, sandbox_id(session_sandbox(session)), 5 * 1000 * 1000);
    world_advance(&world, 50 * 1000);
    seen = read_since(session, 0);
    assert_int_equal(seen.count, 6);
    assert_int_equal(seen.last.cpu_us, 5 * 1000 * 1000);
    assert_in_range(seen.last.wall_us - seen.first.wall_us, 50 * 1000 * 1000 - 1000,
                    51 * 1000 * 1000);
    assert_int_equal(seen.last.cpu_permille, 0); /* it has rested since */
}

static void the_time_of_a_sample_asks_for_what_follows_it(void **state)
{
    struct session *session;
    struct seen seen;

    (void)state;
    world_start(&world);
    session = open_with_sandbox();
    world_advance(&world, 31 * 1000 + 500);
    seen = read_since(session, 0);
    assert_int_equal(seen.count, 4);
    assert_int_equal(read_since(session, seen.first.wall_us).count, 3);
    assert_int_equal(read_since(session, seen.last.wall_us).count, 0);
}

static void the_share_of_a_core_is_that_since_the_sample_before(void **state)
{
    struct session *session;

    (void)state;
    world_start(&world);
    session = open_with_sandbox();
    world_advance(&world, 1500);
    fake_backend_set_cpu(world.backend, sandbox_id(session_sandbox(session)), 2500 * 1000);
    world_advance(&world, 10 * 1000);
    assert_in_range(read_since(session, 0).last.cpu_permille, 245, 250);
}

static void the_ring_keeps_the_newest(void **state)
{
    struct session *session;
    struct seen seen;

    (void)state;
    world_start(&world);
    session = open_with_sandbox();
    world_advance(&world, 1000 * 1000);
    seen = read_since(session, 0);
    assert_int_equal(seen.count, 20);
    assert_in_range(seen.last.wall_us - seen.first.wall_us, 189 * 1000 * 1000, 192 * 1000 * 1000);
}

static void measuring_is_no_use(void **state)
{
    struct session *session;
    int64_t before_us;

    (void)state;
    world_start(&world);
    session = open_with_sandbox();
    before_us = session_last_activity(session).wall_us;
    world_advance(&world, 60 * 1000);
    assert_true(read_since(session, 0).count > 3);
    assert_int_equal(session_last_activity(session).wall_us, before_us);
    assert_int_equal(session_active_holds(session), 0);
}

/* A backend that does not answer: no more than a few are asked at a time. */
static void few_are_measured_at_a_time(void **state)
{
    enum { MANY = 60 };
    struct session *sessions[MANY];

    (void)state;
    world_start(&world);
    for (int i = 0; i < MANY; i++)
        sessions[i] = open_with_sandbox();
    fake_backend_hold(world.backend, FAKE_INSPECT, true);
    world_advance(&world, 30 * 1000);
    assert_in_range(fake_backend_calls(world.backend, FAKE_INSPECT), 1, 8);
    fake_backend_hold(world.backend, FAKE_INSPECT, false);
    world_advance(&world, 5 * 1000);
    for (int i = 0; i < MANY; i++)
        assert_true(read_since(sessions[i], 0).count >= 1);
}

static void a_failure_leaves_a_gap(void **state)
{
    struct session *session;

    (void)state;
    world_start(&world);
    session = open_with_sandbox();
    fake_backend_refuse(world.backend, FAKE_INSPECT, 2, ERR_BACKEND);
    world_advance(&world, 31 * 1000 + 500);
    assert_int_equal(read_since(session, 0).count, 2);
}

static void the_next_sandbox_begins_anew_and_a_restart_does_too(void **state)
{
    struct session *session;
    char id[ID_SIZE];

    (void)state;
    world_start(&world);
    session = open_with_sandbox();
    memcpy(id, session_id(session), sizeof(id));
    world_advance(&world, 60 * 1000);
    session_teardown(session, END_TEARDOWN);
    world_settle(&world);
    session_preload(session);
    world_settle(&world);
    assert_int_equal(read_since(session, 0).count, 0);
    world_advance(&world, 1500);
    assert_int_equal(read_since(session, 0).count, 1);
    world_restart(&world);
    session = world_find(&world, id);
    assert_int_equal(read_since(session, 0).count, 0);
    world_advance(&world, 2000);
    assert_int_equal(read_since(session, 0).count, 1);
}

static void it_can_be_switched_off(void **state)
{
    struct session *session;

    (void)state;
    world.config.usage.interval_ms = 0;
    world_start(&world);
    session = open_with_sandbox();
    world_advance(&world, 60 * 1000);
    assert_int_equal(read_since(session, 0).count, 0);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(samples_come_soon_and_then_at_the_interval),
        TEST(the_time_of_a_sample_asks_for_what_follows_it),
        TEST(the_share_of_a_core_is_that_since_the_sample_before),
        TEST(the_ring_keeps_the_newest),
        TEST(measuring_is_no_use),
        TEST(few_are_measured_at_a_time),
        TEST(a_failure_leaves_a_gap),
        TEST(the_next_sandbox_begins_anew_and_a_restart_does_too),
        TEST(it_can_be_switched_off),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
