/* SPDX-License-Identifier: Apache-2.0 */
#include "loop/worker.h"

#include "base/macros.h"

#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { DEADLINE_US = 60 * 1000 * 1000, JOBS = 500 };

struct task {
    struct job job;
    unsigned number;
    pthread_t ran_on;
    bool signals_blocked;
    struct worker *worker;
    struct task *following; /* submitted by done */
};

static unsigned ended[JOBS];
static unsigned ended_count;

static void task_run(struct job *job)
{
    struct task *task = container_of(job, struct task, job);
    sigset_t blocked;

    pthread_sigmask(SIG_SETMASK, NULL, &blocked);
    task->signals_blocked = sigismember(&blocked, SIGTERM) == 1;
    task->ran_on = pthread_self();
}

static void task_done(struct job *job)
{
    struct task *task = container_of(job, struct task, job);

    assert_true(ended_count < JOBS);
    ended[ended_count++] = task->number;
    if (task->following)
        worker_submit(task->worker, &task->following->job);
}

static void task_submit(struct task *task, struct worker *worker, unsigned number)
{
    *task = (struct task){
        .job = { .run = task_run, .done = task_done },
        .number = number,
        .worker = worker,
        .following = task->following,
    };
    worker_submit(worker, &task->job);
}

static void wait_for_jobs(struct loop *loop, unsigned count)
{
    int64_t deadline_us = loop_now_us(loop) + DEADLINE_US;

    while (ended_count < count && loop_now_us(loop) < deadline_us)
        loop_turn(loop, 100);
    assert_int_equal(ended_count, count);
}

static int reset(void **state UNUSED)
{
    ended_count = 0;
    return 0;
}

static void a_job_runs_on_a_thread_and_ends_on_the_loop(void **state UNUSED)
{
    scoped(loop_free) struct loop *loop = loop_new(&clock_system);
    scoped(worker_free) struct worker *worker = worker_new(loop, 1, "test");
    struct task task = { 0 };

    task_submit(&task, worker, 1);
    assert_int_equal(ended_count, 0);
    wait_for_jobs(loop, 1);
    assert_false(pthread_equal(task.ran_on, pthread_self()));
    assert_true(task.signals_blocked);
}

static void one_thread_keeps_the_order(void **state UNUSED)
{
    scoped(loop_free) struct loop *loop = loop_new(&clock_system);
    scoped(worker_free) struct worker *worker = worker_new(loop, 1, "a name longer than 15");
    struct task *tasks = calloc(JOBS, sizeof(*tasks));

    for (unsigned i = 0; i < JOBS; i++)
        task_submit(&tasks[i], worker, i);
    wait_for_jobs(loop, JOBS);
    for (unsigned i = 0; i < JOBS; i++)
        assert_int_equal(ended[i], i);
    free(tasks);
}

static void several_threads_end_every_job_exactly_once(void **state UNUSED)
{
    scoped(loop_free) struct loop *loop = loop_new(&clock_system);
    scoped(worker_free) struct worker *worker = worker_new(loop, 4, "test");
    struct task *tasks = calloc(JOBS, sizeof(*tasks));
    bool seen[JOBS] = { false };

    for (unsigned i = 0; i < JOBS; i++)
        task_submit(&tasks[i], worker, i);
    wait_for_jobs(loop, JOBS);
    for (unsigned i = 0; i < JOBS; i++) {
        assert_false(seen[ended[i]]);
        seen[ended[i]] = true;
    }
    free(tasks);
}

static void freeing_the_worker_finishes_all_jobs_also_new_ones(void **state UNUSED)
{
    scoped(loop_free) struct loop *loop = loop_new(&clock_system);
    struct worker *worker = worker_new(loop, 2, "test");
    struct task last = { .job = { .run = task_run, .done = task_done }, .number = 3 };
    struct task first = { .following = &last };
    struct task second = { 0 };

    task_submit(&first, worker, 1);
    task_submit(&second, worker, 2);
    worker_free(worker);
    assert_int_equal(ended_count, 3);
    assert_int_equal(ended[2] + ended[1] + ended[0], 6);
}

static void an_idle_worker_can_be_freed(void **state UNUSED)
{
    scoped(loop_free) struct loop *loop = loop_new(&clock_system);

    worker_free(worker_new(loop, 3, "test"));
    worker_free(NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(a_job_runs_on_a_thread_and_ends_on_the_loop, reset),
        cmocka_unit_test_setup(one_thread_keeps_the_order, reset),
        cmocka_unit_test_setup(several_threads_end_every_job_exactly_once, reset),
        cmocka_unit_test_setup(freeing_the_worker_finishes_all_jobs_also_new_ones, reset),
        cmocka_unit_test_setup(an_idle_worker_can_be_freed, reset),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
