/* SPDX-License-Identifier: Apache-2.0 */
/* Sandboxes that somebody freezes behind the back of the daemon. */

#include "base/str.h"
#include "config/config.h"
#include "core/sandbox/pool.h"
#include "core/sandbox/sandbox.h"
#include "harness/fake_agent.h"
#include "harness/world.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

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
    assert_int_equal(fake_agent_count(), 0);
    return 0;
}

static struct session *open_unused(struct world *world)
{
    struct session *session = world_open_simple(world, "ann", NULL);
    struct tried tried;

    world_use(world, session, &tried);
    assert_int_equal(tried.ready, 1);
    session_hold_end(&tried.hold);
    return session;
}

static void move(struct world *world, struct session *session, enum backend_motion motion)
{
    fake_backend_move(world->backend, sandbox_id(session_sandbox(session)), motion);
    world_settle(world);
}

static void expect_state(struct session *session, enum sandbox_state state)
{
    assert_int_equal(sandbox_state(session_sandbox(session)), state);
    assert_int_equal(session_generation(session), 1);
}

static void a_use_waits_until_it_is_thawed(void **state)
{
    struct world *world = *state;
    struct session *session = open_unused(world);
    struct tried tried;

    move(world, session, BACKEND_FROZEN_BY_OTHERS);
    expect_state(session, SANDBOX_FROZEN_BY_OTHERS);
    assert_int_equal(session_state(session), SESSION_OPEN);
    world_use(world, session, &tried);
    world_advance(world, 5000);
    assert_int_equal(tried.ready, 0);
    move(world, session, BACKEND_MOVES);
    expect_state(session, SANDBOX_READY);
    assert_int_equal(tried.ready, 1);
    assert_int_equal(tried.hold.err.code, ERR_NONE);
    assert_int_equal(world_events(world, session_id(session), "sandbox.frozen"), 1);
    assert_int_equal(world_events(world, session_id(session), "sandbox.thawed"), 1);
    session_hold_end(&tried.hold);
}

static void a_use_that_waits_too_long_says_why(void **state)
{
    struct world *world = *state;
    struct session *session = open_unused(world);
    struct tried tried;

    move(world, session, BACKEND_FROZEN_BY_OTHERS);
    world_use(world, session, &tried);
    world_advance(world, 15 * 1000);
    assert_int_equal(tried.hold.err.code, ERR_TIMEOUT);
    assert_string_equal(tried.hold.err.name, "sandbox_frozen");
    assert_non_null(strstr(tried.hold.err.message, "frozen by others"));
    assert_true(tried.hold.err.retryable);
}

/* It cannot answer, and no attempt to connect to it would be answered. */
static void its_silence_does_not_end_it(void **state)
{
    struct world *world = *state;
    struct session *session = world_open_simple(world, "ann", NULL);
    struct tried tried;

    world_use(world, session, &tried);
    move(world, session, BACKEND_FROZEN_BY_OTHERS);
    fake_agent_be_silent(true);
    fake_agent_lose(tried.hold.agent);
    world_advance(world, world->config.sandbox.silence_timeout_ms * 2 + 60 * 1000);
    expect_state(session, SANDBOX_FROZEN_BY_OTHERS);
    assert_int_equal(tried.lost, 0);
    fake_agent_be_silent(false);
    move(world, session, BACKEND_MOVES);
    world_advance(world, 1000);
    expect_state(session, SANDBOX_READY);
    assert_int_equal(tried.lost, 0);
    session_hold_end(&tried.hold);
}

/* The connection breaks first; the backend, asked whether it lives, says that it is frozen. */
static void it_is_left_frozen_when_its_connection_has_broken(void **state)
{
    struct world *world = *state;
    struct session *session = world_open_simple(world, "ann", NULL);
    struct tried tried;

    world_use(world, session, &tried);
    fake_agent_be_silent(true);
    fake_agent_lose(tried.hold.agent);
    world_settle(world);
    expect_state(session, SANDBOX_UNKNOWN);
    move(world, session, BACKEND_FROZEN_BY_OTHERS);
    world_advance(world, 5000);
    expect_state(session, SANDBOX_FROZEN_BY_OTHERS);
    assert_true(fake_backend_is_frozen(world->backend, sandbox_id(session_sandbox(session))));
    fake_agent_be_silent(false);
    move(world, session, BACKEND_MOVES);
    world_advance(world, 1000);
    expect_state(session, SANDBOX_READY);
    session_hold_end(&tried.hold);
}

