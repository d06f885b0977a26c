/* SPDX-License-Identifier: Apache-2.0 */
/* From an image to a container, over an engine that the test plays. */

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

static struct sandbox_spec spec_of(const char *image)
{
    struct sandbox_spec spec = docker_world_spec();

    spec.source.name = image;
    return spec;
}

/* --- giving up --------------------------------------------------------------------------------- */

/* Under ASan: nothing of it is used later, nothing is left. */
static void a_backend_that_is_closed_between_two_steps_leaves_nothing(void **state)
{
    struct question questions[12];

    (void)state;
    /* One more turn each time: every step and every gap between two of them is met. */
    for (unsigned turns = 0; turns < ARRAY_LENGTH(questions); turns++) {
        struct sandbox_spec spec = docker_world_spec();

        questions[turns] = question_new();
        backend_create(world.backend, &spec, &questions[turns].op);
        for (unsigned i = 0; i < turns; i++)
            loop_turn(world.loop, 1);
        docker_world_restart(&world);
        loop_turn(world.loop, 0);
        docker_world_idle(&world, 5);
    }
}

/* The daemon is killed before the answer: nobody knows that container, and nobody else removes it. */
static void one_that_was_made_for_a_daemon_before_and_never_started_is_removed(void **state)
{
    struct sandbox_spec spec = docker_world_spec();
    struct question question = question_new();

    (void)state;
    fake_engine_fail(world.engine, (struct fake_fault){ .requests = "POST /containers/create",
                                                        .kind = FAULT_HOLD_AFTER });
    backend_create(world.backend, &spec, &question.op);
    docker_world_wait(&world, fake_engine_held(world.engine) == 1);
    docker_world_restart(&world);
    docker_world_wait(&world, fake_engine_containers(world.engine) == 0);
}

/* Its start is told again to the next daemon, before that has adopted it. */
static void one_that_was_started_waits_to_be_adopted(void **state)
{
    (void)state;
    (void)docker_world_make(&world);
    docker_world_restart(&world);
    docker_world_wait(&world, fake_engine_event_streams(world.engine) == 1);
    docker_world_idle(&world, 100);
    assert_int_equal(fake_engine_containers(world.engine), 1);
}

/* --- ids --------------------------------------------------------------------------------------- */

static void one_that_lives_is_not_made_again(void **state)
{
    struct backend_sandbox sandbox = docker_world_make(&world);
    struct sandbox_spec spec = docker_world_spec();
    struct witness witness;
    struct question question;

    (void)state;
    docker_world_watch(&world, &witness, sandbox.id);
    memcpy(spec.id, sandbox.id, sizeof(spec.id));
    assert_int_equal(docker_world_create(&world, &spec, &question), ERR_CONFLICT);
    assert_int_equal(witness.watch.state, BACKEND_WATCHED);
    assert_int_equal(docker_world_connect(&world, sandbox.id), ERR_NONE);
}

static void one_that_is_being_made_is_not_made_twice(void **state)
{
    struct sandbox_spec spec = docker_world_spec();
    struct question first = question_new();
    struct question second;

    (void)state;
    backend_create(world.backend, &spec, &first.op);
    assert_int_equal(docker_world_create(&world, &spec, &second), ERR_CONFLICT);
    assert_int_equal(question_wait(&world, &first), ERR_NONE);
    assert_int_equal(fake_engine_containers(world.engine), 1);
}

/* --- answers ----------------------------------------------------------------------------------- */

static void a_container_of_a_lost_answer_is_adopted_and_not_made_twice(void **state)
{
    struct sandbox_spec spec = docker_world_spec();
    struct question question;

    (void)state;
    for (unsigned podman = 0; podman < 2; podman++) {
        fake_engine_habits(world.engine)->is_podman = podman;
        fake_engine_fail(world.engine, (struct fake_fault){ .requests = "POST /containers/create",
                                                            .kind = FAULT_LOSE });
        spec = docker_world_spec();
        assert_int_equal(docker_world_create(&world, &spec, &question), ERR_UNAVAILABLE);
        assert_true(question.op.err.retryable);
        assert_int_equal(fake_engine_containers(world.engine), podman + 1);
        assert_int_equal(docker_world_create(&world, &spec, &question), ERR_NONE);
        assert_int_equal(fake_engine_containers(world.engine), podman + 1);
        assert_int_equal(docker_world_connect(&world, spec.id), ERR_NONE);
    }
}

