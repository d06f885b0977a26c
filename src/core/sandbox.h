#pragma once

/*
 * One incarnation of a session, or a member of the pool.
 *
 *     none → creating → ready ⇄ frozen
 *                │        │
 *                └────────┴──→ destroying → none       (crashed is noticed by its pidfd and leads
 * to destroying)
 *
 * Its record is written before it is made and forgotten only after it is confirmed gone. Destroying
 * is retried with back-off for ever; attempts and the last error are visible.
 */

#include "backend/backend.h"
#include "core/core.h"
#include "core/session.h"

struct agent;
struct process;
struct sandbox;

enum sandbox_state {
    SANDBOX_NONE,
    SANDBOX_CREATING,
    SANDBOX_READY,
    SANDBOX_FROZEN,
    SANDBOX_DESTROYING,
    SANDBOX_STATES
};

const char *sandbox_state_name(enum sandbox_state state);
bool sandbox_may_become(enum sandbox_state from, enum sandbox_state to);

/* For executions: its id, and the connection to its init, NULL while there is none. */
const char *sandbox_id(const struct sandbox *sandbox);
struct agent *sandbox_agent(const struct sandbox *sandbox);
