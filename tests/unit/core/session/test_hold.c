/* SPDX-License-Identifier: Apache-2.0 */
#include "core/sandbox/capacity.h"
#include "core/sandbox/sandbox.h"
#include "harness/fake_agent.h"
#include "harness/world.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <string.h>

static int setup(void **state)
{
    static struct world world;

    world_init(&world);
    world_start(&world);
    *state = &world;
    return 0;
}

static int teardown(void **state)
{
    world_fini(*state);
    fake_agent_be_silent(false);
    assert_int_equal(fake_agent_count(), 0);
    return 0;
}

static void several_waiters_share_one_creation(void **state)
{
    struct world *world = *state;
    struct session *session = world_open_simple(world, "ann", NULL);
    struct tried tried[5];

    fake_backend_hold(world->backend, FAKE_CREATE, true);
    for (int i = 0; i < 5; i++)
        world_use(world, session, &tried[i]);
    for (int i = 0; i < 5; i++)
        assert_int_equal(tried[i].ready, 0);
    fake_backend_hold(world->backend, FAKE_CREATE, false);
    world_settle(world);
    for (int i = 0; i < 5; i++) {
        assert_int_equal(tried[i].ready, 1);
        assert_int_equal(tried[i].hold.err.code, ERR_NONE);
        assert_ptr_equal(tried[i].hold.sandbox, session_sandbox(session));
        assert_non_null(tried[i].hold.agent);
    }
    assert_int_equal(fake_backend_calls(world->backend, FAKE_CREATE), 1);
    assert_true(sandbox_is_at_rest(session_sandbox(session)));
    assert_int_equal(session_active_holds(session), 5);
    for (int i = 0; i < 5; i++)
        session_hold_end(&tried[i].hold);
    assert_int_equal(session_active_holds(session), 0);
}

static void different_sessions_get_different_sandboxes(void **state)
{
    struct world *world = *state;
    struct session *first = world_open_simple(world, "ann", NULL);
    struct session *second = world_open_simple(world, "ann", NULL);
    struct tried one;
    struct tried other;

    world_use(world, first, &one);
    world_use(world, second, &other);
    assert_string_not_equal(sandbox_id(one.hold.sandbox), sandbox_id(other.hold.sandbox));
    session_hold_end(&one.hold);
    session_hold_end(&other.hold);
}

static void a_waiter_that_gives_up_does_not_cancel_the_creation(void **state)
{
    struct world *world = *state;
    struct session *session = world_open_simple(world, "ann", NULL);
    struct tried leaving;
    struct tried staying;

    fake_backend_hold(world->backend, FAKE_CREATE, true);
    world_use(world, session, &leaving);
    world_use(world, session, &staying);
    session_hold_end(&leaving.hold);
    session_hold_end(&leaving.hold);
    fake_backend_hold(world->backend, FAKE_CREATE, false);
    world_settle(world);
    assert_int_equal(leaving.ready, 0);
    assert_int_equal(staying.ready, 1);
    session_hold_end(&staying.hold);
}

static void the_sandbox_of_a_waiter_that_left_is_there_for_the_next(void **state)
{
    struct world *world = *state;
    struct session *session = world_open_simple(world, "ann", NULL);
    struct tried tried;

    fake_backend_hold(world->backend, FAKE_CREATE, true);
    world_use(world, session, &tried);
    session_hold_end(&tried.hold);
    fake_backend_hold(world->backend, FAKE_CREATE, false);
    world_settle(world);
    assert_int_equal(sandbox_state(session_sandbox(session)), SANDBOX_READY);
    world_use(world, session, &tried);
    assert_int_equal(fake_backend_calls(world->backend, FAKE_CREATE), 1);
    session_hold_end(&tried.hold);
}

static void a_sandbox_that_was_waited_for_and_is_gone_is_not_made_again_by_itself(void **state)
{
    struct world *world = *state;
    struct session *session = world_open_simple(world, "ann", NULL);
    struct tried tried;

    fake_backend_hold(world->backend, FAKE_CREATE, true);
    session_preload(session);
    world_use(world, session, &tried);
    fake_backend_hold(world->backend, FAKE_CREATE, false);
    world_settle(world);
    session_hold_end(&tried.hold);
    session_teardown(session, END_EVICTED);
    world_advance(world, 1000);
    assert_null(session_sandbox(session));
    assert_int_equal(fake_backend_calls(world->backend, FAKE_CREATE), 1);
}

