/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Work of several steps, as a table that the reader sees at once. A step is started and reports its
 * end with workflow_step_done(), from the loop, at once or later; when one fails, or the workflow
 * is cancelled, no further step starts and on_end is called with the error.
 *
 * A workflow undoes nothing: a failed one leaves completed steps to on_end, which knows the object
 * and starts the table that takes it down.
 */

#include "base/error.h"
#include "loop/loop.h"

#include <stdbool.h>
#include <stddef.h>

struct workflow;
typedef void workflow_step_fn(struct workflow *workflow);

struct workflow_step {
    const char *name;
    workflow_step_fn *start; /* ends with workflow_step_done() */
};

/* | state            | leads to                        |
 * | WORKFLOW_IDLE    | WORKFLOW_STEP, WORKFLOW_BETWEEN |
 * | WORKFLOW_STEP    | WORKFLOW_BETWEEN, WORKFLOW_IDLE |
 * | WORKFLOW_BETWEEN | WORKFLOW_STEP, WORKFLOW_IDLE    | */
enum workflow_state {
    WORKFLOW_IDLE,    /* not started, ended, or dropped */
    WORKFLOW_STEP,    /* a step has started and not reported its end */
    WORKFLOW_BETWEEN, /* the loop is about to start the next step, or to call on_end */
};

struct workflow {
    const struct workflow_step *steps; /* borrowed; ends with a row without a name */
    struct loop *loop;                 /* borrowed */
    workflow_step_fn *on_end;          /* err is NULL on success */
    size_t at;                         /* the step that runs or comes next */
    enum workflow_state state;
    struct error *err; /* owned; set by the first failure or cancel, gone when on_end returns */
    struct deferred next;
};

/* Starts the first step at once. on_end comes once, from the loop, never inside this call; it may
 * free or restart the workflow. */
void workflow_start(struct workflow *workflow, struct loop *loop, const struct workflow_step *steps,
                    workflow_step_fn *on_end);

/* The running step ended; `err` is NULL for success. A failure gains the step's name. */
void workflow_step_done(struct workflow *workflow, const struct error *err);

/* Ends the workflow with `reason` (NULL: ERR_UNAVAILABLE) once the running step has reported its
 * end, also when that was the last step and on_end has not come yet. The first error stays: a
 * workflow that has failed, was cancelled or is idle is left alone. */
void workflow_cancel(struct workflow *workflow, const struct error *reason);

/* From workflow_start() until on_end is called. */
bool workflow_is_running(const struct workflow *workflow);

/* Whether the step with this start has begun and not reported its end. */
bool workflow_is_at(const struct workflow *workflow, workflow_step_fn *start);

/* Abandons the workflow: on_end does not come. Only between two steps, or when the running step
 * never reports its end. */
void workflow_drop(struct workflow *workflow);
