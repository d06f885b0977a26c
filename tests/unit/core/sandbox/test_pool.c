/* SPDX-License-Identifier: Apache-2.0 */
#include "core/metrics.h"
#include "core/sandbox/capacity.h"
#include "core/sandbox/pool.h"
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

static void start_with(struct world *world, int64_t size)
{
    world->config.pool_size = size;
    world_restart(world);
    world_settle(world);
}

static uint64_t metric(struct world *world, enum metric metric)
{
    return world->core->metrics->values[metric][0];
}

static void the_pool_is_filled_one_at_a_time(void **state)
{
    struct world *world = *state;

    fake_backend_hold(world->backend, FAKE_CREATE, true);
    start_with(world, 3);
    assert_int_equal(fake_backend_calls(world->backend, FAKE_CREATE), 1);
    fake_backend_hold(world->backend, FAKE_CREATE, false);
    world_settle(world);
    assert_int_equal(pool_ready(world->core->pool), 3);
    assert_int_equal(fake_store_count(world->store, STORE_SANDBOXES), 3);
    assert_int_equal(capacity_held(world->core->capacity), 3);
}

static bool tight;

static bool memory_is_tight(void)
{
    return tight;
}

static void under_memory_pressure_members_are_given_back_one_by_one(void **state)
{
    struct world *world = *state;
    struct pool *pool;

    start_with(world, 3);
    pool = world->core->pool;
    pool_judge_memory(pool, memory_is_tight);
    tight = true;
    world_advance(world, 10000);
    assert_int_equal(pool_ready(pool), 2);
    world_advance(world, 1000);
    assert_int_equal(pool_ready(pool), 1);
    world_advance(world, 5000);
    assert_int_equal(pool_ready(pool), 0);
    assert_int_equal(fake_backend_count(world->backend), 0);
    assert_int_equal(metric(world, METRIC_POOL_SHRUNK), 3);
    tight = false;
    world_advance(world, 60000);
    assert_int_equal(pool_ready(pool), 3);
    assert_int_equal(metric(world, METRIC_POOL_SHRUNK), 3);
}

static void a_session_takes_a_member_and_the_pool_is_refilled(void **state)
{
    struct world *world = *state;
    struct session *session;
    struct tried tried;

    start_with(world, 2);
    session = world_open_simple(world, "ann", NULL);
    world_use(world, session, &tried);
    assert_int_equal(tried.hold.err.code, ERR_NONE);
    assert_int_equal(tried.hold.generation, 1);
    assert_int_equal(metric(world, METRIC_POOL_HITS), 1);
    world_advance(world, 100);
    assert_int_equal(pool_ready(world->core->pool), 2);
    assert_int_equal(fake_backend_count(world->backend), 3);
    session_hold_end(&tried.hold);
}

static void refilling_waits_for_a_lull_and_less_if_half_of_the_pool_is_gone(void **state)
{
    struct world *world = *state;
    struct tried tried[3];

    start_with(world, 4);
    for (unsigned i = 0; i < 3; i++) {
        world_use(world, world_open_simple(world, "ann", NULL), &tried[i]);
        assert_int_equal(tried[i].hold.err.code, ERR_NONE);
        assert_int_equal(pool_ready(world->core->pool), 3 - i);
    }
    world_advance(world, 2);
    assert_int_equal(pool_ready(world->core->pool), 1);
    world_advance(world, 2);
    assert_int_equal(pool_ready(world->core->pool), 2);
    world_advance(world, 100);
    assert_int_equal(pool_ready(world->core->pool), 4);
    for (unsigned i = 0; i < 3; i++)
        session_hold_end(&tried[i].hold);
}

static void the_last_member_is_made_again_at_once(void **state)
{
    struct world *world = *state;
    struct tried tried;

    start_with(world, 1);
    world_use(world, world_open_simple(world, "ann", NULL), &tried);
    assert_int_equal(metric(world, METRIC_POOL_HITS), 1);
    assert_int_equal(pool_ready(world->core->pool), 1);
    session_hold_end(&tried.hold);
}

enum { CROWD = 40, MINUTE_MS = 60 * 1000 };

