/* SPDX-License-Identifier: Apache-2.0 */
/* Backends that answer later what one on this host answers at once. */

#include "config/config.h"
#include "core/sandbox/sandbox.h"
#include "harness/fake_agent.h"
#include "harness/world.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

static int setup(void **state)
{
    static struct world world;

    world_init(&world);
    fake_backend_answer_later(world.backend);
    world_start(&world);
    *state = &world;
    return 0;
}

static int teardown(void **state)
{
    world_fini(*state);
    assert_int_equal(fake_agent_count(), 0);
    return 0;
}

static void a_sandbox_is_ready_when_it_is_connected(void **state)
{
    struct world *world = *state;
    struct session *session = world_open_simple(world, "ann", NULL);
    struct tried tried;

    fake_backend_hold(world->backend, FAKE_CONNECT, true);
    world_use(world, session, &tried);
    world_settle(world);
    assert_int_equal(tried.ready, 0);
    assert_int_equal(sandbox_state(session_sandbox(session)), SANDBOX_CREATING);
    fake_backend_hold(world->backend, FAKE_CONNECT, false);
    world_settle(world);
    assert_int_equal(tried.ready, 1);
    assert_int_equal(tried.hold.err.code, ERR_NONE);
    session_hold_end(&tried.hold);
}

static void one_that_is_not_connected_in_time_fails(void **state)
{
    struct world *world = *state;
    struct session *session = world_open_simple(world, "ann", NULL);
    struct tried tried;

    fake_backend_hold(world->backend, FAKE_CONNECT, true);
    world_use(world, session, &tried);
    world_advance(world, world->config.sandbox.start_timeout_ms + 1000);
    assert_int_equal(tried.hold.err.code, ERR_TIMEOUT);
    assert_int_equal(fake_backend_count(world->backend), 0);
}

static void a_delete_does_not_wait_for_the_connection(void **state)
{
    struct world *world = *state;
    struct session *session = world_open_simple(world, "ann", NULL);
    struct tried tried;
    struct ended ended;

    fake_backend_hold(world->backend, FAKE_CONNECT, true);
    world_use(world, session, &tried);
    world_end(world, session, END_DELETED, &ended);
    world_settle(world);
    assert_int_equal(ended.done, 1);
    assert_int_equal(fake_backend_count(world->backend), 0);
}

static void an_end_is_noticed_before_it_is_connected(void **state)
{
    struct world *world = *state;
    struct session *session = world_open_simple(world, "ann", NULL);
    struct tried tried;

    fake_backend_hold(world->backend, FAKE_CONNECT, true);
    world_use(world, session, &tried);
    fake_backend_kill(world->backend, sandbox_id(session_sandbox(session)));
    world_settle(world);
    fake_backend_hold(world->backend, FAKE_CONNECT, false);
    world_settle(world);
    assert_int_equal(fake_backend_calls(world->backend, FAKE_CREATE), 2);
    assert_int_equal(tried.ready, 1);
    session_hold_end(&tried.hold);
}

static void lose_and_hold(struct world *world, struct session *session, struct tried *tried)
{
    world_use(world, session, tried);
    assert_int_equal(tried->hold.err.code, ERR_NONE);
    fake_backend_hold(world->backend, FAKE_CONNECT, true);
    fake_agent_lose(tried->hold.agent);
    world_advance(world, 1000);
    assert_int_equal(sandbox_state(session_sandbox(session)), SANDBOX_UNKNOWN);
}

static void a_lost_connection_is_made_again_when_it_can_be(void **state)
{
    struct world *world = *state;
    struct session *session = world_open_simple(world, "ann", NULL);
    struct tried tried;

    lose_and_hold(world, session, &tried);
    world_advance(world, 3000);
    assert_int_equal(tried.lost, 0);
    fake_backend_hold(world->backend, FAKE_CONNECT, false);
    world_settle(world);
    assert_int_equal(sandbox_state(session_sandbox(session)), SANDBOX_READY);
    assert_int_equal(tried.lost, 0);
    session_hold_end(&tried.hold);
}

static void a_pause_does_not_wait_for_the_connection(void **state)
{
    struct world *world = *state;
    struct session *session = world_open_simple(world, "ann", NULL);
    struct tried tried;

    lose_and_hold(world, session, &tried);
    session_hold_end(&tried.hold);
    session_pause(session, NULL, NULL);
    world_settle(world);
    assert_int_equal(sandbox_state(session_sandbox(session)), SANDBOX_FROZEN);
    fake_backend_hold(world->backend, FAKE_CONNECT, false);
    world_use(world, session, &tried);
    assert_int_equal(tried.hold.err.code, ERR_NONE);
    assert_int_equal(tried.hold.generation, 1);
    session_hold_end(&tried.hold);
}

