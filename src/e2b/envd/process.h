/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Processes of a sandbox as E2B knows them. A process is an execution: clients name it by its pid
 * inside the sandbox or by the tag that it was started with.
 */

#include "core/run/execution.h"
#include "e2b/envd/rpc.h"

/* The running process that rpc->input names under `process`; answers and gives NULL without one.
 * Borrowed for this turn of the loop. */
struct execution *process_select(struct rpc *rpc, const json_t *selector);

/* Has the process a terminal? By its recorded request. */
bool process_has_terminal(const struct execution *execution);

/* --- events: process_events.c ----------------------------------------------------------------- */

enum process_follow {
    FOLLOW_NEW,  /* a process that was just started: when it is recorded, from the beginning */
    FOLLOW_LATER /* one that runs: from now on */
};

/* The call is answered with the events of the process: its start, its output, its end. */
void process_follow(struct rpc *rpc, struct execution *execution, enum process_follow how);

/* --- methods: process.c, process_input.c ------------------------------------------------------ */

rpc_fn process_start, process_connect, process_list, process_update, process_send_signal,
    process_send_input, process_stream_input, process_close_stdin;