static void after_a_crowd_as_many_are_kept_and_forgotten_by_half(void **state)
{
    struct world *world = *state;
    static struct tried tried[CROWD];
    struct pool *pool;

    world->config.capacity.max_sandboxes = world->config.capacity.max_per_owner = 0;
    world->config.pool_peak = 128;
    start_with(world, 2);
    pool = world->core->pool;
    for (unsigned i = 0; i < CROWD; i++)
        world_use(world, world_open_simple(world, "ann", NULL), &tried[i]);
    world_advance(world, 1000);
    assert_int_equal(pool_ready(pool), CROWD);
    world_advance(world, 4 * MINUTE_MS);
    assert_int_equal(pool_ready(pool), CROWD);
    world_advance(world, 2 * MINUTE_MS);
    assert_int_equal(pool_ready(pool), CROWD / 2);
    world_advance(world, 60 * MINUTE_MS);
    assert_int_equal(pool_ready(pool), 2);
    for (unsigned i = 0; i < CROWD; i++) {
        assert_int_equal(tried[i].hold.err.code, ERR_NONE);
        session_hold_end(&tried[i].hold);
    }
}

static void no_more_are_kept_for_a_crowd_than_the_settings_say(void **state)
{
    struct world *world = *state;
    static struct tried tried[CROWD];

    world->config.capacity.max_sandboxes = world->config.capacity.max_per_owner = 0;
    world->config.pool_peak = 5;
    start_with(world, 2);
    for (unsigned i = 0; i < CROWD; i++)
        world_use(world, world_open_simple(world, "ann", NULL), &tried[i]);
    world_advance(world, 1000);
    assert_int_equal(pool_ready(world->core->pool), 5);
    for (unsigned i = 0; i < CROWD; i++)
        session_hold_end(&tried[i].hold);
}

static void what_is_kept_for_a_crowd_gives_way_and_outlives_no_restart(void **state)
{
    struct world *world = *state;
    struct session_request request = SESSION_REQUEST_INIT;
    struct opened opened;
    static struct tried tried[CROWD + 1];

    world->config.capacity.max_sandboxes = CROWD + 10;
    world->config.pool_peak = 128;
    start_with(world, 2);
    for (unsigned i = 0; i < CROWD; i++)
        world_use(world, world_open_simple(world, "ann", NULL), &tried[i]);
    world_advance(world, 1000);
    assert_int_equal(pool_ready(world->core->pool), 10);
    request.network = NETWORK_OPEN;
    world_use(world, world_open(world, &request, &opened), &tried[CROWD]);
    assert_int_equal(pool_ready(world->core->pool), 9);
    for (unsigned i = 0; i <= CROWD; i++) {
        assert_int_equal(tried[i].hold.err.code, ERR_NONE);
        session_hold_end(&tried[i].hold);
    }
    world_restart(world);
    world_advance(world, 1000);
    assert_int_equal(pool_ready(world->core->pool), 2);
    assert_int_equal(fake_backend_count(world->backend), CROWD + 1 + 2);
}

static void who_may_have_no_more_is_no_crowd(void **state)
{
    struct world *world = *state;
    static struct tried tried[CROWD];

    world->config.capacity.max_sandboxes = 0;
    world->config.capacity.max_per_owner = 1;
    world->config.capacity.overflow = OVERFLOW_REJECT;
    world->config.pool_peak = 128;
    start_with(world, 2);
    for (unsigned i = 0; i < CROWD; i++)
        world_use(world, world_open_simple(world, "ann", NULL), &tried[i]);
    assert_int_equal(tried[CROWD - 1].hold.err.code, ERR_LIMIT);
    world_advance(world, 21);
    assert_int_equal(pool_ready(world->core->pool), 2);
    world_advance(world, 1000);
    assert_int_equal(pool_ready(world->core->pool), 2);
    for (unsigned i = 0; i < CROWD; i++)
        session_hold_end(&tried[i].hold);
}

static void a_claim_is_durable_before_it_is_used(void **state)
{
    struct world *world = *state;
    struct session *session;
    struct tried tried;

    start_with(world, 1);
    session = world_open_simple(world, "ann", NULL);
    fake_store_hold(world->store, true);
    world_use(world, session, &tried);
    assert_int_equal(tried.ready, 0);
    assert_int_equal(sandbox_state(session_sandbox(session)), SANDBOX_CREATING);
    fake_store_hold(world->store, false);
    world_settle(world);
    assert_int_equal(tried.ready, 1);
    session_hold_end(&tried.hold);
}

