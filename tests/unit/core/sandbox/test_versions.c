/* SPDX-License-Identifier: Apache-2.0 */
/* Sandboxes of another release, whose init speaks other versions of the protocol. */

#include "config/config.h"
#include "core/sandbox/sandbox.h"
#include "harness/fake_agent.h"
#include "harness/fake_backend.h"
#include "harness/world.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

static char id[ID_SIZE];

/* A session with a sandbox, and the daemon is one of another release now. */
static int setup(void **state)
{
    static struct world world;
    struct tried tried;
    struct session *session;

    world_init(&world);
    world_start(&world);
    session = world_open_simple(&world, "ann", NULL);
    memcpy(id, session_id(session), sizeof(id));
    world_use(&world, session, &tried);
    assert_int_equal(tried.ready, 1);
    session_hold_end(&tried.hold);
    world_settle(&world);
    fake_agent_be_foreign(true);
    world_restart(&world);
    *state = &world;
    return 0;
}

static int teardown(void **state)
{
    fake_agent_be_foreign(false);
    world_fini(*state);
    assert_int_equal(fake_agent_count(), 0);
    return 0;
}

static const struct sandbox *the_sandbox(struct world *world)
{
    return session_sandbox(world_find(world, id));
}

static void it_is_neither_dead_nor_asked_again(void **state)
{
    struct world *world = *state;
    unsigned asked = fake_backend_calls(world->backend, FAKE_ADOPT);

    assert_int_equal(sandbox_state(the_sandbox(world)), SANDBOX_UNKNOWN);
    assert_string_equal(sandbox_out_of_reach(the_sandbox(world))->name, AGENT_OTHER_VERSION);
    world_advance(world, 10 * 60 * 1000);
    assert_int_equal(sandbox_state(the_sandbox(world)), SANDBOX_UNKNOWN);
    assert_int_equal(fake_backend_calls(world->backend, FAKE_ADOPT), asked);
    assert_int_equal(fake_backend_alive(world->backend), 1);
}

static void whoever_uses_it_is_told_why_not(void **state)
{
    struct world *world = *state;
    struct tried tried;

    world_use(world, world_find(world, id), &tried);
    assert_int_equal(tried.ready, 1);
    assert_int_equal(tried.hold.err.code, ERR_BACKEND);
    assert_string_equal(tried.hold.err.name, AGENT_OTHER_VERSION);
    assert_false(tried.hold.err.retryable);
    assert_non_null(strstr(tried.hold.err.message, id));
    assert_int_equal(fake_backend_alive(world->backend), 1);
}

static void it_can_be_ended(void **state)
{
    struct world *world = *state;
    struct ended ended;

    world_end(world, world_find(world, id), END_DELETED, &ended);
    world_settle(world);
    assert_int_equal(ended.done, 1);
    assert_int_equal(ended.op.err.code, ERR_NONE);
    assert_null(world_find(world, id));
    assert_int_equal(fake_backend_count(world->backend), 0);
}

static void its_clocks_run(void **state)
{
    struct world *world = *state;

    world_advance(world, world->config.session.idle_timeout_ms + 1000);
    assert_null(world_find(world, id));
    assert_int_equal(fake_backend_count(world->backend), 0);
}

static void its_end_is_noticed(void **state)
{
    struct world *world = *state;
    struct tried tried;

    fake_backend_kill(world->backend, sandbox_id(the_sandbox(world)));
    world_settle(world);
    fake_agent_be_foreign(false);
    world_use(world, world_find(world, id), &tried);
    assert_int_equal(tried.hold.err.code, ERR_NONE);
    assert_int_equal(tried.hold.generation, 2);
    session_hold_end(&tried.hold);
}

static void a_daemon_of_its_own_release_goes_on_with_it(void **state)
{
    struct world *world = *state;
    struct tried tried;

    world_restart(world); /* one more that cannot */
    fake_agent_be_foreign(false);
    world_restart(world);
    assert_null(sandbox_out_of_reach(the_sandbox(world)));
    world_use(world, world_find(world, id), &tried);
    assert_int_equal(tried.hold.err.code, ERR_NONE);
    assert_int_equal(tried.hold.generation, 1);
    session_hold_end(&tried.hold);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(it_is_neither_dead_nor_asked_again),
        TEST(whoever_uses_it_is_told_why_not),
        TEST(it_can_be_ended),
        TEST(its_clocks_run),
        TEST(its_end_is_noticed),
        TEST(a_daemon_of_its_own_release_goes_on_with_it),
    };

    return cmocka_run_group_tests_name("core/sandbox/versions", tests, NULL, NULL);
}
