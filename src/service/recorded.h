/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * "Answer when recorded": an answer that promises something waits until the store has it, so that
 * the promise survives the end of the daemon, and of the machine.
 */

#include "base/error.h"
#include "store/store.h"

struct core;
struct recorded;
typedef void recorded_fn(struct recorded *recorded);

/* Embedded by the caller, who keeps it until `done`. */
struct recorded {
    recorded_fn *done;          /* once, from the loop */
    const struct error *err;    /* borrowed, during `done`: ERR_NONE when it is recorded */
    struct store_ticket ticket; /* private */
};

/* -1 while the store cannot record anything: a server that is away. */
int recorded_check(const struct core *core, struct error *err);

/* Waits for everything that was put into the store until the end of this turn. */
void recorded_wait(struct recorded *recorded, struct core *core, recorded_fn *done);

/* Whether something is not written yet. Not while a server is away: requests that need a record are
 * refused then, and the others go on. */
bool recorded_can_wait(const struct core *core);

/* The same, without a flush of the disk: for what ends with the machine anyway, such as a program
 * that has begun. */
void recorded_wait_written(struct recorded *recorded, struct core *core, recorded_fn *done);