static void a_claimed_member_gets_the_limits_of_its_session(void **state)
{
    struct world *world = *state;
    struct session_request request = SESSION_REQUEST_INIT;
    struct opened opened;
    struct tried tried;

    start_with(world, 1);
    request.limits.memory_bytes = 64ULL << 20;
    world_use(world, world_open(world, &request, &opened), &tried);
    assert_int_equal(metric(world, METRIC_POOL_HITS), 1);
    assert_int_equal(fake_backend_calls(world->backend, FAKE_UPDATE), 1);
    assert_int_equal(fake_backend_memory(world->backend, sandbox_id(tried.hold.sandbox)),
                     64ULL << 20);
    session_hold_end(&tried.hold);
}

static void limits_that_cannot_be_set_fail_the_use_and_destroy_the_member(void **state)
{
    struct world *world = *state;
    struct session_request request = SESSION_REQUEST_INIT;
    struct opened opened;
    struct tried tried;

    start_with(world, 1);
    request.limits.memory_bytes = 64ULL << 20;
    fake_backend_refuse(world->backend, FAKE_UPDATE, 1, ERR_BACKEND);
    world_use(world, world_open(world, &request, &opened), &tried);
    assert_int_equal(tried.hold.err.code, ERR_BACKEND);
    assert_int_equal(fake_backend_count(world->backend), 1);
    assert_int_equal(pool_ready(world->core->pool), 1);
}

static void a_member_whose_limits_are_fixed_serves_no_other_limits(void **state)
{
    struct world *world = *state;
    struct backend_capabilities capabilities = world->backend->ops->capabilities;
    struct session_request request = SESSION_REQUEST_INIT;
    struct opened opened;
    struct tried tried;

    capabilities.fixed_limits = true;
    fake_backend_set_capabilities(world->backend, capabilities);
    start_with(world, 1);
    request.limits.memory_bytes = 64ULL << 20;
    world_use(world, world_open(world, &request, &opened), &tried);
    assert_int_equal(tried.hold.err.code, ERR_NONE);
    assert_int_equal(metric(world, METRIC_POOL_HITS), 0);
    assert_int_equal(fake_backend_calls(world->backend, FAKE_UPDATE), 0);
    session_hold_end(&tried.hold);
}

static void another_template_is_not_taken_from_the_pool(void **state)
{
    struct world *world = *state;
    struct session_request request = SESSION_REQUEST_INIT;
    struct opened opened;
    struct tried tried;

    start_with(world, 1);
    request.network = NETWORK_OPEN;
    world_use(world, world_open(world, &request, &opened), &tried);
    assert_int_equal(tried.hold.err.code, ERR_NONE);
    assert_int_equal(metric(world, METRIC_POOL_HITS), 0);
    session_hold_end(&tried.hold);
}

static void a_dead_member_is_never_handed_out(void **state)
{
    struct world *world = *state;
    struct sandbox *member;
    struct tried tried;
    char id[ID_SIZE];

    start_with(world, 1);
    member = sandbox_next(world->core, NULL);
    memcpy(id, sandbox_id(member), sizeof(id));
    fake_backend_kill(world->backend, id);
    world_settle(world);
    world_settle(world);
    assert_false(fake_backend_has(world->backend, id));
    assert_int_equal(pool_ready(world->core->pool), 1);
    world_use(world, world_open_simple(world, "ann", NULL), &tried);
    assert_string_not_equal(sandbox_id(tried.hold.sandbox), id);
    session_hold_end(&tried.hold);
}

static void a_member_that_dies_while_it_is_claimed_is_replaced(void **state)
{
    struct world *world = *state;
    struct session *session;
    struct tried tried;

    start_with(world, 1);
    session = world_open_simple(world, "ann", NULL);
    fake_store_hold(world->store, true);
    world_use(world, session, &tried);
    fake_backend_kill(world->backend, sandbox_id(session_sandbox(session)));
    world_settle(world);
    fake_store_hold(world->store, false);
    world_settle(world);
    assert_int_equal(tried.ready, 1);
    assert_int_equal(tried.hold.err.code, ERR_NONE);
    assert_int_equal(tried.hold.generation, 1);
    session_hold_end(&tried.hold);
}

static void a_refill_that_fails_backs_off(void **state)
{
    struct world *world = *state;
    unsigned calls;

    fake_backend_refuse(world->backend, FAKE_CREATE, 1000, ERR_BACKEND);
    start_with(world, 2);
    world_advance(world, 60 * 1000);
    calls = fake_backend_calls(world->backend, FAKE_CREATE);
    assert_in_range(calls, 3, 12);
    fake_backend_refuse(world->backend, FAKE_CREATE, 0, ERR_NONE);
    world_advance(world, 31 * 1000);
    assert_int_equal(pool_ready(world->core->pool), 2);
}

