/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * A carrier that fails as a test wants it to: a proxy between a bridge and a relay's socket, in the
 * test's own loop. It cuts a connection after so many bytes, in the middle of whatever they are, passes
 * bytes on in small pieces, or holds them back. What it has taken and not passed on is lost with a cut.
 */

#include "loop/loop.h"

#include <stdint.h>

struct cutter;

enum cutter_way { CUTTER_IN, CUTTER_OUT }; /* to the relay, and from it */

struct cutter_plan {
    uint64_t cut_after[2]; /* bytes of a connection, for each way; 0: never */
    uint64_t then_after;   /* of every other connection: both ways; 0: the same */
    size_t piece;          /* bytes of one write, at most; 0: as many as there are */
    bool is_held[2];       /* nothing passes */
};

/* Listens at `path` and passes on to `target`; both are copied. */
struct cutter *cutter_new(struct loop *loop, const char *path, const char *target);
void cutter_free(struct cutter *cutter); /* NULL is fine; removes the path */

/* For connections that are there and those that come. */
void cutter_follow(struct cutter *cutter, const struct cutter_plan *plan);
void cutter_cut(struct cutter *cutter); /* all connections, now */

unsigned cutter_connections(const struct cutter *cutter); /* that were made so far */
unsigned cutter_cuts(const struct cutter *cutter);
uint64_t cutter_passed(const struct cutter *cutter, enum cutter_way way); /* in all of them */
