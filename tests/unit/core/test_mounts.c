/* SPDX-License-Identifier: Apache-2.0 */
#include "core/mounts.h"

#include "base/macros.h"
#include "base/scoped.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static void assert_refused(const char *text, const char *why)
{
    struct mounts mounts = { 0 };
    struct error err = { 0 };

    if (mounts_parse(&mounts, text, &err) == 0)
        fail_msg("accepted: %s", text);
    if (!strstr(err.message, why))
        fail_msg("\"%s\" does not say \"%s\"", err.message, why);
    assert_null(mounts.document);
}

static void what_is_left_out_is_filled_in(void **state UNUSED)
{
    scoped(mounts_fini) struct mounts mounts = { 0 };
    scoped(mounts_fini) struct mounts again = { 0 };
    scoped(free) char *text = NULL;
    struct error err = { 0 };

    assert_int_equal(mounts_parse(&mounts,
                                  "[{\"host_path\":\"/a\"},{\"host_path\":\"/b\","
                                  "\"path\":\"/c\",\"read_only\":false}]",
                                  &err),
                     0);
    assert_int_equal(mounts.count, 2);
    assert_string_equal(mounts.items[0].path, "/a");
    assert_true(mounts.items[0].read_only);
    assert_false(mounts.items[1].read_only);
    text = mounts_text(&mounts);
    assert_string_equal(text, "[{\"host_path\":\"/a\",\"path\":\"/a\",\"read_only\":true},"
                              "{\"host_path\":\"/b\",\"path\":\"/c\",\"read_only\":false}]");
    assert_int_equal(mounts_parse(&again, text, &err), 0);
    assert_int_equal(again.count, 2);
}

static void none_is_none(void **state UNUSED)
{
    scoped(mounts_fini) struct mounts mounts = { 0 };
    struct error err = { 0 };
    char *text = (char *)"unchanged";

    assert_int_equal(mounts_parse(&mounts, NULL, &err), 0);
    assert_int_equal(mounts.count, 0);
    assert_null(mounts_text(&mounts));
    assert_int_equal(mounts_normalize(NULL, &text, &err), 0);
    assert_null(text);
}

static void wrong_forms_are_refused(void **state UNUSED)
{
    assert_refused("[{}]", "host_path");
    assert_refused("[{\"host_path\":\"a\"}]", "absolute");
    assert_refused("[{\"host_path\":\"/a\",\"path\":\"/\"}]", "place");
    assert_refused("[{\"host_path\":\"/a\",\"path\":\"/b/../c\"}]", "place");
    assert_refused("[{\"host_path\":\"/a\",\"path\":\"/b//c\"}]", "place");
    assert_refused("[{\"host_path\":\"/a\",\"path\":\"/b/\"}]", "place");
    assert_refused("[{\"host_path\":\"/a\",\"mode\":1}]", "mode");
    assert_refused("[{\"host_path\":\"/a\",\"read_only\":1}]", "read_only");
    assert_refused("[{\"host_path\":\"/a\"},{\"host_path\":\"/b\",\"path\":\"/a/b\"}]", "another");
    assert_refused("[{\"host_path\":\"/a/b\"},{\"host_path\":\"/b\",\"path\":\"/a\"}]", "another");
    assert_refused("[{\"host_path\":\"/1\"},{\"host_path\":\"/2\"},{\"host_path\":\"/3\"},"
                   "{\"host_path\":\"/4\"},{\"host_path\":\"/5\"},{\"host_path\":\"/6\"},"
                   "{\"host_path\":\"/7\"},{\"host_path\":\"/8\"},{\"host_path\":\"/9\"}]",
                   "at most 8");
    assert_refused("nonsense", "");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_left_out_is_filled_in),
        cmocka_unit_test(none_is_none),
        cmocka_unit_test(wrong_forms_are_refused),
    };

    return cmocka_run_group_tests_name("core/mounts", tests, NULL, NULL);
}
