/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * The isolation report: the walls in force for one sandbox, read back from the kernel and not from
 * the launcher's requests.
 */

#include "backend/launched.h"

struct buffer;

/* Appends one JSON object. */
int report_write(struct launched_backend *backend, const char *id, struct buffer *json,
                 struct error *err);

/* Whether this host can enforce the walls of sandbox.require, as far as that is known before a
 * sandbox exists; the error names the first that it cannot. */
int report_check_required(const struct config *config, enum launch_mode mode,
                          const struct launch_host *host, struct error *err);

/* All walls of sandbox.require must be in force; the error names the first that is not. */
int report_require(struct launched_backend *backend, const char *id, struct error *err);
