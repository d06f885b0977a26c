/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Copies a file or a directory of this machine into a session, as `cp` does. */

#include "cli/cli.h"

/* `inside` is a path in the workspace; "" or one with a slash at its end is a directory to copy into. */
int copy_into(struct cli *cli, const char *path, const char *session, const char *inside,
              struct error *err);
