/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * A running execution connected to our own stdin, stdout, stderr, terminal and signals, until it
 * ends.
 *
 * Without a terminal of its own the program gets the signals that we get: the first INT, TERM, HUP
 * or QUIT is passed on, the second cancels the execution with its whole process tree, the third
 * leaves at once. With a terminal, Ctrl-C is a byte like any other.
 */

#include "cli/cli.h"

struct attach_options {
    const char *session;   /* borrowed */
    const char *execution; /* borrowed */
    bool input;            /* pass on our stdin */
    bool terminal;         /* the program has a terminal */
    bool silent;           /* copy no output: the final document has it */
};

/* Fills *out_final with the document of the ended execution, owned by the caller. 0, or -1; when a
 * signal or a closed stdout ended it, *out_signal says which and the exit code is that signal's. */
int attach_run(struct cli *cli, const struct attach_options *options, json_t **out_final,
               int *out_signal, struct error *err);

/* The exit code of this process for an ended execution. */
int execution_exit_code(const json_t *execution);

/* Whether the program could not be started, was stopped or the like: says so on stderr. */
void execution_explain(const json_t *execution);
