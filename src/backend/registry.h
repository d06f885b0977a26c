/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* The rows of names.h with the functions behind them; only registry.c knows the implementations. */

#include "backend/backend.h"
#include "backend/names.h"

typedef struct backend *backend_open_fn(const struct backend_options *options, struct error *err);

/* The settings, before anything is started. */
struct backend_settings {
    const struct config *config; /* borrowed */
    uid_t uid;                   /* the daemon's, when it serves */
    gid_t gid;
    bool is_own_user; /* the daemon does not change its user */
};

/* Refuses settings that this backend cannot enforce on this host; it ignores those of other
 * backends. */
typedef int backend_check_fn(const struct backend_settings *settings, struct error *err);

struct backend_row {
    const char *name; /* NULL ends the rows */
    const char *summary;
    bool needs_launcher;
    backend_check_fn *check;
    backend_open_fn *open;
};

extern const struct backend_row backend_rows[];

const struct backend_row *backend_row_find(const char *name); /* NULL when there is none */

/* Whether the daemon of these settings starts the launcher. */
bool backends_need_launcher(const struct config *config);

#define BACKEND_DECLARE(name, ...)         \
    backend_check_fn name##_backend_check; \
    backend_open_fn name##_backend_open;
BACKEND_ROWS(BACKEND_DECLARE)
#undef BACKEND_DECLARE
