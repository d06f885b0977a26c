/* SPDX-License-Identifier: Apache-2.0 */
#include "core/sandbox/pool.h"
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
    *state = &world;
    return 0;
}

static int teardown(void **state)
{
    world_fini(*state);
    assert_int_equal(fake_agent_count(), 0);
    return 0;
}

struct outcome {
    unsigned started;
    unsigned stopped;
    enum error_code code;
};

static void on_started(struct core *core, const struct error *err, void *user)
{
    (void)core;
    (void)err;
    ((struct outcome *)user)->started++;
}

static void on_stopped(struct core *core, const struct error *err, void *user)
{
    struct outcome *outcome = user;

    (void)core;
    outcome->stopped++;
    outcome->code = err ? err->code : ERR_NONE;
}

static void begin(struct world *world, struct outcome *outcome)
{
    world->core = core_new(&(struct core_parts){
        .loop = world->loop,
        .config = &world->config,
        .store = world->store,
        .backends = world->backends,
        .state_dir = -1,
    });
    core_start(world->core, on_started, outcome);
}

static void stopping_while_it_starts_makes_no_pool(void **state)
{
    struct world *world = *state;
    struct outcome outcome = { 0 };

    world->config.pool_size = 3;
    begin(world, &outcome);
    core_stop(world->core, false, 1000, on_stopped, &outcome);
    world_advance(world, 500);
    assert_int_equal(outcome.stopped, 1);
    assert_int_equal(outcome.code, ERR_NONE);
    assert_int_equal(fake_backend_calls(world->backend, FAKE_CREATE), 0);
    assert_int_equal(pool_ready(world->core->pool), 0);
}

static void members_of_the_pool_are_gone_before_the_daemon_is(void **state)
{
    struct world *world = *state;
    struct outcome outcome = { 0 };

    world->config.pool_size = 2;
    world_start(world);
    world_settle(world);
    assert_int_equal(pool_ready(world->core->pool), 2);
    fake_backend_hold(world->backend, FAKE_DESTROY, true);
    core_stop(world->core, false, 10 * 1000, on_stopped, &outcome);
    world_advance(world, 500);
    assert_int_equal(fake_backend_calls(world->backend, FAKE_DESTROY), 2);
    assert_int_equal(outcome.stopped, 0);
    fake_backend_hold(world->backend, FAKE_DESTROY, false);
    world_advance(world, 500);
    assert_int_equal(outcome.stopped, 1);
    assert_int_equal(outcome.code, ERR_NONE);
    assert_int_equal(fake_store_count(world->store, STORE_SANDBOXES), 0);
}

static void a_backend_that_refuses_does_not_keep_the_daemon(void **state)
{
    struct world *world = *state;
    struct outcome outcome = { 0 };

    world->config.pool_size = 1;
    world_start(world);
    world_settle(world);
    fake_backend_refuse(world->backend, FAKE_DESTROY, 1, ERR_BACKEND);
    core_stop(world->core, false, 10 * 1000, on_stopped, &outcome);
    world_advance(world, 100);
    assert_int_equal(outcome.stopped, 1);
    assert_int_equal(fake_store_count(world->store, STORE_SANDBOXES), 1);
}

static void sessions_of_an_earlier_daemon_end_also_when_they_are_not_known_yet(void **state)
{
    struct world *world = *state;
    struct outcome outcome = { 0 };
    struct tried tried = { 0 };

    world_start(world);
    world_use(world, world_open_simple(world, "ann", NULL), &tried);
    world_kill(world, false);
    begin(world, &outcome);
    core_stop(world->core, true, 10 * 1000, on_stopped, &outcome);
    world_advance(world, 5000);
    assert_int_equal(outcome.stopped, 1);
    assert_int_equal(outcome.code, ERR_NONE);
    assert_int_equal(world->core->sessions_by_id.count, 0);
    assert_int_equal(fake_store_count(world->store, STORE_SANDBOXES), 0);
}

/* As daemon_fini() does it, at the worst moment: nothing was answered yet. */
static void what_the_store_owes_is_answered_before_the_core_goes(void **state)
{
    struct world *world = *state;
    struct session_request request = { .owner = "ann" };
    struct outcome outcome = { 0 };
    struct opened opened;
    struct tried tried = { 0 };

    world_start(world);
    world_use(world, world_open_simple(world, "bob", NULL), &tried);
    fake_store_hold(world->store, true);
    (void)world_open(world, &request, &opened);
    assert_false(opened.done);
    core_stop(world->core, true, 10 * 1000, on_stopped, &outcome);
    world_settle(world);
    assert_int_equal(outcome.stopped, 0);
    do
        store_drain(world->store);
    while (loop_run_deferred(world->loop));
    assert_true(opened.done);
    fake_backend_drop(world->backend, false);
    core_free(world->core);
    world->core = NULL;
    store_drain(world->store);
    world_settle(world);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(stopping_while_it_starts_makes_no_pool, setup, teardown),
        cmocka_unit_test_setup_teardown(members_of_the_pool_are_gone_before_the_daemon_is, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(a_backend_that_refuses_does_not_keep_the_daemon, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(
            sessions_of_an_earlier_daemon_end_also_when_they_are_not_known_yet, setup, teardown),
        cmocka_unit_test_setup_teardown(what_the_store_owes_is_answered_before_the_core_goes, setup,
                                        teardown),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
