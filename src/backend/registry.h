#pragma once

/* The rows of names.h with the functions behind them; only registry.c knows the implementations. */

#include "backend/backend.h"
#include "backend/names.h"

typedef struct backend *backend_open_fn(const struct backend_options *options, struct error *err);

/* What is known of the settings before anything is started. */
struct backend_settings {
    const struct config *config; /* borrowed */
    uid_t uid;                   /* the daemon's, when it serves */
    gid_t gid;
    bool is_own_user; /* it stays the user that has started it */
};

/* Refuses settings that this backend could not keep on this host; those that do not concern it
 * pass. */
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

#define BACKEND_DECLARE(name, ...)         \
    backend_check_fn name##_backend_check; \
    backend_open_fn name##_backend_open;
BACKEND_ROWS(BACKEND_DECLARE)
#undef BACKEND_DECLARE
