/* SPDX-License-Identifier: Apache-2.0 */
#include "e2b/envd/path.h"

#include "base/alloc.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include <cmocka.h>

static void expect_joined(const char *directory, const char *path, const char *joined)
{
    scoped(free) char *made = envd_path_join(directory, path);

    assert_string_equal(made, joined);
}

static void paths_become_absolute_and_plain(void **state UNUSED)
{
    expect_joined("/home/user", "a/b", "/home/user/a/b");
    expect_joined("/home/user", ".", "/home/user");
    expect_joined("/home/user", "", "/home/user");
    expect_joined("/home/user", "/etc//x/", "/etc/x");
    expect_joined("/home/user", "../../../..", "/");
    expect_joined("/home/user", "./a/./../b..c/...", "/home/user/b..c/...");
    expect_joined("/", "a", "/a");
}

static void home_is_where_relative_paths_begin(void **state UNUSED)
{
    assert_string_equal(envd_path_for_init("~"), ".");
    assert_string_equal(envd_path_for_init("~/"), ".");
    assert_string_equal(envd_path_for_init("~//a"), "a");
    assert_string_equal(envd_path_for_init("a~"), "a~");
    assert_string_equal(envd_path_for_init(""), ".");
    assert_string_equal(envd_path_for_init("/a"), "/a");
    assert_null(envd_path_for_init("~other/a"));
}

/* An entry as JSON; a description is what init tells. */
static void expect_entry(const struct file_description *description, const char *wanted)
{
    scoped(buffer_fini) struct buffer text = BUFFER_INIT(4096);
    struct json_writer json = JSON_WRITER(&text);

    entry_write(&json, NULL, "/tmp/x", description);
    assert_non_null(strstr(buffer_text(&text), wanted));
}

static void permissions_are_shown_as_e2b_shows_them(void **state UNUSED)
{
    static const struct {
        uint32_t mode;
        const char *shown;
    } cases[] = {
        { S_IFREG | 0644, "\"permissions\":\"-rw-r--r--\"" },
        { S_IFDIR | 01777, "\"permissions\":\"dtrwxrwxrwx\"" },
        { S_IFREG | 04755, "\"permissions\":\"urwxr-xr-x\"" },
        { S_IFIFO | 0600, "\"permissions\":\"prw-------\"" },
        { S_IFCHR | 0666, "\"permissions\":\"Dcrw-rw-rw-\"" },
        { S_IFREG | 0, "\"permissions\":\"----------\"" },
    };

    for (size_t i = 0; i < ARRAY_LENGTH(cases); i++) {
        struct file_description description = {
            .stat.mode = cases[i].mode, .owner = "user", .group = "user", .target = ""
        };

        expect_entry(&description, cases[i].shown);
    }
}

static void a_link_has_the_type_of_its_target(void **state UNUSED)
{
    struct file_description link = { .stat.mode = S_IFLNK | 0777,
                                     .target_mode = S_IFDIR | 0750,
                                     .owner = "user",
                                     .group = "user",
                                     .target = "/usr" };

    expect_entry(&link, "\"type\":\"FILE_TYPE_DIRECTORY\"");
    expect_entry(&link, "\"mode\":488,\"permissions\":\"Lrwxrwxrwx\"");
    expect_entry(&link, "\"symlinkTarget\":\"/usr\"");
    link.target_mode = 0;
    expect_entry(&link, "\"type\":\"FILE_TYPE_UNSPECIFIED\"");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(paths_become_absolute_and_plain),
        cmocka_unit_test(home_is_where_relative_paths_begin),
        cmocka_unit_test(permissions_are_shown_as_e2b_shows_them),
        cmocka_unit_test(a_link_has_the_type_of_its_target),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