static void the_error_of_a_creation_reaches_every_waiter_and_is_remembered(void **state)
{
    struct world *world = *state;
    struct session *session = world_open_simple(world, "ann", NULL);
    struct tried tried[3];

    fake_backend_hold(world->backend, FAKE_CREATE, true);
    fake_backend_refuse(world->backend, FAKE_CREATE, 1, ERR_BACKEND);
    for (int i = 0; i < 3; i++)
        world_use(world, session, &tried[i]);
    fake_backend_hold(world->backend, FAKE_CREATE, false);
    world_settle(world);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(tried[i].ready, 1);
        assert_int_equal(tried[i].hold.err.code, ERR_BACKEND);
        assert_non_null(strstr(tried[i].hold.err.message, "refused, as the test asked"));
    }
    assert_int_equal(session_start_error(session)->code, ERR_BACKEND);
    assert_null(session_sandbox(session));
    assert_int_equal(capacity_held(world->core->capacity), 0);
    assert_int_equal(fake_store_count(world->store, STORE_SANDBOXES), 0);
    world_use(world, session, &tried[0]);
    assert_int_equal(tried[0].hold.err.code, ERR_NONE);
    assert_null(session_start_error(session));
    assert_int_equal(session_generation(session), 1);
    session_hold_end(&tried[0].hold);
}

static void starts_that_keep_failing_back_off(void **state)
{
    struct world *world = *state;
    struct session *session = world_open_simple(world, "ann", NULL);
    struct tried tried;

    fake_backend_refuse(world->backend, FAKE_CREATE, 1000, ERR_BACKEND);
    for (int i = 0; i < 50; i++) {
        world_use(world, session, &tried);
        assert_int_equal(tried.hold.err.code, ERR_BACKEND);
        assert_false(tried.hold.err.retryable); /* whatever was said first */
    }
    assert_int_equal(fake_backend_calls(world->backend, FAKE_CREATE), 2);
    assert_non_null(strstr(tried.hold.err.hint, "next start is possible in"));
    for (int i = 0; i < 100; i++) {
        world_advance(world, 1000);
        world_use(world, session, &tried);
    }
    assert_in_range(fake_backend_calls(world->backend, FAKE_CREATE), 5, 12);
    fake_backend_refuse(world->backend, FAKE_CREATE, 0, ERR_NONE);
    world_advance(world, 30 * 1000);
    world_use(world, session, &tried);
    assert_int_equal(tried.hold.err.code, ERR_NONE);
    session_hold_end(&tried.hold);
}

static void a_creation_that_hangs_fails_its_waiters_and_is_undone_when_it_ends(void **state)
{
    struct world *world = *state;
    struct session *session = world_open_simple(world, "ann", NULL);
    struct tried tried;

    fake_backend_hold(world->backend, FAKE_CREATE, true);
    world_use(world, session, &tried);
    world_advance(world, 30 * 1000);
    assert_int_equal(tried.ready, 1);
    assert_int_equal(tried.hold.err.code, ERR_TIMEOUT);
    assert_int_equal(sandbox_state(session_sandbox(session)), SANDBOX_DESTROYING);
    assert_int_equal(capacity_held(world->core->capacity), 1);
    fake_backend_hold(world->backend, FAKE_CREATE, false);
    world_settle(world);
    assert_null(session_sandbox(session));
    assert_int_equal(fake_backend_count(world->backend), 0);
    assert_int_equal(capacity_held(world->core->capacity), 0);
}

static void an_init_that_does_not_answer_fails_the_creation(void **state)
{
    struct world *world = *state;
    struct session *session = world_open_simple(world, "ann", NULL);
    struct tried tried;

    fake_agent_be_silent(true);
    world_use(world, session, &tried);
    assert_int_equal(tried.ready, 0);
    world_advance(world, 30 * 1000);
    assert_int_equal(tried.hold.err.code, ERR_TIMEOUT);
    assert_int_equal(fake_backend_count(world->backend), 0);
}

static void an_init_that_cannot_be_connected_to_fails_the_creation(void **state)
{
    struct world *world = *state;
    struct session *session = world_open_simple(world, "ann", NULL);
    struct tried tried;

    fake_backend_refuse_connect(world->backend, true);
    world_use(world, session, &tried);
    assert_int_equal(tried.hold.err.code, ERR_BACKEND);
    assert_int_equal(fake_backend_count(world->backend), 0);
}

