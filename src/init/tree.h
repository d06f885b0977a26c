#pragma once

/*
 * Trees of processes: everything that descends from a supervisor, found in /proc.
 *
 * Killing a tree cannot be done in one step while it forks. A turn stops whatever it finds until a
 * look finds nothing new, since what is stopped or about to be cannot fork, and then kills it all;
 * init's loop gives as many turns as it takes.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct process;

/* Whether the kernel has no subreapers, so that what a process leaves behind becomes init's own child.
 * gVisor is such a kernel, and tells by that where its other gaps are to be expected. */
bool tree_is_weak(void);

/* Living descendants. */
unsigned tree_count(int root);

/* Signals every living descendant once; returns how many there were. */
unsigned tree_signal(int root, int signal_number);

/* One turn of killing; returns how many were found. What hangs on the fork parent of another process,
 * though it descends from this root, is left alone, unless the root is init itself. */
unsigned tree_kill(int root);

int tree_parent(int pid); /* 0 when there is no such process */

/* 0 also when it was killed and has yet to die. */
int tree_parent_of_living(int pid);

/* The tree of a process, over as many turns as it takes; the answer to `request` comes after. */
void tree_begin_kill(struct process *process, uint64_t request);
void tree_end_kill(struct process *process); /* nothing is left of it */
bool tree_is_killing(void);
int tree_continue_kills(void); /* in how many milliseconds it wants its next turn; -1: none */

/* --- pure, for the tests -------------------------------------------------------------------- */

/* The parent and the state letter from the content of /proc/PID/stat. */
bool tree_parse_stat(const char *text, size_t length, int *out_parent, char *out_state);

/* Whether it ends, or has a SIGKILL to take; also of what cannot be read. */
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
