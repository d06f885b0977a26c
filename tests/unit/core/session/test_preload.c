/* SPDX-License-Identifier: Apache-2.0 */
/* The sandbox that is started before anybody needs it. */

#include "core/sandbox/capacity.h"
#include "core/sandbox/sandbox.h"
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
    world.config.session.preload = true;
    world_start(&world);
    *state = &world;
    return 0;
}

static int teardown(void **state)
{
    world_fini(*state);
    return 0;
}

static void m20_creating_a_session_starts_one_sandbox_and_is_not_delayed(void **state)
{
    struct world *world = *state;
    struct session *session;

    fake_backend_hold(world->backend, FAKE_CREATE, true);
    session = world_open_simple(world, "ann", "key");
    assert_non_null(session);
    assert_int_equal(sandbox_state(session_sandbox(session)), SANDBOX_CREATING);
    assert_ptr_equal(world_open_simple(world, "ann", "key"), session);
    session_preload(session);
    world_settle(world);
    assert_int_equal(fake_backend_calls(world->backend, FAKE_CREATE), 1);
    fake_backend_hold(world->backend, FAKE_CREATE, false);
}

static void preload_can_be_switched_off(void **state)
{
    struct world *world = *state;
    struct session_request request = SESSION_REQUEST_INIT;
    struct opened opened;

    request.preload = 0;
    assert_null(session_sandbox(world_open(world, &request, &opened)));
    assert_int_equal(fake_backend_calls(world->backend, FAKE_CREATE), 0);
}

static void m14_uses_wait_for_the_one_in_flight(void **state)
{
    struct world *world = *state;
    struct session *session;
    struct tried first;
    struct tried second;

    fake_backend_hold(world->backend, FAKE_CREATE, true);
    session = world_open_simple(world, "ann", NULL);
    world_use(world, session, &first);
    world_use(world, session, &second);
    assert_int_equal(first.ready + second.ready, 0);
    fake_backend_hold(world->backend, FAKE_CREATE, false);
    world_settle(world);
    assert_int_equal(first.ready + second.ready, 2);
    assert_int_equal(fake_backend_calls(world->backend, FAKE_CREATE), 1);
    session_hold_end(&first.hold);
    session_hold_end(&second.hold);
}

static void a_waiter_that_gives_up_does_not_kill_it(void **state)
{
    struct world *world = *state;
    struct session *session;
    struct tried tried;

    fake_backend_hold(world->backend, FAKE_CREATE, true);
    session = world_open_simple(world, "ann", NULL);
    world_use(world, session, &tried);
    session_hold_end(&tried.hold);
    fake_backend_hold(world->backend, FAKE_CREATE, false);
    world_settle(world);
    assert_int_equal(sandbox_state(session_sandbox(session)), SANDBOX_READY);
}

static void nor_when_it_waits_for_a_slot(void **state)
{
    struct world *world = *state;
    struct session *first;
    struct session *second;
    struct tried holder;
    struct tried tried;

    world->config.capacity.max_sandboxes = 1;
    world->config.capacity.overflow = OVERFLOW_WAIT;
    first = world_open_simple(world, "ann", NULL);
    world_use(world, first, &holder);
    second = world_open_simple(world, "bob", NULL);
    world_use(world, second, &tried);
    session_hold_end(&tried.hold);
    world_settle(world);
    session_hold_end(&holder.hold);
    world_end(world, first, END_DELETED, &(struct ended){ 0 });
    world_settle(world);
    assert_non_null(session_sandbox(second));
    assert_int_equal(sandbox_state(session_sandbox(second)), SANDBOX_READY);
}

static void its_failure_is_told_to_a_use_only_and_the_next_use_tries_again(void **state)
{
    struct world *world = *state;
    struct session *session;
    struct tried tried;

    fake_backend_refuse(world->backend, FAKE_CREATE, 2, ERR_BACKEND);
    session = world_open_simple(world, "ann", NULL);
    assert_non_null(session);
    assert_int_equal(session_start_error(session)->code, ERR_BACKEND);
    world_use(world, session, &tried);
    assert_int_equal(tried.hold.err.code, ERR_BACKEND);
    world_advance(world, 1000);
    world_use(world, session, &tried);
    assert_int_equal(tried.hold.err.code, ERR_NONE);
    assert_null(session_start_error(session));
    session_hold_end(&tried.hold);
}