static void an_init_that_dies_while_it_is_connected_to_is_replaced_once(void **state)
{
    struct world *world = *state;
    struct session *session = world_open_simple(world, "ann", NULL);
    struct tried tried;

    fake_agent_be_silent(true);
    world_use(world, session, &tried);
    fake_backend_kill(world->backend, sandbox_id(session_sandbox(session)));
    world_settle(world);
    assert_int_equal(tried.ready, 0);
    assert_int_equal(fake_backend_count(world->backend), 1);
    fake_backend_kill(world->backend, sandbox_id(session_sandbox(session)));
    world_settle(world);
    assert_int_equal(tried.ready, 1);
    assert_int_not_equal(tried.hold.err.code, ERR_NONE);
    assert_int_equal(fake_backend_count(world->backend), 0);
}

static void nothing_is_built_before_its_intent_is_durable(void **state)
{
    struct world *world = *state;
    struct session *session = world_open_simple(world, "ann", NULL);
    struct tried tried;

    fake_store_hold(world->store, true);
    world_use(world, session, &tried);
    assert_int_equal(fake_backend_calls(world->backend, FAKE_CREATE), 0);
    fake_store_hold(world->store, false);
    world_settle(world);
    assert_int_equal(tried.ready, 1);
    session_hold_end(&tried.hold);
}

static void an_intent_that_cannot_be_recorded_fails_the_use_and_builds_nothing(void **state)
{
    struct world *world = *state;
    struct session *session = world_open_simple(world, "ann", NULL);
    struct tried tried;

    fake_store_fail_next(world->store, ERR_NO_SPACE);
    world_use(world, session, &tried);
    assert_int_equal(tried.hold.err.code, ERR_NO_SPACE);
    assert_int_equal(fake_backend_calls(world->backend, FAKE_CREATE), 0);
    assert_int_equal(capacity_held(world->core->capacity), 0);
    world_advance(world, 2000);
    assert_int_equal(fake_store_count(world->store, STORE_SANDBOXES), 0);
}

/* --- generations --------------------------------------------------------------------------- */

static void a_pinned_generation_reaches_only_that_one(void **state)
{
    struct world *world = *state;
    struct session *session = world_open_simple(world, "ann", NULL);
    struct tried tried;

    world_use_pinned(world, session, 1, &tried);
    assert_int_equal(tried.hold.err.code, ERR_NONE);
    session_hold_end(&tried.hold);
    world_use_pinned(world, session, 2, &tried);
    assert_int_equal(tried.hold.err.code, ERR_CONFLICT);
    assert_string_equal(tried.hold.err.name, "generation_moved");
    session_teardown(session, END_TEARDOWN);
    world_settle(world);
    world_use_pinned(world, session, 1, &tried);
    assert_int_equal(tried.hold.err.code, ERR_CONFLICT);
    assert_int_equal(fake_backend_calls(world->backend, FAKE_CREATE), 1);
    world_use(world, session, &tried);
    assert_int_equal(tried.hold.generation, 2);
    session_hold_end(&tried.hold);
}

static void a_pinned_use_that_waits_is_refused_when_its_generation_goes(void **state)
{
    struct world *world = *state;
    struct session *session = world_open_simple(world, "ann", NULL);
    struct tried pinned;
    struct tried any;

    fake_backend_hold(world->backend, FAKE_CREATE, true);
    world_use_pinned(world, session, 1, &pinned);
    world_use(world, session, &any);
    fake_backend_hold(world->backend, FAKE_CREATE, false);
    world_settle(world);
    assert_int_equal(pinned.hold.err.code, ERR_NONE);
    session_hold_end(&pinned.hold);
    session_hold_end(&any.hold);
    session_pause(session, NULL, NULL);
    world_settle(world);
    fake_backend_hold(world->backend, FAKE_FREEZE, true);
    world_use_pinned(world, session, 1, &pinned);
    assert_int_equal(pinned.ready, 0);
    fake_backend_kill(world->backend, sandbox_id(session_sandbox(session)));
    world_settle(world);
    fake_backend_hold(world->backend, FAKE_FREEZE, false);
    world_settle(world);
    assert_int_equal(pinned.ready, 1);
    assert_string_equal(pinned.hold.err.name, "generation_moved");
}

