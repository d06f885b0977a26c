/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * A process watched by its pidfd: on_exit comes once, from the loop, when it has died. A child is
 * reaped and its exit reported; the exit of any other process is known if the kernel provides it
 * (Linux 6.15).
 */

#include "loop/loop.h"

#include <sys/types.h>

struct process;
typedef void process_exit_fn(struct process *process);

struct process_exit {
    bool known; /* false for a process that is not our child, on an older kernel */
    int code;   /* exit code, -1 when killed by a signal */
    int signal; /* 0 unless killed by one */
};

enum process_state { PROCESS_UNWATCHED, PROCESS_WATCHED, PROCESS_EXITED };

struct process {
    enum process_state state;
    int pidfd; /* owned; valid while it is watched */
    struct io_watch watch;
    struct timer again; /* dead, and not reaped yet by its parent */
    unsigned looks;
    process_exit_fn *on_exit;
    struct process_exit exit; /* valid in and after on_exit */
};

/* Takes over the pidfd, which is closed before on_exit is called. */
void process_watch(struct process *process, struct loop *loop, int pidfd, process_exit_fn *on_exit);
void process_unwatch(
    struct process *process); /* stops and closes; no on_exit comes; zeroed is fine */
int process_release(struct process *process); /* stops, and gives the pidfd back; -1: none */
bool process_is_watched(const struct process *process);
bool process_has_exited(const struct process *process); /* on_exit has come, or comes now */

/* Asks the kernel, without waiting for the loop: a zombie is dead, whether it is reaped or not. */
bool process_is_dead(const struct process *process);
int process_signal(struct process *process, int signal_number, struct error *err);