static void a_container_whose_start_was_not_answered_is_started_once(void **state)
{
    struct sandbox_spec spec = docker_world_spec();
    struct question question;
    pid_t pid;

    (void)state;
    fake_engine_fail(world.engine, (struct fake_fault){ .requests = "POST /containers/*/start",
                                                        .kind = FAULT_LOSE });
    assert_int_equal(docker_world_create(&world, &spec, &question), ERR_UNAVAILABLE);
    pid = docker_world_container(&world, spec.id)->pid;
    assert_int_equal(docker_world_create(&world, &spec, &question), ERR_NONE);
    assert_int_equal(docker_world_container(&world, spec.id)->pid, pid);
    assert_int_equal(docker_world_connect(&world, spec.id), ERR_NONE);
}

static void a_foreign_container_with_our_name_is_left_alone(void **state)
{
    struct sandbox_spec spec = docker_world_spec();
    struct question question;
    char name[64];

    (void)state;
    snprintf(name, sizeof(name), "sandglass-%s", spec.id);
    (void)fake_engine_put(world.engine, name, "{\"sandglass.instance\": \"another\"}");
    for (unsigned podman = 0; podman < 2; podman++) {
        fake_engine_habits(world.engine)->is_podman = podman;
        assert_int_equal(docker_world_create(&world, &spec, &question), ERR_CONFLICT);
        assert_string_equal(question.op.err.name, "name_conflict");
        assert_int_equal(docker_world_destroy(&world, spec.id), ERR_NONE);
        assert_int_equal(fake_engine_containers(world.engine), 1);
    }
    assert_int_equal(fake_engine_count(world.engine, "DELETE *"), 0);
}

static void an_answer_without_an_id_is_an_error(void **state)
{
    static const char *const bodies[] = { "{}", "[]", "{\"Id\": \"\"}", "{\"Id\": \"../x\"}", "" };
    struct sandbox_spec spec = docker_world_spec();
    struct question question;

    (void)state;
    for (size_t i = 0; i < ARRAY_LENGTH(bodies); i++) {
        fake_engine_fail(world.engine, (struct fake_fault){ .requests = "POST /containers/create",
                                                            .status = 201,
                                                            .body = bodies[i] });
        assert_int_equal(docker_world_create(&world, &spec, &question), ERR_BACKEND);
        assert_non_null(strstr(question.op.err.message, "without an id"));
    }
    assert_int_equal(fake_engine_count(world.engine, "POST /containers/*start"), 0);
}

static void a_page_is_no_answer(void **state)
{
    struct sandbox_spec spec = docker_world_spec();
    struct question question;

    (void)state;
    fake_engine_fail(world.engine, (struct fake_fault){ .requests = "GET /images/*",
                                                        .status = 200,
                                                        .type = "text/html",
                                                        .body = "<html>Sign in</html>" });
    assert_int_equal(docker_world_create(&world, &spec, &question), ERR_BACKEND);
    assert_non_null(strstr(question.op.err.message, "HTML"));
}

/* The engine was killed, and has forgotten what it had begun: removing the container would leave that. */
static void a_start_that_the_engine_has_forgotten_leaves_nothing(void **state)
{
    struct sandbox_spec spec = docker_world_spec();
    struct question question;

    (void)state;
    fake_engine_fail(world.engine, (struct fake_fault){ .requests = "POST /containers/*/start",
                                                        .kind = FAULT_LOSE });
    assert_int_not_equal(docker_world_create(&world, &spec, &question), ERR_NONE);
    fake_container_forget_start(docker_world_container(&world, spec.id));
    assert_int_equal(docker_world_destroy(&world, spec.id), ERR_NONE);
    assert_int_equal(fake_engine_containers(world.engine), 0);
    assert_int_equal(fake_engine_strays(world.engine), 0);
}

/* What was started in spite of it is just removed. */
static void a_start_without_an_answer_is_not_repeated_to_remove_it(void **state)
{
    struct sandbox_spec spec = docker_world_spec();
    struct question question;

    (void)state;
    fake_engine_fail(world.engine, (struct fake_fault){ .requests = "POST /containers/*/start",
                                                        .kind = FAULT_LOSE });
    assert_int_not_equal(docker_world_create(&world, &spec, &question), ERR_NONE);
    assert_int_equal(docker_world_destroy(&world, spec.id), ERR_NONE);
    assert_int_equal(fake_engine_count(world.engine, "POST /containers/*/start"), 1);
    assert_int_equal(fake_engine_containers(world.engine), 0);
}