static void a_pause_takes_it_over_and_a_resume_thaws_it(void **state)
{
    struct world *world = *state;
    struct session *session = open_unused(world);

    move(world, session, BACKEND_FROZEN_BY_OTHERS);
    session_pause(session, NULL, NULL);
    world_settle(world);
    expect_state(session, SANDBOX_FROZEN);
    session_resume(session, NULL, NULL);
    world_settle(world);
    expect_state(session, SANDBOX_READY);
    assert_false(fake_backend_is_frozen(world->backend, sandbox_id(session_sandbox(session))));
}

static void our_own_freeze_is_not_taken_for_it(void **state)
{
    struct world *world = *state;
    struct session *session = open_unused(world);

    session_pause(session, NULL, NULL);
    world_settle(world);
    move(world, session, BACKEND_FROZEN_BY_OTHERS);
    expect_state(session, SANDBOX_FROZEN);
    assert_int_equal(world_events(world, session_id(session), "sandbox.frozen"), 0);
}

static struct session *restart(struct world *world, struct session *session)
{
    char id[ID_SIZE];

    memcpy(id, session_id(session), sizeof(id));
    world_advance(world, 1000); /* everything is recorded */
    world_kill(world, false);
    fake_backend_forget_freezers(world->backend);
    world_start(world);
    world_settle(world);
    return world_find(world, id);
}

static void the_next_daemon_leaves_it_frozen(void **state)
{
    struct world *world = *state;
    struct session *session = open_unused(world);

    move(world, session, BACKEND_FROZEN_BY_OTHERS);
    session = restart(world, session);
    expect_state(session, SANDBOX_FROZEN_BY_OTHERS);
    move(world, session, BACKEND_MOVES);
    world_advance(world, 1000);
    expect_state(session, SANDBOX_READY);
}

/* The backend does not know any more who has frozen it; the record does. */
static void the_next_daemon_goes_on_with_a_resume(void **state)
{
    struct world *world = *state;
    struct session *session = open_unused(world);

    session_pause(session, NULL, NULL);
    world_advance(world, 1000);
    fake_backend_hold(world->backend, FAKE_FREEZE, true);
    session_resume(session, NULL, NULL);
    session = restart(world, session);
    fake_backend_hold(world->backend, FAKE_FREEZE, false);
    world_settle(world);
    expect_state(session, SANDBOX_READY);
}

static void a_member_of_the_pool_is_not_handed_out(void **state)
{
    struct world *world = *state;
    struct sandbox *member;
    struct session *session;
    struct tried tried;

    world_kill(world, false);
    world->config.pool_size = 1;
    world_start(world);
    world_advance(world, 1000);
    member = sandbox_next(world->core, NULL);
    assert_non_null(member);
    fake_backend_move(world->backend, sandbox_id(member), BACKEND_FROZEN_BY_OTHERS);
    session = world_open_simple(world, "ann", NULL);
    world_use(world, session, &tried);
    assert_int_equal(tried.ready, 1);
    assert_string_not_equal(sandbox_id(session_sandbox(session)), sandbox_id(member));
    fake_backend_move(world->backend, sandbox_id(member), BACKEND_MOVES);
    assert_int_equal(sandbox_state(member), SANDBOX_READY);
    session_hold_end(&tried.hold);
}

static void it_can_be_ended(void **state)
{
    struct world *world = *state;
    struct session *session = open_unused(world);
    struct ended ended;

    move(world, session, BACKEND_FROZEN_BY_OTHERS);
    world_end(world, session, END_DELETED, &ended);
    world_settle(world);
    assert_int_equal(ended.done, 1);
    assert_int_equal(fake_backend_count(world->backend), 0);
}

#define TEST(function) cmocka_unit_test_setup_teardown(function, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(a_use_waits_until_it_is_thawed),
        TEST(a_use_that_waits_too_long_says_why),
        TEST(its_silence_does_not_end_it),
        TEST(it_is_left_frozen_when_its_connection_has_broken),
        TEST(a_pause_takes_it_over_and_a_resume_thaws_it),
        TEST(our_own_freeze_is_not_taken_for_it),
        TEST(the_next_daemon_leaves_it_frozen),
        TEST(the_next_daemon_goes_on_with_a_resume),
        TEST(a_member_of_the_pool_is_not_handed_out),
        TEST(it_can_be_ended),
    };

    return cmocka_run_group_tests_name("core/sandbox/frozen_by_others", tests, NULL, NULL);
}
