/* SPDX-License-Identifier: Apache-2.0 */
/* The way to an init, over an engine that the test plays. */

#include "base/fd.h"
#include "base/macros.h"
#include "base/scoped.h"
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

/* --- by a relay --------------------------------------------------------------------------------- */

/* Made by an engine elsewhere, and connected; the descriptor is the caller's. */
static int make_relayed(void)
{
    struct backend_sandbox sandbox;
    struct question question = question_new();

    fake_engine_habits(world.engine)->sees_no_files = true;
    sandbox = docker_world_make(&world);
    assert_true(backend_connect(world.backend, sandbox.id, &question.op));
    assert_int_equal(question.op.err.code, ERR_NONE);
    return question.op.result.fd;
}

static unsigned execs(void)
{
    return fake_engine_count(world.engine, "POST /containers/*/exec");
}

static void wait_for_exec(void)
{
    for (unsigned i = 0; i < 500 && !execs(); i++)
        docker_world_idle(&world, 10);
    assert_true(execs() > 0);
}

static void the_first_connection_to_a_relay_needs_no_exec(void **state)
{
    scoped(fd_close) int fd = make_relayed();

    (void)state;
    docker_world_idle(&world, 200);
    assert_int_equal(fake_engine_attached(world.engine), 1);
    assert_int_equal(execs(), 0);
}

static void a_relay_whose_stream_was_cut_is_reached_by_an_exec(void **state)
{
    scoped(fd_close) int fd = make_relayed();

    (void)state;
    fake_engine_cut_attached(world.engine);
    wait_for_exec();
    assert_int_equal(fake_engine_count(world.engine, "POST /containers/*/attach"), 1);
}

static void an_engine_that_cannot_attach_reaches_the_relay_by_an_exec(void **state)
{
    int fd;

    (void)state;
    fake_engine_habits(world.engine)->attaches_to_nothing = true;
    fd = make_relayed();
    wait_for_exec();
    fd_close(fd);
}

/* What an init that root inside has replaced may say, and what an engine may make of it. */
static void hostile_bytes_on_the_attached_stream_end_it(void **state)
{
    static const struct {
        const char *bytes;
        size_t length;
    } rows[] = {
        { "HTTP/1.1 500 no\r\n\r\n", 19 }, /* no frame of the engine */
        { "\1\0\0\0\0\0\0\20\377\377\377\377\377\377\377\377\377\377\377\377\377\377\377\377", 24 },
        { "\1\0\0\0\377\377\377\377\0\0\0\0\1\0\0\0\0\0\0\0\0\0\0\0", 24 }, /* a short greeting */
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_LENGTH(rows); i++) {
        unsigned before = execs();
        int fd = make_relayed();

        fake_engine_say(world.engine, rows[i].bytes, rows[i].length);
        for (unsigned turn = 0; turn < 500 && execs() == before; turn++)
            docker_world_idle(&world, 10);
        assert_true(execs() > before);
        fd_close(fd);
        fake_engine_cut_attached(world.engine);
    }
}

static void a_create_can_be_dropped_while_it_attaches(void **state)
{
    struct sandbox_spec spec = docker_world_spec();
    struct question question = question_new();

    (void)state;
    fake_engine_habits(world.engine)->sees_no_files = true;
    fake_engine_fail(world.engine, (struct fake_fault){ .requests = "POST /containers/*/attach",
                                                        .kind = FAULT_HOLD });
    backend_create(world.backend, &spec, &question.op);
    for (unsigned i = 0; i < 500 && !fake_engine_held(world.engine); i++)
        docker_world_idle(&world, 10);
    docker_world_restart(&world);
    docker_world_idle(&world, 20);
    assert_false(question.is_answered);
    assert_int_equal(fake_engine_count(world.engine, "POST /containers/*/start"), 0);
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
        TEST(the_first_connection_to_a_relay_needs_no_exec),
        TEST(a_relay_whose_stream_was_cut_is_reached_by_an_exec),
        TEST(an_engine_that_cannot_attach_reaches_the_relay_by_an_exec),
        TEST(hostile_bytes_on_the_attached_stream_end_it),
        TEST(a_create_can_be_dropped_while_it_attaches),
    };

    return cmocka_run_group_tests_name("docker/connect", tests, NULL, NULL);
}