static void what_the_engine_cannot_start_is_named(void **state)
{
    struct sandbox_spec spec = docker_world_spec();
    struct question question;

    (void)state;
    (void)docker_world_make(&world);
    fake_engine_fail(world.engine,
                     (struct fake_fault){ .requests = "POST /containers/*/start",
                                          .status = 400,
                                          .message = "failed to create task: exec "
                                                     "/.sandglass/bin/sandglass-init: exec format "
                                                     "error: unknown" });
    assert_int_equal(docker_world_create(&world, &spec, &question), ERR_INVALID);
    assert_string_equal(question.op.err.name, "image_architecture");
    assert_false(question.op.err.retryable);
}

static void a_full_disk_is_told(void **state)
{
    struct sandbox_spec spec = docker_world_spec();
    struct question question;

    (void)state;
    fake_engine_fail(world.engine,
                     (struct fake_fault){ .requests = "POST /containers/create",
                                          .status = 500,
                                          .message = "mkdir: no space left on device" });
    assert_int_equal(docker_world_create(&world, &spec, &question), ERR_NO_SPACE);
    assert_int_equal(docker_world_create(&world, &spec, &question), ERR_NONE);
}

static void an_engine_that_is_away_is_told_with_the_remedy(void **state)
{
    struct sandbox_spec spec = docker_world_spec();
    struct question question;

    (void)state;
    fake_engine_leave(world.engine);
    assert_int_equal(docker_world_create(&world, &spec, &question), ERR_UNAVAILABLE);
    assert_true(question.op.err.retryable);
    assert_true(*question.op.err.hint);
}

static void a_failed_create_leaves_nothing_behind_destroy(void **state)
{
    static const char *const steps[] = { "GET /images/*", "POST /containers/create",
                                         "POST /containers/*/start", "GET /containers/*/json" };
    struct question question;

    (void)state;
    for (size_t i = 0; i < ARRAY_LENGTH(steps); i++) {
        struct sandbox_spec spec = docker_world_spec();

        fake_engine_fail(world.engine, (struct fake_fault){ .requests = steps[i],
                                                            .status = 500,
                                                            .message = "something is wrong" });
        assert_int_equal(docker_world_create(&world, &spec, &question), ERR_BACKEND);
        assert_false(question.op.err.retryable);
        assert_int_equal(docker_world_destroy(&world, spec.id), ERR_NONE);
        assert_int_equal(docker_world_count(&world), 0);
        assert_int_equal(fake_engine_containers(world.engine), 0);
    }
}

/* --- images ------------------------------------------------------------------------------------ */

static void an_image_that_is_missing_is_pulled_with_progress(void **state)
{
    struct sandbox_spec spec = spec_of("python:3.12");
    struct question question;

    (void)state;
    fake_engine_set_pull(world.engine,
                         "{\"status\":\"Pulling from library/python\",\"id\":\"3.12\"}\n"
                         "{\"status\":\"Downloading\",\"id\":\"aa\",\"progressDetail\":"
                         "{\"current\":10,\"total\":100}}\n"
                         "{\"status\":\"Pull complete\",\"id\":\"aa\"}\n");
    if (docker_world_create(&world, &spec, &question) != ERR_NONE)
        fail_msg("%s", question.op.err.message);
    assert_true(question.progress >= 1);
    assert_int_equal(fake_engine_count(world.engine, "POST /images/create"), 1);
    /* It is there now. */
    spec = spec_of("python:3.12");
    assert_int_equal(docker_world_create(&world, &spec, &question), ERR_NONE);
    assert_int_equal(fake_engine_count(world.engine, "POST /images/create"), 1);
}

static void an_image_that_cannot_be_pulled_names_the_known_ones(void **state)
{
    struct sandbox_spec spec = spec_of("nowhere/python");
    struct question question;

    (void)state;
    fake_engine_set_pull(world.engine, "{\"status\":\"Pulling\"}\n"
                                       "{\"error\":\"manifest for nowhere/python not found\"}\n");
    assert_int_equal(docker_world_create(&world, &spec, &question), ERR_INVALID);
    assert_string_equal(question.op.err.name, "image_not_found");
    assert_non_null(strstr(question.op.err.message, "alpine:latest"));
    assert_non_null(strstr(question.op.err.message, "manifest for nowhere/python"));
    assert_false(question.op.err.retryable);
}

