/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Running a program in a session, attached or not: what `exec` and `run` share. */

#include "cli/cli.h"
#include "cli/variables.h"

struct program_args {
    bool input;
    bool terminal;
    bool detach;
    const char *cwd;
    const char *user;
    const char *timeout;
};

extern const struct option program_options[];

/* Starts `argv` in the session and stays with it to its end, unless detached. Returns the exit
 * code, which is the program's where there is one. */
int program_run(struct cli *cli, const char *session, const struct program_args *args,
                const struct variable_args *variables, const char *const *argv);
