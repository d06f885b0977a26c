/* SPDX-License-Identifier: Apache-2.0 */
/* Marks and the state directory, below a directory of the test. */

#include "launcher/state.h"

#include "base/macros.h"

#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#define ID "sbx_0123456789abcdefghjkmnpqrs"

static char path[64];
static int root;
static struct state state;

static int setup(void **unused UNUSED)
{
    struct fail fail;

    snprintf(path, sizeof(path), "/tmp/test-state-XXXXXX");
    assert_non_null(mkdtemp(path));
    root = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    assert_int_equal(state_open(&state, root, "test", &fail), 0);
    return 0;
}

static int teardown(void **unused UNUSED)
{
    char command[96];

    close(state.sandboxes);
    close(state.trash);
    close(state.ahead);
    close(state.proc);
    close(root);
    snprintf(command, sizeof(command), "rm -rf %s", path);
    return system(command);
}

/* The directory of a sandbox with a mark of ours. */
static int make_sandbox(const char *id, struct mark *mark)
{
    int dir;

    assert_int_equal(mkdirat(state.sandboxes, id, 0711), 0);
    dir = state_open_sandbox(&state, id);
    assert_true(dir >= 0);
    close(openat(dir, "mark", O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600));
    mark_init(mark, &state, id);
    mark->pid = 42;
    assert_int_equal(mark_write(dir, mark), 0);
    return dir;
}

static void a_mark_is_read_as_it_was_written(void **unused UNUSED)
{
    struct mark written, read;
    int dir = make_sandbox(ID, &written);

    assert_int_equal(mark_read(dir, &read), 0);
    assert_memory_equal(&read, &written, sizeof(read));
    assert_int_equal(read.slot, MARK_NO_SLOT);
    assert_true(mark_is_ours(&state, &read, ID));
    assert_false(mark_is_ours(&state, &read, "sbx_00000000000000000000000000"));
    strcpy(read.instance, "other");
    assert_false(mark_is_ours(&state, &read, ID));
    close(dir);
}

static void a_mark_that_others_could_have_written_is_refused(void **unused UNUSED)
{
    struct mark mark;
    int dir = make_sandbox(ID, &mark);

    assert_int_equal(fchmodat(dir, "mark", 0620, 0), 0);
    assert_int_equal(mark_read(dir, &mark), -1);
    assert_int_equal(errno, EBADMSG);
    assert_int_equal(fchmodat(dir, "mark", 0600, 0), 0);
    assert_int_equal(linkat(dir, "mark", dir, "second", 0), 0);
    assert_int_equal(mark_read(dir, &mark), -1);
    assert_int_equal(unlinkat(dir, "mark", 0), 0);
    assert_int_equal(symlinkat("second", dir, "mark"), 0);
    assert_int_equal(mark_read(dir, &mark), -1);
    close(dir);
}

static void a_mark_of_another_version_is_neither_read_nor_blank(void **unused UNUSED)
{
    struct mark mark;
    int dir = make_sandbox(ID, &mark);

    mark.version = MARK_VERSION + 1;
    assert_int_equal(mark_write(dir, &mark), 0);
    assert_int_equal(mark_read(dir, &mark), -1);
    assert_int_equal(errno, EBADMSG);
    assert_false(mark_is_blank(dir));
    close(dir);
}

static void a_cleared_and_a_missing_mark_are_blank(void **unused UNUSED)
{
    struct mark mark;
    int dir = make_sandbox(ID, &mark);
    int file = openat(dir, "mark", O_WRONLY | O_CLOEXEC);

    assert_false(mark_is_blank(dir));
    assert_int_equal(mark_clear(file), 0);
    assert_true(mark_is_blank(dir));
    assert_int_equal(unlinkat(dir, "mark", 0), 0);
    assert_true(mark_is_blank(dir));
    close(file);
    close(dir);
}

static void count(void *user, const char *id)
{
    assert_string_equal(id, ID);
    ++*(unsigned *)user;
}

static void only_sandboxes_are_listed_and_a_discarded_one_lies_in_the_trash(void **unused UNUSED)
{
    struct mark mark;
    unsigned found = 0;

    close(make_sandbox(ID, &mark));
    assert_int_equal(mkdirat(state.sandboxes, "something", 0700), 0);
    assert_int_equal(state_each(&state, count, &found), 0);
    assert_int_equal(found, 1);
    assert_int_equal(state_discard(&state, ID, 7), 1);
    assert_int_equal(state_discard(&state, ID, 8), 0);
    assert_int_equal(faccessat(state.trash, ID ".7", F_OK, 0), 0);
    assert_int_equal(state_open_sandbox(&state, ID), -1);
    assert_int_equal(errno, ENOENT);
}

static void a_directory_with_another_mode_is_not_the_launchers(void **unused UNUSED)
{
    struct state again;
    struct fail fail;

    assert_int_equal(fchmod(state.sandboxes, 0700), 0);
    assert_int_equal(state_open(&again, root, "test", &fail), -1);
    assert_int_equal(fail.error, EPERM);
    close(again.proc);
}

static void a_start_time_is_told_only_when_both_ends_are_in_one_tick(void **unused UNUSED)
{
    const int64_t tick = 10 * 1000 * 1000;

    assert_int_equal(state_start_between(5 * tick + 10000, 5 * tick + 20000), 5);
    assert_int_equal(state_start_between(6 * tick - 10000, 6 * tick + 10000), 0);
    assert_int_not_equal(state_start_time(&state, getpid()), 0);
    assert_int_equal(state_start_time(&state, 0x3fffffff), 0);
}

static void no_process_that_is_not_a_sandbox_is_opened(void **unused UNUSED)
{
    assert_int_equal(state_open_process(&state, getpid(), state_start_time(&state, getpid())), -1);
    assert_int_equal(errno, ESRCH);
    assert_int_equal(state_open_process(&state, 1, 1), -1);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(a_mark_is_read_as_it_was_written),
        TEST(a_mark_that_others_could_have_written_is_refused),
        TEST(a_mark_of_another_version_is_neither_read_nor_blank),
        TEST(a_cleared_and_a_missing_mark_are_blank),
        TEST(only_sandboxes_are_listed_and_a_discarded_one_lies_in_the_trash),
        TEST(a_directory_with_another_mode_is_not_the_launchers),
        TEST(a_start_time_is_told_only_when_both_ends_are_in_one_tick),
        TEST(no_process_that_is_not_a_sandbox_is_opened),
    };

    return cmocka_run_group_tests_name("launcher/state", tests, NULL, NULL);
}
