#pragma once

/*
 * How readily the kernel takes a process when memory is short (`oom_score_adj`). Programs in a
 * sandbox are taken before the host's; init raises theirs above its own. They may lower it again,
 * down to the least value that somebody with CAP_SYS_RESOURCE has written, which is inherited: so
 * the launcher has that value at the moment when it starts an init, and its own at all others.
 * Writing it for the child itself would cost ten times as much.
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

/* Around a clone: what is cloned keeps the floor. */
void oom_score_lend(const struct oom_score *score);
void oom_score_restore(const struct oom_score *score);

/* In a child whose init cannot do it for its programs: they inherit what this one has. */
void oom_score_raise(const struct state *state);
