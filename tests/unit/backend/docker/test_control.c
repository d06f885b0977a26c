/* SPDX-License-Identifier: Apache-2.0 */
/* Destroy, list, freeze, update, usage and report, over an engine that the test plays. */

#include "base/alloc.h"
#include "base/fd.h"
#include "base/str.h"
#include "harness/docker_world.h"

#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
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

static bool has_door(const char *id)
{
    char path[512];

    snprintf(path, sizeof(path), "%s/docker/doors/%s", world.state_path, id);
    return access(path, F_OK) == 0;
}

/* --- destroy ----------------------------------------------------------------------------------------- */

static void destroy_leaves_no_container_and_no_door(void **state)
{
    struct backend_sandbox sandbox = docker_world_make(&world);
    pid_t pid = docker_world_container(&world, sandbox.id)->pid;

    (void)state;
    assert_true(has_door(sandbox.id));
    assert_int_equal(docker_world_destroy(&world, sandbox.id), ERR_NONE);
    assert_int_equal(docker_world_destroy(&world, sandbox.id), ERR_NONE);
    assert_false(has_door(sandbox.id));
    assert_int_equal(fake_engine_containers(world.engine), 0);
    assert_int_equal(kill(pid, 0), -1);
}

static void one_that_is_not_known_is_destroyed_by_its_name(void **state)
{
    struct backend_sandbox sandbox = docker_world_make(&world);

    (void)state;
    docker_world_restart(&world);
    assert_int_equal(docker_world_destroy(&world, sandbox.id), ERR_NONE);
    assert_int_equal(fake_engine_containers(world.engine), 0);
    assert_false(has_door(sandbox.id));
}

static void a_removal_whose_answer_is_lost_is_done_again(void **state)
{
    struct backend_sandbox sandbox = docker_world_make(&world);
    struct witness witness;

    (void)state;
    docker_world_watch(&world, &witness, sandbox.id);
    /* The client repeats it once on a new connection. */
    fake_engine_fail(world.engine,
                     (struct fake_fault){ .requests = "DELETE *", .kind = FAULT_LOSE, .times = 2 });
    assert_int_equal(docker_world_destroy(&world, sandbox.id), ERR_UNAVAILABLE);
    assert_int_equal(docker_world_destroy(&world, sandbox.id), ERR_NONE);
    assert_int_equal(docker_world_count(&world), 0);
}

static void a_removal_that_another_has_begun_is_waited_for(void **state)
{
    struct backend_sandbox sandbox = docker_world_make(&world);
    struct fake_container *container = docker_world_container(&world, sandbox.id);
    struct question question = question_new();

    (void)state;
    container->state = FAKE_REMOVING;
    backend_destroy(world.backend, sandbox.id, &question.op);
    docker_world_wait(&world, fake_engine_count(world.engine, "DELETE *") >= 2);
    assert_false(question.is_answered);
    fake_container_remove(container);
    assert_int_equal(question_wait(&world, &question), ERR_NONE);
}

static void a_removal_that_fails_can_be_tried_again(void **state)
{
    struct backend_sandbox sandbox = docker_world_make(&world);
    struct question question = question_new();

    (void)state;
    fake_engine_fail(world.engine, (struct fake_fault){ .requests = "DELETE *",
                                                        .status = 500,
                                                        .message = "driver failed: busy" });
    backend_destroy(world.backend, sandbox.id, &question.op);
    assert_int_equal(question_wait(&world, &question), ERR_BACKEND);
    assert_true(question.op.err.retryable);
    assert_int_equal(docker_world_count(&world), 1);
    assert_int_equal(docker_world_destroy(&world, sandbox.id), ERR_NONE);
}

/* Neither the engine's silence nor a page says that nothing is left. */
static void without_an_answer_nothing_is_destroyed(void **state)
{
    struct backend_sandbox sandbox = docker_world_make(&world);

    (void)state;
    docker_world_restart(&world);
    fake_engine_fail(world.engine, (struct fake_fault){ .requests = "GET /containers/*/json",
                                                        .status = 404,
                                                        .type = "text/html",
                                                        .body = "<html>" });
    assert_int_equal(docker_world_destroy(&world, sandbox.id), ERR_BACKEND);
    fake_engine_leave(world.engine);
    assert_int_equal(docker_world_destroy(&world, sandbox.id), ERR_UNAVAILABLE);
    assert_true(has_door(sandbox.id));
    fake_engine_return(world.engine);
    assert_int_equal(docker_world_destroy(&world, sandbox.id), ERR_NONE);
}

