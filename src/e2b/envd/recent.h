/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Processes that have ended a moment ago: a client that joins one late is told its start and its
 * end. They stay in memory for half a minute, a bounded number of them.
 */

#include "core/run/execution.h"

#include <stdbool.h>

struct recents;

struct recents *recents_new(struct loop *loop);
void recents_free(struct recents *recents); /* NULL is fine; before the core */

/* Keeps the execution until some time after its end. */
void recents_add(struct recents *recents, struct execution *execution);

/* The newest of the session that has ended and for which `is_meant` says so; NULL without one.
 * Borrowed for this turn of the loop. */
struct execution *recents_find(const struct recents *recents, const char *session_id,
                               bool (*is_meant)(const struct execution *execution,
                                                const void *context),
                               const void *context);
