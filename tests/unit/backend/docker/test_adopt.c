/* SPDX-License-Identifier: Apache-2.0 */
/* Containers of an earlier daemon, over an engine that the test plays. */

#include "base/str.h"
#include "harness/docker_world.h"

#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

static struct docker_world world;

static int open_world(void **state)
{
    (void)state;
    docker_world_start(&world, "");
    return 0;
}

static int close_world(void **state)
{
    (void)state;
    docker_world_close(&world);
    return 0;
}

/* The directory of its door, with another name or back. */
static void rename_doors(const char *from, const char *to)
{
    char paths[2][512];

    snprintf(paths[0], sizeof(paths[0]), "%s/docker/%s", world.state_path, from);
    snprintf(paths[1], sizeof(paths[1]), "%s/docker/%s", world.state_path, to);
    assert_int_equal(rename(paths[0], paths[1]), 0);
}

static void put_file(const char *name)
{
    char path[512];
    FILE *file;

    snprintf(path, sizeof(path), "%s/docker/%s", world.state_path, name);
    file = fopen(path, "we");
    assert_non_null(file);
    fclose(file);
}

static void remove_file(const char *name)
{
    char path[512];

    snprintf(path, sizeof(path), "%s/docker/%s", world.state_path, name);
    assert_int_equal(unlink(path), 0);
}

static void one_whose_door_cannot_be_opened_is_not_known_and_can_be_adopted_later(void **state)
{
    struct backend_sandbox sandbox = docker_world_make(&world);
    struct question question;

    (void)state;
    /* Its init has found its door. */
    assert_int_equal(docker_world_connect(&world, sandbox.id), ERR_NONE);
    docker_world_restart(&world);
    rename_doors("doors", "away");
    put_file("doors");
    for (unsigned i = 0; i < 2; i++) {
        assert_int_not_equal(docker_world_adopt(&world, &sandbox, &question), ERR_NONE);
        assert_int_not_equal(question.op.err.code, ERR_GONE);
        assert_int_not_equal(docker_world_connect(&world, sandbox.id), ERR_NONE);
    }
    remove_file("doors");
    rename_doors("away", "doors");
    assert_int_equal(docker_world_adopt(&world, &sandbox, &question), ERR_NONE);
    assert_int_equal(docker_world_connect(&world, sandbox.id), ERR_NONE);
}

/* Its engine may be in another place than that of the daemon that made it. */
static void one_whose_process_is_not_here_is_not_known(void **state)
{
    struct backend_sandbox sandbox = docker_world_make(&world);
    struct question question;

    (void)state;
    docker_world_restart(&world);
    fake_engine_habits(world.engine)->is_elsewhere = true;
    for (unsigned i = 0; i < 2; i++) {
        assert_int_equal(docker_world_adopt(&world, &sandbox, &question), ERR_BACKEND);
        assert_true(question.op.err.retryable);
        assert_int_not_equal(docker_world_connect(&world, sandbox.id), ERR_NONE);
    }
    fake_engine_habits(world.engine)->is_elsewhere = false;
    assert_int_equal(docker_world_adopt(&world, &sandbox, &question), ERR_NONE);
}

static void the_engine_is_asked_again_while_it_calls_a_dead_init_running(void **state)
{
    struct backend_sandbox sandbox = docker_world_make(&world);
    struct fake_container *container = docker_world_container(&world, sandbox.id);
    struct question question = question_new();

    (void)state;
    fake_engine_habits(world.engine)->is_slow_to_note = true;
    fake_container_kill(container, SIGKILL);
    docker_world_wait(&world, container->parent && !container->reports.events);
    docker_world_restart(&world);
    backend_adopt(world.backend, &sandbox, &question.op);
    docker_world_idle(&world, 50);
    assert_false(question.is_answered);
    fake_engine_note(world.engine);
    assert_int_equal(question_wait(&world, &question), ERR_GONE);
}

static void one_that_is_paused_is_adopted_as_frozen(void **state)
{
    struct backend_sandbox sandbox = docker_world_make(&world);
    struct question question;

    (void)state;
    fake_container_pause(docker_world_container(&world, sandbox.id), true);
    docker_world_restart(&world);
    assert_int_equal(docker_world_adopt(&world, &sandbox, &question), ERR_NONE);
    assert_true(question.op.result.made.frozen);
    assert_string_equal(question.op.result.made.sandbox.handle, sandbox.handle);
}

static void one_that_was_started_again_is_gone(void **state)
{
    struct backend_sandbox sandbox = docker_world_make(&world);
    struct question question;

    (void)state;
    docker_world_restart(&world);
    fake_container_restart(docker_world_container(&world, sandbox.id));
    assert_int_equal(docker_world_adopt(&world, &sandbox, &question), ERR_GONE);
}

static void one_that_was_removed_is_gone(void **state)
{
    struct backend_sandbox sandbox = docker_world_make(&world);
    struct question question;

    (void)state;
    docker_world_restart(&world);
    fake_container_remove(docker_world_container(&world, sandbox.id));
    assert_int_equal(docker_world_adopt(&world, &sandbox, &question), ERR_GONE);
}

static void an_engine_that_is_away_or_is_none_says_nothing(void **state)
{
    struct backend_sandbox sandbox = docker_world_make(&world);
    struct question question;

    (void)state;
    docker_world_restart(&world);
    fake_engine_fail(world.engine, (struct fake_fault){ .requests = "GET /containers/*/json",
                                                        .status = 404,
                                                        .type = "text/html",
                                                        .body = "<html>" });
    fake_engine_fail(
        world.engine,
        (struct fake_fault){ .requests = "GET /containers/*/json", .status = 200, .body = "[]" });
    fake_engine_fail(world.engine, (struct fake_fault){ .requests = "GET /containers/*/json",
                                                        .status = 404,
                                                        .type = "text/plain",
                                                        .body = "404 page not found" });
    for (unsigned i = 0; i < 3; i++) {
        assert_int_not_equal(docker_world_adopt(&world, &sandbox, &question), ERR_NONE);
        assert_int_not_equal(question.op.err.code, ERR_GONE);
    }
    fake_engine_leave(world.engine);
    assert_int_equal(docker_world_adopt(&world, &sandbox, &question), ERR_UNAVAILABLE);
    fake_engine_return(world.engine);
    assert_int_equal(docker_world_adopt(&world, &sandbox, &question), ERR_NONE);
}

#define TEST(function) cmocka_unit_test_setup_teardown(function, open_world, close_world)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(one_whose_door_cannot_be_opened_is_not_known_and_can_be_adopted_later),
        TEST(one_whose_process_is_not_here_is_not_known),
        TEST(the_engine_is_asked_again_while_it_calls_a_dead_init_running),
        TEST(one_that_is_paused_is_adopted_as_frozen),
        TEST(one_that_was_started_again_is_gone),
        TEST(one_that_was_removed_is_gone),
        TEST(an_engine_that_is_away_or_is_none_says_nothing),
    };

    return cmocka_run_group_tests_name("docker/adopt", tests, NULL, NULL);
}
