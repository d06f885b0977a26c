#pragma once

/*
 * Work of several steps, each beside the way to take it back. A step is started and reports its
 * end with workflow_step_done(), from the loop, at once or later; when one fails, or the workflow
 * is cancelled, the completed ones are undone in reverse and on_end is called with the error.
 *
 * A step that fails leaves nothing behind itself: its own undo is not called.
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
    workflow_step_fn
        *undo; /* NULL when there is nothing to undo; ends with workflow_step_done() too */
};

struct workflow {
    const struct workflow_step *steps; /* borrowed; ends with a row without a name */
    struct loop *loop;                 /* borrowed */
    workflow_step_fn *on_end;          /* err is NULL on success */
    size_t at;                         /* the step that runs or is being undone */
    bool busy;                         /* that step has not reported its end yet */
    bool undoing;
    bool cancelled;
    bool running;
    struct error *err; /* owned; gone when on_end returns */
    struct deferred next;
};

/* Starts the first step at once. on_end comes once, from the loop, never inside this call; it may
 * free the workflow. */
void workflow_start(struct workflow *workflow, struct loop *loop, const struct workflow_step *steps,
                    workflow_step_fn *on_end);

/* The running step ended; `err` is NULL for success. A failure gains the step's name. One while
 * undoing is added to the message but stops nothing. */
void workflow_step_done(struct workflow *workflow, const struct error *err);

/* Stops at the end of the running step and undoes what was done, also when that was the last step
 * and on_end has not come yet. The first error stays: cancelling what is being undone or has ended
 * does nothing. */
void workflow_cancel(struct workflow *workflow, const struct error *reason);

/* Whether the step with this start has begun and not reported its end. */
bool workflow_is_at(const struct workflow *workflow, workflow_step_fn *start);

/* Leaves it where it is: on_end does not come. Only between two steps, or when the running one is
 * never going to report its end. */
void workflow_drop(struct workflow *workflow);
