#pragma once

/*
 * The supervisor of one process: its parent, and the one that everything of its tree falls back to,
 * however it forks, changes session or loses its parent. So a tree is the set of descendants of its
 * supervisor, always.
 *
 * It is a clone that shares init's memory and descriptors: it costs a kernel task and one page.
 */

struct process;

/* The process's job holds what to start. 0, or -errno when there cannot be another process. */
int supervisor_start(struct process *process);