static void members_yield_to_sessions_at_the_cap(void **state)
{
    struct world *world = *state;
    struct session_request request = SESSION_REQUEST_INIT;
    struct opened opened;
    struct tried tried[2];

    world->config.capacity.max_sandboxes = 2;
    world->config.capacity.overflow = OVERFLOW_REJECT;
    start_with(world, 2);
    request.network = NETWORK_OPEN;
    for (int i = 0; i < 2; i++) {
        world_use(world, world_open(world, &request, &opened), &tried[i]);
        assert_int_equal(tried[i].hold.err.code, ERR_NONE);
        assert_int_equal(fake_backend_count(world->backend), 2);
    }
    assert_int_equal(pool_ready(world->core->pool), 0);
    world_use(world, world_open(world, &request, &opened), &tried[0]);
    assert_int_equal(tried[0].hold.err.code, ERR_LIMIT);
}

static void the_pool_takes_no_slot_that_somebody_waits_for(void **state)
{
    struct world *world = *state;
    struct tried held;
    struct tried waiting;
    struct session *session;
    struct ended ended;

    world->config.capacity.max_sandboxes = 1;
    world->config.capacity.overflow = OVERFLOW_WAIT;
    start_with(world, 1);
    session = world_open_simple(world, "ann", NULL);
    world_use(world, session, &held);
    world_use(world, world_open_simple(world, "bob", NULL), &waiting);
    world_end(world, session, END_DELETED, &ended);
    assert_int_equal(waiting.ready, 1);
    assert_int_equal(waiting.hold.err.code, ERR_NONE);
    assert_int_equal(pool_ready(world->core->pool), 0);
    session_hold_end(&waiting.hold);
}

static void members_of_an_earlier_daemon_are_replaced(void **state)
{
    struct world *world = *state;
    struct sandbox *member;
    char id[ID_SIZE];

    start_with(world, 1);
    member = sandbox_next(world->core, NULL);
    memcpy(id, sandbox_id(member), sizeof(id));
    world_restart(world);
    world_settle(world);
    assert_false(fake_backend_has(world->backend, id));
    assert_int_equal(pool_ready(world->core->pool), 1);
    assert_int_equal(fake_backend_count(world->backend), 1);
}

static void the_sandbox_of_a_session_never_comes_back_to_the_pool(void **state)
{
    struct world *world = *state;
    struct session *session;
    struct tried tried;
    struct ended ended;
    char id[ID_SIZE];

    start_with(world, 1);
    session = world_open_simple(world, "ann", NULL);
    world_use(world, session, &tried);
    memcpy(id, sandbox_id(session_sandbox(session)), sizeof(id));
    session_hold_end(&tried.hold);
    world_end(world, session, END_DELETED, &ended);
    assert_false(fake_backend_has(world->backend, id));
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(the_pool_is_filled_one_at_a_time),
        TEST(under_memory_pressure_members_are_given_back_one_by_one),
        TEST(a_session_takes_a_member_and_the_pool_is_refilled),
        TEST(refilling_waits_for_a_lull_and_less_if_half_of_the_pool_is_gone),
        TEST(the_last_member_is_made_again_at_once),
        TEST(after_a_crowd_as_many_are_kept_and_forgotten_by_half),
        TEST(no_more_are_kept_for_a_crowd_than_the_settings_say),
        TEST(what_is_kept_for_a_crowd_gives_way_and_outlives_no_restart),
        TEST(who_may_have_no_more_is_no_crowd),
        TEST(a_claim_is_durable_before_it_is_used),
        TEST(a_claimed_member_gets_the_limits_of_its_session),
        TEST(limits_that_cannot_be_set_fail_the_use_and_destroy_the_member),
        TEST(a_member_whose_limits_are_fixed_serves_no_other_limits),
        TEST(another_template_is_not_taken_from_the_pool),
        TEST(a_dead_member_is_never_handed_out),
        TEST(a_member_that_dies_while_it_is_claimed_is_replaced),
        TEST(a_refill_that_fails_backs_off),
        TEST(members_yield_to_sessions_at_the_cap),
        TEST(the_pool_takes_no_slot_that_somebody_waits_for),
        TEST(members_of_an_earlier_daemon_are_replaced),
        TEST(the_sandbox_of_a_session_never_comes_back_to_the_pool),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
