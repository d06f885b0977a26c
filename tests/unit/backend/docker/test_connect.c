/* The way to an init, over an engine that the test plays. */

#include "base/fd.h"
#include "harness/docker_world.h"

#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>

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

/* The taken connection is ended: init has one at a time. */
static void a_second_connect_takes_the_place_of_the_first(void **state)
{
    struct backend_sandbox sandbox = docker_world_make(&world);
    struct question first = question_new();
    struct question second = question_new();
    char byte;

    (void)state;
    if (!backend_connect(world.backend, sandbox.id, &first.op))
        assert_int_equal(question_wait(&world, &first), ERR_NONE);
    if (!backend_connect(world.backend, sandbox.id, &second.op))
        assert_int_equal(question_wait(&world, &second), ERR_NONE);
    assert_int_equal(recv(first.op.result.fd, &byte, 1, MSG_DONTWAIT), 0);
    assert_int_equal(recv(second.op.result.fd, &byte, 1, MSG_DONTWAIT), -1);
    fd_close(first.op.result.fd);
    fd_close(second.op.result.fd);
}

/* A connect for which nothing arrives: the init is stopped, and its first connection is taken. */
static struct backend_sandbox make_waiting(struct question *question)
{
    struct backend_sandbox sandbox = docker_world_make(&world);
    struct question first = question_new();

    if (!backend_connect(world.backend, sandbox.id, &first.op))
        assert_int_equal(question_wait(&world, &first), ERR_NONE);
    assert_int_equal(kill(docker_world_container(&world, sandbox.id)->pid, SIGSTOP), 0);
    fd_close(first.op.result.fd);
    *question = question_new();
    assert_false(backend_connect(world.backend, sandbox.id, &question->op));
    return sandbox;
}

static void a_connect_that_waits_is_answered_when_the_sandbox_ends(void **state)
{
    struct question question;
    struct backend_sandbox sandbox = make_waiting(&question);

    (void)state;
    fake_container_kill(docker_world_container(&world, sandbox.id), SIGKILL);
    assert_int_equal(question_wait(&world, &question), ERR_GONE);
}

static void a_watch_that_is_stopped_leaves_a_connect_its_answer(void **state)
{
    struct question question;
    struct backend_sandbox sandbox = make_waiting(&question);
    struct witness witness;

    (void)state;
    docker_world_watch(&world, &witness, sandbox.id);
    fake_container_kill(docker_world_container(&world, sandbox.id), SIGKILL);
    backend_watch_stop(&witness.watch);
    assert_int_equal(question_wait(&world, &question), ERR_GONE);
    assert_false(witness.has_seen);
}

static void a_connect_that_waits_is_answered_when_the_sandbox_is_destroyed(void **state)
{
    struct question question;
    struct backend_sandbox sandbox = make_waiting(&question);

    (void)state;
    assert_int_equal(docker_world_destroy(&world, sandbox.id), ERR_NONE);
    assert_true(question.is_answered);
    assert_int_equal(question.op.err.code, ERR_GONE);
}

static void a_connect_that_waits_is_dropped_with_the_backend(void **state)
{
    struct question question;

    (void)state;
    (void)make_waiting(&question);
    docker_world_restart(&world);
    docker_world_idle(&world, 20);
    assert_false(question.is_answered);
}

#define TEST(function) cmocka_unit_test_setup_teardown(function, open_world, close_world)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(a_second_connect_takes_the_place_of_the_first),
        TEST(a_connect_that_waits_is_answered_when_the_sandbox_ends),
        TEST(a_watch_that_is_stopped_leaves_a_connect_its_answer),
        TEST(a_connect_that_waits_is_answered_when_the_sandbox_is_destroyed),
        TEST(a_connect_that_waits_is_dropped_with_the_backend),
    };

    return cmocka_run_group_tests_name("docker/connect", tests, NULL, NULL);
}
