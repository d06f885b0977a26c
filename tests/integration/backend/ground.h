/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * A ground for tests of the real backends: a state directory, a launcher, a backend, and plain
 * functions that wait for the operations. Every wait has a deadline.
 */

#include "backend/backend.h"
#include "backend/launcher.h"
#include "config/config.h"

#include <stdbool.h>

enum { GROUND_OUTPUT = 64 * 1024 };

struct ground {
    struct loop *loop;
    struct config config;
    struct launcher *launcher;
    struct backend *backend;
    char path[64];
    int state_dir;
};

struct outcome {
    bool started;
    int error; /* errno of a start that failed */
    int code;
    int signal;
    char output[GROUND_OUTPUT]; /* stdout, then stderr */
};

/* `settings` is YAML. Fails the test when the backend does not open. */
void ground_open(struct ground *ground, const char *backend, const char *settings);
void ground_close(struct ground *ground); /* checks that nothing of it is left */

/* As a daemon that died: the launcher goes, sandboxes stay, and a new pair comes. */
void ground_restart(struct ground *ground);

void ground_spec(struct sandbox_spec *spec); /* the defaults, with a new id */
int ground_create(struct ground *ground, const struct sandbox_spec *spec,
                  struct backend_sandbox *out_sandbox, struct error *err);
int ground_adopt(struct ground *ground, const struct backend_sandbox *sandbox, struct error *err);
int ground_destroy(struct ground *ground, const char *id, struct error *err);
int ground_freeze(struct ground *ground, const char *id, bool frozen, struct error *err);
int ground_update(struct ground *ground, const char *id, const struct sandbox_limits *limits,
                  struct error *err);
int ground_inspect(struct ground *ground, const char *id, struct sandbox_usage *out_usage,
                   struct error *err);
int ground_report(struct ground *ground, const char *id, struct buffer *json, struct error *err);
size_t ground_count(struct ground *ground);

/* What its handle says. */
pid_t ground_pid(const struct backend_sandbox *sandbox);
uint32_t ground_slot(const struct backend_sandbox *sandbox);

/* As if its pid belonged to a process that began later. */
void ground_make_stale(struct backend_sandbox *sandbox);

/* A sandbox with the defaults; fails the test when it cannot be made. */
struct backend_sandbox ground_sandbox(struct ground *ground);

/* Runs `sh -c command` as that user ("" for the default) and waits for it. */
void ground_run(struct ground *ground, const char *id, const char *user, const char *command,
                struct outcome *outcome);

/* The same, with a check that it ended with 0 and printed this. */
void ground_expect(struct ground *ground, const char *id, const char *user, const char *command,
                   const char *output);

/* Starts it and leaves it running. */
void ground_start(struct ground *ground, const char *id, const char *user, const char *command);

/* A stream to a port of its loopback, or with port 0 to the unix socket at `path`; or -errno. */
int ground_reach(struct ground *ground, const char *id, const char *user, unsigned port,
                 const char *path);

/* Starts a server in it, of both kinds, and talks to both. */
void ground_expect_servers(struct ground *ground, const char *id);

bool process_exists(pid_t pid);
int64_t ground_now_ms(void);
bool running_as_root(void);
bool running_with_groups(void); /* as root, or with a control group that was delegated to us */

/* Runs all tests as root, and as an ordinary user those before the last ones: `root_only` of them,
 * and before these `group_only` that need control groups. */
#define run_ground_tests(name, tests, group_only, root_only)                                      \
    _cmocka_run_group_tests(name, tests,                                                          \
                            ARRAY_LENGTH(tests) - (running_as_root() ? 0 : (size_t)(root_only)) - \
                                (running_with_groups() ? 0 : (size_t)(group_only)),               \
                            NULL, NULL)
