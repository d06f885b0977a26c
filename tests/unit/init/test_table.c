/* SPDX-License-Identifier: Apache-2.0 */
#include "init/init.h"

#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <cmocka.h>

#define UNUSED __attribute__((unused))

static int forget_all(void **state UNUSED)
{
    for (unsigned i = 0; i < process_places(); i++)
        process_release(&processes[i]);
    while (report_next())
        ;
    return 0;
}

static bool is_open(int fd)
{
    return fcntl(fd, F_GETFD) >= 0;
}

/* --- processes ------------------------------------------------------------------------------- */

static void a_process_is_found_until_it_is_released(void **state UNUSED)
{
    struct process *first = process_allocate(7);
    struct process *second = process_allocate(8);

    assert_ptr_equal(process_find(7), first);
    assert_ptr_equal(process_find(8), second);
    assert_null(process_find(9));
    assert_int_equal(process_count(), 2);
    process_release(first);
    assert_null(process_find(7));
    assert_int_equal(process_count(), 1);
    assert_ptr_equal(process_allocate(9), first); /* the entry is used again */
    assert_int_equal(process_places(), 2);
}

static void a_full_table_refuses_the_next_process(void **state UNUSED)
{
    for (uint64_t number = 1; number <= PROTOCOL_MAX_PROCESSES; number++)
        assert_non_null(process_allocate(number));
    assert_null(process_allocate(PROTOCOL_MAX_PROCESSES + 1));
    process_release(process_find(5));
    assert_non_null(process_allocate(PROTOCOL_MAX_PROCESSES + 1));
}

static void a_released_process_closes_all_its_descriptors(void **state UNUSED)
{
    struct process *process = process_allocate(1);
    int *fields[] = { &process->input,    &process->output,   &process->errors,
                      &process->script,   &process->control,  &process->inner[0],
                      &process->inner[1], &process->inner[2], &process->inner[3],
                      &process->socket };
    int fds[10];

    for (unsigned i = 0; i < 10; i++)
        *fields[i] = fds[i] = eventfd(0, EFD_CLOEXEC);
    process_release(process);
    for (unsigned i = 0; i < 10; i++) {
        assert_false(is_open(fds[i]));
        assert_int_equal(*fields[i], -1);
    }
}

static void a_zygote_keeps_its_control_socket_when_it_has_started(void **state UNUSED)
{
    struct process *zygote = process_allocate(1);
    struct process *other = process_allocate(2);
    int kept = eventfd(0, EFD_CLOEXEC);
    int closed = eventfd(0, EFD_CLOEXEC);

    zygote->flags = START_ZYGOTE;
    zygote->control = kept;
    other->control = closed;
    process_close_inner(zygote);
    process_close_inner(other);
    assert_true(is_open(kept));
    assert_false(is_open(closed));
}

static void a_lingering_process_goes_when_nothing_holds_it(void **state UNUSED)
{
    struct process *process = process_allocate(3);

    process->state = PROCESS_LINGERING;
    process->supervisor = 100;
    process->pending = PENDING_EXITED;
    assert_null(process_find(3)); /* forgotten */
    process_settle(process);
    assert_int_equal(process->state, PROCESS_LINGERING);
    process->pending = 0;
    process_settle(process);
    assert_int_equal(process->state, PROCESS_LINGERING);
    process->supervisor = 0;
    process_settle(process);
    assert_int_equal(process->state, PROCESS_FREE);
}

static void a_tree_hangs_on_the_fork_parent_if_there_is_one(void **state UNUSED)
{
    struct process *process = process_allocate(4);

    process->supervisor = 100;
    assert_int_equal(process_root(process), 100);
    process->root = 200;
    assert_int_equal(process_root(process), 200);
}

/* --- reports --------------------------------------------------------------------------------- */

