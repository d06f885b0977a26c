/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * The fourth clock: records of ended sessions, with their executions, events and output, go
 * when session.retention is over. Its timer is armed for the first; retention is by the wall clock,
 * because it has to hold over reboots.
 */

#include "core/core.h"

struct retention;

struct retention *retention_new(struct core *core);
void retention_free(struct retention *retention);
void retention_start(struct retention *retention);

/* The store or the worker has still to answer. */
bool retention_is_busy(const struct retention *retention);

/* A session has ended and is kept until then. */
void retention_note(struct retention *retention, int64_t until_wall_us);