/* It says nothing about the image. */
static void a_pull_into_a_full_disk_is_told_as_such(void **state)
{
    struct sandbox_spec spec = spec_of("python");
    struct question question;

    (void)state;
    fake_engine_set_pull(world.engine,
                         "{\"error\":\"write /var/lib/docker/x: no space left on device\"}\n");
    assert_int_equal(docker_world_create(&world, &spec, &question), ERR_NO_SPACE);
}

static void a_registry_that_refuses_for_now_is_told_as_such(void **state)
{
    struct sandbox_spec spec = spec_of("python");
    struct question question;

    (void)state;
    fake_engine_fail(world.engine, (struct fake_fault){ .requests = "POST /images/create",
                                                        .status = 429,
                                                        .message = "toomanyrequests" });
    assert_int_equal(docker_world_create(&world, &spec, &question), ERR_LIMIT);
}

/* --- where init is ----------------------------------------------------------------------------- */

static void assert_reached_by(const struct question *question, const char *kind)
{
    if (!strstr(question->op.result.made.sandbox.handle, kind))
        fail_msg("%s is not reached by %s", question->op.result.made.sandbox.handle, kind);
}

static void an_engine_that_sees_no_files_gets_init_as_an_archive(void **state)
{
    struct sandbox_spec spec = docker_world_spec();
    struct question question;
    struct fake_container *container;

    (void)state;
    fake_engine_habits(world.engine)->sees_no_files = true;
    assert_int_equal(docker_world_create(&world, &spec, &question), ERR_NONE);
    assert_reached_by(&question, ",relay,");
    container = docker_world_container(&world, spec.id);
    assert_int_equal(container->uploads, 1);
    assert_int_equal(docker_world_connect(&world, spec.id), ERR_NONE);
    /* It is known now. */
    assert_int_equal(fake_engine_count(world.engine, "POST /containers/create"), 2);
    (void)docker_world_make(&world);
    assert_int_equal(fake_engine_count(world.engine, "POST /containers/create"), 3);
}

/* The variables of the container are its own too, and programs inside may look at them. */
static void a_pump_is_started_without_the_key(void **state)
{
    struct sandbox_spec spec = docker_world_spec();
    struct question question;
    const struct fake_container *container;
    const json_t *env;

    (void)state;
    fake_engine_habits(world.engine)->sees_no_files = true;
    fake_engine_habits(world.engine)->attaches_to_nothing = true;
    assert_int_equal(docker_world_create(&world, &spec, &question), ERR_NONE);
    container = docker_world_container(&world, spec.id);
    env = json_object_get(container->request, "Env");
    assert_non_null(strstr(json_string_value(json_array_get(env, 0)), "SANDGLASS_KEY="));
    docker_world_wait(&world, container->exec);
    env = json_object_get(container->exec, "Env");
    assert_int_equal(json_array_size(env), 1);
    assert_string_equal(json_string_value(json_array_get(env, 0)), "SANDGLASS_KEY=");
}

static void two_creates_learn_at_once_that_the_engine_sees_no_files(void **state)
{
    struct sandbox_spec specs[2] = { docker_world_spec(), docker_world_spec() };
    struct question questions[2] = { question_new(), question_new() };

    (void)state;
    fake_engine_habits(world.engine)->sees_no_files = true;
    for (unsigned i = 0; i < 2; i++)
        backend_create(world.backend, &specs[i], &questions[i].op);
    for (unsigned i = 0; i < 2; i++) {
        if (question_wait(&world, &questions[i]) != ERR_NONE)
            fail_msg("%s", questions[i].op.err.message);
        assert_reached_by(&questions[i], ",relay,");
    }
}

static const char *profile_of(const struct sandbox_spec *spec)
{
    const json_t *request = docker_world_container(&world, spec->id)->request;
    const json_t *options = json_object_get(json_object_get(request, "HostConfig"), "SecurityOpt");

    return json_string_value(json_array_get(options, 1));
}

