/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * The container engine's report about itself, asked for as the daemon's user and with its groups,
 * because root's access says nothing about the daemon's. A child asks, so that an engine that hangs
 * costs a few seconds.
 */

#include "base/error.h"

#include <jansson.h>

struct config;

struct engine_look {
    struct error err; /* why there is no answer; ERR_NONE with one */
    json_t *info;     /* owned: GET /info */
    json_t *version;  /* owned: GET /version */
    char api[16];     /* the version of the API that was agreed on */
};

void engine_look_run(struct engine_look *look, const struct config *config);
void engine_look_fini(struct engine_look *look);

static inline void scoped_engine_look_fini(struct engine_look *look)
{
    engine_look_fini(look);
}
