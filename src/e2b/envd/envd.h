/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* The data plane of a sandbox, as E2B's agent envd serves it: tables of routes for
 * e2b_envd_face. */

#include "face/route.h"

/* Answers that the sandbox of the request has ended. */
void envd_fail_gone(struct request *request);

extern const struct route e2b_envd_state[];   /* /metrics, /envs */
extern const struct route e2b_envd_files[];   /* /files */
extern const struct route e2b_envd_methods[]; /* process.Process and filesystem.Filesystem */
