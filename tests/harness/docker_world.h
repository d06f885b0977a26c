/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * The backend docker or gvisor over a fake engine, with a state directory of its own. Functions that
 * wait run the loop until the operation is answered; every wait has a deadline.
 */

#include "backend/backend.h"
#include "config/config.h"
#include "harness/fake_engine.h"

struct docker_world {
    struct loop *loop;
    struct config config;
    struct fake_engine *engine;
    struct backend *backend;
    char path[64];
    char state_path[400];
    int state_dir;
};

/* An operation, and whether it was answered. */
struct question {
    struct backend_op op;
    bool is_answered;
    unsigned progress;                /* reports of it */
    uint64_t done_bytes, total_bytes; /* of the last one */
};

struct witness {
    struct backend_watch watch;
    bool has_seen;
};

/* `settings` is YAML, added to those that name the backend, the engine and the image "alpine", which
 * the engine has. The backend is not opened yet. */
void docker_world_init(struct docker_world *world, const char *backend, const char *settings);
void docker_world_open(struct docker_world *world); /* fails the test when it does not open */
int docker_world_try(struct docker_world *world, struct error *err);

/* Both. */
void docker_world_start(struct docker_world *world, const char *settings);

/* Another daemon comes: sandboxes stay. */
void docker_world_restart(struct docker_world *world);

/* Also with operations under way. */
void docker_world_close(struct docker_world *world);

/* Runs the loop until the condition holds; fails the test at the deadline. */
#define docker_world_wait(world, condition)                                     \
    do {                                                                        \
        int64_t deadline_us_ = loop_now_us((world)->loop) + 60 * 1000 * 1000LL; \
        while (!(condition)) {                                                  \
            if (loop_now_us((world)->loop) > deadline_us_)                      \
                fail_msg("%s:%d: never: %s", __FILE__, __LINE__, #condition);   \
            loop_turn((world)->loop, 5);                                        \
        }                                                                       \
    } while (0)

/* So many turns pass in which nothing is to happen. */
void docker_world_idle(struct docker_world *world, unsigned ms);

struct question question_new(void);
enum error_code question_wait(struct docker_world *world, struct question *question);

struct sandbox_spec docker_world_spec(void); /* with a new id */
enum error_code docker_world_create(struct docker_world *world, const struct sandbox_spec *spec,
                                    struct question *question);
struct backend_sandbox docker_world_make(struct docker_world *world);
enum error_code docker_world_adopt(struct docker_world *world,
                                   const struct backend_sandbox *sandbox,
                                   struct question *question);
enum error_code docker_world_destroy(struct docker_world *world, const char *id);
enum error_code docker_world_freeze(struct docker_world *world, const char *id, bool frozen);

/* The descriptor is closed. */
enum error_code docker_world_connect(struct docker_world *world, const char *id);
size_t docker_world_count(struct docker_world *world); /* that are listed */

void docker_world_watch(struct docker_world *world, struct witness *witness, const char *id);
struct fake_container *docker_world_container(struct docker_world *world, const char *id);
