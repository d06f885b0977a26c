/* SPDX-License-Identifier: Apache-2.0 */
#include "core/sandbox/sandbox_private.h"

#include "base/alloc.h"
#include "base/log.h"

struct report_question {
    struct backend_op op;
    struct sandbox *sandbox; /* borrowed */
    struct list waits;       /* struct report_wait */
};

const char *sandbox_report(const struct sandbox *sandbox)
{
    return sandbox->readings.report;
}

static void on_told(struct deferred *deferred)
{
    struct report_wait *wait = container_of(deferred, struct report_wait, told);

    wait->done(wait);
}

static void tell(struct report_question *question)
{
    struct report_wait *wait;

    while ((wait = list_first(&question->waits, struct report_wait, node))) {
        list_remove(&wait->node);
        loop_defer(wait->loop, &wait->told, on_told);
    }
}

static void keep_answer(struct report_question *question)
{
    struct sandbox *sandbox = question->sandbox;

    if (question->op.err.code != ERR_NONE)
        log_debug("report could not be read", kv("sandbox", sandbox->id),
                  kv("error", question->op.err.message));
    sandbox->readings.report = question->op.result.report;
    sandbox->readings.question = NULL;
    tell(question);
    free(question);
}

static void on_reported(struct backend_op *op)
{
    keep_answer(container_of(op, struct report_question, op));
}

static void ask(struct sandbox *sandbox)
{
    struct report_question *question = xnew(struct report_question);

    question->op.done = on_reported;
    question->sandbox = sandbox;
    list_init(&question->waits);
    sandbox->readings.question = question;
    if (backend_report(sandbox->order.backend, sandbox->id, &question->op))
        keep_answer(question);
}

bool sandbox_read_report(struct sandbox *sandbox, struct report_wait *wait, report_done_fn *done)
{
    if (!sandbox->readings.report && !sandbox->readings.question && sandbox_is_up(sandbox))
        ask(sandbox);
    if (!sandbox->readings.question)
        return true;
    if (wait) {
        *wait = (struct report_wait){ .done = done, .loop = sandbox->core->loop };
        list_append(&sandbox->readings.question->waits, &wait->node);
    }
    return false;
}

void report_wait_cancel(struct report_wait *wait)
{
    list_remove(&wait->node);
    if (wait->loop)
        loop_undefer(wait->loop, &wait->told);
}

static struct report_question *stop_asking(struct sandbox *sandbox)
{
    struct report_question *question = steal_ptr(&sandbox->readings.question);

    if (question)
        backend_cancel(sandbox->order.backend, &question->op);
    return question;
}

void sandbox_stop_report(struct sandbox *sandbox)
{
    scoped(free) struct report_question *question = stop_asking(sandbox);

    if (question)
        tell(question);
}

void sandbox_forget_report(struct sandbox *sandbox)
{
    sandbox_stop_report(sandbox);
    free(steal_ptr(&sandbox->readings.report));
}

void sandbox_free_report(struct sandbox *sandbox)
{
    free(stop_asking(sandbox));
    free(sandbox->readings.report);
}
