/* SPDX-License-Identifier: Apache-2.0 */
/* Opening by steps, where there is no openat2: as openat2 does it, and nothing else. */

#include "init/sys.h"
#include "scratch.h"

#include <string.h>
#include <sys/stat.h>

/* What openat2 answers, but for the number of the descriptor. */
static int by_openat2(const char *path, int flags, unsigned resolve)
{
    struct sys_open_how how = {
        .flags = (uint64_t)(unsigned)(flags | O_CLOEXEC),
        .resolve = RESOLVE_NO_MAGICLINKS_ | resolve,
    };

    return (int)sys(openat2, AT_FDCWD, path, &how, sizeof(how));
}

static void expect_same(const char *path, int flags, unsigned resolve)
{
    int expected = by_openat2(path, flags, resolve);
    int found = sys_open_by_steps(AT_FDCWD, path, flags, 0, resolve);
    struct stat first = { 0 }, second = { 0 };

    if (expected == -ENOSYS)
        skip();
    if (expected < 0 || found < 0) {
        if (expected != found)
            fail_msg("%s with %x and %x: %d instead of %d", path, (unsigned)flags, resolve, found,
                     expected);
        return;
    }
    assert_int_equal(fstat(expected, &first), 0);
    assert_int_equal(fstat(found, &second), 0);
    if (first.st_ino != second.st_ino || first.st_dev != second.st_dev)
        fail_msg("%s with %x and %x: another file", path, (unsigned)flags, resolve);
    close(expected);
    close(found);
}

static void make_tree(void)
{
    char there[64];

    snprintf(there, sizeof(there), "%s/a/b", scratch);
    assert_int_equal(mkdir("a", 0755), 0);
    assert_int_equal(mkdir("a/b", 0755), 0);
    close(open("a/b/file", O_WRONLY | O_CREAT | O_CLOEXEC, 0644));
    assert_int_equal(symlink("a/b", "near"), 0);
    assert_int_equal(symlink(there, "far"), 0);
    assert_int_equal(symlink("../../far/file", "a/b/around"), 0);
    assert_int_equal(symlink("nothing", "dangling"), 0);
    assert_int_equal(symlink("loop", "loop"), 0);
    assert_int_equal(symlink("/proc/self/cwd", "magic"), 0);
    assert_int_equal(symlink("/proc/self/stat", "ordinary"), 0);
}

static void paths_lead_where_openat2_leads(void **state UNUSED)
{
    static const char *const paths[] = {
        "",
        ".",
        "..",
        "/",
        "//",
        "a",
        "a/",
        "a//b/./file",
        "a/../a/b",
        "a/b/file/",
        "a/b/file/x",
        "a/b/around",
        "near",
        "near/file",
        "near/../b",
        "far",
        "far/file",
        "far/around",
        "missing",
        "missing/x",
        "dangling",
        "loop",
        "loop/x",
        "magic",
        "magic/a",
        "ordinary",
        "/etc/passwd",
        "/proc/self/root/etc/passwd",
        "/proc/self/fd/0",
        "/proc/self/exe",
        "/proc/thread-self/cwd/a",
    };
    static const int flags[] = { O_RDONLY | O_NONBLOCK, O_PATH, O_PATH | O_NOFOLLOW,
                                 O_RDONLY | O_NOFOLLOW | O_NONBLOCK, O_PATH | O_DIRECTORY };
    static const unsigned resolves[] = { 0, RESOLVE_NO_SYMLINKS_ | RESOLVE_BENEATH_ };

    make_tree();
    for (size_t i = 0; i < sizeof(paths) / sizeof(paths[0]); i++)
        for (size_t j = 0; j < sizeof(flags) / sizeof(flags[0]); j++)
            for (size_t k = 0; k < sizeof(resolves) / sizeof(resolves[0]); k++)
                if (!resolves[k] || !strstr(paths[i], "..")) /* inside alone it is refused */
                    expect_same(paths[i], flags[j], resolves[k]);
}

static void the_way_up_is_refused_inside(void **state UNUSED)
{
    assert_int_equal(mkdir("a", 0755), 0);
    assert_int_equal(sys_open_by_steps(AT_FDCWD, "a/..", O_PATH, 0, RESOLVE_BENEATH_), -EXDEV);
    assert_int_equal(sys_open_by_steps(AT_FDCWD, "/", O_PATH, 0, RESOLVE_BENEATH_), -EXDEV);
}

static void a_mount_is_not_entered_if_asked(void **state UNUSED)
{
    int root = open("/", O_PATH | O_CLOEXEC);

    assert_int_equal(sys_open_by_steps(root, "proc", O_PATH, 0, RESOLVE_NO_XDEV_), -EXDEV);
    close(root);
}

static void a_new_file_is_made_once(void **state UNUSED)
{
    int flags = O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW;
    struct stat status;
    int fd = sys_open_by_steps(AT_FDCWD, "new", flags, 0600, 0);

    assert_true(fd >= 0);
    assert_int_equal(fstat(fd, &status), 0);
    assert_int_equal(status.st_mode, S_IFREG | 0600);
    close(fd);
    assert_int_equal(sys_open_by_steps(AT_FDCWD, "new", flags, 0600, 0), -EEXIST);
    assert_int_equal(symlink("nothing", "link"), 0);
    assert_int_equal(sys_open_by_steps(AT_FDCWD, "link", flags, 0600, 0), -EEXIST);
}

static void long_paths_are_refused_and_no_descriptor_is_left(void **state UNUSED)
{
    static char path[8192];
    int before = dup(0);
    int after;

    close(before);
    make_tree();
    memset(path, 'x', sizeof(path) - 1);
    assert_int_equal(sys_open_by_steps(AT_FDCWD, path, O_PATH, 0, 0), -ENAMETOOLONG);
    path[300] = 0;
    assert_int_equal(sys_open_by_steps(AT_FDCWD, path, O_PATH, 0, 0), -ENAMETOOLONG);
    for (size_t at = 0; at + 5 < 4090; at += 5)
        memcpy(path + at, "near/", 6);
    assert_int_equal(sys_open_by_steps(AT_FDCWD, path, O_PATH, 0, 0), -ENOENT);
    assert_int_equal(sys_open_by_steps(AT_FDCWD, "far/around", O_PATH, 0, RESOLVE_NO_SYMLINKS_),
                     -ELOOP);
    after = dup(0);
    assert_int_equal(after, before);
    close(after);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(paths_lead_where_openat2_leads, scratch_make,
                                        scratch_remove),
        cmocka_unit_test_setup_teardown(the_way_up_is_refused_inside, scratch_make, scratch_remove),
        cmocka_unit_test(a_mount_is_not_entered_if_asked),
        cmocka_unit_test_setup_teardown(a_new_file_is_made_once, scratch_make, scratch_remove),
        cmocka_unit_test_setup_teardown(long_paths_are_refused_and_no_descriptor_is_left,
                                        scratch_make, scratch_remove),
    };

    return cmocka_run_group_tests_name("init/open", tests, NULL, NULL);
}
