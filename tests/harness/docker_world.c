/* SPDX-License-Identifier: Apache-2.0 */
#include "harness/docker_world.h"

#include "backend/registry.h"
#include "base/fd.h"
#include "base/str.h"
#include "harness/steady_clock.h"

#include <fcntl.h>
#include <ftw.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

/* --- opening and closing ---------------------------------------------------------------------- */

static void make_directories(struct docker_world *world)
{
    snprintf(world->path, sizeof(world->path), "/tmp/sandglass-docker-XXXXXX");
    assert_non_null(mkdtemp(world->path));
    /* Longer than the address of a socket may be. */
    snprintf(world->state_path, sizeof(world->state_path), "%s/%0130d", world->path, 0);
    assert_int_equal(mkdir(world->state_path, 0711), 0);
    world->state_dir = open(world->state_path, O_PATH | O_DIRECTORY | O_CLOEXEC);
    assert_true(world->state_dir >= 0);
}

void docker_world_init(struct docker_world *world, const char *backend, const char *settings)
{
    char text[4096];
    char socket_path[96];
    struct error err = { 0 };

    *world = (struct docker_world){ .state_dir = -1, .loop = loop_new(&steady_clock) };
    make_directories(world);
    snprintf(socket_path, sizeof(socket_path), "%s/engine.sock", world->path);
    snprintf(text, sizeof(text),
             "sandbox.backend: %s\ninstance: test\ndocker.host: unix://%s\n"
             "docker.image: alpine\n%s",
             backend, socket_path, settings);
    if (config_load_text(&world->config, text, strlen(text), "test", &err) < 0)
        fail_msg("config: %s", err.message);
    world->engine = fake_engine_new(world->loop, socket_path);
    fake_engine_add_image(world->engine, "alpine:latest", "", "");
}

int docker_world_try(struct docker_world *world, struct error *err)
{
    world->backend = backend_open(world->config.sandbox.backend,
                                  &(struct backend_options){ .loop = world->loop,
                                                             .config = &world->config,
                                                             .state_dir = world->state_dir,
                                                             .state_path = world->state_path },
                                  err);
    return world->backend ? 0 : -1;
}

void docker_world_open(struct docker_world *world)
{
    struct error err = { 0 };

    if (docker_world_try(world, &err) < 0)
        fail_msg("backend: %s", err.message);
}

void docker_world_start(struct docker_world *world, const char *settings)
{
    docker_world_init(world, "docker", settings);
    docker_world_open(world);
    docker_world_wait(world, fake_engine_event_streams(world->engine) == 1);
}

void docker_world_restart(struct docker_world *world)
{
    backend_close(world->backend);
    docker_world_open(world);
}

static int remove_entry(const char *path, const struct stat *status, int type, struct FTW *where)
{
    (void)status;
    (void)type;
    (void)where;
    return remove(path);
}

void docker_world_close(struct docker_world *world)
{
    backend_close(world->backend);
    fake_engine_free(world->engine);
    loop_free(world->loop);
    config_fini(&world->config);
    fd_close(world->state_dir);
    assert_int_equal(nftw(world->path, remove_entry, 16, FTW_DEPTH | FTW_PHYS), 0);
}

/* --- operations --------------------------------------------------------------------------------- */

void docker_world_idle(struct docker_world *world, unsigned ms)
{
    enum { LEAST_TURNS = 50 }; /* however late it is */
    int64_t until_us = loop_now_us(world->loop) + (int64_t)ms * 1000;

    for (int turns = 0; loop_now_us(world->loop) < until_us || turns < LEAST_TURNS; turns++)
        loop_turn(world->loop, loop_now_us(world->loop) < until_us ? 5 : 0);
}

static void on_answer(struct backend_op *op)
{
    struct question *question = container_of(op, struct question, op);

    assert_false(question->is_answered); /* once */
    question->is_answered = true;
}

static void on_progress(struct backend_op *op, const char *what, uint64_t done_bytes,
                        uint64_t total_bytes)
{
    struct question *question = container_of(op, struct question, op);

    assert_string_equal(what, "pulling");
    question->progress++;
    question->done_bytes = done_bytes;
    question->total_bytes = total_bytes;
}

struct question question_new(void)
{
    return (struct question){ .op.done = on_answer, .op.on_progress = on_progress };
}

enum error_code question_wait(struct docker_world *world, struct question *question)
{
    docker_world_wait(world, question->is_answered);
    return question->op.err.code;
}

struct sandbox_spec docker_world_spec(void)
{
    struct sandbox_spec spec = {
        .source = { SOURCE_TEMPLATE, "host" },
        .limits = { .memory_bytes = 256 << 20,
                    .disk_bytes = 64 << 20,
                    .cpu_millis = 1000,
                    .pids = 64 },
    };

    id_make(spec.id, ID_SANDBOX);
    return spec;
}

enum error_code docker_world_create(struct docker_world *world, const struct sandbox_spec *spec,
                                    struct question *question)
{
    *question = question_new();
    backend_create(world->backend, spec, &question->op);
    assert_false(question->is_answered); /* never inside of the call */
    return question_wait(world, question);
}

struct backend_sandbox docker_world_make(struct docker_world *world)
{
    struct sandbox_spec spec = docker_world_spec();
    struct question question;

    if (docker_world_create(world, &spec, &question) != ERR_NONE)
        fail_msg("create: %s", question.op.err.message);
    return question.op.result.made.sandbox;
}

enum error_code docker_world_adopt(struct docker_world *world,
                                   const struct backend_sandbox *sandbox, struct question *question)
{
    *question = question_new();
    backend_adopt(world->backend, sandbox, &question->op);
    assert_false(question->is_answered);
    return question_wait(world, question);
}

enum error_code docker_world_destroy(struct docker_world *world, const char *id)
{
    struct question question = question_new();

    backend_destroy(world->backend, id, &question.op);
    return question_wait(world, &question);
}

enum error_code docker_world_freeze(struct docker_world *world, const char *id, bool frozen)
{
    struct question question = question_new();

    backend_freeze(world->backend, id, frozen, &question.op);
    return question_wait(world, &question);
}

enum error_code docker_world_connect(struct docker_world *world, const char *id)
{
    struct question question = question_new();

    if (!backend_connect(world->backend, id, &question.op))
        (void)question_wait(world, &question);
    if (question.op.err.code == ERR_NONE)
        fd_close(question.op.result.fd);
    return question.op.err.code;
}

size_t docker_world_count(struct docker_world *world)
{
    struct question question = question_new();

    backend_list(world->backend, &question.op);
    assert_int_equal(question_wait(world, &question), ERR_NONE);
    free(question.op.result.list.ids);
    return question.op.result.list.count;
}

static void on_end(struct backend_watch *watch)
{
    container_of(watch, struct witness, watch)->has_seen = true;
}

void docker_world_watch(struct docker_world *world, struct witness *witness, const char *id)
{
    *witness = (struct witness){ 0 };
    backend_watch_start(world->backend, id, &witness->watch, on_end);
}

struct fake_container *docker_world_container(struct docker_world *world, const char *id)
{
    struct fake_container *container = fake_engine_find_sandbox(world->engine, id);

    assert_non_null(container);
    return container;
}
