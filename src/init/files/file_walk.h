/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * A walk through a tree that may change under us, entry by entry. No link is followed. The caller
 * decides for each directory whether to go into it; a directory comes before its entries.
 */

#include "wire/protocol.h"

#include <stdalign.h>
#include <sys/stat.h>

enum { WALK_PATH_SIZE = 16 * 1024, WALK_ENTRIES_SIZE = 8 * 1024 };

struct walk {
    int levels[PROTOCOL_MAX_DEPTH]; /* the directories on the way, all open */
    uint32_t path_lengths[PROTOCOL_MAX_DEPTH];
    uint64_t states[PROTOCOL_MAX_DEPTH]; /* the caller's own, for each of them */
    unsigned depth;
    unsigned maximum;
    bool stays;   /* does not go into /proc and /sys */
    bool was_cut; /* something was too deep, or its path too long */
    long at, filled;
    int64_t deadline_us; /* 0 without one */
    char path[WALK_PATH_SIZE];
    alignas(8) char entries[WALK_ENTRIES_SIZE];
};

struct walk_entry {
    int dir; /* that it is in */
    const char *name;
    const char *path; /* relative to where the walk began */
    uint64_t state;   /* of the directory that it is in */
    struct stat status;
    int64_t next;
};

/* Takes over the descriptor. */
void walk_begin(struct walk *walk, int directory, unsigned maximum);

/* False at the end, or at the deadline. */
bool walk_next(struct walk *walk, struct walk_entry *out_entry);

/* The walk goes on inside the entry. 0 or -errno. */
int walk_enter(struct walk *walk, const struct walk_entry *entry, uint64_t state);

/* Closes all open directories. */
void walk_end(struct walk *walk);