static void reports_come_once_and_in_the_order_of_the_table(void **state UNUSED)
{
    struct process *first = process_allocate(1);
    struct process *second = process_allocate(2);

    assert_null(report_next());
    report_note(second, REPORT_STARTED);
    report_note(first, REPORT_STARTED);
    report_note(first, REPORT_ENDED);
    assert_true(report_expect(false));
    assert_ptr_equal(report_next(), first);
    assert_int_equal(atomic_load(&first->reports), REPORT_STARTED | REPORT_ENDED);
    assert_ptr_equal(report_next(), second);
    assert_null(report_next());
    assert_false(report_expect(false));
}

static void a_hint_wakes_init_only_if_it_expects_a_report(void **state UNUSED)
{
    struct process *process = process_allocate(1);
    uint64_t count;

    settings.event_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    report_expect(false);
    report_note(process, REPORT_STARTED);
    report_hint();
    assert_int_equal(read(settings.event_fd, &count, sizeof(count)), -1);
    report_expect(true);
    report_hint();
    assert_int_equal(read(settings.event_fd, &count, sizeof(count)), sizeof(count));
    report_expect(false);
    report_post(process, REPORT_ENDED); /* always wakes */
    assert_int_equal(read(settings.event_fd, &count, sizeof(count)), sizeof(count));
    close(settings.event_fd);
    settings.event_fd = -1;
}

/* --- jobs ------------------------------------------------------------------------------------ */

static void jobs_are_bounded_and_counted_by_kind(void **state UNUSED)
{
    static const struct protocol_file list = { .kind = FILE_LIST };
    static const struct protocol_file watch = { .kind = FILE_WATCH };
    struct job *jobs[MAX_JOBS];

    for (unsigned i = 0; i < MAX_JOBS; i++) {
        jobs[i] = job_get_free();
        assert_non_null(jobs[i]->memory);
        jobs[i]->kind = JOB_FILE;
        jobs[i]->helper = (int)(1000 + i);
        jobs[i]->file = i < 2 ? &watch : &list;
        atomic_store(&jobs[i]->answered, i < 5);
    }
    assert_null(job_get_free());
    assert_int_equal(job_count_watches(), 2);
    assert_int_equal(job_count_streams(), 3); /* lists that are answered and go on */
    assert_ptr_equal(job_find_helper(1004), jobs[4]);
    assert_null(job_find_helper(999));
    for (unsigned i = 0; i < MAX_JOBS; i++)
        job_release(jobs[i]);
    assert_null(job_find_helper(1004));
    assert_int_equal(job_count_watches(), 0);
}

static void memory_of_a_file_job_is_given_back(void **state UNUSED)
{
    struct job *job = job_get_free();

    job->kind = JOB_FILE;
    memset(job->memory->message, 'x', sizeof(job->memory->message));
    job_release(job);
    assert_int_equal(job->memory->message[0], 0);
    assert_int_equal(job->memory->message[sizeof(job->memory->message) - 1], 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(a_process_is_found_until_it_is_released, forget_all),
        cmocka_unit_test_teardown(a_full_table_refuses_the_next_process, forget_all),
        cmocka_unit_test_teardown(a_released_process_closes_all_its_descriptors, forget_all),
        cmocka_unit_test_teardown(a_zygote_keeps_its_control_socket_when_it_has_started,
                                  forget_all),
        cmocka_unit_test_teardown(a_lingering_process_goes_when_nothing_holds_it, forget_all),
        cmocka_unit_test_teardown(a_tree_hangs_on_the_fork_parent_if_there_is_one, forget_all),
        cmocka_unit_test_teardown(reports_come_once_and_in_the_order_of_the_table, forget_all),
        cmocka_unit_test_teardown(a_hint_wakes_init_only_if_it_expects_a_report, forget_all),
        cmocka_unit_test_teardown(jobs_are_bounded_and_counted_by_kind, forget_all),
        cmocka_unit_test_teardown(memory_of_a_file_job_is_given_back, forget_all),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
