#pragma once

/*
 * A Python that has started and waits in a sandbox, so that no Python code there has to wait for a
 * start: it forks for each script.
 *
 * It is an ordinary process of init's, which asks it for a child when an execution may come from
 * it; init/zygote.h says how such a child becomes a process of its own, and drivers/zygote.py runs
 * a script as `python3 FILE` would run it. Members of the pool get one, and sandboxes in which
 * Python code has run.
 */

#include "agent/agent.h"

#include <stdbool.h>
#include <stdint.h>

struct program;
struct sandbox;
struct python_zygote;

/* Starts one if python.warm says so and there is none. */
void python_zygote_prepare(struct sandbox *sandbox);

/* The same a little later, when the sandbox has not been destroyed meanwhile. */
void python_zygote_prepare_soon(struct sandbox *sandbox);

/* NULL is fine, here and below. The process goes with its sandbox. */
void python_zygote_free(struct python_zygote *zygote);

/* Whether it may fork this program: what Python looks at when it starts has to be the same. */
bool python_zygote_fits(const struct python_zygote *zygote, const struct program *program);

/* Whether it is the process of that number; with on_exited, which has ended. */
bool python_zygote_has(const struct python_zygote *zygote, uint64_t number);
bool python_zygote_on_exited(struct python_zygote *zygote, uint64_t number);
