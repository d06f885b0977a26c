/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Trees of processes: everything that descends from a supervisor, found in /proc.
 *
 * A tree that forks cannot be killed in one step. A turn stops all processes that it finds until a
 * scan finds no new one, since a stopped process cannot fork, and then kills them all; init's loop
 * repeats the turn until the tree is empty.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct process;

/* Whether the kernel has no subreapers, so that orphans become init's own children. gVisor is such
 * a kernel; its other gaps are expected wherever this holds. */
bool tree_is_weak(void);

/* Living descendants. */
unsigned tree_count(int root);

/* Signals every living descendant once; returns how many there were. */
unsigned tree_signal(int root, int signal_number);

/* One turn of killing; returns how many were found. Descendants below the fork parent of another
 * process are left alone, unless the root is init itself. */
unsigned tree_kill(int root);

int tree_parent(int pid); /* 0 when there is no such process */

/* 0 also for a process that was killed and is not yet dead. */
int tree_parent_of_living(int pid);

/* Kills the tree of a process over several turns; the answer to `request` comes afterwards. */
void tree_begin_kill(struct process *process, uint64_t request);
void tree_end_kill(struct process *process); /* nothing is left of it */
bool tree_is_killing(void);
int tree_continue_kills(void); /* in how many milliseconds it wants its next turn; -1: none */

/* --- pure, for the tests -------------------------------------------------------------------- */

/* The parent and the state letter from the content of /proc/PID/stat. */
bool tree_parse_stat(const char *text, size_t length, int *out_parent, char *out_state);

/* Whether the process is exiting or has a pending SIGKILL; true also when the text cannot be
 * parsed. */
bool tree_parse_is_dying(const char *text, size_t length);

struct tree_entry {
    int pid;
    int parent;
    bool alive;
    bool marked;
    bool spared; /* with all that descends from it */
};

/* All processes that this /proc has, sorted by pid. Returns how many fit. It touches nothing but its
 * arguments, so that a helper may call it too. */
size_t tree_list(int proc_fd, struct tree_entry *out_entries, size_t capacity);

/* Marks the descendants of `root` in entries sorted by pid; returns how many of them are alive. */
unsigned tree_mark(struct tree_entry *sorted, size_t count, int root);
