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

/* What is not known costs an unknown amount: a person decides. */
enum { PRICE_UNKNOWN = -1 };

/* ERR_INVALID when there is none of this name, or when the backend cannot make it, with the reason;
 * NULL then. */
const struct config_flavor *flavor_find(const struct core *core, const char *name,
                                        struct error *err);

/* Why the backend cannot make it; 0 when it can. */
int flavor_check(const struct core *core, const struct config_flavor *flavor, struct error *err);

/* Nobody has to be asked and nothing is charged. */
bool flavor_is_free(const struct config_flavor *flavor);

/* What a sandbox of it has for this owner; what was given counts more, where it is not 0. The rest
 * is cut to the ceiling. */
struct sandbox_limits flavor_limits(const struct core *core, const char *owner,
                                    const struct config_flavor *flavor,
                                    const struct sandbox_limits *given);

/* What the flavor itself says; 0 where it takes the default. */
struct sandbox_limits flavor_own_limits(const struct config_flavor *flavor);

/* GPUs of the session's next sandbox. A flavor that the settings have lost has none. */
uint32_t flavor_gpus(const struct session *session);

/* GET /flavors: the list. */
void flavors_write_json(const struct core *core, struct json_writer *json, const char *key);

/* The fields memory_bytes, cpus, pids and disk_bytes; null where there is no limit. */
void limits_write_json(struct json_writer *json, const struct sandbox_limits *in_force);
