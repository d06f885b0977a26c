/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* The state of backends and of the store, as faces tell it: whether they work, and their
 * features. */

#include "backend/backend.h"
#include "base/error.h"

#include <stdbool.h>
#include <sys/types.h>

struct config;
struct core;
struct json_writer;
struct session;

/* Whether requests can be served: 0, or -1 with what is broken. A store that fails is tried again
 * at each call, because a daemon that is not ready gets no other requests. */
int backend_view_check_ready(struct core *core, struct error *err);

/* {backends: […]} */
void backend_view_write_json(const struct core *core, struct json_writer *json);

/* Whether programs in a sandbox run as this user of the host. */
bool backend_view_run_as(const struct core *core, uid_t user);

/* Whether programs in some sandboxes use the network of the host. */
bool backend_view_shares_host(const struct core *core);

/* The network of a sandbox that asks for nothing: "none", "open", or "host" without a wall. */
const char *backend_view_default_network(const struct core *core);

/* The limits of a session as its backend enforces them. */
struct sandbox_limits backend_view_limits(const struct session *session);
