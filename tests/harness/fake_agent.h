/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Stands in for agent/agent.c where a test links it: every request is answered with success at the
 * end of the turn, unless the test says otherwise. It knows no processes.
 */

#include "agent/agent.h"

/* The connection breaks: open requests fail and the owner is told. */
void fake_agent_lose(struct agent *agent);

/* Agents made from now on do not answer. */
void fake_agent_be_silent(bool silent);

/* Inits speak other versions of the protocol from now on. */
void fake_agent_be_foreign(bool foreign);

/* How many exist. */
size_t fake_agent_count(void);
