#pragma once

/*
 * The isolation report: what is really in force for one sandbox, read back from the kernel. What
 * the launcher set up is not believed because it was set up.
 */

#include "backend/launched.h"

struct buffer;

/* Appends one JSON object. */
int report_write(struct launched_backend *backend, const char *id, struct buffer *json,
                 struct error *err);

/* Whether this host can give what sandbox.require names, as far as it is known before there is a
 * sandbox; the error names the first that it cannot. */
int report_check_required(const struct config *config, enum launch_mode mode,
                          const struct launch_host *host, struct error *err);

/* Everything that sandbox.require names must be in force; the error names the first that is not. */
int report_require(struct launched_backend *backend, const char *id, struct error *err);
