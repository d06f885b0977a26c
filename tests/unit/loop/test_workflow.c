/* SPDX-License-Identifier: Apache-2.0 */
#include "loop/workflow.h"

#include "base/macros.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* Steps 1, 2, 3 note "1", "2", "3"; the end notes ".". */
struct plan {
    struct workflow workflow;
    char trace[32];
    char fails_at;     /* the step that reports a failure */
    char waits_at;     /* the step that does not report its end by itself */
    char cancelled_in; /* the step during which the workflow is cancelled */
    struct error err;  /* as it was at the end */
};

static struct plan *plan_from(struct workflow *workflow)
{
    return container_of(workflow, struct plan, workflow);
}

static void plan_note(struct plan *plan, char letter)
{
    size_t length = strlen(plan->trace);

    assert_true(length + 1 < sizeof(plan->trace));
    plan->trace[length] = letter;
    plan->trace[length + 1] = '\0';
}

static void play(struct workflow *workflow, char letter)
{
    struct plan *plan = plan_from(workflow);
    struct error err = { 0 };

    plan_note(plan, letter);
    if (plan->cancelled_in == letter) {
        error_set(&err, ERR_GONE, "its client left");
        workflow_cancel(workflow, &err);
    }
    if (plan->waits_at == letter)
        return;
    error_set(&err, ERR_BACKEND, "broken");
    workflow_step_done(workflow, plan->fails_at == letter ? &err : NULL);
}

#define STEP(name, letter)                      \
    static void name(struct workflow *workflow) \
    {                                           \
        play(workflow, letter);                 \
    }                                           \
    struct name##_needs_a_semicolon

STEP(first, '1');
STEP(second, '2');
STEP(third, '3');

static const struct workflow_step steps[] = {
    { "first", first },
    { "second", second },
    { "third", third },
    { 0 },
};

static const struct workflow_step no_steps[] = { { 0 } };

static void on_end(struct workflow *workflow)
{
    assert_false(workflow_is_running(workflow));
    plan_from(workflow)->err = workflow->err ? *workflow->err : (struct error){ 0 };
    plan_note(plan_from(workflow), '.');
}

static void plan_run(struct plan *plan, const struct workflow_step *table)
{
    scoped(loop_free) struct loop *loop = loop_new(&clock_system);

    workflow_start(&plan->workflow, loop, table, on_end);
    assert_null(strchr(plan->trace, '.'));
    loop_turn(loop, 0);
    assert_non_null(strchr(plan->trace, '.'));
}

static void steps_run_in_order_and_the_end_has_no_error(void **state UNUSED)
{
    struct plan plan = { 0 };

    plan_run(&plan, steps);
    assert_string_equal(plan.trace, "123.");
    assert_int_equal(plan.err.code, ERR_NONE);
}

static void a_table_without_steps_ends_from_the_loop(void **state UNUSED)
{
    struct plan plan = { 0 };

    plan_run(&plan, no_steps);
    assert_string_equal(plan.trace, ".");
}

static void a_failure_ends_it_with_the_name_of_the_step(void **state UNUSED)
{
    struct plan plan = { .fails_at = '2' };

    plan_run(&plan, steps);
    assert_string_equal(plan.trace, "12.");
    assert_int_equal(plan.err.code, ERR_BACKEND);
    assert_string_equal(plan.err.message, "second: broken");
}

static void a_failure_of_the_last_step_is_an_error(void **state UNUSED)
{
    struct plan plan = { .fails_at = '3' };

    plan_run(&plan, steps);
    assert_string_equal(plan.trace, "123.");
    assert_string_equal(plan.err.message, "third: broken");
}

static void cancelling_waits_for_the_end_of_the_running_step(void **state UNUSED)
{
    scoped(loop_free) struct loop *loop = loop_new(&clock_system);
    struct plan plan = { .waits_at = '2' };

    workflow_start(&plan.workflow, loop, steps, on_end);
    loop_turn(loop, 0);
    workflow_cancel(&plan.workflow, NULL);
    workflow_cancel(&plan.workflow, &(struct error){ .code = ERR_GONE });
    loop_turn(loop, 0);
    assert_string_equal(plan.trace, "12");
    assert_true(workflow_is_at(&plan.workflow, second));
    workflow_step_done(&plan.workflow, NULL);
    assert_false(workflow_is_at(&plan.workflow, second));
    assert_true(workflow_is_running(&plan.workflow));
    loop_turn(loop, 0);
    assert_string_equal(plan.trace, "12.");
    assert_int_equal(plan.err.code, ERR_UNAVAILABLE);
}

static void cancelling_one_that_has_ended_does_nothing(void **state UNUSED)
{
    scoped(loop_free) struct loop *loop = loop_new(&clock_system);
    struct plan plan = { .fails_at = '1' };

    workflow_start(&plan.workflow, loop, steps, on_end);
    workflow_cancel(&plan.workflow, NULL);
    loop_turn(loop, 0);
    assert_string_equal(plan.err.message, "first: broken");
    workflow_cancel(&plan.workflow, NULL);
    loop_turn(loop, 0);
    assert_string_equal(plan.trace, "1.");
}

static void the_reason_of_a_cancel_outlasts_a_failure_of_the_step(void **state UNUSED)
{
    struct plan plan = { .cancelled_in = '2', .fails_at = '2' };

    plan_run(&plan, steps);
    assert_string_equal(plan.trace, "12.");
    assert_int_equal(plan.err.code, ERR_GONE);
    assert_string_equal(plan.err.message, "its client left");
}

static void cancelling_after_the_last_step_is_still_an_error(void **state UNUSED)
{
    scoped(loop_free) struct loop *loop = loop_new(&clock_system);
    struct plan plan = { .waits_at = '3' };

    workflow_start(&plan.workflow, loop, steps, on_end);
    loop_turn(loop, 0);
    workflow_step_done(&plan.workflow, NULL);
    workflow_cancel(&plan.workflow, NULL);
    loop_turn(loop, 0);
    assert_string_equal(plan.trace, "123.");
    assert_int_equal(plan.err.code, ERR_UNAVAILABLE);
}

static void one_that_is_dropped_does_not_go_on(void **state UNUSED)
{
    scoped(loop_free) struct loop *loop = loop_new(&clock_system);
    struct plan plan = { .waits_at = '2' };

    workflow_start(&plan.workflow, loop, steps, on_end);
    loop_turn(loop, 0);
    workflow_cancel(&plan.workflow, NULL);
    workflow_step_done(&plan.workflow, NULL);
    workflow_drop(&plan.workflow);
    workflow_drop(&plan.workflow);
    loop_turn(loop, 0);
    assert_string_equal(plan.trace, "12");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(steps_run_in_order_and_the_end_has_no_error),
        cmocka_unit_test(a_table_without_steps_ends_from_the_loop),
        cmocka_unit_test(a_failure_ends_it_with_the_name_of_the_step),
        cmocka_unit_test(a_failure_of_the_last_step_is_an_error),
        cmocka_unit_test(cancelling_waits_for_the_end_of_the_running_step),
        cmocka_unit_test(cancelling_one_that_has_ended_does_nothing),
        cmocka_unit_test(the_reason_of_a_cancel_outlasts_a_failure_of_the_step),
        cmocka_unit_test(cancelling_after_the_last_step_is_still_an_error),
        cmocka_unit_test(one_that_is_dropped_does_not_go_on),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
