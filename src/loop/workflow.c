/* SPDX-License-Identifier: Apache-2.0 */
#include "loop/workflow.h"

#include "base/scoped.h"

#include <assert.h>
#include <stdlib.h>

static void workflow_end(struct workflow *workflow)
{
    scoped(free) struct error *err = workflow->err;

    workflow->state = WORKFLOW_IDLE;
    workflow->on_end(workflow);
}

static void start_next(struct workflow *workflow)
{
    workflow->state = WORKFLOW_STEP;
    workflow->steps[workflow->at].start(workflow);
}

static void on_next(struct deferred *deferred)
{
    struct workflow *workflow = container_of(deferred, struct workflow, next);

    assert(workflow->state == WORKFLOW_BETWEEN);
    if (!workflow->err && workflow->steps[workflow->at].name)
        start_next(workflow);
    else
        workflow_end(workflow);
}

static void continue_soon(struct workflow *workflow)
{
    workflow->state = WORKFLOW_BETWEEN;
    loop_defer(workflow->loop, &workflow->next, on_next);
}

void workflow_start(struct workflow *workflow, struct loop *loop, const struct workflow_step *steps,
                    workflow_step_fn *on_end)
{
    *workflow = (struct workflow){ .steps = steps, .loop = loop, .on_end = on_end };
    if (steps[0].name)
        start_next(workflow);
    else
        continue_soon(workflow);
}

void workflow_step_done(struct workflow *workflow, const struct error *err)
{
    assert(workflow->state == WORKFLOW_STEP);
    assert(!err || err->code != ERR_NONE);
    if (!err) {
        workflow->at++;
    } else if (!workflow->err) {
        error_keep(&workflow->err, err);
        error_wrap(workflow->err, "%s", workflow->steps[workflow->at].name);
    }
    continue_soon(workflow);
}

void workflow_cancel(struct workflow *workflow, const struct error *reason)
{
    struct error cancelled;

    if (!workflow_is_running(workflow) || workflow->err)
        return;
    error_set(&cancelled, ERR_UNAVAILABLE, "cancelled");
    error_keep(&workflow->err, reason ? reason : &cancelled);
}

bool workflow_is_running(const struct workflow *workflow)
{
    return workflow->state != WORKFLOW_IDLE;
}

bool workflow_is_at(const struct workflow *workflow, workflow_step_fn *start)
{
    return workflow->state == WORKFLOW_STEP && workflow->steps[workflow->at].start == start;
}

void workflow_drop(struct workflow *workflow)
{
    if (!workflow_is_running(workflow))
        return;
    workflow->state = WORKFLOW_IDLE;
    loop_undefer(workflow->loop, &workflow->next);
    error_keep(&workflow->err, NULL);
}