/* It says the same each time, and is not tried by itself. */
static void a_failure_that_will_not_pass_stays_what_it_is(void **state)
{
    struct world *world = *state;
    struct session *session;
    struct tried tried;
    char first[sizeof(tried.hold.err.message)];

    fake_backend_refuse(world->backend, FAKE_CREATE, 100, ERR_CONFLICT);
    session = world_open_simple(world, "ann", NULL);
    assert_int_equal(fake_backend_calls(world->backend, FAKE_CREATE), 1);
    assert_false(session_start_error(session)->retryable);
    assert_non_null(strstr(session_start_error(session)->message, "build the sandbox"));
    memcpy(first, session_start_error(session)->message, sizeof(first));
    for (int i = 0; i < 3; i++) {
        world_use(world, session, &tried);
        assert_int_equal(tried.hold.err.code, ERR_CONFLICT);
        assert_false(tried.hold.err.retryable);
        assert_string_equal(tried.hold.err.message, first);
    }
}

static void m17_a_teardown_stops_it_and_removes_what_was_half_made(void **state)
{
    struct world *world = *state;
    struct session *session;

    fake_backend_hold(world->backend, FAKE_CREATE, true);
    session = world_open_simple(world, "ann", NULL);
    session_teardown(session, END_TEARDOWN);
    world_settle(world);
    fake_backend_hold(world->backend, FAKE_CREATE, false);
    world_settle(world);
    assert_null(session_sandbox(session));
    assert_int_equal(fake_backend_count(world->backend), 0);
    assert_int_equal(fake_store_count(world->store, STORE_SANDBOXES), 0);
    assert_int_equal(capacity_held(world->core->capacity), 0);
}

/* It is cancelled after each number of turns, up to the one in which it becomes ready. */
static void m12_one_that_finishes_when_it_is_cancelled_is_removed(void **state)
{
    struct world *world = *state;

    for (int turns = 0; turns < 12; turns++) {
        struct session *session = world_open_simple(world, "ann", NULL);

        session_teardown(session, END_TEARDOWN);
        world_settle(world);
        session_preload(session);
        for (int i = 0; i < turns; i++)
            loop_turn(world->loop, 0);
        if (turns & 1)
            session_teardown(session, END_TEARDOWN);
        else
            session_end(session, END_DELETED, NULL, NULL, NULL);
        world_settle(world);
        assert_int_equal(fake_backend_count(world->backend), 0);
        assert_int_equal(capacity_held(world->core->capacity), 0);
    }
}

static void m24_what_was_torn_down_is_not_started_by_a_restart(void **state)
{
    struct world *world = *state;
    struct session *session = world_open_simple(world, "ann", "key");

    session_teardown(session, END_TEARDOWN);
    world_settle(world);
    world_restart(world);
    world_settle(world);
    assert_int_equal(fake_backend_count(world->backend), 0);
}

static void m20_one_that_was_in_flight_is_started_again_by_the_next_daemon(void **state)
{
    struct world *world = *state;
    struct session *session;
    char id[ID_SIZE];

    fake_backend_hold(world->backend, FAKE_CREATE, true);
    session = world_open_simple(world, "ann", NULL);
    memcpy(id, session_id(session), sizeof(id));
    world_kill(world, true);
    fake_backend_hold(world->backend, FAKE_CREATE, false);
    world_start(world);
    world_settle(world);
    session = world_find(world, id);
    assert_int_equal(sandbox_state(session_sandbox(session)), SANDBOX_READY);
    assert_int_equal(fake_backend_count(world->backend), 1);
}

/* --- the backend --------------------------------------------------------------------------- */

static void m13_sandboxes_of_one_owner_are_made_one_after_the_other(void **state)
{
    struct world *world = *state;
    struct session *sessions[4];

    fake_backend_set_capabilities(world->backend,
                                  (struct backend_capabilities){ .serialize_per_owner = true });
    fake_backend_hold(world->backend, FAKE_CREATE, true);
    for (int i = 0; i < 4; i++)
        sessions[i] = world_open_simple(world, i < 3 ? "ann" : "bob", NULL);
    assert_int_equal(fake_backend_calls(world->backend, FAKE_CREATE), 2);
    session_teardown(sessions[1], END_TEARDOWN);
    fake_backend_hold(world->backend, FAKE_CREATE, false);
    world_settle(world);
    world_settle(world);
    assert_int_equal(fake_backend_most_creating(world->backend), 2);
    assert_int_equal(sandbox_state(session_sandbox(sessions[0])), SANDBOX_READY);
    assert_null(session_sandbox(sessions[1]));
    assert_int_equal(sandbox_state(session_sandbox(sessions[2])), SANDBOX_READY);
    assert_int_equal(sandbox_state(session_sandbox(sessions[3])), SANDBOX_READY);
}

