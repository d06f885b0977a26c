/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Turns at building. Only BUILDS_AT_ONCE sandboxes are built at the same time: the backend makes
 * one after the other, and an owner that asks for hundreds would make all other owners wait.
 * Waiting sandboxes get their turns owner by owner, and those of one owner in order of arrival.
 */

#include "base/list.h"
#include "loop/loop.h"

#include <stdbool.h>

enum { BUILDS_AT_ONCE = 16 };

struct builder;
struct build_turn;
struct builds;
struct core;

typedef void build_turn_fn(struct build_turn *turn);

enum build_state { BUILD_NONE, BUILD_WAITING, BUILD_HELD };

/* Embedded in struct sandbox; zeroed at first. */
struct build_turn {
    enum build_state state;
    struct builds *builds;   /* borrowed; NULL before the first turn */
    build_turn_fn *on_turn;  /* while it waits */
    struct builder *builder; /* borrowed; NULL unless it waits */
    struct list node;        /* among those of its owner that wait */
    struct timer patience;
};

struct builds *builds_new(struct core *core);
void builds_free(struct builds *builds);

/* True: it may build now. False: it waits, and on_turn comes later. A build that takes long is not
 * waited for: the next one gets its turn all the same. `owner` is NULL for the pool. */
bool builds_take(struct builds *builds, struct build_turn *turn, const char *owner,
                 build_turn_fn *on_turn);

/* It has been built, or need not be any more. */
void builds_pass(struct builds *builds, struct build_turn *turn);
