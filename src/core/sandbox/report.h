/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * The report of a sandbox, the walls in force, is read once, at the first question, and kept. A
 * backend that has to ask another machine answers later; all who want the report meanwhile wait for
 * the one answer.
 */

#include "base/list.h"
#include "loop/loop.h"

#include <stdbool.h>

struct sandbox;
struct report_wait;
typedef void report_done_fn(struct report_wait *wait);

/* In the memory of the waiting request. */
struct report_wait {
    report_done_fn *done;
    struct loop *loop; /* borrowed; NULL: never waited */
    struct list node;
    struct deferred told;
};

/* Has the walls in force read back, if it is up. True: sandbox_report() says what is known. False:
 * `done` comes once, from the loop, when it does, or when the sandbox goes before that. A caller
 * that does not wait passes NULL. */
bool sandbox_read_report(struct sandbox *sandbox, struct report_wait *wait, report_done_fn *done);
void report_wait_cancel(struct report_wait *wait); /* `done` does not come; zeroed is fine */

/* As JSON; NULL unless it was read. */
const char *sandbox_report(const struct sandbox *sandbox);
