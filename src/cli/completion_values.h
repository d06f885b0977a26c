/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Values for the completion scripts that only the daemon or the settings know, one in each line. */

#include "cli/cli.h"

#define COMPLETION_KINDS "sessions executions templates settings files"

/*
 * The values of a kind. `about` is the session of executions, and SESSION:PATH of files. An unknown
 * kind, and a daemon that does not answer, have no values: a shell is no place for messages.
 */
void completion_values(struct cli *cli, const char *kind, const char *about, struct buffer *out);
