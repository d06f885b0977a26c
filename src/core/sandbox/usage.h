/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * The resources that sandboxes use: measured on request. The last measurement stays with the
 * sandbox and is shown with its session. For samples over time see usage_history.h.
 */

#include "backend/backend.h"
#include "loop/loop.h"

struct core;
struct sandbox;
struct usage_round;

typedef void usage_done_fn(void *user);

/* A round begins, takes the sandboxes that are to be measured, and ends: `done` comes once, from
 * the loop, when all have been measured that still were there, and so does for none at all. */
struct usage_round *usage_begin(struct core *core);
void usage_add(struct usage_round *round, const struct sandbox *sandbox); /* NULL is fine */
void usage_end(struct usage_round *round, usage_done_fn *done, void *user);
