/* SPDX-License-Identifier: Apache-2.0 */
/* Containers that are paused, by the backend and by others, over an engine that the test plays. */

#include "backend/docker/docker_private.h"
#include "harness/docker_world.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

static struct docker_world world;
static struct backend_sandbox sandbox;
static struct witness witness;

static int open_world(void **state)
{
    (void)state;
    docker_world_start(&world, "");
    docker_world_wait(&world, fake_engine_event_streams(world.engine) == 1);
    sandbox = docker_world_make(&world);
    docker_world_watch(&world, &witness, sandbox.id);
    return 0;
}

static int close_world(void **state)
{
    (void)state;
    docker_world_close(&world);
    return 0;
}

static struct fake_container *container(void)
{
    return docker_world_container(&world, sandbox.id);
}

static void wait_for_motion(enum backend_motion motion)
{
    docker_world_wait(&world, witness.watch.motion == motion);
    docker_world_idle(&world, 250); /* and it stays so */
    assert_int_equal(witness.watch.motion, motion);
    assert_false(witness.has_seen);
}

static void a_pause_by_others_is_told(void **state)
{
    (void)state;
    fake_container_pause(container(), true);
    wait_for_motion(BACKEND_FROZEN_BY_OTHERS);
    fake_container_pause(container(), false);
    wait_for_motion(BACKEND_MOVES);
}

static void a_short_pause_is_over(void **state)
{
    (void)state;
    fake_container_pause(container(), true);
    fake_container_pause(container(), false);
    wait_for_motion(BACKEND_MOVES);
}

static unsigned moves;

static void count_move(struct backend_watch *watch)
{
    (void)watch;
    moves++;
}

/* Its events come like those of others. */
static void our_own_freeze_is_not_taken_for_one_by_others(void **state)
{
    (void)state;
    moves = 0;
    backend_watch_motion(&witness.watch, count_move);
    assert_int_equal(docker_world_freeze(&world, sandbox.id, true), ERR_NONE);
    docker_world_idle(&world, 250);
    assert_int_equal(docker_world_freeze(&world, sandbox.id, false), ERR_NONE);
    docker_world_idle(&world, 250);
    assert_int_equal(docker_world_freeze(&world, sandbox.id, true), ERR_NONE);
    assert_int_equal(docker_world_freeze(&world, sandbox.id, false), ERR_NONE);
    docker_world_idle(&world, 250);
    assert_int_equal(moves, 0);
}

static void a_freeze_takes_over_what_others_have_paused(void **state)
{
    (void)state;
    fake_container_pause(container(), true);
    wait_for_motion(BACKEND_FROZEN_BY_OTHERS);
    assert_int_equal(docker_world_freeze(&world, sandbox.id, true), ERR_NONE);
    wait_for_motion(BACKEND_MOVES);
    assert_int_equal(docker_world_freeze(&world, sandbox.id, false), ERR_NONE);
    wait_for_motion(BACKEND_MOVES);
    assert_int_equal(container()->state, FAKE_RUNNING);
}

/* It comes between the effect of our own request and its answer. */
static void a_pause_during_our_own_thaw_is_told(void **state)
{
    struct question question = question_new();

    (void)state;
    assert_int_equal(docker_world_freeze(&world, sandbox.id, true), ERR_NONE);
    fake_engine_fail(world.engine, (struct fake_fault){ .requests = "POST /containers/*/unpause",
                                                        .kind = FAULT_HOLD_AFTER });
    backend_freeze(world.backend, sandbox.id, false, &question.op);
    docker_world_wait(&world, fake_engine_held(world.engine) == 1);
    fake_container_pause(container(), true);
    docker_world_idle(&world, 100);
    fake_engine_release(world.engine);
    assert_int_equal(question_wait(&world, &question), ERR_NONE);
    wait_for_motion(BACKEND_FROZEN_BY_OTHERS);
}

static void miss(bool is_paused)
{
    struct fake_habits *habits = fake_engine_habits(world.engine);

    habits->keeps_silent = true;
    fake_container_pause(container(), is_paused);
    docker_world_idle(&world, 50);
    habits->keeps_silent = false;
    fake_engine_cut_events(world.engine);
}

static void a_pause_that_was_missed_is_told_when_the_engine_is_back(void **state)
{
    (void)state;
    miss(true);
    wait_for_motion(BACKEND_FROZEN_BY_OTHERS);
    miss(false);
    wait_for_motion(BACKEND_MOVES);
}

static void the_next_daemon_finds_it_paused(void **state)
{
    struct question question;

    (void)state;
    fake_container_pause(container(), true);
    docker_world_restart(&world);
    docker_world_wait(&world, fake_engine_event_streams(world.engine) == 1);
    assert_int_equal(docker_world_adopt(&world, &sandbox, &question), ERR_NONE);
    assert_true(question.op.result.made.frozen);
    docker_world_watch(&world, &witness, sandbox.id);
    wait_for_motion(BACKEND_FROZEN_BY_OTHERS);
    fake_container_pause(container(), false);
    wait_for_motion(BACKEND_MOVES);
}

static void an_end_while_it_is_paused_is_told(void **state)
{
    (void)state;
    fake_container_pause(container(), true);
    wait_for_motion(BACKEND_FROZEN_BY_OTHERS);
    fake_container_remove(container());
    docker_world_wait(&world, witness.has_seen);
    assert_string_equal(witness.watch.end.detail, "removed");
}

#define TEST(function) cmocka_unit_test_setup_teardown(function, open_world, close_world)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(a_pause_by_others_is_told),
        TEST(a_short_pause_is_over),
        TEST(our_own_freeze_is_not_taken_for_one_by_others),
        TEST(a_freeze_takes_over_what_others_have_paused),
        TEST(a_pause_during_our_own_thaw_is_told),
        TEST(a_pause_that_was_missed_is_told_when_the_engine_is_back),
        TEST(the_next_daemon_finds_it_paused),
        TEST(an_end_while_it_is_paused_is_told),
    };

    return cmocka_run_group_tests_name("docker/motion", tests, NULL, NULL);
}
