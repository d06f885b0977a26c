#pragma once

/*
 * Buffers of TCP are memory that the limit of a sandbox does not hold back: on version 1 of cgroups
 * they are counted apart, and the kernel gives each socket a first buffer whatever the limit says.
 * A sandbox whose memory and buffers together are above its limit is ended, as one that is out of
 * memory.
 *
 * One number of the host tells whether there is anything to look for: while all sockets together
 * have little, no sandbox is looked at.
 */

#include "launcher/fail.h"
#include "wire/launch.h"

#include <stdbool.h>
#include <stdint.h>

struct launcher;

enum { MEMORY_WATCH_ENDED = 64 };

struct memory_watch {
    int64_t due_ms;
    unsigned next;
    char ended[MEMORY_WATCH_ENDED][LAUNCH_ID_SIZE]; /* the latest ones */
};

/* Looks when it is time; how long the loop may wait, in ms. */
int memory_watch_turn(struct launcher *launcher);

/* Whether this sandbox was ended here. */
bool memory_watch_has_ended(const struct memory_watch *watch, const char *id);