static void others_are_made_at_the_same_time(void **state)
{
    struct world *world = *state;

    fake_backend_hold(world->backend, FAKE_CREATE, true);
    for (int i = 0; i < 3; i++)
        world_open_simple(world, "ann", NULL);
    assert_int_equal(fake_backend_calls(world->backend, FAKE_CREATE), 3);
    fake_backend_hold(world->backend, FAKE_CREATE, false);
}

static void a_failed_one_passes_the_turn_on(void **state)
{
    struct world *world = *state;
    struct session *first;
    struct session *second;

    fake_backend_set_capabilities(world->backend,
                                  (struct backend_capabilities){ .serialize_per_owner = true });
    fake_backend_refuse(world->backend, FAKE_CREATE, 1, ERR_BACKEND);
    first = world_open_simple(world, "ann", NULL);
    second = world_open_simple(world, "ann", NULL);
    world_settle(world);
    assert_null(session_sandbox(first));
    assert_int_equal(sandbox_state(session_sandbox(second)), SANDBOX_READY);
}

static void m9_failures_that_may_pass_are_tried_again(void **state)
{
    struct world *world = *state;
    struct session *session;

    fake_backend_refuse_for_now(world->backend, FAKE_CREATE, 3);
    session = world_open_simple(world, "ann", NULL);
    assert_int_equal(sandbox_state(session_sandbox(session)), SANDBOX_CREATING);
    world_advance(world, 10 * 1000);
    assert_int_equal(sandbox_state(session_sandbox(session)), SANDBOX_READY);
    assert_int_equal(fake_backend_calls(world->backend, FAKE_CREATE), 4);
    assert_null(sandbox_last_error(session_sandbox(session)));
}

static void but_not_longer_than_a_start_may_take(void **state)
{
    struct world *world = *state;
    struct session *session;

    fake_backend_refuse_for_now(world->backend, FAKE_CREATE, 1000);
    session = world_open_simple(world, "ann", NULL);
    for (int i = 0; i < 31; i++)
        world_advance(world, 1000);
    assert_null(session_sandbox(session));
    assert_string_equal(session_start_error(session)->name, "sandbox_not_ready");
    assert_non_null(strstr(session_start_error(session)->message, "as the test asked"));
    assert_int_equal(fake_backend_count(world->backend), 0);
}

static void waiting_for_the_next_attempt_can_be_cancelled(void **state)
{
    struct world *world = *state;
    struct session *session;

    fake_backend_refuse_for_now(world->backend, FAKE_CREATE, 1000);
    session = world_open_simple(world, "ann", NULL);
    world_advance(world, 1000);
    session_teardown(session, END_TEARDOWN);
    world_settle(world);
    assert_null(session_sandbox(session));
    assert_int_equal(capacity_held(world->core->capacity), 0);
}

static void one_with_other_resources_than_asked_is_not_ready(void **state)
{
    struct world *world = *state;
    struct session *session;
    struct tried tried;

    fake_backend_give_memory(world->backend, 1 << 30);
    session = world_open_simple(world, "ann", NULL);
    assert_null(session_sandbox(session));
    assert_string_equal(session_start_error(session)->name, "resources_differ");
    assert_int_equal(fake_backend_count(world->backend), 0);
    fake_backend_give_memory(world->backend, 2ULL << 30);
    world_use(world, session, &tried);
    assert_int_equal(tried.hold.err.code, ERR_NONE);
    session_hold_end(&tried.hold);
}

/* --- what the record promises -------------------------------------------------------------- */

static void e16_a_sandbox_that_could_not_be_destroyed_is_not_forgotten(void **state)
{
    struct world *world = *state;
    struct session *session = world_open_simple(world, "ann", NULL);

    fake_backend_refuse(world->backend, FAKE_DESTROY, 2, ERR_BACKEND);
    session_teardown(session, END_TEARDOWN);
    world_settle(world);
    assert_int_equal(sandbox_state(session_sandbox(session)), SANDBOX_DESTROYING);
    world_restart(world);
    world_advance(world, 5000);
    assert_int_equal(fake_backend_count(world->backend), 0);
    assert_int_equal(fake_store_count(world->store, STORE_SANDBOXES), 0);
}

