/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Flavors: the kinds of sandboxes that the settings offer. The first is the one that sessions get
 * by themselves; others are asked for, and may need an approval or cost something.
 */

#include "backend/backend.h"
#include "config/config.h"
#include "core/core.h"

struct json_writer;
struct session;

/* A flavor without a known price needs an approval. */
enum { PRICE_UNKNOWN = -1 };

/* ERR_INVALID when there is none of this name, or when the backend cannot make it, with the reason;
 * NULL then. */
const struct config_flavor *flavor_find(const struct core *core, const char *name,
                                        struct error *err);

/* Why the backend cannot make it; 0 when it can. */
int flavor_check(const struct core *core, const struct config_flavor *flavor, struct error *err);

/* It needs no approval, and nothing is charged. */
bool flavor_is_free(const struct config_flavor *flavor);

/* The limits of a sandbox of this flavor for this owner. A limit in `given` that is not 0 takes
 * precedence; the others are cut to the ceiling. */
struct sandbox_limits flavor_limits(const struct core *core, const char *owner,
                                    const struct config_flavor *flavor,
                                    const struct sandbox_limits *given);

/* The limits in the row of the flavor; 0 where it takes the default. */
struct sandbox_limits flavor_own_limits(const struct config_flavor *flavor);

/* GPUs of the session's next sandbox. A flavor that the settings have lost has none. */
uint32_t flavor_gpus(const struct session *session);

/* GET /flavors: the list. */
void flavors_write_json(const struct core *core, struct json_writer *json, const char *key);

/* The fields memory_bytes, cpus, pids and disk_bytes; null where there is no limit. */
void limits_write_json(struct json_writer *json, const struct sandbox_limits *in_force);
