/* SPDX-License-Identifier: Apache-2.0 */
#include "core/output/spool_files.h"

#include "base/macros.h"

#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

struct fixture {
    char path[64];
    int directory;
};

static int setup(void **state)
{
    static struct fixture fixture;

    snprintf(fixture.path, sizeof(fixture.path), "/tmp/test-spool-files-XXXXXX");
    assert_non_null(mkdtemp(fixture.path));
    fixture.directory = open(fixture.path, O_DIRECTORY | O_CLOEXEC);
    assert_int_equal(mkdirat(fixture.directory, SPOOL_DIRECTORY, 0700), 0);
    *state = &fixture;
    return 0;
}

/* Fails when a test has left a file. */
static int teardown(void **state)
{
    struct fixture *fixture = *state;

    assert_int_equal(unlinkat(fixture->directory, SPOOL_DIRECTORY, AT_REMOVEDIR), 0);
    close(fixture->directory);
    assert_int_equal(rmdir(fixture->path), 0);
    return 0;
}

static void make_file(const struct fixture *fixture, const char *name)
{
    int fd = openat(fixture->directory, name, O_CREAT | O_EXCL | O_WRONLY | O_CLOEXEC, 0600);

    assert_true(fd >= 0);
    close(fd);
}

static bool has_file(const struct fixture *fixture, const char *name)
{
    return faccessat(fixture->directory, name, F_OK, 0) == 0;
}

static void each_kind_of_file_has_its_ending(void **state UNUSED)
{
    static const char *const expected[SPOOL_FILES] = {
        [SPOOL_STDOUT] = "output/exe_1.out",
        [SPOOL_STDERR] = "output/exe_1.err",
        [SPOOL_ORDER] = "output/exe_1.order",
        [SPOOL_SHOWN] = "output/exe_1.shown",
    };
    char name[SPOOL_NAME_SIZE];

    for (int file = 0; file < SPOOL_FILES; file++) {
        spool_file_name(name, "exe_1", (enum spool_file)file);
        assert_string_equal(name, expected[file]);
    }
}

static void the_longest_id_fits_into_every_name(void **state UNUSED)
{
    char id[ID_SIZE], owner[ID_SIZE], name[SPOOL_NAME_SIZE];

    memset(id, 'x', sizeof(id) - 1);
    id[sizeof(id) - 1] = '\0';
    for (int file = 0; file < SPOOL_FILES; file++) {
        spool_file_name(name, id, (enum spool_file)file);
        assert_true(spool_file_owner(name + strlen(SPOOL_DIRECTORY "/"), owner));
        assert_string_equal(owner, id);
    }
    spool_file_name(name, id, SPOOL_ORDER);
    assert_string_equal(name + strlen(name) - 6, ".order");
}

static void the_owner_is_the_name_before_the_dot(void **state UNUSED)
{
    char owner[ID_SIZE];

    assert_true(spool_file_owner("exe_7.out", owner));
    assert_string_equal(owner, "exe_7");
    assert_true(spool_file_owner("exe_8.order", owner));
    assert_string_equal(owner, "exe_8");
}

static void other_names_belong_to_no_execution(void **state UNUSED)
{
    char owner[ID_SIZE] = "untouched";

    assert_false(spool_file_owner("", owner));
    assert_false(spool_file_owner(".", owner));
    assert_false(spool_file_owner("..", owner));
    assert_false(spool_file_owner(".out", owner));
    assert_false(spool_file_owner("exe_7", owner));
    assert_false(spool_file_owner("an_id_that_is_one_byte_too_long_.out", owner));
    assert_string_equal(owner, "untouched");
}

static void unlinking_removes_all_files_of_one_execution_and_no_others(void **state)
{
    static const char *const others[] = { "output/exe_10.out", "output/exe_2.err",
                                          "output/exe_1.other" };
    struct fixture *fixture = *state;
    char name[SPOOL_NAME_SIZE];

    for (int file = 0; file < SPOOL_FILES; file++) {
        spool_file_name(name, "exe_1", (enum spool_file)file);
        make_file(fixture, name);
    }
    for (size_t i = 0; i < ARRAY_LENGTH(others); i++)
        make_file(fixture, others[i]);
    spool_files_unlink(fixture->directory, "exe_1");
    for (int file = 0; file < SPOOL_FILES; file++) {
        spool_file_name(name, "exe_1", (enum spool_file)file);
        assert_false(has_file(fixture, name));
    }
    for (size_t i = 0; i < ARRAY_LENGTH(others); i++)
        assert_int_equal(unlinkat(fixture->directory, others[i], 0), 0);
}

static void unlinking_goes_on_where_some_files_are_missing(void **state)
{
    struct fixture *fixture = *state;

    make_file(fixture, "output/exe_1.order");
    spool_files_unlink(fixture->directory, "exe_1");
    assert_false(has_file(fixture, "output/exe_1.order"));
    spool_files_unlink(fixture->directory, "exe_1");
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_kind_of_file_has_its_ending),
        cmocka_unit_test(the_longest_id_fits_into_every_name),
        cmocka_unit_test(the_owner_is_the_name_before_the_dot),
        cmocka_unit_test(other_names_belong_to_no_execution),
        TEST(unlinking_removes_all_files_of_one_execution_and_no_others),
        TEST(unlinking_goes_on_where_some_files_are_missing),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