static void podman_gets_the_profile_of_system_calls_as_a_file(void **state)
{
    struct sandbox_spec specs[2] = { docker_world_spec(), docker_world_spec() };
    struct question questions[2] = { question_new(), question_new() };
    struct stat status;

    (void)state;
    fake_engine_fail(world.engine,
                     (struct fake_fault){ .requests = "POST /containers/create",
                                          .kind = FAULT_ANSWER,
                                          .times = 2,
                                          .status = 500,
                                          .message = "container create: opening seccomp profile "
                                                     "failed: open {\"defaultAction\"…: file name "
                                                     "too long" });
    for (unsigned i = 0; i < 2; i++)
        backend_create(world.backend, &specs[i], &questions[i].op);
    for (unsigned i = 0; i < 2; i++) {
        if (question_wait(&world, &questions[i]) != ERR_NONE)
            fail_msg("%s", questions[i].op.err.message);
        assert_true(str_starts_with(profile_of(&specs[i]), "seccomp=/"));
        assert_int_equal(stat(strchr(profile_of(&specs[i]), '/'), &status), 0);
        assert_true(status.st_size > 1000);
    }
}

/* The core destroys it, and tries again. */
static void an_engine_that_cannot_mount_at_the_start_is_given_an_archive_next(void **state)
{
    struct sandbox_spec spec = docker_world_spec();
    struct question question;

    (void)state;
    fake_engine_habits(world.engine)->hides_files = true;
    assert_int_not_equal(docker_world_create(&world, &spec, &question), ERR_NONE);
    assert_true(question.op.err.retryable);
    assert_int_equal(docker_world_destroy(&world, spec.id), ERR_NONE);
    assert_int_equal(docker_world_create(&world, &spec, &question), ERR_NONE);
    assert_reached_by(&question, ",relay,");
}

/* The words have "permission denied" in them, which says nothing about mounts here. */
static void an_engine_that_may_not_set_limits_is_asked_for_those_of_the_daemon_next(void **state)
{
    struct sandbox_spec specs[2] = { docker_world_spec(), docker_world_spec() };
    struct question questions[2] = { question_new(), question_new() };

    (void)state;
    fake_engine_habits(world.engine)->lacks_resource = true;
    for (unsigned i = 0; i < 2; i++) /* the second one has asked before the first one has learnt */
        backend_create(world.backend, &specs[i], &questions[i].op);
    for (unsigned i = 0; i < 2; i++) {
        assert_int_not_equal(question_wait(&world, &questions[i]), ERR_NONE);
        assert_true(questions[i].op.err.retryable);
    }
    for (unsigned i = 0; i < 2; i++) {
        assert_int_equal(docker_world_destroy(&world, specs[i].id), ERR_NONE);
        assert_int_equal(docker_world_create(&world, &specs[i], &questions[i]), ERR_NONE);
        assert_reached_by(&questions[i], ",door,");
    }
}

static void an_engine_that_may_not_set_those_either_is_not_asked_again(void **state)
{
    struct sandbox_spec spec = docker_world_spec();
    struct question question;

    (void)state;
    fake_engine_fail(world.engine,
                     (struct fake_fault){ .requests = "POST /containers/*/start",
                                          .kind = FAULT_ANSWER,
                                          .times = 2,
                                          .status = 500,
                                          .message = "crun: setrlimit `RLIMIT_NOFILE`: Operation "
                                                     "not permitted: OCI permission denied" });
    assert_int_not_equal(docker_world_create(&world, &spec, &question), ERR_NONE);
    assert_true(question.op.err.retryable);
    assert_int_equal(docker_world_destroy(&world, spec.id), ERR_NONE);
    assert_int_not_equal(docker_world_create(&world, &spec, &question), ERR_NONE);
    assert_false(question.op.err.retryable);
    assert_non_null(strstr(question.op.err.hint, "LimitNOFILE="));
}

static void an_engine_that_may_set_limits_chooses_them(void **state)
{
    struct sandbox_spec spec = docker_world_spec();
    struct question question;
    const json_t *host;

    (void)state;
    assert_int_equal(docker_world_create(&world, &spec, &question), ERR_NONE);
    host = json_object_get(docker_world_container(&world, spec.id)->request, "HostConfig");
    assert_int_equal(json_array_size(json_object_get(host, "Ulimits")), 1); /* core */
}

static void the_engine_of_another_kernel_is_reached_by_a_relay_next(void **state)
{
    struct sandbox_spec spec = docker_world_spec();
    struct question question;

    (void)state;
    fake_engine_habits(world.engine)->is_elsewhere = true;
    assert_int_equal(docker_world_create(&world, &spec, &question), ERR_BACKEND);
    assert_string_equal(question.op.err.name, "engine_elsewhere");
    assert_true(question.op.err.retryable);
    assert_int_equal(docker_world_destroy(&world, spec.id), ERR_NONE);
    assert_int_equal(docker_world_create(&world, &spec, &question), ERR_NONE);
    assert_reached_by(&question, ",relay,");
}

