/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * The launcher's state on disk: `sandboxes/<id>/` has the mark of the sandbox and init's socket
 * (and the workspace of a direct one), `trash/` has files that are being removed. Both belong to
 * the launcher; the daemon may only traverse them. They are in a directory of the daemon's, so each
 * is opened once, checked, and used by its descriptor.
 *
 * The mark says whose the sandbox is, so that a name alone is never taken as proof. It is written
 * before anything else is made, and the pid is added before init runs.
 */

#include "launcher/fail.h"
#include "wire/mark.h"

#include <dirent.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

struct state {
    int root;      /* owned: the state directory */
    int sandboxes; /* owned */
    int trash;     /* owned */
    int ahead;     /* owned: directories that have no sandbox yet */
    int lock;      /* owned; open for as long as we live */
    int proc;      /* owned: the host's /proc */
    const char *instance;
};

int state_open(struct state *state, int root, const char *instance, struct fail *fail);

/* One launcher at a time: waits until that of an earlier daemon has finished the request it was at.
 * The lock is the process's own, so it ends with us and no child has it. `daemon` is our socket:
 * without a daemon there is nothing to wait for. */
int state_lock(struct state *state, int daemon, struct fail *fail);
void state_unlock(struct state *state);

/* A mark of ours without a process or a slot. */
void mark_init(struct mark *mark, const struct state *state, const char *id);

/* -1 with ENOENT when there is none. */
int state_open_sandbox(const struct state *state, const char *id);
int mark_read(int dir, struct mark *out_mark);
int mark_write(int dir, const struct mark *mark);

/* Clears the mark of a sandbox that was reported as gone: the next launcher removes its remains. */
int mark_clear(int mark);
/* The mark was cleared or never written. An unreadable mark is not blank: it may be another
 * version's. */
bool mark_is_blank(int dir);
bool mark_is_ours(const struct state *state, const struct mark *mark, const char *id);

/* The directory is renamed into the trash at once, and its content removed later. `number` makes
 * its name in the trash unique. 1 when there is trash now, 0 when there was nothing. */
int state_discard(const struct state *state, const char *id, uint64_t number);

/* The sandboxes one by one; NULL on error. Closed with closedir(). */
DIR *state_list(const struct state *state);
bool state_next(DIR *list, char out_id[LAUNCH_ID_SIZE]);

typedef void state_visit_fn(void *user, const char *id);
int state_each(const struct state *state, state_visit_fn *visit, void *user);

/* Nanoseconds since boot, by the clock of start times. */
int64_t state_boot_time(void);

/* The start time of a child that was cloned between the two times; 0 when only /proc has it. */
uint64_t state_start_between(int64_t before, int64_t after);

/* Start time of a process in clock ticks since boot; 0 when there is none. */
uint64_t state_start_time(const struct state *state, pid_t pid);

/* A pidfd that is certainly of this process, and of a sandbox; -1 with ESRCH when it is gone. */
int state_open_process(const struct state *state, pid_t pid, uint64_t start_time);
