/* SPDX-License-Identifier: Apache-2.0 */
#include "init/path.h"
#include "scratch.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>

static bool is_directory(const char *path)
{
    struct stat status;

    return lstat(path, &status) == 0 && S_ISDIR(status.st_mode);
}

static void a_path_is_split_into_its_directory_and_its_name(void **state UNUSED)
{
    char name[PATH_NAME_SIZE];
    struct stat here, parent;
    int dir = path_open_parent("file", false, name);

    assert_true(dir >= 0);
    assert_string_equal(name, "file");
    assert_int_equal(fstat(dir, &parent), 0);
    assert_int_equal(stat(".", &here), 0);
    assert_int_equal(here.st_ino, parent.st_ino);
    close(dir);

    dir = path_open_parent("/etc/passwd//", false, name);
    assert_true(dir >= 0);
    assert_string_equal(name, "passwd");
    assert_int_equal(faccessat(dir, name, F_OK, 0), 0);
    close(dir);
}

static void names_that_cannot_be_made_are_refused(void **state UNUSED)
{
    static const char *const paths[] = { "", "/", ".", "..", "a/..", "a/." };
    char name[PATH_NAME_SIZE];
    char longer[PATH_NAME_SIZE + 1];

    for (unsigned i = 0; i < sizeof(paths) / sizeof(paths[0]); i++)
        assert_int_equal(path_open_parent(paths[i], true, name), -EINVAL);
    memset(longer, 'x', sizeof(longer) - 1);
    longer[sizeof(longer) - 1] = '\0';
    assert_int_equal(path_open_parent(longer, false, name), -ENAMETOOLONG);
}

static void missing_directories_are_made_only_if_asked_for(void **state UNUSED)
{
    char name[PATH_NAME_SIZE];
    int dir;

    assert_int_equal(path_open_parent("a/b/c/file", false, name), -ENOENT);
    assert_false(is_directory("a"));
    dir = path_open_parent("a/b//c/file", true, name);
    assert_true(dir >= 0);
    close(dir);
    assert_true(is_directory("a/b/c"));
    assert_int_equal(access("a/b/c/file", F_OK), -1);
}

static void a_component_that_is_too_long_leaks_no_descriptor(void **state UNUSED)
{
    char path[PATH_NAME_SIZE + 16] = "new/";
    char name[PATH_NAME_SIZE];
    int before = dup(0);
    int after;

    close(before);
    memset(path + 4, 'x', PATH_NAME_SIZE);
    strcpy(path + 4 + PATH_NAME_SIZE, "/file");
    assert_int_equal(path_open_parent(path, true, name), -ENAMETOOLONG);
    after = dup(0);
    close(after);
    assert_int_equal(after, before);
}

static void the_links_of_proc_are_not_followed(void **state UNUSED)
{
    char name[PATH_NAME_SIZE];
    int dir = path_open_parent("/proc/self/root/etc/passwd", false, name);

    assert_int_equal(dir, -ELOOP);
}

static void a_directory_is_made_with_its_parents(void **state UNUSED)
{
    struct stat status;

    umask(022);
    assert_int_equal(path_make_directory("x/y/z", 0700, true), 0);
    assert_int_equal(stat("x/y/z", &status), 0);
    assert_int_equal(status.st_mode & 07777, 0700);
    assert_int_equal(path_make_directory("x/y/z", 0700, false), 0); /* it is there */
    assert_int_equal(path_make_directory("x/y/z", 0700, true), -EEXIST);
}

static void a_file_or_a_link_in_the_way_stays(void **state UNUSED)
{
    close(open("file", O_CREAT | O_WRONLY | O_CLOEXEC, 0600));
    assert_int_equal(symlink("/nowhere", "link"), 0);
    assert_int_equal(path_make_directory("file", 0755, false), -EEXIST);
    assert_true(path_make_directory("link", 0755, false) < 0);
    assert_true(path_make_directory("file/below", 0755, false) < 0);
    assert_false(is_directory("file"));
    assert_false(is_directory("link"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_path_is_split_into_its_directory_and_its_name,
                                        scratch_make, scratch_remove),
        cmocka_unit_test_setup_teardown(names_that_cannot_be_made_are_refused, scratch_make,
                                        scratch_remove),
        cmocka_unit_test_setup_teardown(missing_directories_are_made_only_if_asked_for,
                                        scratch_make, scratch_remove),
        cmocka_unit_test_setup_teardown(a_component_that_is_too_long_leaks_no_descriptor,
                                        scratch_make, scratch_remove),
        cmocka_unit_test_setup_teardown(the_links_of_proc_are_not_followed, scratch_make,
                                        scratch_remove),
        cmocka_unit_test_setup_teardown(a_directory_is_made_with_its_parents, scratch_make,
                                        scratch_remove),
        cmocka_unit_test_setup_teardown(a_file_or_a_link_in_the_way_stays, scratch_make,
                                        scratch_remove),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