/* --- list --------------------------------------------------------------------------------------------- */

static void only_our_own_are_listed(void **state)
{
    struct backend_sandbox sandbox = docker_world_make(&world);

    (void)state;
    (void)fake_engine_put(world.engine, "a", "{}");
    (void)fake_engine_put(world.engine, "b",
                          "{\"sandglass.instance\": \"another\", \"sandglass.backend\": \"docker\","
                          " \"sandglass.sandbox\": \"sbx_00000000000000000000000000\"}");
    (void)fake_engine_put(world.engine, "c",
                          "{\"sandglass.instance\": \"test\", \"sandglass.backend\": \"gvisor\","
                          " \"sandglass.sandbox\": \"sbx_00000000000000000000000001\"}");
    (void)fake_engine_put(world.engine, "d",
                          "{\"sandglass.instance\": \"test\", \"sandglass.backend\": \"docker\","
                          " \"sandglass.sandbox\": \"../../etc\"}");
    assert_int_equal(docker_world_count(&world), 1);
    assert_int_equal(docker_world_destroy(&world, sandbox.id), ERR_NONE);
    assert_int_equal(fake_engine_containers(world.engine), 4);
}

/* A create that did not get far, in a daemon that died. */
static void a_door_without_a_container_is_listed_and_destroyed(void **state)
{
    struct backend_sandbox sandbox = docker_world_make(&world);

    (void)state;
    fake_container_remove(docker_world_container(&world, sandbox.id));
    docker_world_restart(&world);
    assert_int_equal(docker_world_count(&world), 1);
    assert_int_equal(docker_world_destroy(&world, sandbox.id), ERR_NONE);
    assert_int_equal(docker_world_count(&world), 0);
}

static void a_list_that_is_none_is_an_error(void **state)
{
    static const char *const bodies[] = { "{}", "null", "" };

    (void)state;
    (void)docker_world_make(&world);
    for (size_t i = 0; i < ARRAY_LENGTH(bodies); i++) {
        struct question question = question_new();

        fake_engine_fail(world.engine, (struct fake_fault){ .requests = "GET /containers/json",
                                                            .status = 200,
                                                            .body = bodies[i] });
        backend_list(world.backend, &question.op);
        assert_int_equal(question_wait(&world, &question), ERR_BACKEND);
        assert_int_equal(question.op.result.list.count, 0);
    }
}

/* --- freeze ------------------------------------------------------------------------------------------- */

static void pausing_twice_is_fine_for_every_engine(void **state)
{
    struct backend_sandbox sandbox = docker_world_make(&world);

    (void)state;
    for (unsigned podman = 0; podman < 2; podman++) {
        fake_engine_habits(world.engine)->is_podman = podman;
        assert_int_equal(docker_world_freeze(&world, sandbox.id, true), ERR_NONE);
        assert_int_equal(docker_world_freeze(&world, sandbox.id, true), ERR_NONE);
        assert_int_equal(docker_world_container(&world, sandbox.id)->state, FAKE_PAUSED);
        assert_int_equal(docker_world_freeze(&world, sandbox.id, false), ERR_NONE);
        assert_int_equal(docker_world_freeze(&world, sandbox.id, false), ERR_NONE);
        assert_int_equal(docker_world_container(&world, sandbox.id)->state, FAKE_RUNNING);
    }
}

static void a_pause_whose_answer_is_lost_has_happened(void **state)
{
    struct backend_sandbox sandbox = docker_world_make(&world);

    (void)state;
    fake_engine_fail(world.engine, (struct fake_fault){ .requests = "POST /containers/*/pause",
                                                        .kind = FAULT_LOSE });
    assert_int_equal(docker_world_freeze(&world, sandbox.id, true), ERR_NONE);
}

static void what_cannot_be_paused_is_told(void **state)
{
    struct backend_sandbox sandbox = docker_world_make(&world);

    (void)state;
    fake_engine_fail(world.engine, (struct fake_fault){ .requests = "POST /containers/*/pause",
                                                        .status = 500,
                                                        .message = "no freezer" });
    assert_int_equal(docker_world_freeze(&world, sandbox.id, true), ERR_BACKEND);
    assert_int_equal(docker_world_destroy(&world, sandbox.id), ERR_NONE);
    assert_int_equal(docker_world_freeze(&world, sandbox.id, true), ERR_GONE);
}

/* --- update, usage, report ------------------------------------------------------------------------------ */

