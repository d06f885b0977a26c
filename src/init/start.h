#pragma once

/* Starting a process, and what becomes of it as its supervisor reports. */

#include <stddef.h>

struct job;
struct process;

/* The message in the job is a START, `fds` came with it and are taken over. Returns -1 when it is
 * malformed; what goes wrong otherwise is answered. The job is busy if it has a process after. */
int start_begin(struct job *job, size_t length, int *fds, unsigned fd_count);

/* Whatever supervisors have reported. */
void start_take_all_reports(void);

/* Its supervisor has ended. */
void start_lose_supervisor(struct process *process);

/* The process itself was reaped by init, because its supervisor was killed while starting it. */
void start_lose_main(struct process *process);

/* The daemon has recorded the end. */
void start_forget(struct process *process);