/* --- the end of what is used ---------------------------------------------------------------- */

static void running_uses_are_told_why_their_sandbox_went(void **state)
{
    struct world *world = *state;
    struct session *session = world_open_simple(world, "ann", NULL);
    struct tried tried;

    world_use(world, session, &tried);
    session_teardown(session, END_TEARDOWN);
    world_settle(world);
    assert_int_equal(tried.lost, 1);
    assert_int_equal(tried.hold.lost.kind, END_TEARDOWN);
    assert_null(tried.hold.sandbox);
    session_hold_end(&tried.hold);
    assert_int_equal(session_active_holds(session), 0);
}

static void a_use_during_teardown_waits_for_the_next_sandbox(void **state)
{
    struct world *world = *state;
    struct session *session = world_open_simple(world, "ann", NULL);
    struct tried first;
    struct tried second;

    world_use(world, session, &first);
    session_hold_end(&first.hold);
    fake_backend_hold(world->backend, FAKE_DESTROY, true);
    session_teardown(session, END_TEARDOWN);
    world_use(world, session, &second);
    assert_int_equal(second.ready, 0);
    assert_int_equal(fake_backend_count(world->backend), 1);
    fake_backend_hold(world->backend, FAKE_DESTROY, false);
    world_settle(world);
    assert_int_equal(second.ready, 1);
    assert_int_equal(second.hold.generation, 2);
    assert_int_equal(fake_backend_count(world->backend), 1);
    session_hold_end(&second.hold);
}

static void a_use_behind_a_removal_that_fails_is_told_so(void **state)
{
    struct world *world = *state;
    struct session *session = world_open_simple(world, "ann", NULL);
    struct tried tried;

    world_use(world, session, &tried);
    session_hold_end(&tried.hold);
    fake_backend_refuse(world->backend, FAKE_DESTROY, 1, ERR_BACKEND);
    session_teardown(session, END_TEARDOWN);
    world_use(world, session, &tried);
    assert_int_equal(tried.ready, 1);
    assert_int_equal(tried.hold.err.code, ERR_BACKEND);
    assert_true(tried.hold.err.retryable);
    world_advance(world, 1000);
    world_use(world, session, &tried);
    assert_int_equal(tried.hold.err.code, ERR_NONE);
    session_hold_end(&tried.hold);
}

static void a_use_of_an_ending_session_is_told_the_reason(void **state)
{
    struct world *world = *state;
    struct session *session = world_open_simple(world, "ann", NULL);
    struct tried tried;
    struct ended ended;

    world_use(world, session, &tried);
    session_hold_end(&tried.hold);
    fake_backend_hold(world->backend, FAKE_DESTROY, true);
    world_end(world, session, END_BUDGET, &ended);
    world_use(world, session, &tried);
    assert_int_equal(tried.hold.err.code, ERR_GONE);
    assert_non_null(strstr(tried.hold.err.message, "budget"));
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(several_waiters_share_one_creation),
        TEST(different_sessions_get_different_sandboxes),
        TEST(a_sandbox_that_was_waited_for_and_is_gone_is_not_made_again_by_itself),
        TEST(a_waiter_that_gives_up_does_not_cancel_the_creation),
        TEST(the_sandbox_of_a_waiter_that_left_is_there_for_the_next),
        TEST(the_error_of_a_creation_reaches_every_waiter_and_is_remembered),
        TEST(starts_that_keep_failing_back_off),
        TEST(a_creation_that_hangs_fails_its_waiters_and_is_undone_when_it_ends),
        TEST(an_init_that_does_not_answer_fails_the_creation),
        TEST(an_init_that_cannot_be_connected_to_fails_the_creation),
        TEST(an_init_that_dies_while_it_is_connected_to_is_replaced_once),
        TEST(nothing_is_built_before_its_intent_is_durable),
        TEST(an_intent_that_cannot_be_recorded_fails_the_use_and_builds_nothing),
        TEST(a_pinned_generation_reaches_only_that_one),
        TEST(a_pinned_use_that_waits_is_refused_when_its_generation_goes),
        TEST(running_uses_are_told_why_their_sandbox_went),
        TEST(a_use_during_teardown_waits_for_the_next_sandbox),
        TEST(a_use_behind_a_removal_that_fails_is_told_so),
        TEST(a_use_of_an_ending_session_is_told_the_reason),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