static void limits_of_a_running_one_are_changed(void **state)
{
    struct backend_sandbox sandbox = docker_world_make(&world);
    struct sandbox_limits limits = docker_world_spec().limits;
    struct question question = question_new();
    json_t *host;

    (void)state;
    limits.memory_bytes *= 2;
    backend_update(world.backend, sandbox.id, &limits, &question.op);
    assert_int_equal(question_wait(&world, &question), ERR_NONE);
    host = json_object_get(docker_world_container(&world, sandbox.id)->request, "HostConfig");
    assert_int_equal(json_integer_value(json_object_get(host, "Memory")), limits.memory_bytes);
}

static void usage_that_the_kernel_does_not_tell_is_the_engines(void **state)
{
    struct backend_sandbox sandbox = docker_world_make(&world);
    struct question question = question_new();

    (void)state;
    backend_inspect(world.backend, sandbox.id, &question.op);
    assert_int_equal(question_wait(&world, &question), ERR_NONE);
    assert_int_equal(question.op.result.usage.cpu_us, 5000);
    assert_int_equal(question.op.result.usage.memory_bytes, 1048576);
    assert_int_equal(question.op.result.usage.memory_peak_bytes, 2097152);
    assert_int_equal(question.op.result.usage.pids, 3);
}

static void odd_numbers_of_usage_are_none(void **state)
{
    struct backend_sandbox sandbox = docker_world_make(&world);
    struct question question = question_new();

    (void)state;
    fake_engine_fail(
        world.engine,
        (struct fake_fault){
            .requests = "GET /containers/*/stats",
            .status = 200,
            .body = "{\"cpu_stats\": {\"cpu_usage\": {\"total_usage\": -5}}, \"memory_stats\": "
                    "{\"usage\": 1e300, \"max_usage\": 18446744073709551615}, \"pids_stats\": "
                    "{\"current\": 99999999999}}" });
    backend_inspect(world.backend, sandbox.id, &question.op);
    assert_int_equal(question_wait(&world, &question), ERR_NONE);
    assert_int_equal(question.op.result.usage.cpu_us, 0);
    assert_int_equal(question.op.result.usage.memory_bytes, 0);
    assert_int_equal(question.op.result.usage.memory_peak_bytes, 0);
    assert_int_equal(question.op.result.usage.pids, UINT32_MAX);
}

static void a_report_says_how_it_is_reached(void **state)
{
    struct backend_sandbox sandbox = docker_world_make(&world);
    struct question question = question_new();
    json_t *report;

    (void)state;
    if (!backend_report(world.backend, sandbox.id, &question.op))
        assert_int_equal(question_wait(&world, &question), ERR_NONE);
    report = json_loads(question.op.result.report, 0, NULL);
    assert_non_null(report);
    assert_string_equal(
        json_string_value(json_object_get(json_object_get(report, "container"), "reached_by")),
        "socket");
    assert_string_equal(json_string_value(json_object_get(report, "network")), "none");
    json_decref(report);
    free(question.op.result.report);
}

static void a_report_that_is_given_up_is_not_answered(void **state)
{
    struct backend_sandbox sandbox = docker_world_make(&world);
    struct question question = question_new();

    (void)state;
    assert_false(backend_report(world.backend, sandbox.id, &question.op));
    backend_cancel(world.backend, &question.op);
    docker_world_idle(&world, 30);
    assert_false(question.is_answered);
}

/* --- the end of the daemon ------------------------------------------------------------------------------ */

static void closing_with_everything_under_way_leaks_nothing(void **state)
{
    enum { QUESTIONS = 9 };
    struct backend_sandbox sandbox = docker_world_make(&world);
    struct backend_sandbox other = docker_world_make(&world);
    struct sandbox_spec specs[2] = { docker_world_spec(), docker_world_spec() };
    struct sandbox_limits limits = specs[0].limits;
    struct question questions[QUESTIONS];
    struct witness witness;

    (void)state;
    docker_world_watch(&world, &witness, sandbox.id);
    fake_engine_fail(world.engine,
                     (struct fake_fault){ .requests = "*", .kind = FAULT_HOLD, .times = 100 });
    for (unsigned i = 0; i < QUESTIONS; i++)
        questions[i] = question_new();
    specs[1].source.name = "python";
    backend_create(world.backend, &specs[0], &questions[0].op);
    backend_create(world.backend, &specs[1], &questions[1].op);
    backend_adopt(world.backend, &other, &questions[2].op);
    backend_freeze(world.backend, sandbox.id, true, &questions[3].op);
    backend_update(world.backend, sandbox.id, &limits, &questions[4].op);
    backend_inspect(world.backend, sandbox.id, &questions[5].op);
    backend_list(world.backend, &questions[6].op);
    assert_false(backend_report(world.backend, sandbox.id, &questions[7].op));
    backend_destroy(world.backend, other.id, &questions[8].op);
    fake_container_kill(docker_world_container(&world, sandbox.id), SIGKILL);
    docker_world_wait(&world, fake_engine_held(world.engine) >= QUESTIONS);
    backend_close(world.backend);
    world.backend = NULL;
    docker_world_idle(&world, 20);
    for (unsigned i = 0; i < QUESTIONS; i++)
        assert_false(questions[i].is_answered);
    assert_false(witness.has_seen);
    assert_int_not_equal(witness.watch.state, BACKEND_WATCHED);
}

