/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * `oom_score_adj`: the OOM killer prefers programs in a sandbox over the host's; init raises the
 * value of its programs above its own. A program may lower it down to the minimum that a process
 * with CAP_SYS_RESOURCE wrote last, which is inherited: so the launcher has that value while it
 * clones an init, and its own at all other times. Writing it for the child would cost ten times as
 * much.
 */

#include <stdbool.h>

struct state;

enum { OOM_SCORE_FLOOR = 450, OOM_SCORE_PROGRAMS = 500, OOM_SCORE_TEXT = 8 };

struct oom_score {
    int file;                 /* owned: the launcher's own; -1 where nothing is changed */
    char own[OOM_SCORE_TEXT]; /* as it was found */
};

/* Changes nothing without the capability, or where the launcher's own is as high already. */
void oom_score_open(struct oom_score *score, const struct state *state, bool may_lower);

/* Around a clone: the child inherits the floor. */
void oom_score_lend(const struct oom_score *score);
void oom_score_restore(const struct oom_score *score);

/* In a child whose init may not set the value of its programs: they inherit it from init. */
void oom_score_raise(const struct state *state);
