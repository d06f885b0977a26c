/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Everything that goes through a connection at one time: a program with input and output, a terminal,
 * an upload and a download. The value of each byte follows from its offset, so that one that is missing,
 * doubled or out of its place fails the test.
 */

#include "box.h"

struct workload;

/* About so many bytes in each of its streams. */
struct workload *workload_new(struct box *box, uint64_t bytes);

/* Moves what can be moved without waiting; true when all is done. Between two turns of the loop. */
bool workload_step(struct workload *workload);
void workload_free(struct workload *workload); /* when it is done */

/* Runs one to its end. */
void workload_run(struct box *box, uint64_t bytes);