/* A relay's bridge has an exec under way, and a pull streams. */
static void closing_with_streams_under_way_leaks_nothing(void **state)
{
    struct sandbox_spec spec = docker_world_spec();
    struct question question = question_new();
    struct question connect = question_new();
    struct backend_sandbox sandbox;

    (void)state;
    fake_engine_habits(world.engine)->sees_no_files = true;
    fake_engine_fail(world.engine, (struct fake_fault){ .requests = "POST /containers/*/exec",
                                                        .kind = FAULT_HOLD,
                                                        .times = 10 });
    fake_engine_fail(world.engine,
                     (struct fake_fault){ .requests = "POST /images/create", .kind = FAULT_HOLD });
    sandbox = docker_world_make(&world);
    assert_true(backend_connect(world.backend, sandbox.id, &connect.op));
    assert_int_equal(connect.op.err.code, ERR_NONE);
    spec.source.name = "python";
    backend_create(world.backend, &spec, &question.op);
    docker_world_wait(&world, fake_engine_held(world.engine) == 2);
    backend_close(world.backend);
    world.backend = NULL;
    docker_world_idle(&world, 20);
    assert_false(question.is_answered);
    fd_close(connect.op.result.fd);
}

/* The bridge's attempt waits for the engine. */
static void destroying_one_whose_relay_is_being_reached_is_fine(void **state)
{
    struct backend_sandbox sandbox;
    struct question connect = question_new();

    (void)state;
    fake_engine_habits(world.engine)->sees_no_files = true;
    fake_engine_fail(world.engine, (struct fake_fault){ .requests = "POST /containers/*/exec",
                                                        .kind = FAULT_HOLD,
                                                        .times = 10 });
    sandbox = docker_world_make(&world);
    assert_true(backend_connect(world.backend, sandbox.id, &connect.op));
    docker_world_wait(&world, fake_engine_held(world.engine) == 1);
    assert_int_equal(docker_world_destroy(&world, sandbox.id), ERR_NONE);
    fake_engine_release(world.engine);
    docker_world_idle(&world, 20);
    fd_close(connect.op.result.fd);
}

#define TEST(function) cmocka_unit_test_setup_teardown(function, open_world, close_world)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(destroy_leaves_no_container_and_no_door),
        TEST(one_that_is_not_known_is_destroyed_by_its_name),
        TEST(a_removal_whose_answer_is_lost_is_done_again),
        TEST(a_removal_that_another_has_begun_is_waited_for),
        TEST(a_removal_that_fails_can_be_tried_again),
        TEST(without_an_answer_nothing_is_destroyed),
        TEST(only_our_own_are_listed),
        TEST(a_door_without_a_container_is_listed_and_destroyed),
        TEST(a_list_that_is_none_is_an_error),
        TEST(pausing_twice_is_fine_for_every_engine),
        TEST(a_pause_whose_answer_is_lost_has_happened),
        TEST(what_cannot_be_paused_is_told),
        TEST(limits_of_a_running_one_are_changed),
        TEST(usage_that_the_kernel_does_not_tell_is_the_engines),
        TEST(odd_numbers_of_usage_are_none),
        TEST(a_report_says_how_it_is_reached),
        TEST(a_report_that_is_given_up_is_not_answered),
        TEST(closing_with_everything_under_way_leaks_nothing),
        TEST(closing_with_streams_under_way_leaks_nothing),
        TEST(destroying_one_whose_relay_is_being_reached_is_fine),
    };

    return cmocka_run_group_tests_name("docker/control", tests, NULL, NULL);
}
