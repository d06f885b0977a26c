/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * The supervisor of one process: its parent, and the subreaper of its tree. A tree is always the
 * set of descendants of its supervisor, even of processes that change session or lose their parent.
 *
 * It is a clone that shares init's memory and descriptors: it costs a kernel task and one page. An
 * idle supervisor is parked for a few seconds, since reusing it is faster than a clone. Its
 * children inherit its bounding set of capabilities, so there are two kinds: for root, and with an
 * empty set for all other users.
 */

#include <stdbool.h>
#include <stdint.h>

struct process;

/* The process's job has the START message. 0, or -errno when there cannot be another process. */
int supervisor_start(struct process *process);

/* The supervisor has reported that no process of the tree is left: it is free for another one. */
void supervisor_release(struct process *process);

bool supervisor_is(int pid);

/* --- for zygote.c, in the supervisor ---------------------------------------------------------- */

/* Reports to init that the process has started, has ended, or both; and to the daemon, if that
 * needs no work of init. */
void supervisor_tell(struct process *process, unsigned reports);

void supervisor_record_end(struct process *process, int status, int64_t cpu_us,
                           uint64_t max_rss_bytes, int64_t started_us);
void supervisor_remove_script(const struct process *process);
void supervisor_end_if_orphaned(void); /* in direct mode, when init has been killed */

/* The child of init with this number, supervisor or not, has been reaped. */
void supervisor_reaped(int pid);
