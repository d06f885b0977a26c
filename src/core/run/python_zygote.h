#pragma once

/*
 * A Python that has started and waits in a sandbox, so that no Python code there has to wait for a
 * start: it forks for each script.
 *
 * It is an ordinary process of init's, which asks it for a child when an execution may come from
 * it; see init/zygote.h for how such a child becomes a process of its own, and drivers/warm.py for
 * how it runs a script as `python3 FILE` would run it. Members of the pool get one, and sandboxes
 * in which Python code has run.
 */

#include "agent/agent.h"

#include <stdbool.h>
#include <stdint.h>

struct program;
struct sandbox;
struct warm;

void warm_prepare(struct sandbox *sandbox);      /* if python.warm says so and there is none */
void warm_prepare_soon(struct sandbox *sandbox); /* when it has not been destroyed meanwhile */

/* NULL is fine, here and below. The process goes with its sandbox. */
void warm_free(struct warm *warm);

/* Whether it may fork what `program` says: what Python looks at when it starts has to be the same.
 */
bool warm_fits(const struct warm *warm, const struct program *program);

bool warm_has(const struct warm *warm, uint64_t number); /* it is the process of that number */
bool warm_on_exited(struct warm *warm, uint64_t number); /* the same, and it has ended */
