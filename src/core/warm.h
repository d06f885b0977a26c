#pragma once

/*
 * A Python that has started and waits in a sandbox for its script, so that the next Python code
 * there need not wait for a start.
 *
 * It is an ordinary process of init's, with everything that an execution's process has, and serves
 * one script; see drivers/warm.py for how that comes to run as `python3 FILE` would run it. Members
 * of the pool get one, and sandboxes in which Python code has run get the next one a moment later.
 */

#include "core/agent.h"

#include <stdbool.h>
#include <stdint.h>

struct buffer;
struct launch;
struct sandbox;
struct warm;

void warm_prepare(struct sandbox *sandbox);      /* if python.warm says so and there is none */
void warm_prepare_soon(struct sandbox *sandbox); /* when it has not been destroyed meanwhile */

/* NULL is fine, here and below. The process goes with its sandbox. */
void warm_free(struct warm *warm);

/* Whether it takes the script of `launch`: then the process is the caller's, and `input` begins
 * with the script. What Python looks at when it starts has to be the same as for the script. */
bool warm_take(struct warm *warm, const struct launch *launch, bool keeps_stdin,
               struct buffer *input, uint64_t *out_number, struct agent_pipes *out_pipes);

bool warm_has(const struct warm *warm, uint64_t number); /* it is the process of that number */
bool warm_on_exited(struct warm *warm, uint64_t number); /* the same, and it has ended */