/* The container is described when its init is dead, and the engine has noticed that or not. */
static enum error_code create_dying(const struct sandbox_spec *spec, struct question *question,
                                    bool is_noticed)
{
    *question = question_new();
    fake_engine_habits(world.engine)->inits_die = true;
    fake_engine_habits(world.engine)->is_slow_to_note = !is_noticed;
    fake_engine_fail(world.engine, (struct fake_fault){ .requests = "GET /containers/*/json",
                                                        .kind = FAULT_HOLD });
    backend_create(world.backend, spec, &question->op);
    docker_world_wait(&world, fake_engine_held(world.engine) == 1);
    docker_world_wait(&world, !docker_world_container(&world, spec->id)->reports.events);
    fake_engine_release(world.engine);
    (void)question_wait(&world, question);
    fake_engine_habits(world.engine)->inits_die = false;
    return question->op.err.code;
}

static void an_init_that_dies_at_once_is_told_with_its_code(void **state)
{
    struct sandbox_spec spec = docker_world_spec();
    struct question question;

    (void)state;
    assert_int_equal(create_dying(&spec, &question, true), ERR_BACKEND);
    assert_string_equal(question.op.err.name, "sandbox_died");
    assert_non_null(strstr(question.op.err.message, "code 3"));
    assert_true(question.op.err.retryable);
    /* It says nothing about the engine. */
    spec = docker_world_spec();
    assert_int_equal(docker_world_create(&world, &spec, &question), ERR_NONE);
    assert_reached_by(&question, ",door,");
}

/* The engine calls it running for a while. */
static void an_init_that_dies_unnoticed_is_not_taken_for_one_elsewhere(void **state)
{
    struct sandbox_spec spec = docker_world_spec();
    struct question question;

    (void)state;
    (void)docker_world_make(&world);
    assert_int_equal(create_dying(&spec, &question, false), ERR_BACKEND);
    assert_string_equal(question.op.err.name, "sandbox_died");
    fake_engine_note(world.engine);
    spec = docker_world_spec();
    assert_int_equal(docker_world_create(&world, &spec, &question), ERR_NONE);
    assert_reached_by(&question, ",door,");
}

/* --- containers that come too late --------------------------------------------------------------- */

/* As an engine makes one whose client has left, and the backend learns of it. */
static struct fake_container *put_late(const struct sandbox_spec *spec)
{
    struct fake_container *container;
    char name[64], labels[1024];

    snprintf(name, sizeof(name), "sandglass-%s", spec->id);
    snprintf(labels, sizeof(labels),
             "{\"sandglass.instance\": \"%s\", \"sandglass.backend\": \"docker\","
             " \"sandglass.state\": \"%s\", \"sandglass.sandbox\": \"%s\"}",
             world.config.instance, world.state_path, spec->id);
    container = fake_engine_put(world.engine, name, labels);
    fake_engine_cut_events(world.engine);
    return container;
}

static void hold_next(const char *requests)
{
    fake_engine_fail(world.engine, (struct fake_fault){ .requests = requests, .kind = FAULT_HOLD });
}

/* A create that has failed is tried again, and the first attempt's container comes meanwhile. */
static void a_late_container_is_left_to_the_create_under_way(void **state)
{
    struct sandbox_spec spec = docker_world_spec();
    struct question question = question_new();
    struct fake_container *late;

    (void)state;
    hold_next("GET /containers/*/json");
    late = put_late(&spec);
    docker_world_wait(&world, fake_engine_held(world.engine) == 1);
    hold_next("GET /images/*");
    backend_create(world.backend, &spec, &question.op);
    docker_world_wait(&world, fake_engine_held(world.engine) == 2);
    hold_next("POST /containers/create");
    fake_engine_release(world.engine);
    docker_world_wait(&world, fake_engine_held(world.engine) == 1);
    docker_world_idle(&world, 50);
    assert_int_equal(fake_engine_count(world.engine, "DELETE *"), 0);
    fake_container_remove(late);
    fake_engine_release(world.engine);
    assert_int_equal(question_wait(&world, &question), ERR_NONE);
    assert_int_equal(docker_world_connect(&world, spec.id), ERR_NONE);
    assert_int_equal(docker_world_destroy(&world, spec.id), ERR_NONE);
}

