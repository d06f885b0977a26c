/* SPDX-License-Identifier: Apache-2.0 */
#include "loop/process.h"

#include "base/macros.h"

#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

enum { DEADLINE_US = 60 * 1000 * 1000 };

static unsigned exits;

static void on_exit_count(struct process *process UNUSED)
{
    exits++;
}

/* A child that exits with `code` when its input closes, or at once if `gate` is negative. */
static pid_t spawn_child(int code, int gate)
{
    pid_t child = fork();
    char byte;

    assert_true(child >= 0);
    if (child == 0) {
        if (gate >= 0)
            (void)!read(gate, &byte, 1);
        _exit(code);
    }
    return child;
}

static int open_pidfd(pid_t pid)
{
    int pidfd = (int)syscall(SYS_pidfd_open, pid, 0);

    assert_true(pidfd >= 0);
    return pidfd;
}

static void wait_for_exit(struct loop *loop)
{
    int64_t deadline_us = loop_now_us(loop) + DEADLINE_US;

    while (!exits && loop_now_us(loop) < deadline_us)
        loop_turn(loop, 100);
    assert_int_equal(exits, 1);
}

static int reset(void **state UNUSED)
{
    exits = 0;
    return 0;
}

static void the_exit_code_of_a_child_is_told_and_the_child_is_reaped(void **state UNUSED)
{
    scoped(loop_free) struct loop *loop = loop_new(&clock_system);
    pid_t child = spawn_child(7, -1);
    struct process process;

    process_watch(&process, loop, open_pidfd(child), on_exit_count);
    wait_for_exit(loop);
    assert_true(process.exit.known);
    assert_int_equal(process.exit.code, 7);
    assert_int_equal(process.exit.signal, 0);
    assert_int_equal(process.pidfd, -1);
    assert_int_equal(waitpid(child, NULL, WNOHANG), -1);
    assert_int_equal(errno, ECHILD);
}

static void a_signal_ends_a_child_and_is_told(void **state UNUSED)
{
    scoped(loop_free) struct loop *loop = loop_new(&clock_system);
    struct error err = { 0 };
    struct process process;
    int gate[2];

    assert_int_equal(pipe2(gate, O_CLOEXEC), 0);
    process_watch(&process, loop, open_pidfd(spawn_child(0, gate[0])), on_exit_count);
    loop_turn(loop, 0);
    assert_int_equal(exits, 0);
    assert_int_equal(process_signal(&process, SIGKILL, &err), 0);
    wait_for_exit(loop);
    assert_int_equal(process.exit.code, -1);
    assert_int_equal(process.exit.signal, SIGKILL);
    assert_int_equal(process_signal(&process, SIGKILL, &err), -1);
    assert_int_equal(err.code, ERR_GONE);
    close(gate[0]);
    close(gate[1]);
}

static void how_a_stranger_ended_is_told_where_the_kernel_knows(void **state UNUSED)
{
    scoped(loop_free) struct loop *loop = loop_new(&clock_system);
    struct process process;
    int gate[2];
    int report[2];
    pid_t middle;
    pid_t stranger;

    assert_int_equal(pipe2(gate, O_CLOEXEC), 0);
    assert_int_equal(pipe2(report, O_CLOEXEC), 0);
    middle = fork();
    assert_true(middle >= 0);
    if (middle == 0) {
        close(gate[1]);
        stranger = spawn_child(3, gate[0]);
        _exit(write(report[1], &stranger, sizeof(stranger)) != sizeof(stranger));
    }
    close(report[1]);
    assert_int_equal(read(report[0], &stranger, sizeof(stranger)), sizeof(stranger));
    process_watch(&process, loop, open_pidfd(stranger), on_exit_count);
    assert_int_equal(waitpid(middle, NULL, 0), middle);
    close(gate[1]);
    wait_for_exit(loop);
    assert_int_equal(process.exit.code, process.exit.known ? 3 : -1);
    assert_int_equal(process.exit.signal, 0);
    close(gate[0]);
    close(report[0]);
}

static void an_unwatched_process_is_not_reported(void **state UNUSED)
{
    scoped(loop_free) struct loop *loop = loop_new(&clock_system);
    struct process never_watched = { 0 };
    pid_t child = spawn_child(0, -1);
    struct process process;
    int pidfd = open_pidfd(child);

    process_watch(&process, loop, pidfd, on_exit_count);
    process_unwatch(&process);
    process_unwatch(&process);
    process_unwatch(&never_watched);
    assert_int_equal(fcntl(pidfd, F_GETFD), -1);
    assert_int_equal(waitpid(child, NULL, 0), child);
    loop_turn(loop, 0);
    assert_int_equal(exits, 0);
}

static void a_released_process_keeps_its_descriptor(void **state UNUSED)
{
    scoped(loop_free) struct loop *loop = loop_new(&clock_system);
    pid_t child = spawn_child(0, -1);
    struct process process;
    int pidfd = open_pidfd(child);

    process_watch(&process, loop, pidfd, on_exit_count);
    assert_int_equal(process_release(&process), pidfd);
    assert_int_equal(process_release(&process), -1);
    assert_int_equal(waitpid(child, NULL, 0), child);
    loop_turn(loop, 0);
    assert_int_equal(exits, 0);
    assert_int_equal(close(pidfd), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(the_exit_code_of_a_child_is_told_and_the_child_is_reaped, reset),
        cmocka_unit_test_setup(a_signal_ends_a_child_and_is_told, reset),
        cmocka_unit_test_setup(how_a_stranger_ended_is_told_where_the_kernel_knows, reset),
        cmocka_unit_test_setup(an_unwatched_process_is_not_reported, reset),
        cmocka_unit_test_setup(a_released_process_keeps_its_descriptor, reset),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
