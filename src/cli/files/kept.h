/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* The workspace of a session that has ended, as far as it was kept (`--keep-files`). */

#include "cli/cli.h"

#include <stdbool.h>

/* Whether this failure of a use means that only what was kept can be read. */
bool kept_applies(const struct error *err);

/* Copies a file, or with "." all of it, to `path`; with `path` NULL to stdout, all of it as a tar.
 * `err` holds why the session itself cannot be read, and gets what went wrong here. */
int kept_copy_out(struct cli *cli, const char *session, const char *inside, const char *path,
                  struct error *err);