static void a_late_container_goes_when_the_create_under_way_has_failed(void **state)
{
    struct sandbox_spec spec = docker_world_spec();
    struct question question = question_new();

    (void)state;
    hold_next("GET /images/*");
    backend_create(world.backend, &spec, &question.op);
    docker_world_wait(&world, fake_engine_held(world.engine) == 1);
    (void)put_late(&spec);
    docker_world_wait(&world, fake_engine_count(world.engine, "GET /containers/*/json") == 1);
    fake_engine_fail(world.engine, (struct fake_fault){ .requests = "POST /containers/create",
                                                        .status = 500,
                                                        .message = "out of luck" });
    fake_engine_release(world.engine);
    assert_int_equal(question_wait(&world, &question), ERR_BACKEND);
    assert_int_equal(docker_world_destroy(&world, spec.id), ERR_NONE);
    docker_world_wait(&world, fake_engine_containers(world.engine) == 0);
}

/* The last attempt has asked for none: the container is of the one before. */
static void a_late_container_goes_when_the_last_create_did_not_get_that_far(void **state)
{
    struct sandbox_spec spec = docker_world_spec();
    struct question question;

    (void)state;
    fake_engine_fail(world.engine, (struct fake_fault){ .requests = "GET /images/*",
                                                        .status = 500,
                                                        .message = "out of luck" });
    assert_int_equal(docker_world_create(&world, &spec, &question), ERR_BACKEND);
    assert_int_equal(docker_world_destroy(&world, spec.id), ERR_NONE);
    (void)put_late(&spec);
    docker_world_wait(&world, fake_engine_containers(world.engine) == 0);
}

static void a_create_is_tried_again_while_a_late_container_is_removed(void **state)
{
    struct sandbox_spec spec = docker_world_spec();
    struct question question;

    (void)state;
    hold_next("DELETE *");
    (void)put_late(&spec);
    docker_world_wait(&world, fake_engine_held(world.engine) == 1);
    assert_int_equal(docker_world_create(&world, &spec, &question), ERR_CONFLICT);
    assert_true(question.op.err.retryable);
    fake_engine_release(world.engine);
    docker_world_wait(&world, fake_engine_containers(world.engine) == 0);
    docker_world_idle(&world, 20);
    assert_int_equal(docker_world_create(&world, &spec, &question), ERR_NONE);
}

/* --- images that are asked for before a session is made ------------------------------------------ */

#define REGISTRY "GET /distribution/*"

/* ERR_NONE also where nobody has to be asked. */
static enum error_code find(const char *name, struct question *question)
{
    *question = question_new();
    if (backend_find_source(world.backend, &(struct sandbox_source){ SOURCE_TEMPLATE, name },
                            &question->op))
        return ERR_NONE;
    return question_wait(&world, question);
}

static void an_image_of_the_engine_is_found_without_its_registry(void **state)
{
    struct question question;

    (void)state;
    assert_int_equal(find("alpine", &question), ERR_NONE);
    assert_int_equal(find("host", &question), ERR_NONE);
    assert_int_equal(fake_engine_count(world.engine, REGISTRY), 0);
}

static void an_image_that_no_registry_has_is_refused_with_the_known_ones(void **state)
{
    struct question question;

    (void)state;
    fake_engine_fail(
        world.engine,
        (struct fake_fault){ .requests = REGISTRY, .status = 404, .message = "manifest unknown" });
    assert_int_equal(find("nope", &question), ERR_INVALID);
    assert_string_equal(question.op.err.name, "image_not_found");
    assert_non_null(strstr(question.op.err.message, "manifest unknown"));
    assert_non_null(strstr(question.op.err.message, "alpine:latest"));
    assert_int_equal(find("nope", &question), ERR_NONE); /* now it has it */
    assert_int_equal(fake_engine_count(world.engine, "POST /images/create"), 0);
}

static void a_cause_that_is_cut_says_so(void **state)
{
    struct question question;

    (void)state;
    fake_engine_fail(world.engine,
                     (struct fake_fault){
                         .requests = REGISTRY,
                         .status = 404,
                         .message = "manifest unknown: a registry may say as much as it wants to, "
                                    "with the address of a mirror, that of a server behind it, and "
                                    "the words of each of them in the words of the one before, up "
                                    "to an address such as 192.0.2.155",
                     });
    assert_int_equal(find("nope", &question), ERR_INVALID);
    assert_non_null(strstr(question.op.err.message, "...; known images: "));
    assert_non_null(strstr(question.op.err.message, "alpine:latest"));
}

