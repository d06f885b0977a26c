/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Starting a process, and following the reports of its supervisor. */

#include <stddef.h>

struct job;
struct process;

/* The message in the job is a START, `fds` came with it and are taken over. Returns -1 when it is
 * malformed; other failures are answered. The job is busy if it has a process afterwards. */
int start_begin(struct job *job, size_t length, int *fds, unsigned fd_count);

/* Handles all reports of supervisors. */
void start_take_all_reports(void);

/* The supervisor of the process has ended. */
void start_lose_supervisor(struct process *process);

/* The process itself was reaped by init, because its supervisor was killed while starting it. */
void start_lose_main(struct process *process);

/* The daemon has recorded the end. */
void start_forget(struct process *process);
