/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * A Python that has started and waits in a sandbox, so that no Python code there has to wait for a
 * start: it forks for each script.
 *
 * It is an ordinary process of init's, which asks it for a child when an execution may be forked
 * from it; init/zygote.h says how such a child becomes a process of its own, and drivers/zygote.py
 * runs a script as `python3 FILE` would run it. Members of the pool get a zygote, and so do
 * sandboxes in which Python code has run.
 */

#include "agent/agent.h"

#include <stdbool.h>
#include <stdint.h>

struct program;
struct sandbox;
struct python_zygote;

/* Starts a zygote if python.warm says so and the sandbox has none. */
void python_zygote_prepare(struct sandbox *sandbox);

/* As python_zygote_prepare(), but a little later, unless the sandbox was destroyed meanwhile. */
void python_zygote_prepare_soon(struct sandbox *sandbox);

/* NULL is fine, here and below. The process goes with its sandbox. */
void python_zygote_free(struct python_zygote *zygote);

/* Whether the zygote may fork this program: every input that Python reads at its start has to be
 * the same. */
bool python_zygote_fits(const struct python_zygote *zygote, const struct program *program);

/* Whether the zygote is the process of that number; with on_exited, the process has ended. */
bool python_zygote_has(const struct python_zygote *zygote, uint64_t number);
bool python_zygote_on_exited(struct python_zygote *zygote, uint64_t number);
