/* SPDX-License-Identifier: Apache-2.0 */
/* Opening a backend, and what it knows of its engine. */

#include "backend/docker/docker_private.h"

#include "base/str.h"
#include "harness/docker_world.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static struct docker_world world;

static int close_world(void **state)
{
    (void)state;
    docker_world_close(&world);
    return 0;
}

static const char *runtime_of_world(void)
{
    return docker_from(world.backend)->runtime;
}

static void a_backend_opens_without_its_engine_and_serves_when_it_comes(void **state)
{
    struct error err = { 0 };

    (void)state;
    docker_world_init(&world, "docker", "");
    fake_engine_leave(world.engine);
    docker_world_open(&world);
    assert_int_equal(backend_check(world.backend, &err), -1);
    assert_int_equal(err.code, ERR_UNAVAILABLE);
    assert_true(*err.hint);
    fake_engine_return(world.engine);
    docker_world_wait(&world, backend_check(world.backend, &err) == 0);
    (void)docker_world_make(&world);
}

static void a_missing_runtime_names_the_remedy(void **state)
{
    struct error err = { 0 };

    (void)state;
    docker_world_init(&world, "gvisor", "");
    fake_engine_habits(world.engine)->lacks_runsc = true;
    assert_int_equal(docker_world_try(&world, &err), -1);
    assert_string_equal(err.name, "runtime_missing");
    assert_non_null(strstr(err.hint, "runsc install"));
}

static void a_missing_runtime_of_the_settings_is_told(void **state)
{
    struct error err = { 0 };

    (void)state;
    docker_world_init(&world, "docker", "docker.runtime: kata\n");
    assert_int_equal(docker_world_try(&world, &err), -1);
    assert_string_equal(err.name, "runtime_missing");
    assert_non_null(strstr(err.message, "kata"));
    assert_non_null(strstr(err.hint, "docker.runtime"));
}

/* The setting is for both backends, and gvisor without gVisor would be a lie. */
static void gvisor_never_runs_without_gvisor(void **state)
{
    (void)state;
    docker_world_init(&world, "gvisor", "docker.runtime: crun\n");
    docker_world_open(&world);
    assert_string_equal(runtime_of_world(), "runsc");
}

static void a_runtime_of_gvisor_is_taken_from_the_settings(void **state)
{
    struct error err = { 0 };

    (void)state;
    docker_world_init(&world, "gvisor", "docker.runtime: runsc-kvm\n");
    assert_int_equal(docker_world_try(&world, &err), -1); /* the engine has none */
    assert_non_null(strstr(err.message, "runsc-kvm"));
}

/* The stream of events goes on: nothing else would ask. */
static void an_engine_that_did_not_describe_itself_once_is_asked_again(void **state)
{
    struct error err = { 0 };

    (void)state;
    docker_world_init(&world, "docker", "");
    fake_engine_fail(world.engine,
                     (struct fake_fault){
                         .requests = "GET /info", .times = 2, .status = 500, .message = "busy" });
    docker_world_open(&world);
    docker_world_wait(&world, fake_engine_count(world.engine, "GET /info") == 2);
    assert_int_equal(backend_check(world.backend, &err), -1);
    docker_world_wait(&world, backend_check(world.backend, &err) == 0);
}

static void what_is_no_engine_is_told(void **state)
{
    struct error err = { 0 };

    (void)state;
    docker_world_init(&world, "docker", "");
    fake_engine_fail(world.engine, (struct fake_fault){ .requests = "GET /info",
                                                        .times = 2,
                                                        .status = 200,
                                                        .type = "text/plain",
                                                        .body = "hello" });
    docker_world_open(&world);
    assert_int_equal(backend_check(world.backend, &err), -1);
    assert_int_equal(err.code, ERR_BACKEND);
    assert_true(*err.message);
}

static void an_address_that_is_none_is_refused(void **state)
{
    struct error err = { 0 };

    (void)state;
    docker_world_init(&world, "docker", "");
    free(world.config.docker.host);
    world.config.docker.host = strdup("ftp://example.org");
    assert_int_equal(docker_world_try(&world, &err), -1);
    assert_int_equal(err.code, ERR_INVALID);
    assert_true(*err.hint);
}

static void limits_that_the_engine_cannot_set_do_not_hold(void **state)
{
    const struct sandbox_limits asked = { .memory_bytes = 1 << 28, .cpu_millis = 1000, .pids = 64 };
    struct sandbox_limits holds;

    (void)state;
    docker_world_init(&world, "docker", "");
    fake_engine_fail(world.engine, (struct fake_fault){ .requests = "GET /info",
                                                        .times = 2,
                                                        .status = 200,
                                                        .body = "{\"MemoryLimit\": true}" });
    docker_world_open(&world);
    holds = backend_limits_in_force(world.backend, &asked);
    assert_int_equal(holds.memory_bytes, asked.memory_bytes);
    assert_int_equal(holds.cpu_millis, 0);
    assert_int_equal(holds.pids, 0);
}

static void count(void *user, const char *name)
{
    (void)name;
    (*(unsigned *)user)++;
}

static void the_images_of_the_engine_are_its_sources(void **state)
{
    unsigned images = 0;

    (void)state;
    docker_world_init(&world, "docker", "");
    fake_engine_add_image(world.engine, "python:3.12", "", "");
    fake_engine_add_image(world.engine, "<none>:<none>", "", "");
    docker_world_open(&world);
    docker_world_wait(&world, fake_engine_count(world.engine, "GET /images/json") == 1);
    docker_world_idle(&world, 30);
    backend_list_sources(world.backend, count, &images);
    assert_int_equal(images, 2);
}

#define TEST(function) cmocka_unit_test_teardown(function, close_world)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(a_backend_opens_without_its_engine_and_serves_when_it_comes),
        TEST(a_missing_runtime_names_the_remedy),
        TEST(a_missing_runtime_of_the_settings_is_told),
        TEST(gvisor_never_runs_without_gvisor),
        TEST(a_runtime_of_gvisor_is_taken_from_the_settings),
        TEST(an_engine_that_did_not_describe_itself_once_is_asked_again),
        TEST(what_is_no_engine_is_told),
        TEST(an_address_that_is_none_is_refused),
        TEST(limits_that_the_engine_cannot_set_do_not_hold),
        TEST(the_images_of_the_engine_are_its_sources),
    };

    return cmocka_run_group_tests_name("docker/open", tests, NULL, NULL);
}
