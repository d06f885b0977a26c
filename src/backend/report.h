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

/* Everything that sandbox.require names must be in force; the error names the first that is not. */
int report_require(struct launched_backend *backend, const char *id, struct error *err);
