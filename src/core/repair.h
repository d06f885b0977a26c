/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Repairs records after a failed transaction. The store reports each write that it has lost; a
 * moment later the current state of all live objects is written again, not only of those in the
 * lost write. The record of a sandbox that is gone is removed again.
 */

struct core;
struct repair;

struct repair *repair_new(struct core *core); /* and listens to the store */
void repair_free(struct repair *repair);      /* NULL is fine */

/* Now instead of a moment later, if something was lost: a shutdown does not wait. */
void repair_hurry(struct repair *repair);
