/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * The session or execution that a user means. A session is named by its id, by key:KEY, by the bare
 * key, or by a beginning of its id that only one session has, with or without "ses_". An exact key
 * comes before a beginning, and live sessions come before ended ones.
 */

#include "cli/cli.h"

/*
 * Allocated; NULL with an error when several fit or the daemon does not answer. A name that fits
 * nothing comes back unchanged: the daemon's own answer says that it does not exist.
 */
char *session_resolve(struct cli *cli, const char *given, struct error *err);
char *execution_resolve(struct cli *cli, const char *session, const char *given, struct error *err);

/* Replaces the session in the first operand and in options of the kind OPTION_SESSION. */
int sessions_resolve_given(struct cli *cli, void *args, struct option_result *given,
                           struct error *err);
