#include "loop/workflow.h"

#include "base/scoped.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void workflow_end(struct workflow *workflow)
{
    scoped(free) struct error *err = workflow->err;

    workflow->running = false;
    workflow->on_end(workflow);
}

static void undo_next(struct workflow *workflow)
{
    while (workflow->at > 0) {
        workflow_step_fn *undo = workflow->steps[--workflow->at].undo;

        if (undo) {
            workflow->busy = true;
            undo(workflow);
            return;
        }
    }
    workflow_end(workflow);
}

static void start_next(struct workflow *workflow)
{
    workflow->busy = true;
    workflow->steps[workflow->at].start(workflow);
}

static void on_next(struct deferred *deferred)
{
    struct workflow *workflow = container_of(deferred, struct workflow, next);

    if (workflow->cancelled)
        workflow->undoing = true;
    if (workflow->undoing)
        undo_next(workflow);
    else if (workflow->steps[workflow->at].name)
        start_next(workflow);
    else
        workflow_end(workflow);
}

void workflow_start(struct workflow *workflow, struct loop *loop, const struct workflow_step *steps,
                    workflow_step_fn *on_end)
{
    *workflow =
        (struct workflow){ .steps = steps, .loop = loop, .on_end = on_end, .running = true };
    if (steps[0].name)
        start_next(workflow);
    else
        loop_defer(loop, &workflow->next, on_next);
}

static void keep_undo_failure(struct workflow *workflow, const struct error *err)
{
    char *message = workflow->err->message;
    size_t length = strlen(message);

    snprintf(message + length, sizeof(workflow->err->message) - length, "; undo %s: %s",
             workflow->steps[workflow->at].name, err->message);
}

static void keep_failure(struct workflow *workflow, const struct error *err)
{
    workflow->undoing = true;
    if (workflow->cancelled)
        return;
    error_keep(&workflow->err, err);
    error_wrap(workflow->err, "%s", workflow->steps[workflow->at].name);
}

void workflow_step_done(struct workflow *workflow, const struct error *err)
{
    assert(workflow->running && workflow->busy);
    workflow->busy = false;
    if (workflow->undoing && err)
        keep_undo_failure(workflow, err);
    else if (err)
        keep_failure(workflow, err);
    else if (!workflow->undoing)
        workflow->at++;
    loop_defer(workflow->loop, &workflow->next, on_next);
}

void workflow_cancel(struct workflow *workflow, const struct error *reason)
{
    struct error cancelled;

    if (!workflow->running || workflow->undoing || workflow->cancelled)
        return;
    workflow->cancelled = true;
    error_set(&cancelled, ERR_UNAVAILABLE, "cancelled");
    error_keep(&workflow->err, reason ? reason : &cancelled);
}

bool workflow_is_at(const struct workflow *workflow, workflow_step_fn *start)
{
    return workflow->running && workflow->busy && !workflow->undoing &&
           workflow->steps[workflow->at].start == start;
}

void workflow_drop(struct workflow *workflow)
{
    if (!workflow->running)
        return;
    workflow->running = false;
    loop_undefer(workflow->loop, &workflow->next);
    error_keep(&workflow->err, NULL);
}