static void one_that_stays_unreachable_is_silent(void **state)
{
    struct world *world = *state;
    struct session *session = world_open_simple(world, "ann", NULL);
    struct tried tried;

    lose_and_hold(world, session, &tried);
    world_advance(world, world->config.sandbox.silence_timeout_ms + 1000);
    assert_int_equal(tried.lost, 1);
    assert_string_equal(tried.hold.lost.detail, "silent");
    assert_int_equal(fake_backend_count(world->backend), 0);
}

/* The daemon ends while it connects: nothing answers into memory that is gone. */
static void a_daemon_ends_while_it_connects(void **state)
{
    struct world *world = *state;
    struct session *session = world_open_simple(world, "ann", NULL);
    struct tried tried;

    fake_backend_hold(world->backend, FAKE_CONNECT, true);
    world_use(world, session, &tried);
    world_restart(world);
    fake_backend_hold(world->backend, FAKE_CONNECT, false);
    world_settle(world);
}

/* --- reports --------------------------------------------------------------------------------- */

struct reader {
    struct report_wait wait;
    unsigned told;
};

static void on_reported(struct report_wait *wait)
{
    container_of(wait, struct reader, wait)->told++;
}

static struct session *open_used(struct world *world)
{
    struct session *session = world_open_simple(world, "ann", NULL);
    struct tried tried;

    world_use(world, session, &tried);
    assert_int_equal(tried.hold.err.code, ERR_NONE);
    session_hold_end(&tried.hold);
    return session;
}

static void all_who_want_the_report_wait_for_one_answer(void **state)
{
    struct world *world = *state;
    struct session *session = open_used(world);
    struct reader readers[3] = { 0 };

    fake_backend_hold(world->backend, FAKE_REPORT, true);
    for (int i = 0; i < 3; i++)
        assert_false(session_read_report(session, &readers[i].wait, on_reported));
    report_wait_cancel(&readers[1].wait);
    world_settle(world);
    assert_null(sandbox_report(session_sandbox(session)));
    fake_backend_hold(world->backend, FAKE_REPORT, false);
    world_settle(world);
    assert_int_equal(readers[0].told, 1);
    assert_int_equal(readers[1].told, 0);
    assert_int_equal(readers[2].told, 1);
    assert_non_null(sandbox_report(session_sandbox(session)));
    assert_int_equal(fake_backend_calls(world->backend, FAKE_REPORT), 1);
    assert_true(session_read_report(session, &readers[1].wait, on_reported));
    assert_int_equal(fake_backend_calls(world->backend, FAKE_REPORT), 1);
}

static void a_report_that_fails_is_asked_for_again_by_the_next(void **state)
{
    struct world *world = *state;
    struct session *session = open_used(world);
    struct reader reader = { 0 };

    fake_backend_refuse(world->backend, FAKE_REPORT, 1, ERR_BACKEND);
    assert_false(session_read_report(session, &reader.wait, on_reported));
    world_settle(world);
    assert_int_equal(reader.told, 1);
    assert_null(sandbox_report(session_sandbox(session)));
    assert_false(session_read_report(session, &reader.wait, on_reported));
    world_settle(world);
    assert_int_equal(reader.told, 2);
    assert_non_null(sandbox_report(session_sandbox(session)));
}

static void those_who_wait_are_told_when_the_sandbox_goes(void **state)
{
    struct world *world = *state;
    struct session *session = open_used(world);
    struct reader reader = { 0 };

    fake_backend_hold(world->backend, FAKE_REPORT, true);
    assert_false(session_read_report(session, &reader.wait, on_reported));
    fake_backend_kill(world->backend, sandbox_id(session_sandbox(session)));
    world_settle(world);
    assert_int_equal(reader.told, 1);
    assert_null(session_sandbox(session));
    fake_backend_hold(world->backend, FAKE_REPORT, false);
    world_settle(world);
    assert_int_equal(reader.told, 1);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(a_sandbox_is_ready_when_it_is_connected),
        TEST(one_that_is_not_connected_in_time_fails),
        TEST(a_delete_does_not_wait_for_the_connection),
        TEST(an_end_is_noticed_before_it_is_connected),
        TEST(a_lost_connection_is_made_again_when_it_can_be),
        TEST(a_pause_does_not_wait_for_the_connection),
        TEST(one_that_stays_unreachable_is_silent),
        TEST(a_daemon_ends_while_it_connects),
        TEST(all_who_want_the_report_wait_for_one_answer),
        TEST(a_report_that_fails_is_asked_for_again_by_the_next),
        TEST(those_who_wait_are_told_when_the_sandbox_goes),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