static void an_id_that_the_engine_does_not_know_is_in_no_registry(void **state)
{
    struct question question;

    (void)state;
    assert_int_equal(find("0123456789ab", &question), ERR_INVALID);
    assert_int_equal(fake_engine_count(world.engine, REGISTRY), 0);
}

/* Podman answers like the second one. */
static void an_engine_that_cannot_tell_refuses_no_image(void **state)
{
    static const struct fake_fault faults[] = {
        { .requests = REGISTRY, .status = 429, .message = "toomanyrequests" },
        { .requests = REGISTRY, .status = 404, .message = "Path /distribution is not supported" },
    };
    struct question question;

    (void)state;
    for (size_t i = 0; i < ARRAY_LENGTH(faults); i++) {
        fake_engine_fail(world.engine, faults[i]);
        assert_int_equal(find("nope", &question), ERR_NONE);
    }
    assert_int_equal(fake_engine_count(world.engine, REGISTRY), ARRAY_LENGTH(faults));
    fake_engine_leave(world.engine);
    assert_int_equal(find("nope", &question), ERR_NONE);
}

/* --- the suite --------------------------------------------------------------------------------- */

#define TEST(function) cmocka_unit_test_setup_teardown(function, open_world, close_world)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(a_backend_that_is_closed_between_two_steps_leaves_nothing),
        TEST(one_that_lives_is_not_made_again),
        TEST(one_that_is_being_made_is_not_made_twice),
        TEST(a_container_of_a_lost_answer_is_adopted_and_not_made_twice),
        TEST(a_container_whose_start_was_not_answered_is_started_once),
        TEST(a_foreign_container_with_our_name_is_left_alone),
        TEST(an_answer_without_an_id_is_an_error),
        TEST(a_page_is_no_answer),
        TEST(a_start_that_the_engine_has_forgotten_leaves_nothing),
        TEST(a_start_without_an_answer_is_not_repeated_to_remove_it),
        TEST(what_the_engine_cannot_start_is_named),
        TEST(a_full_disk_is_told),
        TEST(an_engine_that_is_away_is_told_with_the_remedy),
        TEST(a_failed_create_leaves_nothing_behind_destroy),
        TEST(an_image_that_is_missing_is_pulled_with_progress),
        TEST(an_image_that_cannot_be_pulled_names_the_known_ones),
        TEST(a_pull_into_a_full_disk_is_told_as_such),
        TEST(a_registry_that_refuses_for_now_is_told_as_such),
        TEST(a_late_container_is_left_to_the_create_under_way),
        TEST(a_late_container_goes_when_the_create_under_way_has_failed),
        TEST(a_late_container_goes_when_the_last_create_did_not_get_that_far),
        TEST(a_create_is_tried_again_while_a_late_container_is_removed),
        TEST(an_image_of_the_engine_is_found_without_its_registry),
        TEST(an_image_that_no_registry_has_is_refused_with_the_known_ones),
        TEST(a_cause_that_is_cut_says_so),
        TEST(an_id_that_the_engine_does_not_know_is_in_no_registry),
        TEST(an_engine_that_cannot_tell_refuses_no_image),
        TEST(an_engine_that_sees_no_files_gets_init_as_an_archive),
        TEST(a_pump_is_started_without_the_key),
        TEST(two_creates_learn_at_once_that_the_engine_sees_no_files),
        TEST(podman_gets_the_profile_of_system_calls_as_a_file),
        TEST(an_engine_that_cannot_mount_at_the_start_is_given_an_archive_next),
        TEST(an_engine_that_may_not_set_limits_is_asked_for_those_of_the_daemon_next),
        TEST(an_engine_that_may_not_set_those_either_is_not_asked_again),
        TEST(an_engine_that_may_set_limits_chooses_them),
        TEST(the_engine_of_another_kernel_is_reached_by_a_relay_next),
        TEST(an_init_that_dies_at_once_is_told_with_its_code),
        TEST(an_init_that_dies_unnoticed_is_not_taken_for_one_elsewhere),
        TEST(one_that_was_made_for_a_daemon_before_and_never_started_is_removed),
        TEST(one_that_was_started_waits_to_be_adopted),
    };

    return cmocka_run_group_tests_name("docker/create", tests, NULL, NULL);
}
