/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * The upper border of core/session: what a session asks of the programs in it. The assembly of the
 * core sets the table; nothing in this directory includes a header of core/run.
 */

#include "base/id.h"
#include "core/end_reason.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct session;

struct session_program {
    const char *id; /* of its execution; borrowed for this turn of the loop */
    int64_t created_wall_us;
};

/* Implemented by core/run; no member is NULL. */
struct session_programs {
    /* The session goes: contexts and executions end with this reason and forget it. */
    void (*end_all)(struct session *session, const struct end_reason *reason);

    /* Executions that wait or run. */
    size_t (*count)(const struct session *session);

    /* The oldest of them that keeps the session from being idle; false when there is none. */
    bool (*find_oldest)(const struct session *session, struct session_program *out_program);
};
