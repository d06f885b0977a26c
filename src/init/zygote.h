/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * A zygote: an interpreter that has loaded its modules and forks further processes, which saves
 * them the slow start. It runs in the sandbox as any process of its user, and is trusted no more
 * than that.
 *
 * Its control socket is where requests go: descriptors and texts of a process to be started, and a
 * socket of that process alone. The zygote forks twice. The outer one, the fork parent, becomes the
 * reaper of all that the inner one leaves, and reports how that ended; the inner one says that it
 * is there, waits for the word and becomes the program. The kernel names the sender of each message,
 * and /proc the parent of each process, so a zygote cannot pass off another process as its own.
 *
 * Until the word is given nothing has happened: after a failure or a timeout before it, the process
 * is started in the ordinary way. A zygote that breaks the protocol is killed, and so is a program
 * that killed its fork parent, since its leftovers would have no reaper.
 */

#include <stdbool.h>

struct job;
struct process;

/* Makes the control socket of a process that is to be a zygote; 0 or -errno. */
int zygote_prepare(struct process *process);

/* By a zygote that is being started, in its directory, which should be `path`. */
void zygote_note_directory(struct process *zygote, const char *path);

/* Chooses a zygote that may fork the process of this job, if there is one. */
void zygote_choose(struct process *process, const struct job *job);

/* By the supervisor: lets the chosen zygote fork the process and watches it until its tree is
 * empty. False when the process has to be started in the ordinary way. */
bool zygote_serve(struct process *process);

/* By init: kills the zygote that was chosen for this process, with children that have no fork parent.
 */
void zygote_condemn(struct process *process);