static void e15_after_a_teardown_the_next_use_starts_a_new_one(void **state)
{
    struct world *world = *state;
    struct session *session = world_open_simple(world, "ann", NULL);
    struct tried tried;

    session_teardown(session, END_TEARDOWN);
    session_teardown(session, END_TEARDOWN);
    world_settle(world);
    world_use(world, session, &tried);
    world_settle(world);
    assert_int_equal(tried.hold.err.code, ERR_NONE);
    assert_true(session_reset_is_pending(session));
    assert_int_equal(world_events(world, session_id(session), "sandbox.reset"), 1);
    session_hold_end(&tried.hold);
}

/* Killed after any number of turns: the next execution is told of the reset if there was one. */
static void e15_the_reset_is_told_whenever_the_daemon_dies(void **state)
{
    struct world *world = *state;

    for (int turns = 0; turns < 14; turns++) {
        struct session *session = world_open_simple(world, "ann", NULL);
        struct tried tried;
        char id[ID_SIZE];

        memcpy(id, session_id(session), sizeof(id));
        session_teardown(session, END_TEARDOWN);
        session_preload(session);
        for (int i = 0; i < turns; i++)
            loop_turn(world->loop, 0);
        world_restart(world);
        session = world_find(world, id);
        world_use(world, session, &tried);
        world_settle(world);
        assert_int_equal(tried.hold.err.code, ERR_NONE);
        assert_int_equal(session_reset_is_pending(session), session_generation(session) > 1);
        assert_int_equal(world_events(world, id, "sandbox.reset"), session_generation(session) - 1);
        session_hold_end(&tried.hold);
        world_end(world, session, END_DELETED, &(struct ended){ 0 });
    }
}

static void e21_a_crashed_sandbox_is_replaced_by_the_next_use(void **state)
{
    struct world *world = *state;
    struct session *session = world_open_simple(world, "ann", NULL);
    struct tried tried;

    fake_backend_kill(world->backend, sandbox_id(session_sandbox(session)));
    world_settle(world);
    world_use(world, session, &tried);
    world_settle(world);
    assert_int_equal(tried.hold.err.code, ERR_NONE);
    assert_int_equal(session_generation(session), 2);
    session_hold_end(&tried.hold);
}

static void e22_restored_sandboxes_hold_their_slots(void **state)
{
    struct world *world = *state;

    world->config.capacity.max_sandboxes = 2;
    world->config.capacity.overflow = OVERFLOW_REJECT;
    world_open_simple(world, "ann", NULL);
    world_open_simple(world, "ann", NULL);
    world_restart(world);
    assert_int_equal(capacity_held(world->core->capacity), 2);
    assert_null(session_sandbox(world_open_simple(world, "ann", NULL)));
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
    static const struct CMUnitTest tests[] = {
        TEST(m20_creating_a_session_starts_one_sandbox_and_is_not_delayed),
        TEST(preload_can_be_switched_off),
        TEST(m14_uses_wait_for_the_one_in_flight),
        TEST(a_waiter_that_gives_up_does_not_kill_it),
        TEST(nor_when_it_waits_for_a_slot),
        TEST(its_failure_is_told_to_a_use_only_and_the_next_use_tries_again),
        TEST(a_failure_that_will_not_pass_stays_what_it_is),
        TEST(m17_a_teardown_stops_it_and_removes_what_was_half_made),
        TEST(m12_one_that_finishes_when_it_is_cancelled_is_removed),
        TEST(m24_what_was_torn_down_is_not_started_by_a_restart),
        TEST(m20_one_that_was_in_flight_is_started_again_by_the_next_daemon),
        TEST(m13_sandboxes_of_one_owner_are_made_one_after_the_other),
        TEST(others_are_made_at_the_same_time),
        TEST(a_failed_one_passes_the_turn_on),
        TEST(m9_failures_that_may_pass_are_tried_again),
        TEST(but_not_longer_than_a_start_may_take),
        TEST(waiting_for_the_next_attempt_can_be_cancelled),
        TEST(one_with_other_resources_than_asked_is_not_ready),
        TEST(e16_a_sandbox_that_could_not_be_destroyed_is_not_forgotten),
        TEST(e15_after_a_teardown_the_next_use_starts_a_new_one),
        TEST(e15_the_reset_is_told_whenever_the_daemon_dies),
        TEST(e21_a_crashed_sandbox_is_replaced_by_the_next_use),
        TEST(e22_restored_sandboxes_hold_their_slots),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
