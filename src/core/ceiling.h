/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * The operator's ceiling: the most that a caller may ask for.
 *
 * It is sandbox.max; where the row of an owner or of a flavor says something, that holds in its
 * place, and the smaller of the two where both do. The size of the host is a ceiling too, above
 * all settings. A request above it is refused with the name of the limit; a default of the
 * settings that is above it is cut.
 */

#include "backend/backend.h"
#include "config/config.h"
#include "core/core.h"

struct ceiling;

/* The host, as the daemon finds it when it starts. 0: not known, and then no limit. */
struct host_size {
    uint64_t memory_bytes;
    uint64_t disk_bytes; /* of the file system of the state directory */
    uint32_t cpu_millis;
    uint32_t pids;
};

struct ceiling *ceiling_new(const struct core *core);
void ceiling_free(struct ceiling *ceiling);                                   /* NULL is fine */
void ceiling_set_host(struct ceiling *ceiling, const struct host_size *host); /* for tests */

/* The values of a request. Where it leaves one open, a limit is 0 and any other value -1. */
struct ceiling_ask {
    const char *owner;
    const struct config_flavor *flavor; /* NULL: no row of a flavor counts */
    struct sandbox_limits limits;
    int network; /* enum network_mode */
    int64_t max_lifetime_ms, timeout_ms, idle_timeout_ms;
};

#define CEILING_ASK_INIT \
    .network = -1, .max_lifetime_ms = -1, .timeout_ms = -1, .idle_timeout_ms = -1

/* "over_limit": ERR_FORBIDDEN where the operator has set the limit, ERR_INVALID where it is the
 * host's. */
int ceiling_check(const struct ceiling *ceiling, const struct ceiling_ask *ask, struct error *err);

/* A value that the caller left open: the default, cut to the ceiling. 0: without an end. */
void ceiling_cut_limits(const struct ceiling *ceiling, const char *owner,
                        const struct config_flavor *flavor, struct sandbox_limits *limits);
int64_t ceiling_cut_ms(const struct ceiling *ceiling, const char *owner,
                       const struct config_flavor *flavor, enum config_limit limit, int64_t ms);
struct network_policy ceiling_cut_network(const struct ceiling *ceiling, const char *owner,
                                          const struct config_flavor *flavor,
                                          struct network_policy policy);
