#pragma once

/*
 * The supervisor of one process: its parent, and the one that everything of its tree falls back to,
 * however it forks, changes session or loses its parent. So a tree is the set of descendants of its
 * supervisor, always.
 *
 * It is a clone that shares init's memory and descriptors: it costs a kernel task and one page. One
 * that has nothing left to watch is kept for a few seconds, since taking it again is faster than
 * making another. It hands its bounding set of capabilities on, so there are two kinds: for root,
 * and for all others with an empty one.
 */

#include <stdbool.h>
#include <stdint.h>

struct process;

/* The process's job holds what to start. 0, or -errno when there cannot be another process. */
int supervisor_start(struct process *process);

/* It has reported that nothing of the process is left: it is free for another one. */
void supervisor_release(struct process *process);

bool supervisor_is(int pid);

/* --- for zygote.c, in the supervisor ---------------------------------------------------------- */

/* That the process has started, has ended, or both: to init, and to the daemon if that can be done
 * without init. */
void supervisor_tell(struct process *process, unsigned reports);

void supervisor_record_end(struct process *process, int status, int64_t cpu_us,
                           uint64_t max_rss_bytes, int64_t started_us);
void supervisor_remove_script(const struct process *process);
void supervisor_end_if_orphaned(void); /* in direct mode, when init has been killed */

/* The child of init with this number, supervisor or not, has been reaped. */
void supervisor_reaped(int pid);
