/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Patterns of paths: `*`, `?` and `[a-z]` stay inside one component, `**` stands for any number of
 * whole ones, a backslash takes the next character as it is. Pure, nothing is allocated.
 *
 * A walk keeps the state of each directory: glob_step() with the name of an entry gives the state
 * there, which says whether the entry matches and whether anything below it can. The time for a
 * name does not depend on how often a pattern could be tried, so no pattern is expensive.
 *
 * Names that begin with a dot are matched by a component that begins with one, or when `hidden` is
 * set; `**` does not stand for them otherwise.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { GLOB_PARTS = 63 };

struct glob {
    const char *parts[GLOB_PARTS]; /* borrowed from the pattern */
    uint16_t lengths[GLOB_PARTS];
    unsigned count;
    bool hidden;
};

typedef uint64_t glob_state; /* 0: neither it nor anything below it matches */

/* -1 for a pattern that is empty or absolute, has "." or ".." or too many components, or a bracket
 * that is not closed. The pattern is kept and has to live as long. */
int glob_parse(struct glob *glob, const char *pattern, bool hidden);

glob_state glob_start(const struct glob *glob);
glob_state glob_step(const struct glob *glob, glob_state state, const char *name);
bool glob_is_match(const struct glob *glob, glob_state state);
bool glob_goes_on(const struct glob *glob, glob_state state); /* something below may match */

/* A whole path. A pattern without a slash is matched with the last component alone. */
bool glob_match_path(const struct glob *glob, const char *path);
